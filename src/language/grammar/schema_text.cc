#include "language/grammar/schema_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_places.h"
#include "base/schema_numbers.h"
#include "language/grammar/regex_text.h"

namespace tactus::language {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxValues = 200'000;

// A keyword's content, for finding schemas in it.
constexpr std::array kMapsOfSchemas = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
constexpr std::array kPlainValues = {"enum", "const", "default", "examples", "example", "required", "x-guidance"};

std::string PointerPart(std::string_view key) {
  std::string part = "/";
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

// The first schema for which `is` holds, in text order; null: none. `path` leads to it. The recursion is bounded by
// ParseSchema's limit on nesting.
template <class Is>
const Json* FindSchema(const Json& schema, const Is& is, std::string* path);

template <class Is>
const Json* FindInMembers(const Json& map, const Is& is, std::string* path) {
  const size_t length = path->size();
  for (const auto& [name, member] : map.items()) {
    *path += PointerPart(name);
    if (const Json* found = FindSchema(member, is, path)) return found;
    path->resize(length);
  }
  return nullptr;
}

template <class Is>
const Json* FindSchema(const Json& schema, const Is& is, std::string* path) {
  if (schema.is_array()) return FindInMembers(schema, is, path);
  if (!schema.is_object()) return nullptr;
  if (is(schema)) return &schema;
  const size_t length = path->size();
  for (const auto& [name, member] : schema.items()) {
    if (Holds(kPlainValues, name)) continue;
    *path += PointerPart(name);
    const bool map = Holds(kMapsOfSchemas, name) && member.is_object();
    if (const Json* found = map ? FindInMembers(member, is, path) : FindSchema(member, is, path)) return found;
    path->resize(length);
  }
  return nullptr;
}

const std::string* StringOf(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found != schema.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

// A reference into this document that the library follows and PatternCount does not.
bool HasOddRef(const Json& schema) {
  const std::string* const ref = StringOf(schema, "$ref");
  return ref != nullptr && ref->starts_with('#') &&
         (ref->find('%') != std::string::npos || (ref->size() > 1 && (*ref)[1] != '/'));
}

// Expressions in ASCII (language/grammar/regex_text.h). The recursion is bounded as above.
void MakePatternsAscii(Json* schema) {
  if (schema->is_array()) {
    for (Json& member : *schema) MakePatternsAscii(&member);
  }
  if (!schema->is_object()) return;
  for (auto& [name, member] : schema->items()) {
    if (Holds(kPlainValues, name)) continue;
    if (name == "pattern" && member.is_string()) {
      member = AsciiClasses(member.get_ref<const std::string&>());
    } else if (!Holds(kMapsOfSchemas, name) || !member.is_object()) {
      MakePatternsAscii(&member);
    } else {
      for (Json& value : member) MakePatternsAscii(&value);
      if (name != "patternProperties") continue;
      std::unordered_set<std::string> names;
      for (const auto& [pattern, value] : member.items()) names.insert(pattern);
      Json in_ascii = Json::object();
      auto& members = in_ascii.get_ref<Json::object_t&>();
      for (auto& [pattern, value] : member.items()) {
        std::string ascii = AsciiClasses(pattern);
        // Where two would become equal the second stays: the library refuses overlapping patterns.
        const bool is_new = names.insert(ascii).second;
        members.emplace_back(is_new ? std::move(ascii) : pattern, std::move(value));
      }
      member = std::move(in_ascii);
    }
  }
}

}  // namespace

void MakeCountsReadable(Json* schema) {
  static constexpr std::array kMost = {"maxItems", "maxLength", "maxProperties"};
  static constexpr std::array kCounts = {"minItems",  "maxItems",      "minLength",
                                         "maxLength", "minProperties", "maxProperties"};
  constexpr double kExact = 9007199254740992;  // 2^53
  if (schema->is_array()) {
    for (Json& member : *schema) MakeCountsReadable(&member);
  }
  if (!schema->is_object()) return;
  for (const char* most : kMost) {
    const auto found = schema->find(most);
    if (found != schema->end() && found->is_number() && found->get<double>() > static_cast<double>(kMostCount))
      schema->erase(found);
  }
  for (auto& [name, member] : schema->items()) {
    if (Holds(kPlainValues, name)) continue;
    if (Holds(kCounts, name) && member.is_number_float()) {
      const double value = member.get<double>();
      if (value == std::floor(value) && std::abs(value) < kExact) member = static_cast<int64_t>(value);
    } else if (Holds(kMapsOfSchemas, name) && member.is_object()) {
      for (Json& value : member) MakeCountsReadable(&value);
    } else {
      MakeCountsReadable(&member);
    }
  }
}

namespace {

// Counts each place of the document once, so that references among many definitions cost only their number.
class PatternCount {
 public:
  PatternCount(const Json& root, StopToken stop) : stop_(stop), found_(root) {}

  // Patterns and formats of the schema itself, as applied to an instance.
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
    if (const Json* target = RefOf(schema)) count = Sum(count, Of(*target));
    return known_[&schema] = count;
  }

  // The maximum over the root's schemas and over any part of an instance that several schemas constrain; -1: too much
  // to count.
  int Most() {
    Look(*found_.At(""));
    return given_up_ ? -1 : most_;
  }

 private:
  static constexpr int kMany = 1000;
  using Schemas = std::set<const Json*>;

  void Look(const Json& value) {
    most_ = std::max(most_, Of(value));
    // A single keyword combines nothing, except allOf.
    if (value.is_object() && (value.size() > 1 || value.contains("allOf"))) VisitParts({}, {&value});
    if (value.is_structured() && !given_up_) {
      for (const Json& member : value) Look(member);
    }
  }

  // Visits the properties and items of an instance that all of `with` and all of `schemas` constrain. `with` is
  // expanded: its members' allOf, $ref and alternatives are in it or have been visited.
  void VisitParts(Schemas with, std::vector<const Json*> schemas) {
    // Schemas that refer in cycles combine in as many nested ways as the product of the cycles' lengths.
    constexpr int kMostMeetings = 10'000;
    given_up_ = given_up_ || depth_ == kMostMeetings;
    if (!Work(with.size())) return;
    ++depth_;
    Visit(std::move(with), std::move(schemas));
    --depth_;
  }
  void Visit(Schemas with, std::vector<const Json*> schemas) {
    Schemas alternatives, seen;
    while (!schemas.empty()) {
      const Json& schema = *schemas.back();
      schemas.pop_back();
      if (!schema.is_object() || !seen.insert(&schema).second) continue;
      if (!Work(1)) return;
      for (const char* keyword : {"properties", "additionalProperties", "items", "prefixItems"}) {
        if (schema.contains(keyword)) with.insert(&schema);
      }
      for (const Json& member : Members(schema, "allOf")) schemas.push_back(&member);
      if (const Json* target = RefOf(schema)) schemas.push_back(target);
      for (const char* either : {"anyOf", "oneOf"}) {
        for (const Json& member : Members(schema, either)) alternatives.insert(Resolved(&member));
      }
    }
    // One schema's own constraints on its parts are counted at those parts.
    if (with.empty() || (with.size() == 1 && alternatives.empty())) return;
    if (!visited_.emplace(with, alternatives).second) return;
    for (const Json* alternative : alternatives) VisitParts(with, {alternative});

    std::set<std::string> names;
    size_t places = 0, properties_of_all = 0;
    for (const Json* schema : with) {
      if (const Json* properties = Object(*schema, "properties")) {
        for (const auto& [name, member] : properties->items()) names.insert(name);
        properties_of_all += properties->size();
      }
      places = std::max(places, Members(*schema, "prefixItems").size());
    }
    for (const std::string& name : names) {
      if (!Work(properties_of_all)) return;  // each is searched linearly
      VisitPart(with, [&](const Json& schema) {
        const Json* const properties = Object(schema, "properties");
        const auto own = properties == nullptr ? Json::const_iterator() : properties->find(name);
        return properties != nullptr && own != properties->end() ? &*own : Object(schema, "additionalProperties");
      });
    }
    VisitPart(with, [](const Json& schema) { return Object(schema, "additionalProperties"); });
    for (size_t place = 0; place < places; ++place) {
      VisitPart(with, [&](const Json& schema) {
        const Json& first = Members(schema, "prefixItems");
        return place < first.size() ? &first[place] : Object(schema, "items");
      });
    }
    VisitPart(with, [](const Json& schema) { return Object(schema, "items"); });
  }

  // Visits the part that the schemas describe with part_of(schema); null: a schema does not describe it.
  template <class PartOf>
  void VisitPart(const Schemas& schemas, const PartOf& part_of) {
    if (!Work(schemas.size())) return;
    Schemas parts;
    for (const Json* schema : schemas) {
      if (const Json* part = part_of(*schema)) parts.insert(Resolved(part));
    }
    if (parts.size() < 2) return;
    int count = 0;
    for (const Json* part : parts) count = Sum(count, Of(*part));
    most_ = std::max(most_, count);
    VisitParts({}, {parts.begin(), parts.end()});
  }

  // Counts schemas and names that VisitParts examines. False: the limit is reached.
  bool Work(size_t steps) {
    work_ += static_cast<int64_t>(steps);
    given_up_ = given_up_ || work_ > kMostCountingSteps || stop_.stopped();
    return !given_up_;
  }

  static const Json* Object(const Json& schema, const char* keyword) {
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_object() ? &*found : nullptr;
  }

  // The target of a schema that is only a reference.
  const Json* Resolved(const Json* schema) {
    constexpr int kSteps = 16;
    for (int step = 0; step < kSteps && schema->is_object() && schema->size() == 1; ++step) {
      const Json* const target = RefOf(*schema);
      if (target == nullptr) break;
      schema = target;
    }
    return schema;
  }

  const Json* RefOf(const Json& schema) {
    const std::string* const ref = StringOf(schema, "$ref");
    if (ref == nullptr) return nullptr;
    const auto [place, is_new] = targets_.try_emplace(&schema, nullptr);
    if (is_new && ref->starts_with('#'))  // llguidance refuses references elsewhere
      place->second = found_.At(std::string_view(*ref).substr(1));
    return place->second;
  }

  static int Sum(int a, int b) { return std::min(kMany, a + b); }

  static const Json& Members(const Json& schema, const char* keyword) {
    static const Json kNone = Json::array();
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_array() ? *found : kNone;
  }

  const StopToken stop_;
  JsonPlaces found_;
  std::unordered_map<const Json*, int> known_;
  std::set<std::pair<Schemas, Schemas>> visited_;         // constraints on an instance, and its alternatives
  std::unordered_map<const Json*, const Json*> targets_;  // of $ref
  int most_ = 0, depth_ = 0;
  int64_t work_ = 0;
  bool given_up_ = false;
};

}  // namespace

int MostPatterns(const Json& schema, StopToken stop) {
  return PatternCount(schema, stop).Most();
}

Result<Json> ParseSchema(std::string_view text, StopToken stop) {
  json_text::JsonLimits limits;
  limits.stop = stop;
  limits.max_depth = kMaxDepth;
  limits.max_values = kMaxValues;
  std::vector<json_text::RoundedNumber> rounded;
  limits.rounded = &rounded;
  TACTUS_ASSIGN_OR_RETURN(Json schema, json_text::ParseJson(text, limits));
  TACTUS_RETURN_IF_ERROR(CheckSchemaNumbers(schema, rounded));
  if (!schema.is_object() && !schema.is_boolean()) return InvalidArgument("a schema is an object, true or false");
  if (schema == Json(false)) return InvalidArgument("the schema 'false' allows no answer");
  std::string path = "#";
  if (const Json* odd = FindSchema(schema, HasOddRef, &path)) {
    return InvalidArgument(
        fmt::format("'$ref': '{}' is neither '#' nor '#/' with a JSON pointer without escapes in %, at {}",
                    *StringOf(*odd, "$ref"), path));
  }
  return schema;
}

std::string SchemaText(Json schema) {
  if (schema.is_boolean()) schema = Json::object();  // true
  MakePatternsAscii(&schema);
  MakeCountsReadable(&schema);
  schema["x-guidance"] = {{"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  return schema.dump();
}

void ForEachSchema(const Json& schema, const std::function<void(const Json&, const std::string&)>& tell) {
  std::string path = "#";
  const auto told = [&](const Json& one) {
    tell(one, path);
    return false;
  };
  (void)FindSchema(schema, told, &path);
}

std::string FindKeyword(const Json& schema, std::string_view keyword, const Json* value) {
  const std::string key(keyword);
  const auto has = [&](const Json& s) {
    const auto found = s.find(key);
    return found != s.end() && (value == nullptr || *found == *value);
  };
  std::string path = "#";
  return FindSchema(schema, has, &path) != nullptr ? path : std::string();
}

std::string PatternHandedOverAs(const Json& schema, const std::string& handed_over) {
  const auto has = [&](const Json& s) {
    const std::string* const pattern = StringOf(s, "pattern");
    return pattern != nullptr && AsciiClasses(*pattern) == handed_over;
  };
  std::string path;
  const Json* const found = FindSchema(schema, has, &path);
  return found != nullptr ? *StringOf(*found, "pattern") : handed_over;
}

}  // namespace tactus::language
