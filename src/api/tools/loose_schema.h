// Schemas of tools that are not strict, less what a grammar refuses: look-ahead in patterns, types that JSON schema
// does not have, references that lead out of the schema, keywords whose values make no sense. The model still sees
// the schema as the client gave it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::api {

// How much is left out, in the order in which it is tried.
enum class Looseness : uint8_t {
  kReadable,  // what cannot be read
  kShape,     // all but types, members, items, fixed values and alternatives
  kNames,     // all but the names of the arguments and which are required
};

// `parameters`: JSON of an object's schema. Its properties stay, in their order.
std::string LooseSchema(std::string_view parameters, Looseness looseness);

}  // namespace tactus::api
