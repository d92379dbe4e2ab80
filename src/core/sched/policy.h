// A scheduler is five independent choices (order, admission, composition, budget, preemption), each an interface below
// with one file per value in its own folder; a preset is one row of policies.def. A sixth, the gate, says who may queue
// and belongs to no preset. Policies see StepView and write
// through PlanBuilder (core/sched/plan.h), which does the accounting: a wrong policy can be unfair, never overcommit.
//
// Every policy is a deterministic function of the view and the clock in it: no time source, randomness, input or output
// of its own. What it must remember between steps lives in a note of each sequence (core/interfaces/sequence_notes.h)
// or in an index that the view's changes feed, so that a fresh instance given the full view (Order::Rebuild) makes the
// same plan. Thread rule: engine thread only.
//
// A policy's data is declared in its own file, or in a header of those that share it: its knobs (Knob, named by its row
// in choices.def) and the struct that it notes about a sequence. It asks SchedulerLimits for both when it is made.
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

// The state that a plan is made from. Live: lengths of sequences that this plan has already touched are as before it.
struct StepView {
  StepId step = -1;  // the one being planned
  TimeNs now_ns = 0;
  SequenceColumns seq;
  SequenceNotes notes;                         // policies read and write theirs: NoteColumn::At
  SequenceNotes client_notes;                  // the same of clients, by SequenceColumns::client
  std::span<const SlotId> waiting;             // in no particular order
  std::span<const SlotId> running;             // in order of admission; those in flight too
  std::span<const SlotId> running_by_arrival;  // the same, in order of arrival
  std::span<const SequenceChange> changes;     // since the previous plan
  std::span<const StepRecord> recent;          // results of the last 128 steps, oldest first (a ring: see recent_begin)
  int32_t recent_begin = 0;                    // index of the oldest in `recent`
  int32_t num_prefilling = 0;                  // running sequences that have prompt tokens left to plan
  int64_t previous_prefill_tokens = 0;         // of the step planned before this one, whether or not it has ended
  int32_t steps_in_flight = 0;
  // Measured / predicted of what gates predicted of the last first tokens (GateAnswer::by_model_ns); 1: nothing yet.
  double first_token_correction = 1;
  // The same of those that took longest: a promise of a first token by this one is kept.
  double first_token_margin = 1;
  bool has_drafts = false;   // SequenceColumns::draft_tokens may be more than 0
  bool has_guesses = false;  // of them, some that are not sure
};

// The knobs of a choice, which its row names. At most twelve: one more does not compile.
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

// What every choice may know at start: the limits of the engine and the services that it injects.
struct SchedulerLimits {
  int32_t max_num_seqs = 256;  // B
  int32_t max_model_len = 0;   // L_max
  int32_t slot_capacity = 0;   // live sequences, waiting ones included
  int64_t blocks_total = 0;
  int32_t block_size = 16;
  int32_t pipeline_steps = 1;                // steps in flight that share the sequences (pp): each takes its part of B
  int64_t swap_blocks = 0;                   // of host memory, for preemption by swap; 0: none
  int64_t token_budget = 0;                  // tau as the user says; 0: the preset's
  int64_t default_token_budget = 512;        // the preset's (set by Scheduler::Create)
  DurationNs tbt_slo_ns = 0;                 // 0: none; kAutoDuration: the program's own (budget/tbt_slo.cc)
  double watermark = 0.0;                    // share of blocks that admission keeps free
  bool reserve_full = false;                 // max-length reserves L_max
  bool unlimited_steps = false;              // budget none is really none (simulation)
  PolicyOptions policy;                      // the knobs of all choices
  const StepTimeModel* step_time = nullptr;  // may be null; choices ask StepTimes()
  const LengthPredictor* predictor = nullptr;  // may be null
  NoteLayout* notes = nullptr;                 // of the scheduler that is being made
  NoteLayout* client_notes = nullptr;
  bool* asked_step_times = nullptr;   // set by StepTimes(), while the scheduler is being made
  std::vector<ServiceClass> classes;  // SequenceColumns::service_class is 1 + an index of it

  // Ids of clients are in [0, client_capacity()).
  int32_t client_capacity() const { return 1 + slot_capacity + kIdleClients; }

  // How long steps take; may be null. A choice that reads it while it is made goes by it: asking says so to the front
  // door, which loads or measures them (ChoiceTraits::wants_step_time).
  const StepTimeModel* StepTimes() const {
    if (asked_step_times != nullptr) *asked_step_times = true;
    return step_time;
  }

  // Where a choice keeps what it remembers of each sequence; the same for all that name the same struct.
  template <class T>
  NoteColumn<T> Note() const {
    TACTUS_CHECK_MSG(notes != nullptr,
                     "a choice that notes something about sequences is made without SchedulerLimits::notes");
    return notes->Column<T>();
  }
  // The same of each client; that of client 0 is for what concerns all.
  template <class T>
  NoteColumn<T> ClientNote() const {
    TACTUS_CHECK_MSG(client_notes != nullptr,
                     "a choice that notes something about clients is made without SchedulerLimits::client_notes");
    return client_notes->Column<T>();
  }
};

// What the choices tell each other at start, so that a combination that cannot work is refused with the reason.
struct ChoiceTraits {
  bool reserves_growth = false;    // admission: a running sequence never meets a shortage
  bool can_preempt = false;        // preemption
  bool makes_room = false;         // preemption: running sequences give way to waiting ones (GivesWay)
  bool splits_prompts = false;     // composition
  bool one_prompt = false;         // composition: a step computes of one prompt at most
  bool pauses = false;             // composition: --max-num-seqs limits who computes, whoever is left out keeps its KV
  bool needs_predictor = false;    // order, admission: asks SchedulerLimits::predictor
  bool reserves_context = false;   // admission: sets aside max-model-len for every sequence
  bool reserves_output = false;    // admission: sets aside what the output is expected to need (ReservationNote)
  bool aborts_outgrown = false;    // preemption: ends the run of a sequence that outgrew it (Preemption::Outgrown)
  bool wants_step_time = false;    // any: asked SchedulerLimits::StepTimes()
  bool offline = false;            // budget: for offline jobs, whose start measures nothing
  int64_t max_prefill_tokens = 0;  // budget: the most prefill tokens of one step, whatever else is in it
  int64_t max_tokens = 0;          // budget: the most tokens of one step
};

struct StepBudget {
  int64_t tokens = 0;           // of the whole step
  int64_t prefill_tokens = 0;   // of prompt chunks
  int64_t oversize_tokens = 0;  // a whole prompt of at most so many may exceed both as the step's only prompt
};

class PlanBuilder;

// What a gate says of a sequence that has just been queued.
struct GateAnswer {
  // Its first token is predicted fixed_ns + by_model_ns after its arrival: the part that is known (what it has waited,
  // the steps in flight), and the part that follows from the step-time model and the queue. -1: nothing is predicted.
  DurationNs fixed_ns = -1, by_model_ns = 0;
  bool refused = false;           // it cannot keep its objective, and its class does not wait: it ends now
  DurationNs retry_after_ns = 0;  // of a refused one: after so long one like it is predicted to keep it
};

// Who goes next in the queue. Keeps whatever index it likes over the waiting sequences.
class Order {
 public:
  virtual ~Order() = default;
  virtual void Describe(ChoiceTraits*) const {}
  // Before each plan: the changes since the previous one.
  virtual void Apply(const StepView& view) = 0;
  // Forgets everything and starts from the view. Its changes say nothing new about the queue; an order that notes
  // something about each sequence that is queued notes it here too.
  virtual void Rebuild(const StepView& view) = 0;
  // Puts the cursor on the first; Next returns the waiting sequences in order, then kNoSlot. What the plan itself
  // queues or admits does not show before the next plan.
  virtual void Start(const StepView& view) = 0;
  virtual SlotId Next() = 0;
  // The items of the plan made from this view, for orders that remember who was served.
  virtual void Planned(const StepView&, std::span<const StepItem>) {}
  // Whether `a` goes before `b`, for any two live sequences: compositions that mix queued and partly done prompts.
  virtual bool Before(const StepView& view, SlotId a, SlotId b) const = 0;
  // What the order thinks of a sequence whatever its arrival (priority), lower is better: running sequences take their
  // share, and are spared from preemption, in that order. Only asked when ranks() is true.
  virtual bool ranks() const { return false; }
  virtual int64_t RankOf(const StepView&, SlotId) const { return 0; }
  // Whether Before() is: the lower rank, of equal ranks the one that arrived first.
  virtual bool rank_decides() const { return false; }
  // Running sequences, among them all whose rank is not what it was when the previous plan was made.
  virtual std::span<const SlotId> Reranked(const StepView& view) const {
    return ranks() ? view.running : std::span<const SlotId>();
  }
  bool Outranks(const StepView& view, SlotId a, SlotId b) const { return ranks() && RankOf(view, a) < RankOf(view, b); }
  // Sequences of different groups should not share a batch (composition length-grouped).
  virtual int64_t Group(const StepView&, SlotId) const { return 0; }
};

// KV that a sequence takes when it starts with its first `first_chunk_end` positions (matched prefix included).
struct KvDemand {
  int32_t reserve_tokens = 0;    // >= first_chunk_end; blocks for these are set aside
  int64_t keep_free_blocks = 0;  // refuse when fewer would be left, unless nothing else runs
};

class Admission {
 public:
  virtual ~Admission() = default;
  virtual void Describe(ChoiceTraits*) const {}
  virtual KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const = 0;
};

// How a victim gives its KV back.
enum class PreemptMode : uint8_t {
  kRecompute,  // the KV is dropped and computed again
  kSwap,  // the KV goes to host memory and comes back when the sequence starts again; dropped where no swap space is
          // left
};

class Preemption {
 public:
  virtual ~Preemption() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  virtual PreemptMode Mode() const { return PreemptMode::kRecompute; }
  // The running sequence that gives its KV back so that `needy` can go on; possibly `needy` itself; kNoSlot: none does.
  // Sequences that `plan` has already given a share of this step, or already preempted, do not qualify.
  virtual SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId needy) const = 0;
  // Whether that is, whoever needs it, the last to arrive of those that the order values least: where an index knows
  // them, Victim is not asked.
  virtual bool TakesTheLast() const { return false; }
  // Whether a running sequence gives its KV back so that `newcomer` can start, which waits and cannot for want of KV or
  // of a place among the max-num-seqs. Only asked about those whom the newcomer outranks, and only where
  // ChoiceTraits::makes_room says so: before the step is composed, for one newcomer after the other in queue order. Of
  // those who give way the order's last go first, and none if all of them together would not do.
  virtual bool GivesWay(const StepView&, const Order&, SlotId /*running*/, SlotId /*newcomer*/) const { return false; }
  // Whether those that are left out of a step are swapped out ahead of need (StepContext::FreeAhead).
  virtual bool FreesAhead() const { return false; }
  // Whether a running sequence needs more than its admission set aside: it is preempted before the step is composed,
  // and told so. Only asked where ChoiceTraits::aborts_outgrown says so.
  virtual bool Outgrown(const StepView&, SlotId) const { return false; }
  virtual void Aborted(const StepView&, SlotId) const {}
};

class Budget {
 public:
  virtual ~Budget() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  virtual StepBudget Next(const StepView& view) = 0;
  // The same for budgets that look at who comes next in the queue, and how much of it is cached. The plan has not
  // begun.
  virtual StepBudget NextFor(const StepView& view, Order*, const PlanBuilder&) { return Next(view); }
  // For the start-up echo: "512 tokens: no --tbt-slo, so the default".
  virtual std::string Why() const = 0;
};

// What a gate may ask beside the view. The plan has not begun.
struct GateContext {
  Order& order;
  const Admission& admission;
  const PlanBuilder& plan;
  StepBudget budget;        // of the next step
  int32_t max_running = 0;  // sequences that may hold KV
};

// Whether a request may enter the queue. Each class of service has one of its own, or that of --gate.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void Describe(ChoiceTraits*) const {}
  // Whether --max-queue holds for its requests. The door of the step loop keeps it, on the submitter's thread: a flood
  // costs the engine nothing.
  virtual bool LimitsQueue() const { return true; }
  // Whether Ask is called for every sequence that arrives, whichever gate is its own. At most one of a scheduler's
  // does.
  virtual bool Asks() const { return false; }
  // The changes of the view have been applied to the order.
  virtual GateAnswer Ask(const StepView&, SlotId, const GateContext&) { return {}; }
  // What the plan made from this view will do.
  virtual void Planned(const StepView&, const StepPlan&) {}
};

// What a composition works with: one step's view, builder and the other choices.
class StepContext;

class Composition {
 public:
  virtual ~Composition() = default;
  virtual void Describe(ChoiceTraits* traits) const = 0;
  // Fills the step.
  virtual void Compose(StepContext& step) = 0;
};

}  // namespace tactus::core
