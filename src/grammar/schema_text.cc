#include "grammar/schema_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "grammar/regex_text.h"

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

// Expressions in ASCII (grammar/regex_text.h). The recursion is bounded as above.
void MakePatternsAscii(Json* schema) {
  if (!schema->is_structured()) return;
  for (auto& [name, member] : schema->items()) {
    if (schema->is_object() && Holds(kPlainValues, name)) continue;
    if (schema->is_object() && name == "pattern" && member.is_string()) {
      member = AsciiClasses(member.get_ref<const std::string&>());
    } else {
      MakePatternsAscii(&member);
    }
  }
}

// Counts each place of the document once, so that references among many definitions cost no more than their number.
class PatternCount {
 public:
  explicit PatternCount(const Json& root) : root_(root) {}

  // Of the schema itself, as an instance meets it.
  int Of(const Json& schema) {
    if (!schema.is_object()) return 0;
    const auto [place, is_new] = known_.try_emplace(&schema, 0);  // 0 while it is being counted: a cycle adds nothing
    if (!is_new) return place->second;
    int count = static_cast<int>(schema.contains("pattern")) + static_cast<int>(schema.contains("format"));
    for (const char* either : {"anyOf", "oneOf"}) {
      int most = 0;
      for (const Json& member : Members(schema, either)) most = std::max(most, Of(member));
      count = Sum(count, most);
    }
    for (const Json& member : Members(schema, "allOf")) count = Sum(count, Of(member));
    if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
      if (const Json* target = Target(ref->get_ref<const std::string&>())) count = Sum(count, Of(*target));
    }
    return known_[&schema] = count;
  }

  // Of any schema in `value`.
  int Most(const Json& value) {
    int most = Of(value);
    if (value.is_structured()) {
      for (const Json& member : value) most = std::max(most, Most(member));
    }
    return most;
  }

 private:
  static constexpr int kMany = 1000;
  static int Sum(int a, int b) { return std::min(kMany, a + b); }

  static const Json& Members(const Json& schema, const char* keyword) {
    static const Json kNone = Json::array();
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_array() ? *found : kNone;
  }

  const Json* Target(const std::string& ref) const {
    if (!ref.starts_with('#')) return nullptr;  // llguidance refuses what is elsewhere
    try {
      return &root_.at(Json::json_pointer(ref.substr(1)));
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  const Json& root_;
  std::unordered_map<const Json*, int> known_;
};

}  // namespace

int MostPatterns(const Json& schema) {
  return PatternCount(schema).Most(schema);
}

Result<Json> ParseSchema(std::string_view text) {
  json_text::JsonLimits limits;
  limits.max_depth = kMaxDepth;
  limits.max_values = kMaxValues;
  TACTUS_ASSIGN_OR_RETURN(Json schema, json_text::ParseJson(text, limits));
  if (!schema.is_object() && !schema.is_boolean()) return InvalidArgument("a schema is an object, true or false");
  if (schema == Json(false)) return InvalidArgument("the schema 'false' allows no answer");
  return schema;
}

std::string SchemaText(Json schema) {
  if (schema.is_boolean()) schema = Json::object();  // true
  MakePatternsAscii(&schema);
  schema["x-guidance"] = {{"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  return schema.dump();
}

std::string FindKeyword(const Json& schema, std::string_view keyword, const Json* value) {
  std::string path = "#";
  return Find(schema, keyword, value, &path) ? path : std::string();
}

}  // namespace tactus::grammar
