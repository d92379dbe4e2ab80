// The tables of choices.def and presets.def, by name.
#include "core/sched/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "core/sched/choices.h"
#include "core/sched/class_shares.h"

namespace tactus::core {
namespace {

template <class T>
using Maker = std::unique_ptr<T> (*)(const SchedulerLimits&);
// In the order of Choice.
using AnyMaker =
    std::variant<Maker<Order>, Maker<Admission>, Maker<Composition>, Maker<Budget>, Maker<Preemption>, Maker<Gate>>;
template <class T>
constexpr Choice kChoiceOf = static_cast<Choice>(AnyMaker(Maker<T>()).index());
static_assert(kChoiceOf<Order> == Choice::kOrder && kChoiceOf<Admission> == Choice::kAdmission &&
              kChoiceOf<Composition> == Choice::kComposition && kChoiceOf<Budget> == Choice::kBudget &&
              kChoiceOf<Preemption> == Choice::kPreemption && kChoiceOf<Gate> == Choice::kGate);

// A row of choices.def. The type of `make` states the choice.
struct Row {
  const char* name;
  AnyMaker make;
  const char* help;
  const KnobList* knobs = nullptr;
};

#define TACTUS_CHOICE(interface, name, make, help, ...) {name, make, help __VA_OPT__(, &__VA_ARGS__)},
constexpr Row kRows[] = {
#include "core/sched/choices.def"
};
#undef TACTUS_CHOICE

template <class Infos>
std::string NamesOf(const Infos& infos) {
  std::string names;
  for (const auto& info : infos) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

template <class T>
Status Make(const std::string& name, const SchedulerLimits& limits, std::unique_ptr<T>* out) {
  if (*out != nullptr) return Status();  // injected
  for (const Row& row : kRows) {
    const auto* const make = std::get_if<Maker<T>>(&row.make);
    if (make == nullptr || name != row.name) continue;
    *out = (*make)(limits);
    return Status();
  }
  const char* const choice = NameOf(kChoiceOf<T>);
  return InvalidArgument(fmt::format("unknown {} '{}'; known: {}", choice, name, NamesOf(Values(kChoiceOf<T>))),
                         choice);
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
#define TACTUS_PRESET(...) {__VA_ARGS__},
  static const std::vector<PresetInfo> kPresets = {
#include "core/sched/presets.def"
  };
#undef TACTUS_PRESET
  return kPresets;
}

const std::vector<SearchInfo>& Searches() {
  static const std::vector<SearchInfo> kSearches = {
      {"oracle", "the best of all of these and of orders found by search, with knowledge of every request (slow)"}};
  return kSearches;
}

const SearchInfo* FindSearch(const std::string& name) {
  const auto& searches = Searches();
  const auto search =
      std::find_if(searches.begin(), searches.end(), [&](const SearchInfo& s) { return name == s.name; });
  return search != searches.end() ? &*search : nullptr;
}

const std::vector<ChoiceInfo>& Values(Choice choice) {
  static const auto kInfos = [] {
    std::array<std::vector<ChoiceInfo>, std::size(kAllChoices)> infos;
    for (const Row& row : kRows) infos[row.make.index()].push_back({row.name, row.help, row.knobs});
    return infos;
  }();
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

// Whether a choice of `c` may use the knob: one that declares it, or one that is in no row of choices.def. The latter
// was injected (InjectedChoices), and its knobs are not known.
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
    return !gate.empty() && Make(gate, limits, &made).ok() && !made->LimitsQueue();
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
  TACTUS_RETURN_IF_ERROR(Make(c.order, c.limits, &choices->order));
  choices->order = WithClassShares(c.limits, std::move(choices->order));
  TACTUS_RETURN_IF_ERROR(Make(c.admission, c.limits, &choices->admission));
  TACTUS_RETURN_IF_ERROR(Make(c.composition, c.limits, &choices->composition));
  TACTUS_RETURN_IF_ERROR(Make(c.budget, c.limits, &choices->budget));
  TACTUS_RETURN_IF_ERROR(Make(c.preemption, c.limits, &choices->preemption));
  TACTUS_RETURN_IF_ERROR(Make(c.gate, c.limits, &choices->gate));
  choices->class_gates.clear();
  for (const ServiceClass& of : c.limits.classes) {
    std::unique_ptr<Gate>& gate = choices->class_gates.emplace_back();
    if (!of.gate.empty()) TACTUS_RETURN_IF_ERROR(Make(of.gate, c.limits, &gate));
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
