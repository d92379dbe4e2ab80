// The project's two JSON types, declared. base/json.h defines them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tactus {

// The library's own conversions. A serializer of our own makes types of our own: base/json.h can then say how their
// values are destroyed, and no source that includes the library alone can disagree.
template <class T, class = void>
struct JsonSerializer;

// Objects keep the order of their keys, as clients and templates want it.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonSerializer>;
// Objects sorted by key: large files of which the order says nothing.
using SortedJson = nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, double,
                                        std::allocator, JsonSerializer>;

}  // namespace tactus
