#include "api/tools/loose_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "api/fields/json.h"
#include "base/json.h"
#include "base/json_places.h"

namespace tactus::api {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};
constexpr std::array<std::string_view, 5> kNumbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                      "multipleOf"};
constexpr std::array<std::string_view, 6> kCounts = {"minLength", "maxLength",     "minItems",
                                                     "maxItems",  "minProperties", "maxProperties"};
constexpr std::array<std::string_view, 4> kMaps = {"properties", "patternProperties", "$defs", "definitions"};
constexpr std::array<std::string_view, 3> kLists = {"anyOf", "oneOf", "allOf"};
constexpr std::array<std::string_view, 2> kSchemas = {"items", "additionalProperties"};
// They identify a schema's origin, which may change the meaning of references.
constexpr std::array<std::string_view, 5> kIdentity = {"$schema", "$id", "id", "$anchor", "x-guidance"};
constexpr std::array<std::string_view, 13> kShape = {
    "type",  "properties", "required", "items",       "prefixItems",         "enum", "const", "anyOf",
    "allOf", "$ref",       "$defs",    "definitions", "additionalProperties"};
constexpr double kMostCount = 1e9;

template <class Names>
bool Among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsSchema(const Json& value) {
  return value.is_object() || value.is_boolean();
}

// False for an expression with look-around, a back-reference, or an anchor within it.
bool IsReadablePattern(const Json& pattern) {
  if (!pattern.is_string()) return false;
  const auto& text = pattern.get_ref<const std::string&>();
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\') {
      if (!in_class && (next == 'b' || next == 'B' || next == 'k' || (next >= '1' && next <= '9'))) return false;
      ++i;
    } else if (in_class) {
      in_class = text[i] != ']';
    } else if (text[i] == '[') {
      in_class = true;
    } else if (text[i] == '(' && next == '?') {
      const char kind = i + 2 < text.size() ? text[i + 2] : '\0';
      if (kind == '=' || kind == '!' || kind == '>' || kind == '<') return false;
    } else if ((text[i] == '^' && i > 0) || (text[i] == '$' && i + 1 < text.size())) {
      return false;
    }
  }
  return true;
}

bool IsStrings(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& s) { return s.is_string(); });
}

class Loosening {
 public:
  Loosening(const Json& root, Looseness looseness) : places_(root), shape_(looseness == Looseness::kShape) {}

  // The recursion is bounded by the limit on the nesting of JSON.
  Json Of(const Json& schema) {
    if (!schema.is_object()) return schema.is_boolean() ? schema : Json::object();
    Json out = Json::object();
    auto& members = out.get_ref<Json::object_t&>();
    for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
      if (Keeps(name, value)) members.emplace_back(name, Member(name, value));  // keys are unique already
    }
    return out;
  }

 private:
  bool Keeps(const std::string& name, const Json& value) {
    if (Among(kIdentity, name) || (shape_ && !Among(kShape, name))) return false;
    if (name == "type") {
      const auto known = [](const Json& type) {
        return type.is_string() && Among(kTypes, type.get_ref<const std::string&>());
      };
      return value.is_array() ? !value.empty() && std::all_of(value.begin(), value.end(), known) : known(value);
    }
    if (name == "$ref") return Leads(value);
    if (name == "pattern") return IsReadablePattern(value);
    if (name == "format") return value.is_string();
    if (name == "required") return IsStrings(value);
    if (name == "enum") return value.is_array() && !value.empty();
    if (name == "prefixItems") return value.is_array() && std::all_of(value.begin(), value.end(), IsSchema);
    if (name == "multipleOf") return value.is_number() && value.get<double>() > 0;
    if (Among(kNumbers, name)) return value.is_number();
    if (Among(kCounts, name)) {
      const double count = value.is_number() ? value.get<double>() : -1;
      return count >= 0 && count <= kMostCount && count == std::floor(count);
    }
    if (Among(kMaps, name)) return value.is_object();
    if (Among(kLists, name))
      return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), IsSchema);
    if (Among(kSchemas, name)) return IsSchema(value);
    return true;
  }

  Json Member(const std::string& name, const Json& value) {
    if (Among(kSchemas, name)) return Of(value);
    if (Among(kLists, name) || name == "prefixItems") {
      Json list = Json::array();
      for (const Json& one : value) list.push_back(Of(one));
      return list;
    }
    if (!Among(kMaps, name)) return value;
    Json map = Json::object();
    auto& members = map.get_ref<Json::object_t&>();
    for (const auto& [key, one] : value.get_ref<const Json::object_t&>()) {
      if (name != "patternProperties" || IsReadablePattern(key)) members.emplace_back(key, Of(one));
    }
    return map;
  }

  // Whether the schema contains the reference's target.
  bool Leads(const Json& reference) {
    if (!reference.is_string()) return false;
    const auto& text = reference.get_ref<const std::string&>();
    if (text == "#") return true;
    if (!text.starts_with("#/") || text.find('%') != std::string::npos) return false;
    return places_.At(std::string_view(text).substr(1)) != nullptr;
  }

  JsonPlaces places_;
  const bool shape_;
};

Json NamesOf(const Json& schema) {
  Json out = {{"type", "object"}};
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return out;
  Json names = Json::object();
  for (const auto& [name, property] : properties->get_ref<const Json::object_t&>())
    names.get_ref<Json::object_t&>().emplace_back(name, Json::object());
  out["properties"] = std::move(names);
  const auto required = schema.find("required");
  if (required != schema.end() && IsStrings(*required)) out["required"] = *required;
  return out;
}

}  // namespace

std::string LooseSchema(std::string_view parameters, Looseness looseness) {
  JsonLimits limits;
  limits.max_keys += 2;  // ReadTools may have added these
  const auto schema = ParseJson(parameters, limits);
  if (!schema.ok()) return R"({"type":"object"})";
  return (looseness == Looseness::kNames ? NamesOf(*schema) : Loosening(*schema, looseness).Of(*schema)).dump();
}

}  // namespace tactus::api
