// An index of the waiting sequences for orders in which sequences of one class compare by age only: one queue per
// class, so that an order whose comparison of classes changes all the time compares only the queues' heads.
#pragma once

#include <vector>

#include "core/sched/index/slot_lists.h"
#include "core/sched/policy.h"

namespace tactus::core {

class BucketedOrder : public Order {
 public:
  BucketedOrder(int32_t slot_capacity, int32_t buckets);
  void Apply(const StepView& view) override;
  void Rebuild(const StepView& view) override;

 protected:
  // As KeyedOrder's: updates the order's note of a sequence that enters the queue.
  virtual void OnQueued(const StepView&, SlotId) {}
  // Class of a sequence, in [0, buckets), and its key within the class, ascending. Must not change while it waits.
  virtual int32_t BucketOf(const StepView& view, SlotId slot) const = 0;
  virtual int64_t KeyOf(const StepView& view, SlotId slot) const = 0;

  const std::vector<int32_t>& filled() const { return filled_; }  // buckets that are not empty, in no particular order
  const SlotLists& lists() const { return lists_; }

 private:
  void Insert(const StepView& view, SlotId slot);
  void Remove(SlotId slot);

  SlotLists lists_;
  std::vector<int32_t> filled_;
  std::vector<int32_t> place_;  // [buckets] index in filled_
};

}  // namespace tactus::core
