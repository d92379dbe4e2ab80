#include "grammar/schema_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace tactus::grammar {
namespace {

using json_text::Json;

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxValues = 200'000;

// What a keyword holds, where it matters for finding schemas in it.
constexpr std::array kMapsOfSchemas = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
constexpr std::array kPlainValues = {"enum", "const", "default", "examples", "example", "required", "x-guidance"};

template <class Names>
bool Holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string PointerPart(std::string_view key) {
  std::string part = "/";
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

bool Find(const Json& schema, std::string_view keyword, const Json* value, std::string* path);

bool FindInMembers(const Json& map, std::string_view keyword, const Json* value, std::string* path) {
  const size_t length = path->size();
  for (const auto& [name, member] : map.items()) {
    *path += PointerPart(name);
    if (Find(member, keyword, value, path)) return true;
    path->resize(length);
  }
  return false;
}

// The recursion is bounded by ParseSchema's limit on nesting.
bool Find(const Json& schema, std::string_view keyword, const Json* value, std::string* path) {
  if (schema.is_array()) return FindInMembers(schema, keyword, value, path);
  if (!schema.is_object()) return false;
  if (const auto found = schema.find(std::string(keyword));
      found != schema.end() && (value == nullptr || *found == *value)) {
    return true;
  }
  const size_t length = path->size();
  for (const auto& [name, member] : schema.items()) {
    if (Holds(kPlainValues, name)) continue;
    *path += PointerPart(name);
    const bool map = Holds(kMapsOfSchemas, name) && member.is_object();
    if (map ? FindInMembers(member, keyword, value, path) : Find(member, keyword, value, path)) return true;
    path->resize(length);
  }
  return false;
}

}  // namespace

Result<Json> ParseSchema(std::string_view text) {
  json_text::JsonLimits limits;
  limits.max_depth = kMaxDepth;
  limits.max_values = kMaxValues;
  TACTUS_ASSIGN_OR_RETURN(Json schema, json_text::ParseJson(text, limits));
  if (!schema.is_object() && !schema.is_boolean()) return InvalidArgument("a schema is an object, true or false");
  return schema;
}

std::string SchemaText(Json schema) {
  if (schema.is_boolean()) schema = schema.get<bool>() ? Json::object() : Json{{"not", Json::object()}};
  schema["x-guidance"] = {{"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  return schema.dump();
}

std::string FindKeyword(const Json& schema, std::string_view keyword, const Json* value) {
  std::string path = "#";
  return Find(schema, keyword, value, &path) ? path : std::string();
}

}  // namespace tactus::grammar
