// A scheduler is five independent choices (order, admission, composition, budget, preemption), each an interface below
// with one file per value in its own folder; a preset is one row of presets.def. A sixth choice, the gate, decides
// which requests may queue and belongs to no preset. Policies read StepView and write through PlanBuilder
// (core/sched/plan.h), which does the accounting: a wrong policy can be unfair, but never overcommit.
//
// Every policy is a deterministic function of the view and the clock in it: it has no time source, randomness, input or
// output besides them. Its state between steps is in a note per sequence (core/interfaces/sequence_notes.h) or in an
// index built from the view's changes, so that a fresh instance given the full view (Order::Rebuild) makes the same
// plan. Thread rule: engine thread only.
//
// A policy declares its data in its own file, or in a header that several share: its knobs (Knob, listed in its row of
// choices.def) and the struct of its note. Its constructor gets both from SchedulerLimits.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/service_class.h"
#include "base/step.h"
#include "base/step_time_model.h"
#include "core/interfaces/kv_ledger.h"
#include "core/interfaces/length_predictor.h"
#include "core/interfaces/sequence_columns.h"
#include "core/interfaces/sequence_notes.h"
#include "tactus/policy_options.h"
#include "tactus/status.h"

namespace tactus::core {

// The state that a plan is made from. The plan does not change it: lengths of sequences that the plan has already
// touched are the old ones.
struct StepView {
  StepId step = -1;  // the one being planned
  TimeNs now_ns = 0;
  SequenceColumns seq;
  SequenceNotes notes;                         // read and written through NoteColumn::At
  SequenceNotes client_notes;                  // notes of clients, by SequenceColumns::client
  std::span<const SlotId> waiting;             // in no particular order
  std::span<const SlotId> running;             // in order of admission; in-flight ones included
  std::span<const SlotId> running_by_arrival;  // the same, in order of arrival
  std::span<const SequenceChange> changes;     // since the previous plan
  std::span<const StepRecord> recent;          // results of the last 128 steps, oldest first from recent_begin (a ring)
  int32_t recent_begin = 0;                    // index of the oldest entry of `recent`
  int32_t num_prefilling = 0;                  // running sequences with prompt tokens left to plan
  int64_t previous_prefill_tokens = 0;         // of the step planned before this one, whether or not it has ended
  int32_t steps_in_flight = 0;
  // Measured / predicted time of the last first tokens that gates predicted (GateAnswer::by_model_ns); 1: none yet.
  double first_token_correction = 1;
  // The same ratio for the slowest of them: a prediction times this factor is kept.
  double first_token_margin = 1;
  bool has_drafts = false;   // SequenceColumns::draft_tokens may be more than 0
  bool has_guesses = false;  // some of those drafts are not certain
};

// The knobs of a choice, as listed in its row of choices.def. At most twelve: one more does not compile.
class KnobList {
 public:
  constexpr KnobList(std::initializer_list<const KnobDeclaration*> knobs) {
    for (const KnobDeclaration* knob : knobs) knobs_.at(size_++) = knob;
  }
  constexpr auto begin() const { return knobs_.begin(); }
  constexpr auto end() const { return knobs_.begin() + size_; }

 private:
  std::array<const KnobDeclaration*, 12> knobs_{};
  size_t size_ = 0;
};

// The limits of the engine and the services that it injects, as passed to every choice at start.
struct SchedulerLimits {
  int32_t max_num_seqs = 256;  // B
  int32_t max_model_len = 0;   // L_max
  int32_t slot_capacity = 0;   // live sequences, waiting ones included
  int64_t blocks_total = 0;
  int32_t block_size = 16;
  int32_t pipeline_steps = 1;                  // steps in flight that share the sequences (pp): each gets its part of B
  int64_t swap_blocks = 0;                     // of host memory, for preemption by swap; 0: none
  int64_t token_budget = 0;                    // tau as set by the user; 0: the preset's
  int64_t default_token_budget = 512;          // the preset's (set by Scheduler::Create)
  DurationNs tbt_slo_ns = 0;                   // 0: none; kAutoDuration: the default objective (budget/tbt_slo.cc)
  double watermark = 0.0;                      // share of blocks that admission keeps free
  bool reserve_full = false;                   // max-length reserves L_max
  bool unlimited_steps = false;                // budget none sets no limit at all (simulation)
  PolicyOptions policy;                        // the knobs of all choices
  const StepTimeModel* step_time = nullptr;    // may be null; choices call StepTimes()
  const LengthPredictor* predictor = nullptr;  // may be null
  NoteLayout* notes = nullptr;                 // of the scheduler being made
  NoteLayout* client_notes = nullptr;
  bool* asked_step_times = nullptr;   // set by StepTimes() while the scheduler is being made
  std::vector<ServiceClass> classes;  // SequenceColumns::service_class is 1 + an index of this

  // Client ids are in [0, client_capacity()).
  int32_t client_capacity() const { return 1 + slot_capacity + kIdleClients; }

  // Step times; may be null. A choice that depends on them calls this in its constructor, which notes the dependency
  // (ChoiceTraits::wants_step_time): the engine then loads or measures them.
  const StepTimeModel* StepTimes() const {
    if (asked_step_times != nullptr) *asked_step_times = true;
    return step_time;
  }

  // The column of a choice's note per sequence; choices that name the same struct share it.
  template <class T>
  NoteColumn<T> Note() const {
    TACTUS_CHECK_MSG(notes != nullptr,
                     "a choice that notes something about sequences is made without SchedulerLimits::notes");
    return notes->Column<T>();
  }
  // The column of a note per client; client 0 is for data about all clients.
  template <class T>
  NoteColumn<T> ClientNote() const {
    TACTUS_CHECK_MSG(client_notes != nullptr,
                     "a choice that notes something about clients is made without SchedulerLimits::client_notes");
    return client_notes->Column<T>();
  }
  // The T that the choices of the scheduler share, constructed from these limits by the first call.
  template <class T>
  std::shared_ptr<T> Shared() const {
    TACTUS_CHECK_MSG(notes != nullptr, "a choice that shares a model is made without SchedulerLimits::notes");
    return notes->Shared<T>(*this);
  }
};

// Properties of the choices at start; combinations that cannot work are refused with the reason.
struct ChoiceTraits {
  bool reserves_growth = false;  // admission: a running sequence never meets a shortage
  bool can_preempt = false;      // preemption
  bool makes_room = false;       // preemption: running sequences give way to waiting ones (GivesWay)
  bool splits_prompts = false;   // composition
  bool one_prompt = false;       // composition: a step computes tokens of at most one prompt
  bool pauses = false;  // composition: --max-num-seqs limits the sequences per step; those left out keep their KV
  bool needs_predictor = false;    // order, admission: reads SchedulerLimits::predictor
  bool reserves_context = false;   // admission: reserves max-model-len for every sequence
  bool reserves_output = false;    // preemption: ends a run that outgrew its reservation (Preemption::Outgrown)
  bool aborts_outgrown = false;    // preemption: ends runs that outgrew their reservation (Outgrown)
  bool wants_step_time = false;    // any: called SchedulerLimits::StepTimes()
  bool offline = false;            // budget: for offline jobs, whose start measures no step times
  int64_t max_prefill_tokens = 0;  // budget: most prefill tokens of one step, whatever else is in it
  int64_t max_tokens = 0;          // budget: most tokens of one step
};

struct StepBudget {
  int64_t tokens = 0;           // of the whole step
  int64_t prefill_tokens = 0;   // of prompt chunks
  int64_t oversize_tokens = 0;  // a whole prompt of at most this many may exceed both as the step's only prompt
};

class PlanBuilder;

// A gate's answer for a sequence that has just been queued.
struct GateAnswer {
  // Its first token is predicted fixed_ns + by_model_ns after its arrival: the known part (its wait so far, the steps
  // in flight), and the part from the step-time model and the queue. -1: no prediction.
  DurationNs fixed_ns = -1, by_model_ns = 0;
  bool refused = false;           // it would miss its objective, and its class does not queue then: it ends now
  DurationNs retry_after_ns = 0;  // if refused: time after which an equal request is predicted to keep its objective
};

// Orders the queue. May keep any index over the waiting sequences.
class Order {
 public:
  virtual ~Order() = default;
  virtual void Describe(ChoiceTraits*) const {}
  // Called before each plan with the changes since the previous one.
  virtual void Apply(const StepView& view) = 0;
  // Drops all state and rebuilds it from the view. The view's changes are already part of its queue; an order that
  // notes something about each queued sequence notes it here too.
  virtual void Rebuild(const StepView& view) = 0;
  // Moves the cursor to the first; Next returns the waiting sequences in order, then kNoSlot. Sequences that the plan
  // itself queues or admits appear only in the next plan.
  virtual void Start(const StepView& view) = 0;
  virtual SlotId Next() = 0;
  // The items of the plan made from this view, for orders that track service.
  virtual void Planned(const StepView&, std::span<const StepItem>) {}
  // Whether `a` goes before `b`, for any two live sequences: for compositions that mix queued and partly done prompts.
  virtual bool Before(const StepView& view, SlotId a, SlotId b) const = 0;
  // The rank of a sequence regardless of its arrival (priority), lower is better: running sequences get their share,
  // and are spared from preemption, in this order. Called only if ranks() is true.
  virtual bool ranks() const { return false; }
  virtual int64_t RankOf(const StepView&, SlotId) const { return 0; }
  // Whether Before() compares by rank, then by arrival.
  virtual bool rank_decides() const { return false; }
  // A superset of the running sequences whose rank has changed since the previous plan.
  virtual std::span<const SlotId> Reranked(const StepView& view) const {
    return ranks() ? view.running : std::span<const SlotId>();
  }
  bool Outranks(const StepView& view, SlotId a, SlotId b) const { return ranks() && RankOf(view, a) < RankOf(view, b); }
  // Composition length-grouped puts only sequences of one group into a batch.
  virtual int64_t Group(const StepView&, SlotId) const { return 0; }
};

// KV for a sequence that starts with its first `first_chunk_end` positions (matched prefix included).
struct KvDemand {
  int32_t reserve_tokens = 0;    // >= first_chunk_end; blocks for these are reserved
  int64_t keep_free_blocks = 0;  // refuse if fewer would remain, unless nothing else runs
};

class Admission {
 public:
  virtual ~Admission() = default;
  virtual void Describe(ChoiceTraits*) const {}
  virtual KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const = 0;
};

// What happens to a victim's KV.
enum class PreemptMode : uint8_t {
  kRecompute,  // the KV is dropped and computed again
  kSwap,  // the KV is copied to host memory, and back when the sequence starts again; dropped where no swap space is
          // left
};

class Preemption {
 public:
  virtual ~Preemption() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  virtual PreemptMode Mode() const { return PreemptMode::kRecompute; }
  // The running sequence that loses its KV so that `needy` can continue; may be `needy` itself; kNoSlot: none. Never a
  // sequence that already has a share of `plan` or was preempted in it.
  virtual SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId needy) const = 0;
  // Whether the victim is, for any `needy`, the last to arrive among those that the order ranks lowest: if an index
  // knows them, Victim is not called.
  virtual bool TakesTheLast() const { return false; }
  // Whether a running sequence loses its KV so that `newcomer` can start, a waiting sequence that lacks KV or a place
  // among the max-num-seqs. Called only where ChoiceTraits::makes_room is set and only for sequences that the newcomer
  // outranks: before the step is composed, for one newcomer after the other in queue order. Among those that give way,
  // the order's last are preempted first, and none if all of them together would not suffice.
  virtual bool GivesWay(const StepView&, const Order&, SlotId /*running*/, SlotId /*newcomer*/) const { return false; }
  // Whether sequences left out of a step are swapped out ahead of need (StepContext::FreeAhead).
  virtual bool FreesAhead() const { return false; }
  // Whether a running sequence needs more than its admission reserved: it is preempted before the step is composed, and
  // Aborted is called. Called only where ChoiceTraits::aborts_outgrown is set.
  virtual bool Outgrown(const StepView&, SlotId) const { return false; }
  virtual void Aborted(const StepView&, SlotId) const {}
};

class Budget {
 public:
  virtual ~Budget() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  virtual StepBudget Next(const StepView& view) = 0;
  // As Next, for budgets that depend on the head of the queue and on how much of it is cached. The plan has not begun.
  virtual StepBudget NextFor(const StepView& view, Order*, const PlanBuilder&) { return Next(view); }
  // For the start-up echo: "512 tokens: no --tbt-slo, so the default".
  virtual std::string Why() const = 0;
};

// What a gate may read besides the view. The plan has not begun.
struct GateContext {
  Order& order;
  const Admission& admission;
  const PlanBuilder& plan;
  StepBudget budget;        // of the next step
  int32_t max_running = 0;  // sequences that may hold KV
};

// Decides whether a request may enter the queue. Each class of service has its own gate, or that of --gate.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void Describe(ChoiceTraits*) const {}
  // Whether --max-queue limits its requests. The step loop checks it on the submitter's thread: a flood costs the
  // engine thread nothing.
  virtual bool LimitsQueue() const { return true; }
  // Whether Ask is called for every arriving sequence, also for those of other gates. At most one gate of a scheduler
  // does.
  virtual bool Asks() const { return false; }
  // Precondition: the view's changes have been applied to the order.
  virtual GateAnswer Ask(const StepView&, SlotId, const GateContext&) { return {}; }
  // The plan made from this view.
  virtual void Planned(const StepView&, const StepPlan&) {}
};

// One step's view, builder and other choices, as a composition uses them.
class StepContext;

class Composition {
 public:
  virtual ~Composition() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  // Fills the step.
  virtual void Compose(StepContext& step) = 0;
};

}  // namespace tactus::core
