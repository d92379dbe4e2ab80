// Declares the project's two JSON types. base/json.h defines them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tactus {

// The library's own conversions. A separate serializer makes separate types, so that base/json.h can define how their
// values are destroyed without conflict with sources that include only the library.
template <class T, class = void>
struct JsonSerializer;

// Objects keep the order of their keys, as clients and templates need it.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonSerializer>;
// Objects sorted by key, for large files whose order has no meaning.
using SortedJson = nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, double,
                                        std::allocator, JsonSerializer>;

}  // namespace tactus
