// Where a step is cut in two, and which steps are not.
#include "compute/cuda/step_split.h"

#include <gtest/gtest.h>

namespace tactus::compute::cuda {
namespace {

constexpr int32_t kBlock = 4, kBlocksPerSlot = 8;

class StepSplitTest : public testing::Test {
 protected:
  // Slot s has blocks 8 s, 8 s + 1, ... unless a test shares some.
  StepSplitTest() {
    for (int32_t b = 0; b < 4 * kBlocksPerSlot; ++b) tables_.push_back(b);
  }
  void Add(int32_t slot, int32_t first_position, int32_t count, int32_t logits = 1) {
    AttentionRow row{.first_token = tokens_, .first_position = first_position, .count = count};
    row.table = slot * kBlocksPerSlot;
    rows_.push_back(row);
    tokens_ += count;
    if (logits == 0) return;
    row.first_position += count - logits;
    row.count = logits;
    row.first_token = logits_;
    logits_ += logits;
    last_.push_back(row);
  }
  bool Cut() { return split_.Cut(rows_, last_, tables_); }
  BlockId& Table(int32_t slot, int32_t i) { return tables_[static_cast<size_t>(slot * kBlocksPerSlot + i)]; }

  std::vector<AttentionRow> rows_, last_;
  std::vector<BlockId> tables_;
  int32_t tokens_ = 0, logits_ = 0;
  StepSplit split_{kBlock, 4 * kBlocksPerSlot};
};

TEST_F(StepSplitTest, DecodesAreCutInTheMiddle) {
  for (int32_t s = 0; s < 4; ++s) Add(s, 10, 1);
  ASSERT_TRUE(Cut());
  EXPECT_EQ(split_.tokens_of_first(), 2);
}

TEST_F(StepSplitTest, ChunkIsCutAtABlock) {
  Add(0, 3, 20);
  ASSERT_TRUE(Cut());
  EXPECT_EQ(split_.tokens_of_first(), 9) << "positions 3 to 11: position 12 begins a block";
}

TEST_F(StepSplitTest, ChunkThatBeginsShortlyAheadOfTheMiddleIsNotCut) {
  for (int32_t s = 0; s < 3; ++s) Add(s, 9, 2);
  Add(3, 1, 8);
  ASSERT_TRUE(Cut());
  EXPECT_EQ(split_.tokens_of_first(), 6);
}

TEST_F(StepSplitTest, OneTokenIsNotCut) {
  Add(0, 10, 1);
  EXPECT_FALSE(Cut());
}

TEST_F(StepSplitTest, ChunkWithinABlockIsNotCut) {
  Add(0, 0, 3);
  EXPECT_FALSE(Cut());
}

// Within a layer part 0 reads K and V before part 1 has stored its own.
TEST_F(StepSplitTest, StepWhoseFirstHalfReadsBlocksOfTheSecondIsNotCut) {
  Add(0, 8, 4);
  Add(1, 0, 8, 0);
  ASSERT_TRUE(Cut());
  for (int32_t i = 0; i < 2; ++i) Table(0, i) = Table(1, i);  // slot 0 begins with the blocks that slot 1 computes
  EXPECT_FALSE(Cut());
  rows_.clear();
  last_.clear();
  tokens_ = logits_ = 0;
  Add(1, 0, 8, 0);
  Add(0, 8, 4);
  EXPECT_TRUE(Cut()) << "the writer is in the first half";
}

}  // namespace
}  // namespace tactus::compute::cuda
