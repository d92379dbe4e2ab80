// The knobs of scheduling policies. A policy declares its knobs beside its code (src/core/sched/) and lists them in its
// row of the table of choices. Everything else follows from that: flags of the group "Policies" with their environment
// and TOML names, entries of a recording's header, values that the policy reads when it is made. Nothing here knows a
// particular policy; docs/concepts/policies.md describes each knob and the source of its default.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tactus/option_fields.h"

namespace tactus {

struct KnobDeclaration {
  const char* name;  // of the flag
  std::variant<bool, int64_t, double, const char*, DurationText> initial;
  FieldSpec spec;
  // Why the knob is refused if no chosen policy declares it; empty: then it has no effect.
  const char* elsewhere = "";
};

// A knob as a policy's file declares it, a constant: Knob<double> kLambda{"larry-lambda", 0.1, {.unit = "1/s", ...}}.
// T is bool, int64_t, double, std::string or DurationText.
template <class T>
struct Knob : KnobDeclaration {
  using Initial = std::conditional_t<std::is_same_v<T, std::string>, const char*, T>;
  constexpr Knob(const char* flag, Initial value, const FieldSpec& field, const char* why_not_elsewhere = "")
      : KnobDeclaration{flag, decltype(KnobDeclaration::initial)(std::in_place_type<Initial>, value), field,
                        why_not_elsewhere} {}
};

// A knob with this value takes the preset's.
inline constexpr const char* kAutoKnob = "auto";

// Every knob that some choice declares, each once, in the order of choices.def.
std::span<const KnobDeclaration* const> DeclaredKnobs();

// A value for each knob.
class PolicyOptions {
 public:
  PolicyOptions();  // as declared

  // Precondition: a row of choices.def lists the knob.
  template <class T>
  const T& operator[](const Knob<T>& knob) const {
    return std::get<T>(Declared(knob).value);
  }
  // By flag name; null: no such knob, or it has another type. Ranges are checked when a scheduler is made.
  template <class T>
  T* Find(std::string_view name) {
    for (Entry& entry : entries_) {
      if (name == entry.knob->name) return std::get_if<T>(&entry.value);
    }
    return nullptr;
  }
  // Whether the knob has its declared initial value.
  bool IsInitial(const KnobDeclaration& knob) const;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Policies");
    for (Entry& entry : entries_) {
      std::visit([&](auto& value) { v.Field(entry.knob->name, value, entry.knob->spec); }, entry.value);
    }
  }

 private:
  using Value = std::variant<bool, int64_t, double, std::string, DurationText>;
  struct Entry {
    const KnobDeclaration* knob;
    Value value;
  };
  static Value InitialOf(const KnobDeclaration& knob);
  const Entry& Declared(const KnobDeclaration& knob) const;

  std::vector<Entry> entries_;
};

}  // namespace tactus
