// Who can still be given what it was promised goes first, by when its first token is due; then those that no longer
// can, in order of arrival; then those that state nothing, likewise.
//
// Where more is due than can be done, as many as possible are kept (Moore and Hodgson's rule for the most jobs in time
// on one machine). The first kHorizon are gone through in order of what is due, with the time that their prompts take
// beside the decodes that run, or until what runs has given back the KV for them. Whenever one of them would be late,
// the one of those so far that takes longest for its class's weight is put off: it comes behind those that are not. It
// is asked again in every step, so nothing is lost where there is more time than was thought.
//
// Bound: one that can be kept is passed over only by what is due before it and, once put off, until it can no longer be
// kept. The oldest of those that cannot, or that state nothing, begins its turn once --promise-turn steps have gone by
// in which none of these began, and the one whose turn was before has ended: from then on it goes before all others. So
// with k before it a request begins at the latest after (k + 1) x --promise-turn steps and the answers of those k;
// where KV is short also the time until what runs has given enough back, for nothing else starts meanwhile.
#include <algorithm>
#include <vector>

#include "base/background.h"
#include "base/check.h"
#include "core/sched/choices.h"
#include "core/sched/index/sorted_blocks.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

constexpr size_t kHorizon = 128;

class PromiseOrder final : public Order {
 public:
  explicit PromiseOrder(const SchedulerLimits& limits)
      : model_(limits),
        turn_(limits.slot_capacity),
        due_(limits.slot_capacity),
        broken_(limits.slot_capacity),
        rest_(limits.slot_capacity) {
    const auto n = static_cast<size_t>(limits.slot_capacity);
    for (const ServiceClass& c : limits.classes) weights_.push_back(c.weight);
    filed_.resize(n);
    put_off_.resize(n, -1);
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
    std::fill(filed_.begin(), filed_.end(), Filed());
    missed_.clear();
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
      // Who goes first for its class's share is nobody's turn: those without a share wait on.
      if (view.seq.state[item.slot] != SeqState::kWaiting || model_.GoesFirstForShare(view, item.slot)) continue;
      if (model_.OwnStandingOf(view, item.slot) != Standing::kKept) model_.Clock(view).turn_from = 0;
    }
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override { return PlaceOf(view, a) < PlaceOf(view, b); }

  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    switch (model_.StandingOf(view, slot)) {
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
    int32_t tokens = 0;  // to compute before its first one
    TimeNs keep_by_ns = kNever;
    auto operator<=>(const Entry&) const = default;
  };
  using Queue = SortedBlocks<Entry>;
  struct Filed {
    Entry entry;
    Queue* queue = nullptr;  // null: does not wait
  };
  enum class Group : uint8_t { kTurn, kChosen, kPutOff, kBeyond, kBroken, kRest };
  struct Place {
    Group group = Group::kTurn;
    int64_t key = 0, arrival = 0;
    auto operator<=>(const Place&) const = default;
  };
  // Of the walk: a prompt with a time at which it is due.
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
    switch (model_.StandingOf(view, slot)) {
      case Standing::kTurn:
        return {Group::kTurn, 0, arrival};
      case Standing::kKept: {
        const TimeNs by_ns = view.seq.state[slot] == SeqState::kDecode ? 0 : model_.DueOf(view, slot).by_ns;
        const bool beyond = walked_ && std::pair(by_ns, arrival) > horizon_;
        return {IsPutOff(slot) ? Group::kPutOff : beyond ? Group::kBeyond : Group::kChosen, by_ns, arrival};
      }
      case Standing::kBroken:
        return {Group::kBroken, 0, arrival};
      case Standing::kBestEffort:
        break;
    }
    // What has begun goes on before another begins.
    const bool waits = view.seq.state[slot] == SeqState::kWaiting;
    return {Group::kRest, waits ? RestKey(view, slot) : -1, arrival};
  }

  // Of those that state nothing and wait: background work behind all others, what was preempted before the rest of its
  // kind.
  static int64_t RestKey(const StepView& view, SlotId slot) {
    const bool background = view.seq.priority[slot] == kBackgroundPriority;
    return (background ? 2 : 0) + (view.seq.preemptions[slot] > 0 ? 0 : 1);
  }

  void File(const StepView& view, SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    TACTUS_CHECK(f.queue == nullptr);
    f.entry = {0, view.seq.arrival_order[slot], slot, view.seq.known_committed[slot], kNever};
    switch (model_.OwnStandingOf(view, slot)) {
      case Standing::kTurn:
        f.queue = &turn_;
        break;
      case Standing::kKept: {
        const PromiseModel::Due due = model_.DueOf(view, slot);
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
      if (filed_[static_cast<size_t>(slot)].queue != &due_) continue;  // it has left the queue since it was seen
      Remove(slot);
      File(view, slot);
    }
    missed_.clear();
  }

  // The oldest of those that only wait begins its turn once nobody of them has begun for so many steps. Not while
  // another is in its turn: that one ends first.
  void MayBeginTurn(const StepView& view) {
    StepId& from = model_.Clock(view).turn_from;
    Queue::Cursor first_broken, first_rest;
    const Entry* broken = broken_.Next(&first_broken);
    const Entry* rest = rest_.Next(&first_rest);
    if ((broken == nullptr && rest == nullptr) || !turn_.empty() || model_.See(view).turn) {
      from = 0;
      return;
    }
    if (from == 0) from = view.step + 1;
    if (view.step + 1 - from < model_.turn_steps()) return;
    from = 0;
    const bool rest_is_older = broken == nullptr || (rest != nullptr && rest->arrival < broken->arrival);
    const SlotId oldest = rest_is_older ? rest->slot : broken->slot;
    Remove(oldest);
    model_.Note(view, oldest).turn = true;
    File(view, oldest);
  }

  void Walk(const StepView& view) {
    ++walk_;
    const PromiseModel::Step& step = model_.See(view);
    if (!due_.empty() || !broken_.empty()) model_.SeePromise(view);
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
    if (model_.See(view).promises) MayBeginTurn(view);
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

  // Prompts that have begun and can be kept take their place among those that wait.
  void AddHalfDone(const StepView& view) {
    const size_t waiting = prompts_.size();
    for (const SlotId slot : view.running) {
      if (view.num_prefilling == 0) break;
      if (view.seq.state[slot] != SeqState::kPrefill || model_.StandingOf(view, slot) != Standing::kKept) continue;
      const PromiseModel::Due due = model_.DueOf(view, slot);
      const int32_t left = view.seq.goal_tokens[slot] - view.seq.computed_planned[slot];
      prompts_.push_back({{due.by_ns, view.seq.arrival_order[slot], slot, left, due.keep_by_ns}, false});
    }
    if (prompts_.size() > waiting) std::sort(prompts_.begin(), prompts_.end());
  }

  void PutOff(const StepView& view, const PromiseModel::Step& step) {
    if (step.token_ns <= 0) return;
    longest_.clear();
    int64_t tokens = 0, waiting = 0;  // of the prompts so far that are not put off; those that have begun have their KV
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

  const PromiseModel model_;
  Queue turn_, due_, broken_, rest_;
  std::vector<double> weights_{1};  // by class; [0]: of none
  std::vector<Filed> filed_;        // [capacity]
  // Of the walk, one for each plan.
  bool walked_ = false;
  TimeNs walked_ns_ = 0;
  int64_t walk_ = 0;
  std::vector<int64_t> put_off_;  // [capacity] the walk in which it was
  std::vector<Prompt> prompts_;   // by when they are due
  std::vector<Work> longest_;     // a heap
  std::pair<int64_t, int64_t> horizon_;
  std::vector<SlotId> chosen_;  // the turns, then the first kHorizon, those put off behind
  std::vector<SlotId> missed_;
  size_t within_ = 0;  // of due_
  // Of the reading of it.
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
