// Tables from choices.def and policies.def, and the start-up check that five choices fit each other.
#include <fmt/format.h>

#include <algorithm>

#include "sched/choices.h"
#include "sched/context.h"
#include "sched/scheduler.h"

namespace tactus::sched {
namespace {

constexpr const char* kInjected = "injected";

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
  if (*out != nullptr) return Status();   // injected
  for (const Entry<T>& e : entries) {
    if (name == e.name) {
      *out = e.make(limits);
      return Status();
    }
  }
  return InvalidArgument(fmt::format("unknown {} '{}'; known: {}", choice, name, NamesOf(entries)), choice);
}

Status CheckLimits(const SchedulerLimits& limits) {
  if (limits.max_num_seqs < 1 || limits.max_model_len < 2 || limits.slot_capacity < 1 || limits.block_size < 1) {
    return InvalidArgument(fmt::format("scheduler limits out of range: max-num-seqs {}, max-model-len {}, slots {}, block-size {}",
                                       limits.max_num_seqs, limits.max_model_len, limits.slot_capacity, limits.block_size));
  }
  if (limits.watermark < 0 || limits.watermark >= 1) {
    return InvalidArgument(fmt::format("watermark {} is outside [0, 1)", limits.watermark), "watermark");
  }
  return Status();
}

Status CheckFit(const SchedulerConfig& c, const ChoiceTraits& traits) {
  const SchedulerLimits& limits = c.limits;
  if (!traits.can_preempt && !traits.reserves_growth) {
    return InvalidArgument(
        fmt::format("admission '{}' lets sequences outgrow the KV memory and preemption '{}' never gives any back, so a "
                    "full cache would stop for good; use --admission max-length or --preemption youngest-recompute",
                    c.admission, c.preemption),
        "preemption");
  }
  if (!traits.splits_prompts && traits.max_prefill_tokens < limits.max_model_len) {
    return InvalidArgument(
        fmt::format("composition '{}' computes whole prompts, but budget '{}' allows {} prompt tokens per step and "
                    "max-model-len is {}: a longer prompt could never start; use --budget none, --token-budget {} or more, "
                    "or a composition that splits prompts",
                    c.composition, c.budget, traits.max_prefill_tokens, limits.max_model_len, limits.max_model_len),
        "budget");
  }
  if (limits.reserve_full && c.admission == "max-length") {
    const int64_t need = (int64_t{limits.max_model_len} + limits.block_size - 1) / limits.block_size;
    if (need > limits.blocks_total) {
      return InvalidArgument(
          fmt::format("--reserve-full needs {} KV blocks per sequence (max-model-len {} / block-size {}), but there are {}: "
                      "nothing could ever start; lower --max-model-len or raise --kv-cache-memory",
                      need, limits.max_model_len, limits.block_size, limits.blocks_total),
          "reserve-full");
    }
  }
  return Status();
}

}  // namespace

const std::vector<PresetInfo>& Presets() {
#define TACTUS_PRESET(name, order, admission, composition, budget, preemption, tokens, source, help, starvation) \
  {name, order, admission, composition, budget, preemption, tokens, source, help, starvation},
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

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerConfig& given, InjectedChoices injected) {
  SchedulerConfig config = given;
  const auto& presets = Presets();
  const auto preset = std::find_if(presets.begin(), presets.end(), [&](const PresetInfo& p) { return config.preset == p.name; });
  if (preset == presets.end()) {
    return InvalidArgument(fmt::format("unknown scheduler '{}'; known: {}", config.preset, NamesOf(presets)), "scheduler");
  }
  if (config.order.empty()) config.order = preset->order;
  if (config.admission.empty()) config.admission = preset->admission;
  if (config.composition.empty()) config.composition = preset->composition;
  if (config.budget.empty()) config.budget = preset->budget;
  if (config.preemption.empty()) config.preemption = preset->preemption;
  if (injected.order != nullptr) config.order = kInjected;
  if (injected.admission != nullptr) config.admission = kInjected;
  if (injected.composition != nullptr) config.composition = kInjected;
  if (injected.budget != nullptr) config.budget = kInjected;
  if (injected.preemption != nullptr) config.preemption = kInjected;
  config.limits.default_token_budget = preset->token_budget;
  TACTUS_RETURN_IF_ERROR(CheckLimits(config.limits));

  std::unique_ptr<Scheduler> s(new Scheduler());
  s->order_ = std::move(injected.order);
  s->admission_ = std::move(injected.admission);
  s->composition_ = std::move(injected.composition);
  s->budget_ = std::move(injected.budget);
  s->preemption_ = std::move(injected.preemption);
  TACTUS_RETURN_IF_ERROR(Make(kOrders, "order", config.order, config.limits, &s->order_));
  TACTUS_RETURN_IF_ERROR(Make(kAdmissions, "admission", config.admission, config.limits, &s->admission_));
  TACTUS_RETURN_IF_ERROR(Make(kCompositions, "composition", config.composition, config.limits, &s->composition_));
  TACTUS_RETURN_IF_ERROR(Make(kBudgets, "budget", config.budget, config.limits, &s->budget_));
  TACTUS_RETURN_IF_ERROR(Make(kPreemptions, "preemption", config.preemption, config.limits, &s->preemption_));
  s->admission_->Describe(&s->traits_);
  s->composition_->Describe(&s->traits_);
  s->budget_->Describe(&s->traits_);
  s->preemption_->Describe(&s->traits_);
  TACTUS_RETURN_IF_ERROR(CheckFit(config, s->traits_));
  s->max_running_ = static_cast<int32_t>(std::min<int64_t>(config.limits.max_num_seqs, s->traits_.max_tokens));
  s->scratch_.reserve(static_cast<size_t>(s->max_running_));
  s->config_ = std::move(config);
  return s;
}

void Scheduler::Plan(const StepView& view, PlanBuilder* builder, StepPlan* plan) {
  if (fresh_) {
    order_->Rebuild(view);
    fresh_ = false;
  } else if (!view.changes.empty()) {
    order_->Apply(view);
  }
  builder->Begin(view, budget_->Next(view), max_running_, plan);
  StepContext step(view, builder, order_.get(), admission_.get(), preemption_.get(), &scratch_);
  composition_->Compose(step);
}

std::string Scheduler::Describe() const {
  return fmt::format("{}: order {}, admission {}, composition {}, budget {} ({}), preemption {}; at most {} sequences at once",
                     config_.preset, config_.order, config_.admission, config_.composition, config_.budget, budget_->Why(),
                     config_.preemption, max_running_);
}

}  // namespace tactus::sched
