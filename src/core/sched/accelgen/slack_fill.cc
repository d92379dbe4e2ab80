// AccelGen's step (section 4.4): urgent requests first, those that must run in this step to keep their objective (T_r
// about T_max); then all running decodes as far as possible, since they free KV; the rest of the step goes to prompts,
// chosen by how well their demand fits what is left of budget and KV. A long prompt waits while the running long ones
// still need the KV that it would take (ERA, 4.2; the paper: while one runs at all).
//
// If the budget is short, the sequence with the most slack sits the step out and keeps its KV: all are served in
// ascending slack. If KV is short, the preemption chooses the victim. Ours, where the paper is silent: the tokens of
// urgent decodes are reserved before urgent prompts take chunks; an urgent request that does not fit holds back the
// queue behind it; once none within gamma of the first fits, the next ones in the queue are tried, and the rest of the
// budget finally goes to a shorter chunk. A prompt that has missed (core/sched/accelgen/slack.h) is not urgent and
// comes after all others; one that has its turn goes first. core/sched/accelgen/slack.h has the effect of
// --accelgen-missed on this.
#include <algorithm>
#include <array>

#include "core/sched/accelgen/distance.h"
#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"
#include "core/sched/context.h"
#include "core/sched/index/steady_sort.h"

namespace tactus::core {
namespace {

// A step chooses among at most kMostInGroup at a time and reads at most kMostLookedAt of the queue, which bounds the
// time of a decision.
constexpr size_t kMostInGroup = 64;
constexpr size_t kMostLookedAt = 256;
// Prompts that have missed are taken in order, not chosen by distance.
constexpr size_t kMostMissedInGroup = 32;
// Failed starts of candidates that fitted when the group was gathered: the blocks that must stay free are reached.
constexpr int kMostRefused = 4;

constexpr Knob<DurationText> kGamma{
    "accelgen-gamma",
    {750'000'000},
    {.unit = "duration",
     .min = 0,
     .max = 1e15,
     .help = "slack-fill: requests whose slack is within this of the least are chosen among by distance"}};
constexpr Knob<std::string> kDistanceKind{
    "distance",
    "euclidean",
    {.choices = "euclidean|normalised",
     .help = "slack-fill: distance in tokens, or in shares of the budget and of the KV memory"}};
constexpr Knob<std::string> kEra{
    "era",
    kAutoKnob,
    {.choices = "auto|kv|completed|prefilled|off",
     .help = "slack-fill: a long prompt that is not urgent starts only if KV is free for it and the rest of the "
             "running long ones (kv), or once those have ended (completed) or are computed (prefilled); auto: the "
             "preset's, else kv"}};
constexpr Knob<int64_t> kLongPrompt{
    "accelgen-long-prompt",
    4096,
    {.unit = "tokens", .min = 1, .max = 1 << 30, .help = "slack-fill: prompts of at least this length are long"}};

enum class Selection : uint8_t { kDistance, kQueueOrder };

class SlackFill final : public Composition {
 public:
  SlackFill(const SchedulerLimits& limits, Selection selection, bool whole_prompts)
      : slack_(limits),
        selection_(selection),
        whole_(whole_prompts),
        gamma_ns_(limits.policy[kGamma].ns),
        long_prompt_(limits.policy[kLongPrompt]),
        era_(EraOf(limits.policy[kEra])),
        normalised_(limits.policy[kDistanceKind] == "normalised"),
        kv_tokens_(limits.blocks_total * limits.block_size),
        sort_ready_(limits.slot_capacity, limits.max_num_seqs),
        distance_(kMostInGroup) {
    ready_.reserve(static_cast<size_t>(limits.max_num_seqs));
    group_.reserve(kMostInGroup);
    long_running_.reserve(static_cast<size_t>(limits.max_num_seqs));
  }

  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = !whole_; }

  void Compose(StepContext& step) override {
    urgent_ns_ = slack_.Window(step.view).longest_step_ns;
    const DurationNs full_ns = slack_.FullStepNs(step.view, step.plan.budget_tokens());
    late_if_left_out_ns_ = 2 * std::max(urgent_ns_, full_ns) - urgent_ns_;
    CollectReady(step);
    OpenQueue(step);
    RunUrgent(step);
    if (late_skipped_) OpenQueue(step);
    for (Ready& r : ready_) {
      if (r.decode && !r.served && step.plan.tokens_left() > 0) RunOne(step, &r, kNoLimit);
    }
    if (step.plan.has_preempted()) queue_head_ = kNoSlot;  // no further start in a step that had to preempt
    SelectRest(step);
    if (step.plan.empty() && step.view.steps_in_flight == 0) RunLeastSlack(step);
    PassOverTheRest(step.view, step.plan);
  }

 private:
  enum class Era : uint8_t { kKv, kCompleted, kPrefilled, kOff };
  static Era EraOf(const std::string& name) {
    return name == "completed"   ? Era::kCompleted
           : name == "prefilled" ? Era::kPrefilled
           : name == "off"       ? Era::kOff
                                 : Era::kKv;
  }
  // Reads the queue some sequences ahead of the composition and prefetches them: the notes and columns of waiting
  // sequences are cold. The further the composition reads, the further ahead it is, up to kMost.
  class ReadAhead {
   public:
    void Clear() { read_ = handed_out_ = 0; }
    SlotId Next(const StepContext& step, const SlackModel& slack) {
      for (int i = 0; i < 2 && read_ - handed_out_ < kMost; ++i) {
        if (read_ > 0 && slots_[(read_ - 1) % kMost] == kNoSlot) break;  // the queue's end
        const SlotId slot = step.order.Next();
        if (slot != kNoSlot) {
          slack.PrefetchSlot(step.view, slot);
          step.plan.PrefetchSlot(slot);
        }
        slots_[read_++ % kMost] = slot;
      }
      return handed_out_ < read_ ? slots_[handed_out_++ % kMost] : kNoSlot;
    }

   private:
    static constexpr size_t kMost = 8;
    std::array<SlotId, kMost> slots_{};
    size_t read_ = 0, handed_out_ = 0;
  };
  struct Ready {  // a running sequence that can get a share of this step
    DurationNs slack_ns = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
    bool decode = false;
    bool served = false;
  };
  struct Candidate {
    SlotId slot = kNoSlot;
    size_t ready = 0;  // index in ready_; unused if waiting
    bool waiting = false;
    bool missed = false;  // only of waiting ones
    int32_t chunk = 0;    // tokens that it may take, cut when the group was gathered
  };

  static bool Less(DurationNs slack_a, int64_t arrival_a, DurationNs slack_b, int64_t arrival_b) {
    return slack_a != slack_b ? slack_a < slack_b : arrival_a < arrival_b;
  }

  void CollectReady(const StepContext& step) {
    ready_.clear();
    long_running_.clear();
    long_wanted_of_ = -1;
    missed_running_ = 0;
    const SequenceColumns& seq = step.view.seq;
    for (const SlotId slot : step.view.running) {
      const bool prefilling = seq.state[slot] == SeqState::kPrefill;
      const bool missed = prefilling && slack_.StandsBehind(step.view, slot);
      if (seq.prompt_tokens[slot] >= long_prompt_ &&
          (era_ == Era::kCompleted || (prefilling && (!missed || era_ != Era::kKv)))) {
        long_running_.push_back(slot);
      }
      if (!seq.Plannable(slot) || seq.Pending(slot) <= 0) continue;
      missed_running_ += missed ? 1 : 0;
      Ready& r = ready_.emplace_back();
      r.slack_ns = slack_.StandingNs(step.view, slot, missed);
      r.arrival = seq.arrival_order[slot];
      r.slot = slot;
      r.decode = !prefilling;
    }
    sort_ready_.Sort(&ready_,
                     [](const Ready& a, const Ready& b) { return Less(a.slack_ns, a.arrival, b.slack_ns, b.arrival); });
  }

  // --- the queue, read once from its head ---
  void OpenQueue(StepContext& step) {
    queue_head_ = kNoSlot;
    late_skipped_ = false;
    looked_at_ = 0;
    ahead_.Clear();
    if (step.view.waiting.empty() || step.plan.starts_left() <= 0 || step.plan.blocks_available() <= 0) return;
    step.order.Start(step.view);
    Advance(step);
    if (queue_head_ != kNoSlot && head_slack_ns_ == kNever) slack_.AwaitTurn(step.view, queue_head_);
  }
  void Advance(StepContext& step) {
    do {
      queue_head_ = looked_at_++ < kMostLookedAt ? ahead_.Next(step, slack_) : kNoSlot;
      if (queue_head_ == kNoSlot) return;
    } while (step.plan.Touched(queue_head_));  // already started: the queue is read a second time for late prompts
    // A preempted sequence goes before all others, as in the order's queue.
    head_missed_ = slack_.StandsBehind(step.view, queue_head_);
    const bool preempted = step.view.seq.preemptions[queue_head_] > 0 && !head_missed_;
    head_slack_ns_ = preempted ? SlackModel::kTurn : slack_.StandingNs(step.view, queue_head_, head_missed_);
  }

  // --- urgent sequences ---
  void RunUrgent(StepContext& step) {
    int64_t decodes = std::count_if(ready_.begin(), ready_.end(),
                                    [this](const Ready& r) { return r.decode && r.slack_ns <= late_if_left_out_ns_; });
    for (size_t i = 0; step.plan.tokens_left() > 0;) {
      if (i < ready_.size() && IsLateAndNotUrgent(ready_[i].slack_ns)) {
        ++i;
        continue;
      }
      if (queue_head_ != kNoSlot && IsLateAndNotUrgent(head_slack_ns_)) {
        late_skipped_ = true;
        Advance(step);
        continue;
      }
      const bool running = i < ready_.size() && ready_[i].slack_ns <= urgent_ns_;
      const bool waiting = queue_head_ != kNoSlot && head_slack_ns_ <= urgent_ns_;
      if (!running && !waiting) return;
      const int64_t room = step.plan.tokens_left() - decodes;
      if (running && (!waiting || Less(ready_[i].slack_ns, ready_[i].arrival, head_slack_ns_,
                                       step.view.seq.arrival_order[queue_head_]))) {
        Ready& r = ready_[i++];
        decodes -= r.decode ? 1 : 0;
        if (r.decode || room > 0) RunOne(step, &r, r.decode ? kNoLimit : Limit(room));
        continue;
      }
      const AddResult result = room > 0 ? StartUrgent(step, queue_head_, Limit(room)) : AddResult::kNoBudget;
      if (result == AddResult::kAdded || result == AddResult::kNotReady || (whole_ && result == AddResult::kNoBudget)) {
        Advance(step);
      } else {
        queue_head_ = kNoSlot;
      }
    }
  }

  bool IsLateAndNotUrgent(DurationNs slack_ns) const {
    return slack_ns < 0 && slack_ns != SlackModel::kTurn && slack_.missed_rule() == MissedRule::kFirst;
  }

  AddResult StartUrgent(StepContext& step, SlotId slot, int32_t limit) {
    AddResult result = Start(step, slot, limit);
    // A prompt takes no KV from sequences that can be kept: it would save one objective at the cost of another, and the
    // victim's tokens are computed twice. As published it does, unless the prompt itself was preempted.
    const bool spares = slack_.missed_rule() == MissedRule::kBehind || step.view.seq.preemptions[slot] > 0;
    while (result == AddResult::kNoBlocks) {
      const SlotId victim = step.Victim(slot);
      if (spares && victim != kNoSlot && !slack_.GivesWay(step.view, victim)) break;
      if (victim == kNoSlot || !slack_.MayTakeFrom(step.view, slot, victim)) break;
      if (step.TakeBack(victim) == PreemptResult::kDeferred) return result;
      result = Start(step, slot, limit);
    }
    const int64_t kv_left = step.plan.blocks_available() * step.plan.block_size();
    if (result == AddResult::kNoBlocks && !whole_ && kv_left > 0 && kv_left < limit)
      result = Start(step, slot, Limit(kv_left));
    return result;
  }

  // --- the rest ---
  void SelectRest(StepContext& step) {
    size_t next = 0;  // in ready_
    while (step.plan.prefill_left() > 0) {
      const int32_t before = step.plan.num_items();
      if (!GatherGroup(step, &next)) return;
      if (selection_ == Selection::kDistance && !group_missed_) SelectByDistance(step);
      // The others in queue order, cut to what is left.
      for (Candidate& c : group_) {
        if (step.plan.prefill_left() <= 0) return;
        if (step.plan.Touched(c.slot) || (c.missed && missed_running_ > 0)) continue;  // Start would refuse it
        const int32_t all = TokensOf(step.view, c);
        c.chunk = ChunkThatFits(step, c, whole_ ? all : step.plan.prefill_left());
        if (c.chunk == all || (c.chunk > 0 && !whole_)) Take(step, &c);
      }
      // What is left fits none of them, and hardly any behind them in the queue.
      if (step.plan.num_items() == before) queue_head_ = kNoSlot;
    }
  }

  // Gathers the next prompts within gamma of the first one's slack; after all of these those that have missed. False:
  // there are none.
  bool GatherGroup(StepContext& step, size_t* next) {
    group_.clear();
    DurationNs until_ns = kNever;
    bool first = true;
    group_missed_ = false;
    while (group_.size() < (group_missed_ ? kMostMissedInGroup : kMostInGroup)) {
      while (*next < ready_.size() && (ready_[*next].decode || ready_[*next].served)) ++*next;
      const bool running = *next < ready_.size();
      if (queue_head_ != kNoSlot && step.plan.starts_left() <= 0) queue_head_ = kNoSlot;
      const bool waiting = queue_head_ != kNoSlot;
      if (!running && !waiting) break;
      const bool take_running = running && (!waiting || head_slack_ns_ == kNever ||
                                            Less(ready_[*next].slack_ns, ready_[*next].arrival, head_slack_ns_,
                                                 step.view.seq.arrival_order[queue_head_]));
      const DurationNs slack_ns = take_running ? ready_[*next].slack_ns : head_slack_ns_;
      if (slack_ns > until_ns) break;
      if (first && slack_ns == kNever) group_missed_ = true;
      if (first && slack_ns != kNever) until_ns = slack_ns + gamma_ns_;
      first = false;
      if (take_running) {
        group_.push_back({ready_[*next].slot, *next, false, false, 0});
        ++*next;
      } else {
        if (!HeldBack(step, queue_head_)) group_.push_back({queue_head_, 0, true, head_missed_, 0});
        Advance(step);
      }
    }
    return !group_.empty();
  }

  // ERA: whether a long prompt must wait for other long ones.
  bool HeldBack(const StepContext& step, SlotId slot) {
    if (era_ == Era::kOff || long_running_.empty() || step.view.seq.prompt_tokens[slot] < long_prompt_) return false;
    if (era_ != Era::kKv) return true;
    const int64_t block = step.plan.block_size();
    const int64_t own = (step.view.seq.known_committed[slot] + block - 1) / block;
    return step.plan.blocks_available() < own + LongWantedBlocks(step);
  }
  // Blocks that the running long prompts will take beyond those they hold.
  int64_t LongWantedBlocks(const StepContext& step) {
    if (long_wanted_of_ == step.plan.num_items()) return long_wanted_;
    long_wanted_of_ = step.plan.num_items();
    long_wanted_ = 0;
    const int64_t block = step.plan.block_size();
    for (const SlotId slot : long_running_) {
      const int64_t beyond = step.view.seq.known_committed[slot] - step.plan.CoveredTokens(slot);
      if (beyond > 0) long_wanted_ += (beyond + block - 1) / block;
    }
    return long_wanted_;
  }

  void SelectByDistance(StepContext& step) {
    const int64_t block = step.plan.block_size();
    distance_.Reset(normalised_ ? Resources{step.plan.budget_tokens(), kv_tokens_} : Resources{1, 1});
    const int64_t left = step.plan.prefill_left();
    for (size_t i = 0; i < group_.size(); ++i) {
      Candidate& c = group_[i];
      const int32_t all = TokensOf(step.view, c);
      c.chunk = ChunkThatFits(step, c, whole_ ? all : left);
      if (whole_ && c.chunk < all) c.chunk = 0;
      if (c.chunk > 0) distance_.Add(static_cast<int32_t>(i), {c.chunk, KvOf(step, c, c.chunk)});
    }
    for (int32_t look = 0; look < PlanBuilder::kLooks; ++look) {
      for (const Candidate& c : group_) {
        if (c.waiting && c.chunk > 0) step.plan.PrefetchStart(c.slot, look);
      }
    }
    int refused = 0;
    while (step.plan.prefill_left() > 0) {
      const int32_t i = distance_.TakeNearest({step.plan.prefill_left(), step.plan.blocks_available() * block});
      if (i < 0) return;
      const int32_t before = step.plan.num_items();
      Take(step, &group_[static_cast<size_t>(i)]);
      if (step.plan.num_items() == before && ++refused == kMostRefused) return;
    }
  }

  static int32_t TokensOf(const StepView& view, const Candidate& c) {
    return c.waiting ? view.seq.known_committed[c.slot] : view.seq.Pending(c.slot);
  }
  // D_m: KV tokens, in whole blocks, beyond what the sequence holds.
  static int64_t KvOf(const StepContext& step, const Candidate& c, int32_t chunk) {
    if (c.waiting) return step.StartDemand(c.slot, chunk).blocks * step.plan.block_size();
    const int64_t beyond = step.view.seq.computed_planned[c.slot] + chunk - step.plan.CoveredTokens(c.slot);
    const int64_t block = step.plan.block_size();
    return beyond <= 0 ? 0 : (beyond + block - 1) / block * block;
  }
  // A chunk cut to the smaller of `left` and the free KV; 0: not even one token fits.
  int32_t ChunkThatFits(const StepContext& step, const Candidate& c, int64_t left) const {
    const int64_t block = step.plan.block_size(), free_blocks = step.plan.blocks_available();
    const int32_t chunk = Limit(std::min<int64_t>(TokensOf(step.view, c), left));
    if (!c.waiting) {
      const int64_t held = std::max(0, step.plan.CoveredTokens(c.slot) - step.view.seq.computed_planned[c.slot]);
      return Limit(std::min<int64_t>(chunk, held + free_blocks * block));
    }
    if (step.plan.starts_left() <= 0 || free_blocks <= 0) return 0;
    const auto fits = [&](int32_t tokens) {
      const PlanBuilder::Demand d = step.StartDemand(c.slot, tokens);
      return d.blocks + d.keep_free <= free_blocks;
    };
    if (fits(chunk)) return chunk;
    if (whole_) return 0;
    const int32_t cut = Limit(std::min<int64_t>(chunk, free_blocks * block));
    return cut < chunk && fits(cut) ? cut : 0;
  }

  void Take(StepContext& step, const Candidate* c) {
    if (!c->waiting) {
      Ready& r = ready_[c->ready];
      if (r.served || step.plan.AddRunning(r.slot, c->chunk, whole_) != AddResult::kAdded) return;
      Served(step, &r);
    } else if (!HeldBack(step, c->slot) && !step.plan.Touched(c->slot)) {
      Start(step, c->slot, c->chunk);
    }
  }

  // A preempted sequence starts again only if all of it fits and all running ones can continue, whatever the admission
  // demands: else it would take back at once what it lost, and the two could alternate forever.
  static bool MayStart(const StepContext& step, SlotId slot) {
    if (step.view.seq.preemptions[slot] == 0 || step.view.running.empty()) return true;
    const PlanBuilder::Demand all = step.StartDemand(slot);
    return step.plan.blocks_available() >=
           all.blocks + std::max(all.keep_free, static_cast<int64_t>(step.view.running.size()));
  }

  AddResult Start(StepContext& step, SlotId slot, int32_t limit) {
    if (!MayStart(step, slot)) return AddResult::kNoBlocks;
    const bool missed = slack_.StandsBehind(step.view, slot);
    if (missed && missed_running_ > 0) return AddResult::kNotReady;
    const AddResult result = step.Admit(slot, limit, whole_);
    if (result != AddResult::kAdded) return result;
    if (step.view.seq.prompt_tokens[slot] >= long_prompt_ && !(missed && era_ == Era::kKv)) {
      long_running_.push_back(slot);
    }
    if (missed && !step.plan.items().back().sample) ++missed_running_;
    if (missed && slack_.HasTurn(step.view, slot)) slack_.StartsInTurn(step.view, slot);
    slack_.Took(step.view, slot);
    return result;
  }

  void RunOne(StepContext& step, Ready* r, int32_t limit) {
    if (!step.plan.AddDecode(r->slot) && step.Run(r->slot, limit, whole_ && !r->decode) != AddResult::kAdded) return;
    Served(step, r);
  }
  void Served(const StepContext& step, Ready* r) {
    r->served = true;
    if (!r->decode && slack_.StandsBehind(step.view, r->slot) && step.plan.items().back().sample) --missed_running_;
    slack_.Took(step.view, r->slot);
  }

  // No sequence has got a share for want of KV: runs those with the least slack first, and preempts for them.
  void RunLeastSlack(StepContext& step) {
    for (Ready& r : ready_) {
      if (!step.plan.Touched(r.slot)) RunOne(step, &r, kNoLimit);
    }
  }

  // The wait of those that could have run begins. Of the running prompts that have missed, the oldest awaits its turn.
  void PassOverTheRest(const StepView& view, const PlanBuilder& plan) {
    bool awaits_turn = false;
    for (const Ready& r : ready_) {
      if (r.served || plan.Touched(r.slot)) continue;
      slack_.PassedOver(view, r.slot);
      if (r.slack_ns == kNever && !awaits_turn) slack_.AwaitTurn(view, r.slot);
      awaits_turn |= r.slack_ns == kNever;
    }
  }

  static int32_t Limit(int64_t tokens) { return static_cast<int32_t>(std::min<int64_t>(tokens, kNoLimit)); }

  const SlackModel slack_;
  const Selection selection_;
  const bool whole_;
  const DurationNs gamma_ns_;
  const int64_t long_prompt_;
  const Era era_;
  const bool normalised_;
  const int64_t kv_tokens_;
  // The current step.
  DurationNs urgent_ns_ = 0;
  // A decode with no more slack than this is late if it sits out this step, when full, and the next one takes as long.
  DurationNs late_if_left_out_ns_ = 0;
  std::vector<SlotId> long_running_;  // those that keep a new long prompt waiting
  int32_t missed_running_ = 0;        // started prompts that have missed and are not complete after this step
  int64_t long_wanted_ = 0;           // LongWantedBlocks when the plan had long_wanted_of_ items
  int32_t long_wanted_of_ = -1;
  std::vector<Ready> ready_;  // in ascending slack
  SteadySort<Ready> sort_ready_;
  SlotId queue_head_ = kNoSlot;  // next waiting sequence; kNoSlot: no further start
  DurationNs head_slack_ns_ = 0;
  bool head_missed_ = false;
  bool late_skipped_ = false;  // the queue is read again for late prompts that are not urgent
  size_t looked_at_ = 0;
  ReadAhead ahead_;
  std::vector<Candidate> group_;  // in ascending slack
  bool group_missed_ = false;     // all of group_ have missed
  DistanceChoice distance_;
};

}  // namespace

constinit const KnobList kSlackFillKnobs{&kTtftObjective, &kTbtObjective, &kGamma,      &kDistanceKind, &kEra,
                                         &kLongPrompt,    &kPivotTokens,  &kMissedTurn, &kMissedRule};

std::unique_ptr<Composition> MakeSlackFill(const SchedulerLimits& limits) {
  return std::make_unique<SlackFill>(limits, Selection::kDistance, false);
}
std::unique_ptr<Composition> MakeSlackFillWhole(const SchedulerLimits& limits) {
  return std::make_unique<SlackFill>(limits, Selection::kDistance, true);
}
std::unique_ptr<Composition> MakeSlackFillInOrder(const SchedulerLimits& limits) {
  return std::make_unique<SlackFill>(limits, Selection::kQueueOrder, false);
}

}  // namespace tactus::core
