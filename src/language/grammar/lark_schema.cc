#include "language/grammar/lark_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/decimal.h"
#include "base/json.h"
#include "base/json_places.h"
#include "language/grammar/number_regex.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {

bool HoldsValues(std::string_view keyword) {
  return keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "examples";
}

bool HoldsSchemas(std::string_view keyword) {
  return keyword == "properties" || keyword == "patternProperties" || keyword == "$defs" || keyword == "definitions" ||
         keyword == "dependentSchemas";
}

const Json* Member(const Json& schema, std::string_view keyword) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

bool IsKept(const Json& number) {
  constexpr double kExact = 9007199254740991;  // 2^53 - 1
  if (number.is_number_unsigned()) return number.get<uint64_t>() <= static_cast<uint64_t>(kExact);
  if (number.is_number_integer()) return std::abs(static_cast<double>(number.get<int64_t>())) <= kExact;
  return std::abs(number.get<double>()) <= kExact;
}

const Json* FindLost(const Json& value) {
  if (value.is_number()) return IsKept(value) ? nullptr : &value;
  if (!value.is_structured()) return nullptr;
  for (const Json& member : value) {
    if (const Json* lost = FindLost(member)) return lost;
  }
  return nullptr;
}

const Json* OwnLost(const Json& schema) {
  for (const char* keyword : kBounds) {
    const Json* bound = Member(schema, keyword);
    if (bound != nullptr && bound->is_number() && !IsKept(*bound)) return bound;
  }
  for (const char* keyword : {"const", "enum"}) {
    const Json* value = Member(schema, keyword);
    const Json* lost = value == nullptr ? nullptr : FindLost(*value);
    if (lost != nullptr) return lost;
  }
  return nullptr;
}

namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};
// Keywords that do not restrict values.
constexpr std::array<std::string_view, 15> kNotes = {
    "title",      "description", "default", "examples",    "example",    "$comment", "readOnly",        "writeOnly",
    "deprecated", "$schema",     "$defs",   "definitions", "x-guidance", "type",     "contentMediaType"};
constexpr size_t kMostNumberBytes = 40;  // of a constant without an exponent

std::optional<Decimal> ValueOf(const Json& number) {
  constexpr double kTwoTo64 = 18446744073709551616.0;  // rounded when printed shortest, though it occurs as a bound
  if (number.is_number_float() && number.get<double>() == kTwoTo64) return ReadDecimal("18446744073709551616");
  if (number.is_number_float()) return DecimalOf(number.get<double>());
  return ReadDecimal(number.dump());
}

std::string Quoted(std::string_view text) {
  std::string out;
  json_text::AppendJsonString(&out, text);
  return out;
}

std::string NumberText(const Json& number) {
  const auto value = ValueOf(number);
  const std::string plain = value ? PlainText(*value, kMostNumberBytes) : std::string();
  return plain.empty() ? number.dump() : plain;
}

// A part of a schema that cannot be written as a grammar.
struct NoWay {
  std::string beside;
};

// A limit that the schema exceeds, or the end of the wait for it.
struct Refused {
  Status status;
};

// Nesting of schemas being written, through $ref and allOf. Each takes up to about 4 KB of stack.
constexpr int kMostDeep = 10'000;
constexpr size_t kMostGrammarBytes = size_t{4} << 20;  // each reference may add all definitions

class Writer {
 public:
  Writer(const Json& root, std::string prefix, StopToken stop)
      : root_(root), prefix_(std::move(prefix)), stop_(stop), found_(root) {
    const Json* guidance = Member(root, "x-guidance");
    if (guidance != nullptr) guidance_ = *guidance;
    comma_ = Separator("item_separator", ",");
    colon_ = Separator("key_separator", ":");
    Mark();
  }

  // Whether a number that is not kept affects an answer.
  bool leads() const { return leads_anywhere_; }
  // Writes the rules and returns the expression for the whole schema. Throws NoWay and Refused.
  std::string Write(std::string* rules) {
    const std::string start = Value(root_);
    *rules = std::move(rules_);
    return start;
  }

 private:
  std::string Separator(const char* name, std::string_view otherwise) const {
    const Json* text = Member(guidance_, name);
    const std::string regex = text != nullptr && text->is_string() ? text->get<std::string>() : std::string(otherwise);
    return "/" + regex + "/";
  }

  // --- Schemas that lead to a number that is not kept ---
  // `map`: schemas by names that may equal keywords. The recursion is bounded by the JSON's depth.
  void Collect(const Json& value, bool map, const Json* holder) {
    if (!value.is_structured() || !holders_.try_emplace(&value, holder).second) return;
    for (const auto& [key, member] : value.items()) {
      const bool plain = value.is_object() && !map && HoldsValues(key);
      if (!plain) Collect(member, !map && member.is_object() && HoldsSchemas(key), &value);
    }
    places_.push_back({&value, map});
  }
  bool Leads(const Json& value) const { return leads_.contains(&value); }
  // Propagates from schemas with such a number to all that contain or reference them, each place once.
  void Mark() {
    Collect(root_, false, nullptr);
    std::unordered_map<const Json*, std::vector<const Json*>> referrers;
    std::vector<const Json*> found;
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto [place, map] = places_[i];
      if (map || !place->is_object()) continue;
      if (OwnLost(*place) != nullptr) found.push_back(place);
      const Json* const target = Target(*place);
      if (target == nullptr) continue;
      Collect(*target, false, nullptr);  // a schema that only a reference reaches, such as one among "examples"
      referrers[target].push_back(place);
    }
    leads_anywhere_ = !found.empty();
    while (!found.empty()) {
      const Json* const place = found.back();
      found.pop_back();
      if (!leads_.insert(place).second) continue;
      if (const Json* holder = holders_.at(place)) found.push_back(holder);
      if (const auto of_place = referrers.find(place); of_place != referrers.end())
        found.insert(found.end(), of_place->second.begin(), of_place->second.end());
    }
    // Definitions lead nowhere unless referenced.
    for (const char* definitions : {"$defs", "definitions"}) {
      const Json* held = Member(root_, definitions);
      if (held != nullptr) leads_.erase(held);
    }
    leads_.insert(&root_);
  }

  const Json* Target(const Json& schema) {
    const Json* ref = Member(schema, "$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    const auto& text = ref->get_ref<const std::string&>();
    return text.starts_with('#') ? found_.At(std::string_view(text).substr(1)) : nullptr;
  }

  // --- Rules ---
  std::string NewName(const char* what) { return fmt::format("{}{}_{}", prefix_, what, ++names_); }
  void Add(const std::string& name, const std::string& body) {
    if (rules_.size() + name.size() + body.size() > kMostGrammarBytes) {
      throw Refused{InvalidArgument(
          fmt::format("written exactly, its numbers beyond 2^53 make a grammar of more than {} MiB, the limit; give "
                      "fewer such numbers, or smaller ones",
                      kMostGrammarBytes >> 20))};
    }
    rules_ += name + ": " + body + "\n";
  }
  std::string Rule(const char* what, const std::string& body) {
    std::string name = NewName(what);
    Add(name, body);
    return name;
  }
  std::string Terminal(const std::string& body) {
    std::string name = NewName("N");
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    Add(name, body);
    return name;
  }

  // A schema without such numbers stays JSON schema.
  std::string AsJson(Json schema) {
    if (!schema.is_object() && schema != Json(true)) throw NoWay{"a schema that is none"};
    if (!schema.is_object()) schema = Json::object();  // true
    const std::string text = schema.dump();
    const bool refers = text.find("\"$ref\"") != std::string::npos;
    for (const char* definitions : {"$defs", "definitions"}) {
      const Json* held = Member(root_, definitions);
      if (refers && held != nullptr) schema[definitions] = *held;
      if (!refers) schema.erase(definitions);
    }
    if (!guidance_.is_null()) schema["x-guidance"] = guidance_;
    return Rule("json", "%json " + schema.dump());
  }

  std::string Value(const Json& schema) {
    if (!Leads(schema)) {
      if (schema == Json(false)) throw NoWay{"false"};
      return AsJson(schema);
    }
    if (!schema.is_object()) throw NoWay{"items"};  // a list of schemas
    if (const auto known = values_.find(&schema); known != values_.end()) return known->second;
    const std::string name = values_[&schema] = NewName("value");
    if (stop_.stopped()) throw Refused{Status(StatusCode::kCancelled, "stopped")};
    if (++depth_ > kMostDeep) {
      throw Refused{InvalidArgument(
          fmt::format("'$ref' and 'allOf' lead through {} schemas, one within the other, to a number beyond 2^53; the "
                      "limit is {}; refer to it more directly, or give a smaller number",
                      depth_, kMostDeep))};
    }
    Add(name, Body(schema));
    --depth_;
    return name;
  }

  // Allows no keywords except `keywords` and notes.
  static void Only(const Json& schema, std::initializer_list<std::string_view> keywords) {
    for (const auto& [key, value] : schema.items()) {
      if (!Holds(kNotes, key) && !Holds(keywords, key)) throw NoWay{key};
    }
  }

  std::string Body(const Json& schema) {
    if (schema.contains("$ref")) {
      Only(schema, {"$ref"});
      const Json* target = Target(schema);
      if (target == nullptr || schema.contains("type")) throw NoWay{"$ref"};
      return Value(*target);
    }
    if (const Json* all = Member(schema, "allOf")) {
      Only(schema, {"allOf"});
      if (!all->is_array() || all->size() != 1 || schema.contains("type")) throw NoWay{"allOf"};
      return Value((*all)[0]);
    }
    for (const char* either : {"anyOf", "oneOf"}) {
      const Json* any = Member(schema, either);
      if (any == nullptr) continue;
      Only(schema, {either});
      if (!any->is_array() || any->empty() || schema.contains("type")) throw NoWay{either};
      if (either == std::string_view("oneOf") && !Disjoint(*any)) throw NoWay{either};
      std::string out;
      for (const Json& alternative : *any) out += (out.empty() ? "" : " | ") + Value(alternative);
      return out;
    }
    if (schema.contains("const") || schema.contains("enum")) return Constants(schema);
    return ByType(schema);
  }

  std::vector<std::string> TypesOf(const Json& schema) const {
    std::vector<std::string> types;
    const Json* type = Member(schema, "type");
    if (type == nullptr) return {kTypes.begin(), kTypes.end()};
    const auto add = [&types](const Json& one) {
      if (!one.is_string() || !Holds(kTypes, one.get_ref<const std::string&>())) throw NoWay{"type"};
      if (!Holds(types, one.get_ref<const std::string&>())) types.push_back(one.get<std::string>());
    };
    if (!type->is_array()) add(*type);
    if (type->is_array()) std::for_each(type->begin(), type->end(), add);
    return types;
  }

  // Compares the alternatives' types alone.
  bool Disjoint(const Json& alternatives) {
    std::set<std::string> seen;
    for (const Json& alternative : alternatives) {
      const Json* schema = &alternative;
      for (int i = 0; i < 8 && Target(*schema) != nullptr; ++i) schema = Target(*schema);
      if (Member(*schema, "type") == nullptr) return false;
      for (std::string type : TypesOf(*schema)) {
        if (type == "integer") type = "number";
        if (!seen.insert(type).second) return false;
      }
    }
    return true;
  }

  // --- Constants ---
  static bool Allows(const std::vector<std::string>& types, const Json& value) {
    if (value.is_number()) {
      const auto number = ValueOf(value);
      return Holds(types, "number") || (Holds(types, "integer") && number && number->integer());
    }
    return Holds(types, value.is_null()      ? "null"
                        : value.is_boolean() ? "boolean"
                        : value.is_string()  ? "string"
                        : value.is_array()   ? "array"
                                             : "object");
  }
  std::string Constants(const Json& schema) {
    Only(schema, {"const", "enum", "format"});
    const std::vector<std::string> types = TypesOf(schema);
    const Json* only = Member(schema, "const");
    const Json* list = Member(schema, "enum");
    if (list != nullptr && !list->is_array()) throw NoWay{"enum"};
    const Json values = list != nullptr ? *list : Json::array({*only});
    Json kept = Json::array();
    std::string numbers, out;
    for (const Json& value : values) {
      if (!Allows(types, value) || (only != nullptr && value != *only)) continue;
      if (FindLost(value) == nullptr) {
        kept.push_back(value);
      } else if (value.is_number()) {
        numbers += (numbers.empty() ? "" : " | ") + Quoted(NumberText(value));
      } else {
        out += (out.empty() ? "" : " | ") + Rule("constant", Constant(value));
      }
    }
    if (!numbers.empty()) out += (out.empty() ? "" : " | ") + Terminal(numbers);
    if (!kept.empty()) out += (out.empty() ? "" : " | ") + AsJson({{"enum", std::move(kept)}});
    if (out.empty()) throw NoWay{"type"};
    return out;
  }
  std::string Constant(const Json& value) {
    if (value.is_number()) return Quoted(NumberText(value));
    if (!value.is_structured()) return Quoted(value.dump());
    std::string out = value.is_array() ? "\"[\"" : "\"{\"";
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) out += " " + comma_;
      first = false;
      if (value.is_object()) out += " " + Quoted(Quoted(key)) + " " + colon_;
      out += " " + Constant(member);
    }
    return out + (value.is_array() ? " \"]\"" : " \"}\"");
  }

  // --- Types ---
  std::string ByType(const Json& schema) {
    std::vector<std::string> types = TypesOf(schema);
    if (Holds(types, "number")) std::erase(types, "integer");
    Json rest = schema;
    Json rest_types = Json::array();
    std::string out;
    const auto add = [&out](const std::string& expression) { out += (out.empty() ? "" : " | ") + expression; };
    const bool numbers_lost = OwnLost(schema) != nullptr;
    const auto leads = [&](const char* keyword) {
      const Json* member = Member(schema, keyword);
      return member != nullptr && Leads(*member);
    };
    const bool objects_lead = leads("properties") || leads("additionalProperties") || leads("patternProperties");
    const bool arrays_lead = leads("items") || leads("prefixItems");
    for (const std::string& type : types) {
      if (numbers_lost && (type == "number" || type == "integer"))
        add(Terminal("/" + Number(schema, type == "integer") + "/"));
      else if (type == "object" && objects_lead)
        add(Object(schema));
      else if (type == "array" && arrays_lead)
        add(Array(schema));
      else
        rest_types.push_back(type);
    }
    if (!rest_types.empty()) {
      if (numbers_lost) {
        for (const char* keyword : kBounds) rest.erase(keyword);
      }
      if (objects_lead) {
        for (const char* keyword : {"properties", "additionalProperties", "patternProperties", "required"})
          rest.erase(keyword);
      }
      if (arrays_lead) {
        for (const char* keyword : {"items", "prefixItems"}) rest.erase(keyword);
      }
      // Unknown keywords may lead to numbers in other ways.
      for (const auto& [key, member] : rest.items()) {
        if (key != "$defs" && key != "definitions" && Leads(member)) throw NoWay{key};
      }
      rest["type"] = std::move(rest_types);
      add(AsJson(std::move(rest)));
    }
    if (out.empty()) throw NoWay{"type"};
    return out;
  }

  // In a schema for several types, keywords of other types are checked with those types.
  static std::string Number(const Json& schema, bool integer) {
    Only(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format", "minLength", "maxLength",
                  "pattern", "items", "prefixItems", "minItems", "maxItems", "properties", "required",
                  "additionalProperties", "patternProperties", "minProperties", "maxProperties"});
    const auto read = [&](const char* keyword) -> std::optional<Decimal> {
      const Json* bound = Member(schema, keyword);
      const bool is_flag =
          bound != nullptr && bound->is_boolean() && std::string_view(keyword).starts_with("exclusive");
      if (bound == nullptr || is_flag) return std::nullopt;
      if (!bound->is_number()) throw NoWay{keyword};
      return ValueOf(*bound);
    };
    const auto excludes = [&](const char* keyword) {
      const Json* flag = Member(schema, keyword);
      return flag != nullptr && *flag == true;  // as in draft 4
    };
    NumberBounds bounds;
    bounds.least = read("minimum");
    bounds.above_least = excludes("exclusiveMinimum");
    if (const auto least = read("exclusiveMinimum"); least && (!bounds.least || *least >= *bounds.least)) {
      bounds.least = least;
      bounds.above_least = true;
    }
    bounds.most = read("maximum");
    bounds.below_most = excludes("exclusiveMaximum");
    if (const auto most = read("exclusiveMaximum"); most && (!bounds.most || *most <= *bounds.most)) {
      bounds.most = most;
      bounds.below_most = true;
    }
    const auto regex = integer ? std::optional(IntegerRegex(bounds)) : NumberRegex(bounds);
    if (!regex) throw NoWay{"a bound with a fraction"};
    if (regex->empty()) throw NoWay{"bounds that no number lies between"};
    return *regex;
  }

  std::string Object(const Json& schema) {
    Only(schema, {"properties", "required", "additionalProperties", "minimum", "maximum", "exclusiveMinimum",
                  "exclusiveMaximum", "pattern", "minLength", "maxLength", "format", "items", "minItems", "maxItems"});
    struct Entry {
      std::string expression;
      bool required;
    };
    std::vector<Entry> entries;
    std::set<std::string> names, required;
    const Json *properties = Member(schema, "properties"), *more = Member(schema, "additionalProperties"),
               *needed = Member(schema, "required");
    if (properties != nullptr && !properties->is_object()) throw NoWay{"properties"};
    if (needed != nullptr && !needed->is_array()) throw NoWay{"required"};
    if (needed != nullptr) {
      for (const Json& name : *needed) {
        if (!name.is_string()) throw NoWay{"required"};
        required.insert(name.get<std::string>());
      }
    }
    const bool closed = more != nullptr && *more == false;
    const auto add = [&](const std::string& name, const std::string& value) {
      names.insert(name);
      entries.push_back({Quoted(Quoted(name)) + " " + colon_ + " " + value, required.contains(name)});
    };
    const auto value_of_more = [&] { return more == nullptr ? AsJson(true) : Value(*more); };
    if (properties != nullptr) {
      for (const auto& [name, property] : properties->items()) add(name, Value(property));
    }
    for (const std::string& name : required) {
      if (names.contains(name)) continue;
      if (closed) throw NoWay{"required"};
      add(name, value_of_more());
    }
    std::string tail_first, tail;  // text after all entries: after none, and after at least one
    if (!closed) {
      std::string key = R"(/"([^"\\\x00-\x1f\x7f]|\\["\\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/)";
      if (!names.empty()) {
        std::string known;
        for (const std::string& name : names) known += (known.empty() ? "" : " | ") + Quoted(Quoted(name));
        key += " & ~(" + known + ")";
      }
      const std::string one = Terminal(key) + " " + colon_ + " " + value_of_more();
      const std::string member = Rule("member", one);
      tail = fmt::format("({} {})*", comma_, member);
      tail_first = fmt::format("({} {})?", member, tail);
    }
    std::string first = Rule("end", tail_first.empty() ? "\"\"" : tail_first);
    std::string then = Rule("end", tail.empty() ? "\"\"" : tail);
    for (size_t i = entries.size(); i-- > 0;) {
      const Entry& entry = entries[i];
      const std::string skipped_first = entry.required ? "" : " | " + first,
                        skipped = entry.required ? "" : " | " + then;
      first = Rule("from", entry.expression + " " + then + skipped_first);
      then = Rule("from", comma_ + " " + entry.expression + " " + then + skipped);
    }
    return Rule("object", "\"{\" " + first + " \"}\"");
  }

  std::string Array(const Json& schema) {
    Only(schema, {"items", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                  "pattern", "minLength", "maxLength", "format", "properties", "required", "additionalProperties"});
    const auto count = [&](const char* keyword) -> std::optional<int64_t> {
      constexpr double kMostItems = 10'000;
      const Json* value = Member(schema, keyword);
      if (value == nullptr) return std::nullopt;
      if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= kMostItems))
        throw NoWay{keyword};
      return static_cast<int64_t>(value->get<double>());
    };
    const int64_t least = count("minItems").value_or(0);
    const std::optional<int64_t> most = count("maxItems");
    if (most && *most < least) throw NoWay{"maxItems"};
    if (most && *most == 0) return "\"[\" \"]\"";
    const std::string item = Value(*Member(schema, "items"));
    const int64_t least_more = std::max<int64_t>(0, least - 1);
    std::string more;  // after the first entry; the library does not accept {0,0}
    if (!most)
      more = fmt::format("({} {}){{{},}}", comma_, item, least_more);
    else if (*most > 1)
      more = fmt::format("({} {}){{{},{}}}", comma_, item, least_more, *most - 1);
    return Rule("array", least == 0 ? fmt::format("\"[\" ({} {})? \"]\"", item, more)
                                    : fmt::format("\"[\" {} {} \"]\"", item, more));
  }

  const Json& root_;
  const std::string prefix_;
  Json guidance_;
  std::string comma_, colon_;
  const StopToken stop_;
  JsonPlaces found_;
  std::vector<std::pair<const Json*, bool>> places_;      // and whether each is a map
  std::unordered_map<const Json*, const Json*> holders_;  // of places
  std::unordered_set<const Json*> leads_;
  bool leads_anywhere_ = false;
  int depth_ = 0;
  std::unordered_map<const Json*, std::string> values_;
  std::string rules_;
  int names_ = 0;
};

}  // namespace

Result<std::optional<LarkSchema>> LarkOf(const Json& root, const std::string& prefix, StopToken stop) {
  if (FindLost(root) == nullptr) return std::optional<LarkSchema>();
  try {
    Writer writer(root, prefix, stop);
    if (!writer.leads()) return std::optional<LarkSchema>();
    LarkSchema out;
    out.start = writer.Write(&out.rules);
    return std::optional(std::move(out));
  } catch (const NoWay& no_way) {
    return Unimplemented(no_way.beside);
  } catch (const Refused& refused) {
    return refused.status;
  }
}

}  // namespace tactus::language
