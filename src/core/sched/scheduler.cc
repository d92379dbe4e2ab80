// Plans a step, and checks at start that the choices fit each other.
#include "core/sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/sched/context.h"
#include "core/sched/registry.h"

namespace tactus::core {

void Scheduler::ApplyChanges(const StepView& view) {
  if (fresh_) {
    order_->Rebuild(view);
    if (running_by_rank_ != nullptr) running_by_rank_->Rebuild(view, *order_);
    fresh_ = false;
  } else {
    order_->Apply(view);
    if (running_by_rank_ != nullptr) running_by_rank_->Apply(view, *order_);
  }
}

GateAnswer Scheduler::AskGate(const StepView& view, const PlanBuilder& builder, SlotId arrived) {
  ApplyChanges(view);
  const GateContext context{.order = *order_,
                            .admission = *admission_,
                            .plan = builder,
                            .budget = budget_->NextFor(view, order_.get(), builder),
                            .max_running = max_holding_};
  GateAnswer answer = asking_gate_->Ask(view, arrived, context);
  answer.refused = answer.refused && GateOf(view.seq.service_class[arrived]).Asks();
  return answer;
}

void Scheduler::Plan(const StepView& view, PlanBuilder* builder, StepPlan* plan) {
  TACTUS_CHECK_MSG(view.notes.stride == note_bytes_ && view.client_notes.stride == client_note_bytes_,
                   "the sequence table was made for other notes than those of this scheduler's choices");
  ApplyChanges(view);
  // After the last resort below, no sequence starts before the running ones have had their share of the freed KV.
  PlanBuilder::Places places{max_holding_, max_running_};
  if (yield_to_running_ && !view.running.empty()) {
    places.running = static_cast<int32_t>(view.running.size());
    places.step = std::min(places.step, places.running);
  }
  yield_to_running_ = false;
  builder->Begin(view, budget_->NextFor(view, order_.get(), *builder), places, plan);
  StepContext step(view, builder, order_.get(), admission_.get(), preemption_.get(), running_by_rank_.get(), &scratch_);
  if (traits_.aborts_outgrown) outgrown_ += step.AbortOutgrown();
  if (traits_.makes_room && !traits_.pauses) step.MakeRoom();
  composition_->Compose(step);
  // Last resort for any policies: no step is in flight and no sequence can continue, so all wait for KV that others
  // hold. The youngest loses its KV, and the next plan continues from there.
  if (builder->empty() && plan->preempts.empty() && view.steps_in_flight == 0 && !view.running.empty() &&
      traits_.can_preempt) {
    const auto by_arrival = view.running_by_arrival;
    const auto idle = std::find_if(by_arrival.rbegin(), by_arrival.rend(), [&](SlotId s) {
      return view.seq.flight[s] == FlightState::kIdle && !builder->Touched(s);  // false while it is paused
    });
    if (idle != by_arrival.rend()) {
      step.TakeBack(*idle);
      yield_to_running_ = true;
    }
  }
  speculation_->Complete(builder);
  order_->Planned(view, builder->items());
  if (asking_gate_ != nullptr) asking_gate_->Planned(view, *plan);
}

std::string Scheduler::Describe() const {
  std::string shares;
  for (const ServiceClass& c : config_.limits.classes) {
    if (c.share > 0)
      shares += fmt::format("{} {} {:.4g} %", shares.empty() ? "; class shares:" : ",", c.name, 100 * c.share);
  }
  return fmt::format(
      "{}: order {}, admission {}, composition {}, budget {} ({}), preemption {}; at most {} sequences at once{}{}",
      config_.preset, config_.order, config_.admission, config_.composition, config_.budget, budget_->Why(),
      config_.preemption + (swaps() && config_.limits.swap_blocks == 0 ? " (recompute: no --swap-space)" : ""),
      max_running_, config_.gate == kUsualGate ? "" : fmt::format("; gate {}", config_.gate), shares);
}

namespace {

constexpr const char* kInjected = "injected";

// Flags are checked by the parser; values from code or traces are checked here, against the same ranges.
struct ParameterCheck {
  Status status;
  void Group(const char*) {}
  template <class T>
  void Field(const char* name, T& value, const FieldSpec& spec) {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
      const auto number = static_cast<double>(value);
      if (status.ok() && !(number >= spec.min && number <= spec.max)) {
        status = InvalidArgument(fmt::format("{} {} is outside [{}, {}]", name, value, spec.min, spec.max), name);
      }
    }
    if constexpr (std::is_same_v<T, DurationText>) {
      const auto ns = static_cast<double>(value.ns);
      if (status.ok() && !(ns >= spec.min && ns <= spec.max)) {
        status = InvalidArgument(fmt::format("{} {} ns is outside [{}, {}]", name, value.ns, spec.min, spec.max), name);
      }
    }
    if constexpr (std::is_same_v<T, std::string>) {
      const std::string known = fmt::format("|{}|", spec.choices);
      if (status.ok() && (value.find('|') != std::string::npos || known.find("|" + value + "|") == std::string::npos)) {
        status = InvalidArgument(fmt::format("{} '{}' is unknown; known: {}", name, value, spec.choices), name);
      }
    }
  }
};

Status CheckLimits(const SchedulerLimits& limits) {
  if (limits.max_model_len < 2) {
    return InvalidArgument(
        fmt::format("a context of {} tokens has no room for a prompt and an answer; it must be at least 2",
                    limits.max_model_len),
        "max-model-len");
  }
  if (limits.max_num_seqs < 1 || limits.max_model_len < 2 || limits.slot_capacity < 1 || limits.block_size < 1 ||
      limits.pipeline_steps < 1) {
    return InvalidArgument(
        fmt::format("scheduler limits out of range: max-num-seqs {}, max-model-len {}, slots {}, block-size {}",
                    limits.max_num_seqs, limits.max_model_len, limits.slot_capacity, limits.block_size));
  }
  if (limits.tbt_slo_ns < kAutoDuration) {
    return InvalidArgument(
        fmt::format("tbt-slo {} ns: a gap between tokens cannot be negative; give a duration of more than 0, auto or "
                    "none",
                    limits.tbt_slo_ns),
        "tbt-slo");
  }
  if (limits.watermark < 0 || limits.watermark >= 1) {
    return InvalidArgument(fmt::format("watermark {} is outside [0, 1)", limits.watermark), "watermark");
  }
  return Status();
}

Status CheckRanges(PolicyOptions policy) {
  ParameterCheck check;
  policy.VisitFields(check);
  return check.status;
}

Status CheckFit(const SchedulerConfig& c, const ChoiceTraits& traits) {
  const SchedulerLimits& limits = c.limits;
  if (!traits.can_preempt && !traits.reserves_growth) {
    return InvalidArgument(
        fmt::format(
            "admission '{}' lets sequences outgrow the KV memory and preemption '{}' never frees any, so a full "
            "cache would block all sequences forever; use --admission max-length or --preemption youngest-recompute",
            c.admission, c.preemption),
        "preemption");
  }
  if (traits.aborts_outgrown && !traits.reserves_output) {
    return InvalidArgument(
        fmt::format("preemption '{}' ends the run of sequences that outgrow the reservation for their output, "
                    "and admission '{}' reserves nothing by prediction; use --admission predicted-length",
                    c.preemption, c.admission),
        "preemption");
  }
  TACTUS_RETURN_IF_ERROR(CheckKnobsFit(c));
  if (!traits.splits_prompts && traits.max_prefill_tokens < limits.max_model_len) {
    return InvalidArgument(
        fmt::format(
            "composition '{}' computes whole prompts, but budget '{}' allows {} prompt tokens per step and "
            "max-model-len is {}: a longer prompt could never start; use --budget none, --token-budget {} or more, "
            "or a composition that splits prompts",
            c.composition, c.budget, traits.max_prefill_tokens, limits.max_model_len, limits.max_model_len),
        "budget");
  }
  if (traits.reserves_context) {
    const int64_t need = (int64_t{limits.max_model_len} + limits.block_size - 1) / limits.block_size;
    if (need > limits.blocks_total) {
      return InvalidArgument(
          fmt::format(
              "--reserve-full needs {} KV blocks per sequence (max-model-len {} / block-size {}), but there are {}: "
              "nothing could ever start; lower --max-model-len or raise --kv-cache-memory",
              need, limits.max_model_len, limits.block_size, limits.blocks_total),
          "reserve-full");
    }
  }
  return Status();
}

Status CheckPredictor(const SchedulerConfig& c, const PresetInfo& preset, const ChoiceTraits& traits,
                      const std::string& name) {
  if (traits.needs_predictor && (name.empty() || name == kNoPredictor)) {
    return InvalidArgument(
        fmt::format("order '{}' with admission '{}' and gate '{}' (or that of a class) needs predicted output "
                    "lengths and there is no predictor; use --predictor {}",
                    c.order, c.admission, c.gate, kUsualPredictor),
        "predictor");
  }
  const std::string only = preset.predictor;
  if (!only.empty() && name != only) {
    return InvalidArgument(
        fmt::format("scheduler '{}' is defined by its predictor, {}; with '{}' use a preset of the same choices that "
                    "accepts any, such as trail",
                    c.preset, only, name),
        "predictor");
  }
  return Status();
}

// Applies the preset's values to knobs that are "auto".
void ApplySettings(const PresetInfo& preset, PolicyOptions* policy) {
  for (std::string_view rest = preset.settings; !rest.empty();) {
    const std::string_view setting = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(setting.size() + 1, rest.size()));
    const size_t equals = setting.find('=');
    auto* const value = policy->Find<std::string>(setting.substr(0, equals));
    TACTUS_CHECK_MSG(value != nullptr, std::string("the preset sets an unknown knob: ").append(setting));
    if (*value == kAutoKnob) *value = setting.substr(equals + 1);
  }
}

// Fills in the preset's values where the config has none, and returns the preset.
Result<const PresetInfo*> ResolveNames(SchedulerConfig* c) {
  TACTUS_ASSIGN_OR_RETURN(const PresetInfo* preset, FindPreset(c->preset));
  if (c->order.empty()) c->order = preset->order;
  if (c->admission.empty()) c->admission = preset->admission;
  if (c->composition.empty()) c->composition = preset->composition;
  if (c->budget.empty()) c->budget = preset->budget;
  if (c->preemption.empty()) c->preemption = preset->preemption;
  if (c->gate.empty()) c->gate = kUsualGate;
  c->limits.default_token_budget = preset->token_budget;
  ApplySettings(*preset, &c->limits.policy);
  TACTUS_RETURN_IF_ERROR(CheckRanges(c->limits.policy));
  return preset;
}
Result<const PresetInfo*> Resolve(SchedulerConfig* c) {
  TACTUS_ASSIGN_OR_RETURN(const PresetInfo* preset, ResolveNames(c));
  TACTUS_RETURN_IF_ERROR(CheckLimits(c->limits));
  return preset;
}

}  // namespace

Result<std::string> Scheduler::PredictorFor(const SchedulerConfig& given) {
  SchedulerConfig config = given;
  TACTUS_ASSIGN_OR_RETURN(const PresetInfo* preset, Resolve(&config));
  InjectedChoices choices;
  TACTUS_ASSIGN_OR_RETURN(const ChoiceTraits traits, MakeChoices(config, &choices));
  std::string name = config.predictor;
  if (name.empty()) name = preset->predictor;
  if (name.empty()) name = traits.needs_predictor ? kUsualPredictor : kNoPredictor;
  TACTUS_RETURN_IF_ERROR(CheckPredictor(config, *preset, traits, name));
  return name;
}

Result<ChoiceTraits> Scheduler::TraitsOf(const SchedulerConfig& given) {
  SchedulerConfig config = given;
  TACTUS_RETURN_IF_ERROR(ResolveNames(&config).status());
  InjectedChoices choices;
  return MakeChoices(config, &choices);
}

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerConfig& given, InjectedChoices choices) {
  SchedulerConfig config = given;
  TACTUS_ASSIGN_OR_RETURN(const PresetInfo* preset, Resolve(&config));
  config.limits.notes = config.limits.client_notes = nullptr;
  if (choices.order != nullptr) config.order = kInjected;
  if (choices.admission != nullptr) config.admission = kInjected;
  if (choices.composition != nullptr) config.composition = kInjected;
  if (choices.budget != nullptr) config.budget = kInjected;
  if (choices.preemption != nullptr) config.preemption = kInjected;
  if (choices.gate != nullptr) config.gate = kInjected;
  config.predictor = config.limits.predictor != nullptr ? config.limits.predictor->name() : kNoPredictor;

  std::unique_ptr<Scheduler> s(new Scheduler());
  TACTUS_ASSIGN_OR_RETURN(s->traits_, MakeChoices(config, &choices));
  TACTUS_RETURN_IF_ERROR(CheckFit(config, s->traits_));
  TACTUS_RETURN_IF_ERROR(CheckPredictor(config, *preset, s->traits_, config.predictor));
  s->order_ = std::move(choices.order);
  s->admission_ = std::move(choices.admission);
  s->composition_ = std::move(choices.composition);
  s->budget_ = std::move(choices.budget);
  s->preemption_ = std::move(choices.preemption);
  s->gate_ = std::move(choices.gate);
  s->class_gates_ = std::move(choices.class_gates);
  if (s->gate_->Asks()) s->asking_gate_ = s->gate_.get();
  for (const auto& gate : s->class_gates_) {
    if (s->asking_gate_ == nullptr && gate != nullptr && gate->Asks()) s->asking_gate_ = gate.get();
  }
  s->notes_ = std::move(choices.notes);
  s->note_bytes_ = s->notes_.stride();
  s->client_notes_ = std::move(choices.client_notes);
  s->client_note_bytes_ = s->client_notes_.stride();
  s->max_running_ = static_cast<int32_t>(std::min<int64_t>(config.limits.max_num_seqs, s->traits_.max_tokens));
  s->max_holding_ = s->traits_.pauses ? config.limits.slot_capacity : s->max_running_;
  if (s->traits_.pauses) s->running_by_rank_ = std::make_unique<RunningByRank>(config.limits.slot_capacity);
  s->speculation_ = std::make_unique<Speculation>(config.limits);
  s->scratch_ = StepScratch(config.limits.slot_capacity, s->max_holding_);
  s->config_ = std::move(config);
  return s;
}

}  // namespace tactus::core
