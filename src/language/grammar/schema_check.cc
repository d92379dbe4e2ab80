#include "language/grammar/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/decimal.h"
#include "base/json.h"
#include "base/json_places.h"
#include "language/grammar/exact_schema.h"
#include "language/grammar/regex_text.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

const Json* Member(const Json& schema, const char* keyword) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

Status Wrong(const std::string& path, const char* keyword, const std::string& why) {
  return InvalidArgument(fmt::format("'{}': {}, at {}", keyword, why, path));
}

// 0.25 is 25 hundredths, 120 is itself.
double Steps(const Json& multiple) {
  const double value = multiple.get<double>();
  if (value == std::floor(value)) return value;
  const auto decimal = DecimalOf(value);
  return decimal ? std::strtod(decimal->digits.c_str(), nullptr) : value;
}

// The targets of a document's '$ref's.
class References {
 public:
  explicit References(const Json& root) : found_(root) {}
  // Null: another document or missing; the library reports it.
  const Json* Target(const Json& schema) {
    const Json* const ref = Member(schema, "$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    const std::string_view text = ref->get_ref<const std::string&>();
    return text.starts_with('#') ? found_.At(text.substr(1)) : nullptr;
  }
  const Json* MemberOf(const Json& object, std::string_view name) { return found_.Member(object, name); }

 private:
  JsonPlaces found_;
};

// Number of remainders that all constraints on a number distinguish: the product of a schema's multipleOf and of those
// that allOf and $ref add. 1: none.
class Multiples {
 public:
  explicit Multiples(References* references) : references_(*references) {}
  double Of(const Json& schema) {
    if (!schema.is_object()) return 1;
    const auto [place, is_new] = known_.try_emplace(&schema, 1);  // 1 while it is being computed: a cycle adds nothing
    if (!is_new) return place->second;
    double product = 1;
    if (const Json* multiple = Member(schema, "multipleOf"); multiple != nullptr && multiple->is_number())
      product = std::max(1.0, Steps(*multiple));
    if (const Json* all = Member(schema, "allOf"); all != nullptr && all->is_array()) {
      for (const Json& member : *all) product *= Of(member);
    }
    if (const Json* target = references_.Target(schema)) product *= Of(*target);
    return known_[&schema] = product;
  }

 private:
  References& references_;
  std::unordered_map<const Json*, double> known_;
};

Status CheckOne(const Json& schema, const std::string& path, Multiples* multiples) {
  if (const Json* values = Member(schema, "enum"); values != nullptr && values->is_array() && values->empty())
    return Wrong(path, "enum", "it lists no value");
  if (const Json* types = Member(schema, "type"); types != nullptr && types->is_array() && types->empty())
    return Wrong(path, "type", "it lists no type");
  for (const char* least : {"minLength", "minItems", "minProperties"}) {
    const Json* count = Member(schema, least);
    if (count != nullptr && count->is_number() && count->get<double>() > static_cast<double>(kMostCount))
      return Wrong(path, least, count->dump() + " " + BeyondMost());
  }
  const Json* pattern = Member(schema, "pattern");
  if (pattern != nullptr && pattern->is_string()) {
    const std::string count = CountBeyond(pattern->get_ref<const std::string&>());
    if (!count.empty()) return Wrong(path, "pattern", count + " " + BeyondMost());
  }
  if (const Json* patterns = Member(schema, "patternProperties"); patterns != nullptr && patterns->is_object()) {
    for (const auto& [expression, member] : patterns->items()) {
      const std::string count = CountBeyond(expression);
      if (!count.empty()) return Wrong(path, "patternProperties", count + " " + BeyondMost());
    }
  }
  const Json* multiple = Member(schema, "multipleOf");
  if (multiple != nullptr && multiple->is_number() && !(multiple->get<double>() > 0))
    return Wrong(path, "multipleOf", fmt::format("{} is not above 0", multiple->dump()));
  if (multiple != nullptr && multiple->is_number() && !ReadableMultiple(multiple->get<double>())) {
    return Wrong(path, "multipleOf",
                 fmt::format("{} cannot be kept exactly; give one of fewer digits", multiple->dump()));
  }
  if (multiples->Of(schema) > static_cast<double>(kMostMultiple)) {
    return Wrong(path, "multipleOf",
                 fmt::format("{} more than {} remainders, the limit",
                             multiple != nullptr ? multiple->dump() + " has" : "'allOf' and '$ref' bring together",
                             kMostMultiple));
  }
  return Status();
}

// Which schemas of a document match some finite value, as far as their requirements go: the least fixed point over all
// of them. Undecided schemas count as finite.
class Endings {
 public:
  Endings(const Json& root, References* references) : root_(root), references_(*references) {}

  // A schema that never ends; null: none, or the references are too entangled to decide.
  const Json* FindEndless() {
    ForEachSchema(root_, [this](const Json& schema, const std::string&) {
      schemas_.push_back(&schema);
      ends_[&schema] = false;
    });
    constexpr int kMostRounds = 64;
    bool changed = true;
    for (int round = 0; changed; ++round) {
      if (round == kMostRounds) return nullptr;
      changed = false;
      for (const Json* schema : schemas_) {
        bool& ends = ends_[schema];
        if (ends || !Ends(*schema)) continue;
        ends = changed = true;
      }
    }
    const auto endless = std::find_if(schemas_.begin(), schemas_.end(), [this](const Json* s) { return !ends_[s]; });
    return endless == schemas_.end() ? nullptr : *endless;
  }

 private:
  // True for places that may hold a boolean or are no schema of the document: they end.
  bool Known(const Json& schema) const {
    const auto found = ends_.find(&schema);
    return found == ends_.end() || found->second;
  }
  static bool Lists(const Json* types, const char* type) {
    return types != nullptr && (*types == Json(type) || (types->is_array() && std::find(types->begin(), types->end(),
                                                                                        Json(type)) != types->end()));
  }

  bool Ends(const Json& schema) {
    if (const Json* target = references_.Target(schema); target != nullptr && !Known(*target)) return false;
    if (const Json* all = Member(schema, "allOf"); all != nullptr && all->is_array()) {
      if (!std::all_of(all->begin(), all->end(), [this](const Json& member) { return Known(member); })) return false;
    }
    for (const char* either : {"anyOf", "oneOf"}) {
      const Json* const any = Member(schema, either);
      if (any == nullptr || !any->is_array() || any->empty()) continue;
      if (std::none_of(any->begin(), any->end(), [this](const Json& member) { return Known(member); })) return false;
    }
    const Json* const types = Member(schema, "type");
    if (types == nullptr || schema.contains("enum") || schema.contains("const")) return true;
    for (const char* plain : {"string", "number", "integer", "boolean", "null"}) {
      if (Lists(types, plain)) return true;
    }
    return (!Lists(types, "object") && !Lists(types, "array")) || (Lists(types, "object") && ObjectEnds(schema)) ||
           (Lists(types, "array") && ArrayEnds(schema));
  }
  bool ObjectEnds(const Json& schema) {
    const Json *required = Member(schema, "required"), *properties = Member(schema, "properties");
    if (required == nullptr || !required->is_array() || properties == nullptr || !properties->is_object()) return true;
    return std::all_of(required->begin(), required->end(), [&](const Json& name) {
      if (!name.is_string()) return true;
      const Json* const property = references_.MemberOf(*properties, name.get_ref<const std::string&>());
      return property == nullptr || Known(*property);
    });
  }
  bool ArrayEnds(const Json& schema) const {
    const Json *least = Member(schema, "minItems"), *items = Member(schema, "items"),
               *first = Member(schema, "prefixItems");
    size_t left =
        least != nullptr && least->is_number() ? static_cast<size_t>(std::clamp(least->get<double>(), 0.0, 1e6)) : 0;
    if (first != nullptr && first->is_array()) {
      for (size_t i = 0; i < first->size() && left > 0; ++i, --left) {
        if (!Known((*first)[i])) return false;
      }
    }
    return left == 0 || items == nullptr || Known(*items);
  }

  const Json& root_;
  References& references_;
  std::vector<const Json*> schemas_;
  std::unordered_map<const Json*, bool> ends_;
};

}  // namespace

Status CheckSchema(const Json& schema) {
  References references(schema);
  Multiples multiples(&references);
  Status fault;
  ForEachSchema(schema, [&fault, &multiples](const Json& one, const std::string& path) {
    if (fault.ok()) fault = CheckOne(one, path, &multiples);
  });
  if (!fault.ok()) return fault;
  const Json* const endless = Endings(schema, &references).FindEndless();
  if (endless == nullptr) return Status();
  std::string place;
  ForEachSchema(schema, [&](const Json& one, const std::string& path) {
    if (&one == endless) place = path;
  });
  return InvalidArgument(
      fmt::format("'$ref': the schema requires itself without end, so no answer can be finished; make it "
                  "optional, or allow null, at {}",
                  place));
}

}  // namespace tactus::language
