// Finds unknown fields in lists and nested objects, which FieldRecording does not cover: messages, their parts and
// calls, tools, items, blocks. Internal to api/. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/fields/json.h"

namespace tactus::api {

// Whether the value of the field `name` ("messages", "text.format") of a body for `path` is checked.
bool HasNestedFields(std::string_view path, std::string_view name);

// Appends the unknown fields of such a value, with their places: "messages[2].wish". A name that several items of a
// list have is listed once, with their number: "messages[2].wish (40 places)". At most kMostNestedNames are listed.
void ReadNestedFields(std::string_view path, std::string_view name, const Json& value,
                      std::vector<std::string>* ignored);
inline constexpr size_t kMostNestedNames = 64;

}  // namespace tactus::api
