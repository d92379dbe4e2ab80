// The queue as a composition walks it: prefetching must not change it.
#include "core/sched/newcomers.h"

#include <gtest/gtest.h>

#include "core/sched/context.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::PresetConfig;
using testing::StepBed;

// Starts the sequences at the positions of the walk given by `starts`; records this walk and the order's.
class WalksTheQueue final : public Composition {
 public:
  WalksTheQueue(unsigned starts, std::vector<SlotId>* walk, std::vector<SlotId>* expected)
      : starts_(starts), walk_(*walk), expected_(*expected) {}
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    step.order.Start(step.view);
    for (SlotId slot = step.order.Next(); slot != kNoSlot; slot = step.order.Next()) expected_.push_back(slot);
    Newcomers waiting(step.view, &step.order, step.plan);
    for (SlotId slot = waiting.Next(); slot != kNoSlot; slot = waiting.Next()) {
      const bool starts = (starts_ >> (walk_.size() % 8) & 1) != 0;
      walk_.push_back(slot);
      if (starts) (void)step.Admit(slot);  // may find no place
    }
    EXPECT_EQ(waiting.Next(), kNoSlot) << "it stays at the end";
  }

 private:
  const unsigned starts_;
  std::vector<SlotId>& walk_;
  std::vector<SlotId>& expected_;
};

TEST(Newcomers, WalkMatchesTheOrderWhicheverSequencesStart) {
  for (int waiting = 1; waiting <= 12; ++waiting) {
    for (const unsigned starts : {0x01U, 0x02U, 0x08U, 0x55U, 0x80U, 0xf0U, 0xffU}) {
      SCOPED_TRACE(std::to_string(waiting) + " wait, " + std::to_string(starts));
      std::vector<SlotId> walk, expected;
      InjectedChoices choices;
      choices.composition = std::make_unique<WalksTheQueue>(starts, &walk, &expected);
      StepBed bed(PresetConfig("sarathi-serve", 4096), std::move(choices));
      bed.Decoding(4, 1);
      for (int i = 0; i < waiting; ++i) bed.Waiting(3);
      (void)bed.Plan();
      ASSERT_EQ(expected.size(), static_cast<size_t>(waiting));
      ASSERT_EQ(walk, expected);
    }
  }
}

}  // namespace
}  // namespace tactus::core
