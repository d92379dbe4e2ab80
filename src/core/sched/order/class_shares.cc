// Starts at least its share of the prompt tokens for each class with a share, while its requests wait; otherwise the
// order behind it decides. A class is owed its share of each prompt that starts, less its own prompts; while it is owed
// some, its oldest waiting requests, as many as make up what is owed, go before all others until their prompts are
// computed.
//
// Bound: while requests of the class wait, its prompt tokens that start are at least its share of all that start, less
// its share of one step's starts, and less the prompts of other classes that are owed at the same time: no other
// request starts before an owed one, even if that lacks KV. A share is a minimum: a class that had more while others
// were idle owes nothing for it, and one that returns to the queue has saved up nothing. A prompt counts when it
// starts, whole and once: cached or not, and not again after a preemption.
#include "core/sched/class_shares.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/sched/index/slot_lists.h"

namespace tactus::core {
namespace {

constexpr double kOwedUnit = 1e6;  // owed amounts are in millionths of a token

// Note of client 0.
struct SharesOwed {
  int64_t owed[kMostServiceClasses + 1];  // by class
};

class ClassShareOrder final : public Order {
 public:
  ClassShareOrder(const SchedulerLimits& limits, const ClassShares& shares, std::unique_ptr<Order> behind)
      : shares_(shares),
        behind_(std::move(behind)),
        owed_(limits.ClientNote<SharesOwed>()),
        lists_(limits.slot_capacity, static_cast<int32_t>(limits.classes.size()) + 1) {
    share_of_.push_back(0);
    for (const ServiceClass& c : limits.classes) share_of_.push_back(std::llround(kOwedUnit * c.share));
    started_.resize(share_of_.size());
    first_.reserve(static_cast<size_t>(limits.slot_capacity));
  }

  void Describe(ChoiceTraits* traits) const override { behind_->Describe(traits); }

  void Apply(const StepView& view) override {
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) File(view, change.slot);
      if (change.kind == ChangeKind::kUnqueued || change.kind == ChangeKind::kAdmitted) Remove(change.slot);
    }
    for (const SlotId slot : first_) {
      if (lists_.ListOf(slot) >= 0) shares_.NoteOf(view, slot).goes_first = false;
    }
    ChooseFirst(view);
    behind_->Apply(view);
  }

  void Rebuild(const StepView& view) override {
    lists_.Clear();
    for (const SlotId slot : view.waiting) File(view, slot);
    ChooseFirst(view);
    behind_->Rebuild(view);
  }

  void Start(const StepView& view) override {
    view_ = &view;
    at_ = 0;
    behind_->Start(view);
  }
  SlotId Next() override {
    if (at_ < first_.size()) return first_[at_++];
    SlotId slot = behind_->Next();
    while (slot != kNoSlot && shares_.NoteOf(*view_, slot).goes_first) slot = behind_->Next();
    return slot;
  }

  void Planned(const StepView& view, std::span<const StepItem> items) override {
    behind_->Planned(view, items);
    std::fill(started_.begin(), started_.end(), 0);
    int64_t all = 0;
    for (const StepItem& item : items) {
      if (view.seq.state[item.slot] != SeqState::kWaiting) continue;
      int32_t& charged = shares_.NoteOf(view, item.slot).charged;
      const int32_t tokens = view.seq.prompt_tokens[item.slot] - charged;
      charged += tokens;
      started_[view.seq.service_class[item.slot]] += tokens;
      all += tokens;
    }
    if (all == 0) return;
    for (size_t c = 1; c < share_of_.size(); ++c) {
      if (share_of_[c] == 0 || lists_.Head(static_cast<int32_t>(c)) == kNoSlot) continue;
      int64_t& owed = Owed(view, c);
      owed += share_of_[c] * all - static_cast<int64_t>(kOwedUnit) * started_[c];
      if (started_[c] > 0) owed = std::max(owed, (share_of_[c] - static_cast<int64_t>(kOwedUnit)) * started_[c]);
    }
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override {
    const bool first_a = shares_.GoesFirst(view, a), first_b = shares_.GoesFirst(view, b);
    if (first_a != first_b) return first_a;
    return first_a ? view.seq.arrival_order[a] < view.seq.arrival_order[b] : behind_->Before(view, a, b);
  }
  // A started prompt that goes first is spared from preemption. A waiting one takes KV only by its rank in behind_.
  bool ranks() const override { return behind_->ranks(); }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    const bool begun = view.seq.state[slot] != SeqState::kWaiting;
    return begun && shares_.GoesFirst(view, slot) ? std::numeric_limits<int64_t>::min() : behind_->RankOf(view, slot);
  }
  int64_t Group(const StepView& view, SlotId slot) const override { return behind_->Group(view, slot); }

 private:
  int64_t& Owed(const StepView& view, size_t service_class) const {
    return owed_.At(view.client_notes, 0).owed[service_class];
  }
  void File(const StepView& view, SlotId slot) {
    shares_.NoteOf(view, slot).goes_first = false;
    lists_.InsertByKey(view.seq.service_class[slot], slot, view.seq.arrival_order[slot]);
  }
  void Remove(SlotId slot) { lists_.Remove(slot); }

  void ChooseFirst(const StepView& view) {
    first_.clear();
    for (size_t c = 1; c < share_of_.size(); ++c) {
      if (share_of_[c] == 0) continue;
      SlotId slot = lists_.Head(static_cast<int32_t>(c));
      if (slot == kNoSlot) Owed(view, c) = 0;
      for (int64_t owed = Owed(view, c); owed > 0 && slot != kNoSlot; slot = lists_.Next(slot)) {
        ClassShareNote& note = shares_.NoteOf(view, slot);
        note.goes_first = true;
        first_.push_back(slot);
        owed -= static_cast<int64_t>(kOwedUnit) * (view.seq.prompt_tokens[slot] - note.charged);
      }
    }
    std::sort(first_.begin(), first_.end(),
              [&view](SlotId a, SlotId b) { return view.seq.arrival_order[a] < view.seq.arrival_order[b]; });
  }

  const ClassShares shares_;
  const std::unique_ptr<Order> behind_;
  const NoteColumn<SharesOwed> owed_;
  std::vector<int64_t> share_of_;  // by class, in millionths; [0]: no class
  std::vector<int64_t> started_;   // by class: prompt tokens that start in the step
  SlotLists lists_;                // the queue of each class
  std::vector<SlotId> first_;      // waiting sequences that go first in this plan, oldest first
  // The walk:
  const StepView* view_ = nullptr;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<Order> WithClassShares(const SchedulerLimits& limits, std::unique_ptr<Order> order) {
  const ClassShares shares(limits);
  if (!shares.any()) return order;
  return std::make_unique<ClassShareOrder>(limits, shares, std::move(order));
}

}  // namespace tactus::core
