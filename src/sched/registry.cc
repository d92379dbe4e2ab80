// The tables of choices.def and policies.def: what there is by name, and how it is made.
#include "sched/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "sched/choices.h"

namespace tactus::sched {
namespace {

template <class T>
struct Entry {
  const char* name;
  std::unique_ptr<T> (*make)(const SchedulerLimits&);
  const char* help;
};

#define TACTUS_ORDER(name, make, help) {name, make, help},
#define TACTUS_ADMISSION(...)
#define TACTUS_COMPOSITION(...)
#define TACTUS_BUDGET(...)
#define TACTUS_PREEMPTION(...)
constexpr Entry<Order> kOrders[] = {
#include "sched/choices.def"
};
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#define TACTUS_ORDER(...)
#define TACTUS_ADMISSION(name, make, help) {name, make, help},
constexpr Entry<Admission> kAdmissions[] = {
#include "sched/choices.def"
};
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#define TACTUS_ADMISSION(...)
#define TACTUS_COMPOSITION(name, make, help) {name, make, help},
constexpr Entry<Composition> kCompositions[] = {
#include "sched/choices.def"
};
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#define TACTUS_COMPOSITION(...)
#define TACTUS_BUDGET(name, make, help) {name, make, help},
constexpr Entry<Budget> kBudgets[] = {
#include "sched/choices.def"
};
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION
#define TACTUS_BUDGET(...)
#define TACTUS_PREEMPTION(name, make, help) {name, make, help},
constexpr Entry<Preemption> kPreemptions[] = {
#include "sched/choices.def"
};
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION

template <class T, size_t N>
std::vector<ChoiceInfo> InfosOf(const Entry<T> (&entries)[N]) {
  std::vector<ChoiceInfo> infos;
  for (const Entry<T>& e : entries) infos.push_back({e.name, e.help});
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

const std::vector<PresetInfo>& Presets() {
// After the starvation bound a row may name the one predictor that it is defined by.
#define TACTUS_PRESET(name, order, admission, composition, budget, preemption, tokens, source, help, ...) \
  {name, order, admission, composition, budget, preemption, tokens, source, help, __VA_ARGS__},
  static const std::vector<PresetInfo> kPresets = {
#include "sched/policies.def"
  };
#undef TACTUS_PRESET
  return kPresets;
}

const std::vector<ChoiceInfo>& Values(Choice choice) {
  static const std::vector<ChoiceInfo> kInfos[] = {InfosOf(kOrders), InfosOf(kAdmissions), InfosOf(kCompositions),
                                                   InfosOf(kBudgets), InfosOf(kPreemptions)};
  return kInfos[static_cast<size_t>(choice)];
}

Result<const PresetInfo*> FindPreset(const std::string& name) {
  const auto& presets = Presets();
  const auto preset = std::find_if(presets.begin(), presets.end(), [&](const PresetInfo& p) { return name == p.name; });
  if (preset != presets.end()) return &*preset;
  return InvalidArgument(fmt::format("unknown scheduler '{}'; known: {}", name, NamesOf(presets)), "scheduler");
}

Result<ChoiceTraits> MakeChoices(const SchedulerConfig& c, InjectedChoices* choices) {
  TACTUS_RETURN_IF_ERROR(Make(kOrders, "order", c.order, c.limits, &choices->order));
  TACTUS_RETURN_IF_ERROR(Make(kAdmissions, "admission", c.admission, c.limits, &choices->admission));
  TACTUS_RETURN_IF_ERROR(Make(kCompositions, "composition", c.composition, c.limits, &choices->composition));
  TACTUS_RETURN_IF_ERROR(Make(kBudgets, "budget", c.budget, c.limits, &choices->budget));
  TACTUS_RETURN_IF_ERROR(Make(kPreemptions, "preemption", c.preemption, c.limits, &choices->preemption));
  ChoiceTraits traits;
  choices->order->Describe(&traits);
  choices->admission->Describe(&traits);
  choices->composition->Describe(&traits);
  choices->budget->Describe(&traits);
  choices->preemption->Describe(&traits);
  return traits;
}

}  // namespace tactus::sched
