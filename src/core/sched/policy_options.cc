#include "tactus/policy_options.h"

#include <algorithm>

#include "base/check.h"

namespace tactus {

PolicyOptions::PolicyOptions() {
  for (const KnobDeclaration* knob : DeclaredKnobs()) entries_.push_back({knob, InitialOf(*knob)});
}

PolicyOptions::Value PolicyOptions::InitialOf(const KnobDeclaration& knob) {
  return std::visit(
      [](auto initial) {
        if constexpr (std::is_same_v<decltype(initial), const char*>) {
          return Value(std::string(initial));
        } else {
          return Value(initial);
        }
      },
      knob.initial);
}

const PolicyOptions::Entry& PolicyOptions::Declared(const KnobDeclaration& knob) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.knob == &knob; });
  TACTUS_CHECK_MSG(entry != entries_.end(), std::string("no row of choices.def names the knob '") + knob.name + "'");
  return *entry;
}

bool PolicyOptions::IsInitial(const KnobDeclaration& knob) const {
  return Declared(knob).value == InitialOf(knob);
}

}  // namespace tactus
