// The fields of what bodies hold in lists and in objects whose parser is not asked for its names: messages, their parts
// and calls, tools, items, blocks. Internal to api/. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"

namespace tactus::api {

// Whether the value of the field `name` ("messages", "text.format") of the body that goes to `path` is looked into.
bool HasNestedFields(std::string_view path, std::string_view name);

// Names what is known nowhere in such a value, with its place: "messages[2].wish". The same name in the items of a list
// is listed once, with their number: "messages[2].wish (40 places)". At most kMostNestedNames are listed.
void ReadNestedFields(std::string_view path, std::string_view name, const Json& value,
                      std::vector<std::string>* ignored);
inline constexpr size_t kMostNestedNames = 64;

}  // namespace tactus::api
