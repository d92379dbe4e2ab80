// Removes from schemas of non-strict tools what a grammar rejects: look-ahead in patterns, types that JSON schema does
// not have, references out of the schema, keywords with senseless values. The prompt still has the client's schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::api {

// What is removed, in the order of attempts.
enum class Looseness : uint8_t {
  kReadable,  // what a grammar cannot express
  kShape,     // all but types, members, items, fixed values and alternatives
  kNames,     // all but the names of the arguments and which are required
};

// `parameters`: JSON of an object's schema. Its properties stay, in their order.
std::string LooseSchema(std::string_view parameters, Looseness looseness);

}  // namespace tactus::api
