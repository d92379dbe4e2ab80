// Sequences whose objectives can still be kept go first, by the due time of their first token; then those whose
// objectives can no longer be kept, by arrival; then those without objectives, by arrival.
//
// If more is due than can be computed in time, as many as possible are kept (Moore and Hodgson's rule for the most jobs
// in time on one machine). The first kHorizon prompts are scanned by due time, with the time that they take beside the
// running decodes, or until running sequences have freed the KV for them. Whenever one would be late, the longest
// prompt so far, relative to its class's weight, is put off behind the others. This is decided again in every step, so
// nothing is lost if there is more time than predicted.
//
// Bound: a prompt that can be kept is passed over only by prompts due before it and, once put off, until it can no
// longer be kept. The oldest broken or best-effort request gets its turn after --promise-turn steps in which none of
// these started, once the previous turn has ended: from then on it goes before all others. So with k such requests
// before it, a request starts at the latest after (k + 1) x --promise-turn steps and the answers of those k; if KV is
// short, plus the time until running sequences have freed enough, since nothing else starts meanwhile.
#include <algorithm>
#include <vector>

#include "base/background.h"
#include "base/check.h"
#include "base/growing_vector.h"
#include "core/sched/choices.h"
#include "core/sched/index/sorted_blocks.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

constexpr size_t kHorizon = 128;

class PromiseOrder final : public Order {
 public:
  explicit PromiseOrder(const SchedulerLimits& limits)
      : model_(limits.Shared<PromiseModel>()),
        turn_(limits.slot_capacity),
        due_(limits.slot_capacity),
        broken_(limits.slot_capacity),
        rest_(limits.slot_capacity) {
    const auto n = static_cast<size_t>(limits.slot_capacity);
    for (const ServiceClass& c : limits.classes) weights_.push_back(c.weight);
    filed_.reserve(n);
    put_off_.reserve(n);
    prompts_.reserve(2 * n);
    longest_.reserve(2 * n);
    chosen_.reserve(n);
    missed_.reserve(n);
  }

  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }

  void Apply(const StepView& view) override {
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) File(view, change.slot);
      if (change.kind == ChangeKind::kUnqueued || change.kind == ChangeKind::kAdmitted) Remove(change.slot);
    }
    walked_ = false;
  }

  void Rebuild(const StepView& view) override {
    turn_.Clear();
    due_.Clear();
    broken_.Clear();
    rest_.Clear();
    filed_.clear();
    missed_.clear();
    MakeUpTo(&put_off_, static_cast<size_t>(std::max(1, view.seq.slots)) - 1);
    for (const SlotId slot : view.waiting) File(view, slot);
    walked_ = false;
  }

  void Start(const StepView& view) override {
    if (!walked_ || walked_ns_ != view.now_ns) Walk(view);
    view_ = &view;
    at_ = 0;
    broken_at_ = rest_at_ = {};
    beyond_begun_ = broken_begun_ = false;
  }

  SlotId Next() override {
    if (at_ < chosen_.size()) return chosen_[at_++];
    if (!beyond_begun_) {
      beyond_begun_ = true;
      beyond_at_ = {};
      for (size_t i = 0; i < within_; ++i) due_.Next(&beyond_at_);
    }
    if (!broken_begun_) {
      for (const Entry* e = due_.Next(&beyond_at_); e != nullptr; e = due_.Next(&beyond_at_)) {
        if (view_->now_ns <= e->keep_by_ns) return e->slot;
        missed_.push_back(e->slot);
      }
      broken_begun_ = true;
      FileMissed(*view_);
    }
    if (const Entry* e = broken_.Next(&broken_at_); e != nullptr) return e->slot;
    const Entry* e = rest_.Next(&rest_at_);
    return e == nullptr ? kNoSlot : e->slot;
  }

  void Planned(const StepView& view, std::span<const StepItem> items) override {
    for (const StepItem& item : items) {
      // A start for a class's share does not count as one of those that wait for a turn.
      if (view.seq.state[item.slot] != SeqState::kWaiting || model_->GoesFirstForShare(view, item.slot)) continue;
      if (model_->OwnStandingOf(view, item.slot) != Standing::kKept) model_->Clock(view).turn_from = 0;
    }
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override { return PlaceOf(view, a) < PlaceOf(view, b); }

  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    switch (model_->StandingOf(view, slot)) {
      case Standing::kTurn:
        return 0;
      case Standing::kKept:
        return IsPutOff(slot) ? 1 : 0;
      case Standing::kBroken:
        return 1;
      case Standing::kBestEffort:
        break;
    }
    return 2;
  }

 private:
  struct Entry {
    int64_t key = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
    int32_t tokens = 0;  // to compute before its first token
    TimeNs keep_by_ns = kNever;
    auto operator<=>(const Entry&) const = default;
  };
  using Queue = SortedBlocks<Entry>;
  struct Filed {
    Entry entry;
    Queue* queue = nullptr;  // null: not waiting
  };
  enum class Group : uint8_t { kTurn, kChosen, kPutOff, kBeyond, kBroken, kRest };
  struct Place {
    Group group = Group::kTurn;
    int64_t key = 0, arrival = 0;
    auto operator<=>(const Place&) const = default;
  };
  // A prompt with a due time, in the walk.
  struct Prompt {
    Entry entry;
    bool waits = false;
    bool operator<(const Prompt& other) const { return entry < other.entry; }
  };
  struct Work {
    double cost = 0;
    size_t prompt = 0;
    auto operator<=>(const Work&) const = default;
  };

  double WeightOf(const StepView& view, SlotId slot) const {
    return weights_.size() == 1 ? 1 : weights_[view.seq.service_class[slot]];
  }
  bool IsPutOff(SlotId slot) const { return walked_ && put_off_[static_cast<size_t>(slot)] == walk_; }

  Place PlaceOf(const StepView& view, SlotId slot) const {
    const int64_t arrival = view.seq.arrival_order[slot];
    switch (model_->StandingOf(view, slot)) {
      case Standing::kTurn:
        return {Group::kTurn, 0, arrival};
      case Standing::kKept: {
        const TimeNs by_ns = view.seq.state[slot] == SeqState::kDecode ? 0 : model_->DueOf(view, slot).by_ns;
        const bool beyond = walked_ && std::pair(by_ns, arrival) > horizon_;
        return {IsPutOff(slot) ? Group::kPutOff : beyond ? Group::kBeyond : Group::kChosen, by_ns, arrival};
      }
      case Standing::kBroken:
        return {Group::kBroken, 0, arrival};
      case Standing::kBestEffort:
        break;
    }
    // Started sequences go before waiting ones.
    const bool waits = view.seq.state[slot] == SeqState::kWaiting;
    return {Group::kRest, waits ? RestKey(view, slot) : -1, arrival};
  }

  // Key of waiting best-effort sequences: background work last, within both kinds preempted sequences first.
  static int64_t RestKey(const StepView& view, SlotId slot) {
    const bool background = view.seq.priority[slot] == kBackgroundPriority;
    return (background ? 2 : 0) + (view.seq.preemptions[slot] > 0 ? 0 : 1);
  }

  void File(const StepView& view, SlotId slot) {
    MakeUpTo(&filed_, static_cast<size_t>(slot));
    MakeUpTo(&put_off_, static_cast<size_t>(slot));
    Filed& f = filed_[static_cast<size_t>(slot)];
    TACTUS_CHECK(f.queue == nullptr);
    f.entry = {0, view.seq.arrival_order[slot], slot, view.seq.known_committed[slot], kNever};
    switch (model_->OwnStandingOf(view, slot)) {
      case Standing::kTurn:
        f.queue = &turn_;
        break;
      case Standing::kKept: {
        const PromiseModel::Due due = model_->DueOf(view, slot);
        f.entry.key = due.by_ns;
        f.entry.keep_by_ns = due.keep_by_ns;
        f.queue = &due_;
        break;
      }
      case Standing::kBroken:
        f.queue = &broken_;
        break;
      case Standing::kBestEffort:
        f.entry.key = RestKey(view, slot);
        f.queue = &rest_;
        break;
    }
    f.queue->Insert(f.entry);
  }
  void Remove(SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    TACTUS_CHECK(f.queue != nullptr);
    f.queue->Remove(f.entry);
    f.queue = nullptr;
  }
  void FileMissed(const StepView& view) {
    for (const SlotId slot : missed_) {
      if (filed_[static_cast<size_t>(slot)].queue != &due_) continue;  // it has left the queue meanwhile
      Remove(slot);
      File(view, slot);
    }
    missed_.clear();
  }

  // Gives the oldest waiting broken or best-effort request its turn once none of them has started for turn_steps()
  // steps. Only one has its turn at a time.
  void MayBeginTurn(const StepView& view) {
    StepId& from = model_->Clock(view).turn_from;
    Queue::Cursor first_broken, first_rest;
    const Entry* broken = broken_.Next(&first_broken);
    const Entry* rest = rest_.Next(&first_rest);
    if ((broken == nullptr && rest == nullptr) || !turn_.empty() || model_->Update(view).turn) {
      from = 0;
      return;
    }
    if (from == 0) from = view.step + 1;
    if (view.step + 1 - from < model_->turn_steps()) return;
    from = 0;
    const bool rest_is_older = broken == nullptr || (rest != nullptr && rest->arrival < broken->arrival);
    const SlotId oldest = rest_is_older ? rest->slot : broken->slot;
    Remove(oldest);
    model_->Note(view, oldest).turn = true;
    File(view, oldest);
  }

  void Walk(const StepView& view) {
    ++walk_;
    const PromiseModel::Step& step = model_->Update(view);
    if (!due_.empty() || !broken_.empty()) model_->NotePromise(view);
    prompts_.clear();
    chosen_.clear();
    Queue::Cursor cursor;
    while (prompts_.size() < kHorizon) {
      const Entry* e = due_.Next(&cursor);
      if (e == nullptr) break;
      if (view.now_ns > e->keep_by_ns) {
        missed_.push_back(e->slot);
      } else {
        prompts_.push_back({*e, true});
      }
    }
    const bool all = prompts_.size() < kHorizon;
    horizon_ = all ? std::pair(kNever, kNever) : std::pair(prompts_.back().entry.key, prompts_.back().entry.arrival);
    FileMissed(view);
    within_ = prompts_.size();
    if (model_->Update(view).promises) MayBeginTurn(view);
    cursor = {};
    for (const Entry* e = turn_.Next(&cursor); e != nullptr; e = turn_.Next(&cursor)) chosen_.push_back(e->slot);
    walked_ = true;
    walked_ns_ = view.now_ns;
    if (prompts_.empty() && view.num_prefilling == 0) return;
    AddHalfDone(view);
    PutOff(view, step);
    for (const bool put_off : {false, true}) {
      for (const Prompt& p : prompts_) {
        if (p.waits && IsPutOff(p.entry.slot) == put_off) chosen_.push_back(p.entry.slot);
      }
    }
  }

  // Adds started prompts that can be kept, merged by due time.
  void AddHalfDone(const StepView& view) {
    const size_t waiting = prompts_.size();
    for (const SlotId slot : view.running) {
      if (view.num_prefilling == 0) break;
      if (view.seq.state[slot] != SeqState::kPrefill || model_->StandingOf(view, slot) != Standing::kKept) continue;
      const PromiseModel::Due due = model_->DueOf(view, slot);
      const int32_t left = view.seq.goal_tokens[slot] - view.seq.computed_planned[slot];
      prompts_.push_back({{due.by_ns, view.seq.arrival_order[slot], slot, left, due.keep_by_ns}, false});
    }
    if (prompts_.size() > waiting) std::sort(prompts_.begin(), prompts_.end());
  }

  void PutOff(const StepView& view, const PromiseModel::Step& step) {
    if (step.token_ns <= 0) return;
    longest_.clear();
    int64_t tokens = 0, waiting = 0;  // of the prompts so far that are not put off: all; those without KV yet
    const auto done_ns = [&] {
      const double computed = static_cast<double>(tokens) * step.token_ns;
      const double kv = static_cast<double>(waiting - step.free_tokens) * step.kv_token_ns;
      return static_cast<double>(view.now_ns) + std::max(computed, kv);
    };
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const Prompt& p = prompts_[i];
      tokens += p.entry.tokens;
      waiting += p.waits ? p.entry.tokens : 0;
      if (p.entry.keep_by_ns == kNever) continue;
      longest_.push_back({static_cast<double>(p.entry.tokens) / WeightOf(view, p.entry.slot), i});
      std::push_heap(longest_.begin(), longest_.end());
      while (done_ns() > static_cast<double>(p.entry.key) && !longest_.empty()) {
        const Work longest = longest_.front();
        std::pop_heap(longest_.begin(), longest_.end());
        longest_.pop_back();
        const Prompt& off = prompts_[longest.prompt];
        tokens -= off.entry.tokens;
        waiting -= off.waits ? off.entry.tokens : 0;
        put_off_[static_cast<size_t>(off.entry.slot)] = walk_;
        if (longest.prompt == i) break;
      }
    }
  }

  const std::shared_ptr<PromiseModel> model_;
  Queue turn_, due_, broken_, rest_;
  std::vector<double> weights_{1};  // by class; [0]: no class
  std::vector<Filed> filed_;        // up to the highest slot that was ever filed, with room for all; so is put_off_
  // Results of the walk, which runs once per plan.
  bool walked_ = false;
  TimeNs walked_ns_ = 0;
  int64_t walk_ = 0;
  std::vector<int64_t> put_off_;  // the last walk that put the slot off; 0: none
  std::vector<Prompt> prompts_;   // by due time
  std::vector<Work> longest_;     // a heap
  std::pair<int64_t, int64_t> horizon_;
  std::vector<SlotId> chosen_;  // turns, then the first kHorizon prompts, put-off ones last
  std::vector<SlotId> missed_;
  size_t within_ = 0;  // prompts of due_ within the horizon
  // State of Next.
  const StepView* view_ = nullptr;
  size_t at_ = 0;
  Queue::Cursor beyond_at_, broken_at_, rest_at_;
  bool beyond_begun_ = false, broken_begun_ = false;
};

}  // namespace

std::unique_ptr<Order> MakePromiseOrder(const SchedulerLimits& limits) {
  return std::make_unique<PromiseOrder>(limits);
}

}  // namespace tactus::core
