#include "vidur/vidur_policies.h"

#include <algorithm>
#include <vector>

#include "core/sched/context.h"

namespace tactus::vidur {
namespace {

using core::AddResult;
using core::ChoiceTraits;
using core::Composition;
using core::StepContext;

// The running sequences in Vidur's order: those without an item in the last step, by arrival, then the last step's
// batch in its order.
class RunningList {
 public:
  void Begin(const core::StepView& view) {
    next_.clear();
    std::erase_if(list_, [&view](const Entry& e) {
      const bool runs =
          view.seq.state[e.slot] == core::SeqState::kPrefill || view.seq.state[e.slot] == core::SeqState::kDecode;
      return !runs || view.seq.arrival_order[e.slot] != e.arrival;  // ended, preempted, or the slot was reused
    });
  }
  void Took(const core::StepView& view, SlotId slot) { next_.push_back({slot, view.seq.arrival_order[slot]}); }
  // Sequences that were not taken stay before the batch.
  void End() {
    std::erase_if(list_, [this](const Entry& e) {
      return std::any_of(next_.begin(), next_.end(), [&e](const Entry& n) { return n.slot == e.slot; });
    });
    std::sort(list_.begin(), list_.end(), [](const Entry& a, const Entry& b) { return a.arrival < b.arrival; });
    list_.insert(list_.end(), next_.begin(), next_.end());
  }

  size_t size() const { return list_.size(); }
  SlotId operator[](size_t i) const { return list_[i].slot; }
  SlotId back() const { return list_.back().slot; }
  void pop_back() { list_.pop_back(); }
  void Erase(size_t i) { list_.erase(list_.begin() + static_cast<ptrdiff_t>(i)); }

 private:
  struct Entry {
    SlotId slot = kNoSlot;
    int64_t arrival = 0;
  };
  std::vector<Entry> list_, next_;
};

class VidurComposition : public Composition {
 public:
  explicit VidurComposition(const Rules& rules) : rules_(rules) {}

 protected:
  // list_[i] decodes once a block is free, needed or not. False: it was preempted itself, and list_[i] is now the next
  // sequence.
  bool DecodeOrPreempt(StepContext& step, size_t i) {
    while (step.plan.blocks_available() < 1 && list_.size() > i + 1) {
      step.plan.Preempt(list_.back());
      list_.pop_back();
    }
    if (step.plan.blocks_available() < 1) {
      step.plan.Preempt(list_[i]);
      list_.Erase(i);
      return false;
    }
    if (step.plan.AddRunning(list_[i], 1, false) == AddResult::kAdded) list_.Took(step.view, list_[i]);
    return true;
  }

  const Rules rules_;
  RunningList list_;
};

class VidurSarathi final : public VidurComposition {
 public:
  using VidurComposition::VidurComposition;
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }

  void Compose(StepContext& step) override {
    list_.Begin(step.view);
    aside_.clear();
    for (size_t i = 0; i < list_.size();) {
      if (!step.IsDecode(list_[i])) {
        aside_.push_back(list_[i++]);
      } else if (DecodeOrPreempt(step, i)) {
        ++i;
      }
    }
    for (const SlotId slot : aside_) {
      if (Left(step) > 0 && step.Run(slot, Left(step)) == AddResult::kAdded) list_.Took(step.view, slot);
    }
    // Then the queue's head is the victim, which never fits: at most as many blocks are free as it had, minus the
    // watermark.
    if (step.plan.has_preempted()) return list_.End();
    step.order.Start(step.view);
    for (SlotId slot = step.order.Next(); slot != kNoSlot && Left(step) > 0; slot = step.order.Next()) {
      if (step.Admit(slot, Left(step)) != AddResult::kAdded) break;
      list_.Took(step.view, slot);
    }
    list_.End();
  }

 private:
  int32_t Left(const StepContext& step) const {
    return rules_.chunk - static_cast<int32_t>(step.plan.budget_tokens() - step.plan.tokens_left());
  }
  std::vector<SlotId> aside_;
};

class VidurVllm final : public VidurComposition {
 public:
  using VidurComposition::VidurComposition;
  void Describe(ChoiceTraits*) const override {}

  void Compose(StepContext& step) override {
    list_.Begin(step.view);
    int64_t longest = 0, count = 0;
    step.order.Start(step.view);
    for (SlotId slot = step.order.Next(); slot != kNoSlot; slot = step.order.Next()) {
      longest = std::max<int64_t>(longest, step.view.seq.known_committed[slot]);
      if ((count + 1) * longest > rules_.max_tokens_in_batch ||
          step.Admit(slot, core::kNoLimit, true) != AddResult::kAdded)
        break;
      list_.Took(step.view, slot);
      ++count;
    }
    if (count == 0) {
      for (size_t i = 0; i < list_.size();) i += DecodeOrPreempt(step, i) ? 1 : 0;
    }
    list_.End();
  }
};

}  // namespace

std::unique_ptr<Composition> MakeComposition(const Rules& rules) {
  switch (rules.policy) {
    case Policy::kSarathi:
      return std::make_unique<VidurSarathi>(rules);
    case Policy::kVllm:
      return std::make_unique<VidurVllm>(rules);
    case Policy::kOrca:
      return nullptr;  // our choices have the same rules
  }
  return nullptr;
}

}  // namespace tactus::vidur
