// The least share of the work that a class of service gets under any order (--slo-class NAME:share=20%): part of every
// scheduler with such a class (order/class_shares.cc), and the part of it that other choices need.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "core/sched/policy.h"

namespace tactus::core {

struct ClassShareNote {
  int32_t charged;  // prompt tokens already counted, not counted again after a preemption
  bool goes_first;  // for its class's share: while it waits, and until its prompt is computed
};

// Whether a sequence goes before all others for its class's share.
class ClassShares {
 public:
  explicit ClassShares(const SchedulerLimits& limits) {
    const auto has_share = [](const ServiceClass& c) { return c.share > 0; };
    if (std::any_of(limits.classes.begin(), limits.classes.end(), has_share)) note_ = limits.Note<ClassShareNote>();
  }
  bool any() const { return note_.has_value(); }
  bool GoesFirst(const StepView& view, SlotId slot) const {
    return note_.has_value() && view.seq.state[slot] != SeqState::kDecode && NoteOf(view, slot).goes_first;
  }
  // Precondition: any().
  ClassShareNote& NoteOf(const StepView& view, SlotId slot) const { return note_->At(view.notes, slot); }

 private:
  std::optional<NoteColumn<ClassShareNote>> note_;
};

// Returns `order` itself if no class has a share.
std::unique_ptr<Order> WithClassShares(const SchedulerLimits& limits, std::unique_ptr<Order> order);

}  // namespace tactus::core
