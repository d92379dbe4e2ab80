// A scheduler: six choices, checked to fit each other. The engine calls Plan once per step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/sched/context.h"
#include "core/sched/plan.h"
#include "core/sched/policy.h"
#include "core/sched/speculation.h"

namespace tactus::core {

inline constexpr const char* kUsualGate = "queue";

struct SchedulerConfig {
  std::string preset = "sarathi-serve";
  std::string order, admission, composition, budget, preemption;  // empty: the preset's
  std::string gate;                                               // in no preset; empty: queue
  std::string predictor;  // empty: the preset's, else history where a choice needs one, else none
  SchedulerLimits limits;
};

// Whether --max-queue does not limit some class, or requests without one.
bool AnyPassesQueue(const SchedulerConfig& config);

struct PresetInfo {
  const char* name;
  const char* order;
  const char* admission;
  const char* composition;
  const char* budget;
  const char* preemption;
  int64_t token_budget;  // default tau
  const char* source;    // paper or system
  const char* help;
  const char* starvation;      // bound on the time for which a request can be passed over
  const char* predictor = "";  // the only predictor allowed (trail-oracle); empty: any
  // Values for knobs that are "auto" (kAutoKnob): "era=completed accelgen-model=off".
  const char* settings = "";
};
struct ChoiceInfo {
  const char* name;
  const char* help;
  const KnobList* knobs;  // null: none
  bool Declares(const KnobDeclaration& knob) const;
};
enum class Choice : uint8_t { kOrder, kAdmission, kComposition, kBudget, kPreemption, kGate };
inline constexpr Choice kAllChoices[] = {Choice::kOrder,  Choice::kAdmission,  Choice::kComposition,
                                         Choice::kBudget, Choice::kPreemption, Choice::kGate};
const char* NameOf(Choice choice);  // the flag's name

// For --help, docs and the conformance suite: every row of presets.def, every value of a choice.
const std::vector<PresetInfo>& Presets();
const std::vector<ChoiceInfo>& Values(Choice choice);

// What --scheduler names besides presets, in simulations only: the best of many runs with knowledge of every request
// (sim/oracle/oracle.h).
struct SearchInfo {
  const char* name;
  const char* help;
};
const std::vector<SearchInfo>& Searches();
const SearchInfo* FindSearch(const std::string& name);  // null: no search of that name

// Choices without a row in choices.def, made by simulations or tests; null ones are made as the config states. In the
// config and in Describe an injected choice is called "injected".
struct InjectedChoices {
  std::unique_ptr<Order> order;
  std::unique_ptr<Admission> admission;
  std::unique_ptr<Composition> composition;
  std::unique_ptr<Budget> budget;
  std::unique_ptr<Preemption> preemption;
  std::unique_ptr<Gate> gate;                      // for classes that name none
  std::vector<std::unique_ptr<Gate>> class_gates;  // by index of SchedulerLimits::classes; null: `gate`. Never injected
  // SchedulerLimits::notes and client_notes of the injected choices; the others add theirs.
  NoteLayout notes, client_notes;
};

class Scheduler {
 public:
  // kInvalidArgument: an unknown name (lists the known ones) or a combination that cannot work (with the reason and the
  // fix).
  static Result<std::unique_ptr<Scheduler>> Create(const SchedulerConfig& config) { return Create(config, {}); }
  static Result<std::unique_ptr<Scheduler>> Create(const SchedulerConfig& config, InjectedChoices injected);

  // The name of the predictor to set as SchedulerLimits::predictor before Create ("none", "history", ...). Create
  // refuses a combination that needs a predictor and has none.
  static Result<std::string> PredictorFor(const SchedulerConfig& config);

  // The traits of a configuration before there is a predictor or a step-time model. Sizes need not be known.
  static Result<ChoiceTraits> TraitsOf(const SchedulerConfig& config);

  // Fills `plan` through `builder`. The first call, and the first after Forget, reads the whole view instead of its
  // changes.
  void Plan(const StepView& view, PlanBuilder* builder, StepPlan* plan);
  // Whether --max-queue limits requests of that class (SequenceColumns::service_class).
  bool LimitsQueue(uint8_t service_class) const { return GateOf(service_class).LimitsQueue(); }
  // Whether AskGate must be called for every arriving sequence (except held ones).
  bool gate_asks() const { return asking_gate_ != nullptr; }
  // Applies the view's changes, as Plan does: pass each change to only one of them. Precondition: gate_asks().
  GateAnswer AskGate(const StepView& view, const PlanBuilder& builder, SlotId arrived);
  // Drops every index (tests: a fresh instance makes the same plan).
  void Forget() { fresh_ = true; }

  // "sarathi-serve: order fcfs, admission prompt-fits, ...; 512 tokens: no --tbt-slo, so the default"
  std::string Describe() const;
  const SchedulerConfig& config() const { return config_; }  // every choice filled in
  const NoteLayout& notes() const { return notes_; }         // for the views passed to Plan
  const NoteLayout& client_notes() const { return client_notes_; }
  int64_t max_step_tokens() const { return traits_.max_tokens; }
  // Whether a step may hold whole prompts of several sequences, each of which reserves its whole context.
  bool computes_whole_contexts() const {
    return traits_.reserves_context && !traits_.splits_prompts && !traits_.one_prompt;
  }
  bool swaps() const { return preemption_->Mode() == PreemptMode::kSwap; }  // if there is swap space
  int64_t outgrown() const { return outgrown_; }  // runs ended so far because a reservation was too small
  // B, or less if tau is smaller: every decode fits a step.
  int32_t max_running() const { return max_running_; }

 private:
  Scheduler() = default;
  void ApplyChanges(const StepView& view);
  SchedulerConfig config_;
  ChoiceTraits traits_;
  int32_t max_running_ = 0;  // per step
  int32_t max_holding_ = 0;  // sequences that hold KV
  int64_t outgrown_ = 0;
  bool yield_to_running_ = false;
  bool fresh_ = true;
  std::unique_ptr<RunningByRank> running_by_rank_;  // null if the composition never pauses a sequence
  StepScratch scratch_;
  std::unique_ptr<Speculation> speculation_;
  NoteLayout notes_, client_notes_;
  size_t note_bytes_ = 0, client_note_bytes_ = 0;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Composition> composition_;
  std::unique_ptr<Budget> budget_;
  std::unique_ptr<Preemption> preemption_;
  const Gate& GateOf(uint8_t service_class) const {
    const Gate* own = service_class == 0 ? nullptr : class_gates_[service_class - 1u].get();
    return own != nullptr ? *own : *gate_;
  }
  std::unique_ptr<Gate> gate_;
  std::vector<std::unique_ptr<Gate>> class_gates_;
  Gate* asking_gate_ = nullptr;  // one of the gates above; null: none asks
};

}  // namespace tactus::core
