// LARRY ("Is the GPU Half-Empty or Half-Full?", equation 1 as docs/concepts/policies.md restores it): highest score
// first,
//
//   score = lambda * wait_s - queue_len * mem
//
// with wait_s since the first arrival, mem the KV blocks of the tokens to compute as a share of all blocks, and
// queue_len the sequences waiting when the plan is made. Under pressure large prompts step back; waiting brings them
// forward: a sequence is passed over only by those that arrive within queue_len * mem / lambda seconds after it.
// Preempted sequences queue with the rest; ties by arrival. lambda = infinity is first come, first served.
//
// Sequences with equal numbers of blocks keep their order at any queue length, so there is one queue per number of
// blocks, and only the heads are compared.
#include <algorithm>
#include <cmath>

#include "core/sched/choices.h"
#include "core/sched/order/bucketed.h"

namespace tactus::core {
namespace {

constexpr Knob<double> kLambda{
    "larry-lambda",
    0.01,
    {.unit = "1/s",
     .min = 0,
     .infinite = true,
     .help = "order larry: what a second of waiting is worth against a whole KV memory; inf: first come, first "
             "served"}};

int32_t BlocksOf(int64_t tokens, int32_t block_size) {
  return static_cast<int32_t>((tokens + block_size - 1) / block_size);
}

class LarryOrder final : public BucketedOrder {
 public:
  explicit LarryOrder(const SchedulerLimits& limits)
      : BucketedOrder(limits.slot_capacity,
                      static_cast<int32_t>(
                          std::min<int64_t>(BlocksOf(limits.max_model_len, limits.block_size), limits.blocks_total)) +
                          1),
        lambda_(limits.policy[kLambda]),
        blocks_total_(static_cast<double>(limits.blocks_total)),
        block_size_(limits.block_size) {
    heap_.reserve(filled().capacity());
  }

  void Start(const StepView& view) override {
    view_ = &view;
    queue_length_ = static_cast<double>(view.waiting.size());
    heap_.clear();
    started_ = false;
  }

  SlotId Next() override {
    if (!started_) {
      started_ = true;
      for (const int32_t bucket : filled()) heap_.push_back(Candidate(lists().Head(bucket)));
      std::make_heap(heap_.begin(), heap_.end(), Later);
    }
    if (heap_.empty()) return kNoSlot;
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const SlotId slot = heap_.back().slot;
    heap_.pop_back();
    if (const SlotId next = lists().Next(slot); next != kNoSlot) {
      heap_.push_back(Candidate(next));
      std::push_heap(heap_.begin(), heap_.end(), Later);
    }
    return slot;
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override {
    const auto queue_length = static_cast<double>(view.waiting.size());
    return Later({Score(view, b, queue_length), view.seq.arrival_order[b], b},
                 {Score(view, a, queue_length), view.seq.arrival_order[a], a});
  }

 protected:
  int32_t BucketOf(const StepView& view, SlotId slot) const override {
    return BlocksOf(view.seq.known_committed[slot], block_size_);  // intake refuses more than there are
  }
  int64_t KeyOf(const StepView& view, SlotId slot) const override { return view.seq.arrival_order[slot]; }

 private:
  struct Entry {
    double score = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
  };
  // Heap order: the top precedes all others.
  static bool Later(const Entry& a, const Entry& b) {
    return a.score != b.score ? a.score < b.score : a.arrival > b.arrival;
  }
  double Score(const StepView& view, SlotId slot, double queue_length) const {
    if (std::isinf(lambda_)) return 0;  // the tie-break decides
    const double wait_s = static_cast<double>(view.now_ns - view.seq.arrival_ns[slot]) * 1e-9;
    const double mem = static_cast<double>(BlocksOf(view.seq.known_committed[slot], block_size_)) / blocks_total_;
    return lambda_ * wait_s - queue_length * mem;
  }
  Entry Candidate(SlotId slot) const {
    return {Score(*view_, slot, queue_length_), view_->seq.arrival_order[slot], slot};
  }

  const double lambda_;
  const double blocks_total_;
  const int32_t block_size_;
  const StepView* view_ = nullptr;  // of the walk
  double queue_length_ = 0;
  bool started_ = false;
  std::vector<Entry> heap_;  // heads of the buckets, as far as not yet returned
};

}  // namespace

constinit const KnobList kLarryKnobs{&kLambda};

std::unique_ptr<Order> MakeLarryOrder(const SchedulerLimits& limits) {
  return std::make_unique<LarryOrder>(limits);
}

}  // namespace tactus::core
