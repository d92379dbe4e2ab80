// The tables of choices.def and policies.def, by name.
#include "core/sched/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/sched/choices.h"
#include "core/sched/class_shares.h"

namespace tactus::core {
namespace {

template <class T>
struct Entry {
  const char* name;
  std::unique_ptr<T> (*make)(const SchedulerLimits&);
  const char* help;
  const KnobList* knobs = nullptr;
};

#define TACTUS_ORDER(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
#define TACTUS_ADMISSION(...)
#define TACTUS_COMPOSITION(...)
#define TACTUS_BUDGET(...)
#define TACTUS_PREEMPTION(...)
#define TACTUS_GATE(...)
constexpr Entry<Order> kOrders[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#define TACTUS_ORDER(...)
#define TACTUS_ADMISSION(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Entry<Admission> kAdmissions[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#define TACTUS_ADMISSION(...)
#define TACTUS_COMPOSITION(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Entry<Composition> kCompositions[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#define TACTUS_COMPOSITION(...)
#define TACTUS_BUDGET(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Entry<Budget> kBudgets[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION
#define TACTUS_BUDGET(...)
#define TACTUS_PREEMPTION(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Entry<Preemption> kPreemptions[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_PREEMPTION
#undef TACTUS_GATE
#define TACTUS_PREEMPTION(...)
#define TACTUS_GATE(name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Entry<Gate> kGates[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION
#undef TACTUS_GATE

template <class T, size_t N>
std::vector<ChoiceInfo> InfosOf(const Entry<T> (&entries)[N]) {
  std::vector<ChoiceInfo> infos;
  for (const Entry<T>& e : entries) infos.push_back({e.name, e.help, e.knobs});
  return infos;
}

template <class Infos>
std::string NamesOf(const Infos& infos) {
  std::string names;
  for (const auto& info : infos) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

template <class T, size_t N>
Status Make(const Entry<T> (&entries)[N], const char* choice, const std::string& name, const SchedulerLimits& limits,
            std::unique_ptr<T>* out) {
  if (*out != nullptr) return Status();  // injected
  for (const Entry<T>& e : entries) {
    if (name == e.name) {
      *out = e.make(limits);
      return Status();
    }
  }
  return InvalidArgument(fmt::format("unknown {} '{}'; known: {}", choice, name, NamesOf(entries)), choice);
}

}  // namespace

const char* NameOf(Choice choice) {
  static constexpr const char* kNames[] = {"order", "admission", "composition", "budget", "preemption", "gate"};
  return kNames[static_cast<size_t>(choice)];
}

bool ChoiceInfo::Declares(const KnobDeclaration& knob) const {
  return knobs != nullptr && std::find(knobs->begin(), knobs->end(), &knob) != knobs->end();
}

const std::vector<PresetInfo>& Presets() {
// After the starvation bound a row may have the only predictor allowed, and values of knobs.
#define TACTUS_PRESET(name, order, admission, composition, budget, preemption, tokens, source, help, ...) \
  {name, order, admission, composition, budget, preemption, tokens, source, help, __VA_ARGS__},
#define TACTUS_SEARCH(...)
  static const std::vector<PresetInfo> kPresets = {
#include "core/sched/policies.def"
  };
#undef TACTUS_PRESET
#undef TACTUS_SEARCH
  return kPresets;
}

const std::vector<SearchInfo>& Searches() {
#define TACTUS_PRESET(...)
#define TACTUS_SEARCH(name, help) {name, help},
  static const std::vector<SearchInfo> kSearches = {
#include "core/sched/policies.def"
  };
#undef TACTUS_PRESET
#undef TACTUS_SEARCH
  return kSearches;
}

const SearchInfo* FindSearch(const std::string& name) {
  const auto& searches = Searches();
  const auto search =
      std::find_if(searches.begin(), searches.end(), [&](const SearchInfo& s) { return name == s.name; });
  return search != searches.end() ? &*search : nullptr;
}

const std::vector<ChoiceInfo>& Values(Choice choice) {
  static const std::vector<ChoiceInfo> kInfos[] = {InfosOf(kOrders),  InfosOf(kAdmissions),  InfosOf(kCompositions),
                                                   InfosOf(kBudgets), InfosOf(kPreemptions), InfosOf(kGates)};
  return kInfos[static_cast<size_t>(choice)];
}

Result<const PresetInfo*> FindPreset(const std::string& name) {
  const auto& presets = Presets();
  const auto preset = std::find_if(presets.begin(), presets.end(), [&](const PresetInfo& p) { return name == p.name; });
  if (preset != presets.end()) return &*preset;
  return InvalidArgument(fmt::format("unknown scheduler '{}'; known: {}", name, NamesOf(presets)), "scheduler");
}

namespace {

const ChoiceInfo* FindValue(Choice choice, const std::string& name) {
  const auto& values = Values(choice);
  const auto value = std::find_if(values.begin(), values.end(), [&](const ChoiceInfo& v) { return name == v.name; });
  return value != values.end() ? &*value : nullptr;
}

// Whether a choice of `c` declares the knob; an injected one may.
bool MayKnow(const SchedulerConfig& c, const KnobDeclaration& knob) {
  const std::string* names[] = {&c.order, &c.admission, &c.composition, &c.budget, &c.preemption, &c.gate};
  return std::any_of(std::begin(kAllChoices), std::end(kAllChoices), [&](Choice choice) {
    const ChoiceInfo* value = FindValue(choice, *names[static_cast<size_t>(choice)]);
    return value == nullptr || value->Declares(knob);
  });
}

std::string FirstThatDeclares(const KnobDeclaration& knob) {
  for (const Choice choice : kAllChoices) {
    for (const ChoiceInfo& value : Values(choice)) {
      if (value.Declares(knob)) return fmt::format("--{} {}", NameOf(choice), value.name);
    }
  }
  return {};
}

}  // namespace

Status CheckKnobsFit(const SchedulerConfig& c) {
  for (const KnobDeclaration* knob : DeclaredKnobs()) {
    if (*knob->elsewhere == '\0' || c.limits.policy.IsInitial(*knob) || MayKnow(c, *knob)) continue;
    return InvalidArgument(fmt::format("--{} {}; use {}", knob->name, knob->elsewhere, FirstThatDeclares(*knob)),
                           knob->name);
  }
  return Status();
}

bool AnyPassesQueue(const SchedulerConfig& config) {
  const auto passes = [&](const std::string& gate) {
    std::unique_ptr<Gate> made;
    SchedulerLimits limits = config.limits;
    NoteLayout notes, client_notes;
    limits.notes = &notes;
    limits.client_notes = &client_notes;
    return !gate.empty() && Make(kGates, "gate", gate, limits, &made).ok() && !made->LimitsQueue();
  };
  const auto& classes = config.limits.classes;
  return passes(config.gate) ||
         std::any_of(classes.begin(), classes.end(), [&](const ServiceClass& c) { return passes(c.gate); });
}

Result<ChoiceTraits> MakeChoices(const SchedulerConfig& given, InjectedChoices* choices) {
  SchedulerConfig c = given;
  c.limits.notes = &choices->notes;
  c.limits.client_notes = &choices->client_notes;
  ChoiceTraits traits;
  c.limits.asked_step_times = &traits.wants_step_time;
  TACTUS_RETURN_IF_ERROR(Make(kOrders, NameOf(Choice::kOrder), c.order, c.limits, &choices->order));
  choices->order = WithClassShares(c.limits, std::move(choices->order));
  TACTUS_RETURN_IF_ERROR(Make(kAdmissions, NameOf(Choice::kAdmission), c.admission, c.limits, &choices->admission));
  TACTUS_RETURN_IF_ERROR(
      Make(kCompositions, NameOf(Choice::kComposition), c.composition, c.limits, &choices->composition));
  TACTUS_RETURN_IF_ERROR(Make(kBudgets, NameOf(Choice::kBudget), c.budget, c.limits, &choices->budget));
  TACTUS_RETURN_IF_ERROR(Make(kPreemptions, NameOf(Choice::kPreemption), c.preemption, c.limits, &choices->preemption));
  TACTUS_RETURN_IF_ERROR(Make(kGates, NameOf(Choice::kGate), c.gate, c.limits, &choices->gate));
  choices->class_gates.clear();
  for (const ServiceClass& of : c.limits.classes) {
    std::unique_ptr<Gate>& gate = choices->class_gates.emplace_back();
    if (!of.gate.empty()) TACTUS_RETURN_IF_ERROR(Make(kGates, NameOf(Choice::kGate), of.gate, c.limits, &gate));
  }
  choices->gate->Describe(&traits);
  for (const auto& gate : choices->class_gates) {
    if (gate != nullptr) gate->Describe(&traits);
  }
  choices->order->Describe(&traits);
  choices->admission->Describe(&traits);
  choices->composition->Describe(&traits);
  choices->budget->Describe(&traits);
  choices->preemption->Describe(&traits);
  return traits;
}

}  // namespace tactus::core

namespace tactus {

std::span<const KnobDeclaration* const> DeclaredKnobs() {
  static const std::vector<const KnobDeclaration*> kKnobs = [] {
    std::vector<const KnobDeclaration*> knobs;
    for (const core::Choice choice : core::kAllChoices) {
      for (const core::ChoiceInfo& value : core::Values(choice)) {
        if (value.knobs == nullptr) continue;
        for (const KnobDeclaration* knob : *value.knobs) {
          if (std::find(knobs.begin(), knobs.end(), knob) == knobs.end()) knobs.push_back(knob);
        }
      }
    }
    return knobs;
  }();
  return kKnobs;
}

}  // namespace tactus
