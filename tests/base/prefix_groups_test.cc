// Groups of sequences with a common prefix of blocks: the blocks of a group are really shared, the cut saves the most
// reads, and groups have no sequence in common.
#include "base/prefix_groups.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>

#include "base/rng.h"

namespace tactus {
namespace {

using Sequence = PrefixGroups::Sequence;

constexpr int32_t kBlock = 16;

// Builds block tables from runs of block ids that start at `from`.
class Tables {
 public:
  struct Run {
    int32_t from, blocks;
  };
  // Adds a sequence of these blocks that reads `tokens` tokens; -1: all.
  void Add(std::initializer_list<Run> runs, int32_t tokens = -1) {
    std::vector<BlockId>& table = tables_.emplace_back();
    for (const Run& run : runs) {
      for (int32_t i = 0; i < run.blocks; ++i) table.push_back(run.from + i);
    }
    const auto all = static_cast<int32_t>(table.size()) * kBlock;
    sequences_.push_back({table.data(), tokens < 0 ? all : tokens, 7, 7});
  }
  int64_t Find() { return PrefixGroups(kBlock, 4).Find(sequences_); }
  const Sequence& at(size_t i) const { return sequences_[i]; }

 private:
  std::deque<std::vector<BlockId>> tables_;
  std::vector<Sequence> sequences_;
};

TEST(PrefixGroups, BeginAt128TokensAndTwoSequences) {
  Tables t;
  t.Add({{100, 8}, {200, 1}});
  t.Add({{100, 8}, {300, 1}});
  t.Add({{500, 7}, {600, 2}});  // 112 in common
  t.Add({{500, 7}, {700, 2}});
  t.Add({{900, 40}});  // alone
  EXPECT_EQ(t.Find(), 128);
  EXPECT_EQ(t.at(0).group, 0);
  EXPECT_EQ(t.at(1).group, 0);
  EXPECT_EQ(t.at(0).shared_tokens, 128);
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(t.at(i).group, -1) << i;
    EXPECT_EQ(t.at(i).shared_tokens, 0) << i;
  }
}

TEST(PrefixGroups, OnlyWholeBlocksThatBothReadAreShared) {
  Tables t;
  t.Add({{100, 20}}, 128 + 40);
  t.Add({{100, 20}}, 128 + 31);
  EXPECT_EQ(t.Find(), 144);
  EXPECT_EQ(t.at(0).shared_tokens, 144) << "the second reads nine complete blocks";
  Tables brief;
  brief.Add({{100, 20}}, 127);
  brief.Add({{100, 20}}, 320);
  EXPECT_EQ(brief.Find(), 0);
}

// Ten sequences share 128 tokens, and two of them 4,096: those two save more than all ten, and the others form a second
// group.
TEST(PrefixGroups, TheCutOfNestedPrefixesSavesTheMost) {
  Tables t;
  for (int32_t i = 0; i < 2; ++i) t.Add({{0, 8}, {1000, 248}, {2000 + 10 * i, 2}});
  for (int32_t i = 0; i < 8; ++i) t.Add({{0, 8}, {3000 + 10 * i, 2}});
  EXPECT_EQ(t.Find(), 4096 + 7 * 128);
  EXPECT_EQ(t.at(0).shared_tokens, 4096);
  EXPECT_EQ(t.at(0).group, t.at(1).group);
  for (size_t i = 2; i < 10; ++i) {
    EXPECT_EQ(t.at(i).group, t.at(2).group);
    EXPECT_EQ(t.at(i).shared_tokens, 128);
  }
  EXPECT_NE(t.at(0).group, t.at(2).group);
  Tables many;  // the reverse: all ten save more
  for (int32_t i = 0; i < 2; ++i) many.Add({{0, 40}, {1000, 8}, {2000 + 10 * i, 2}});
  for (int32_t i = 0; i < 8; ++i) many.Add({{0, 40}, {3000 + 10 * i, 2}});
  EXPECT_EQ(many.Find(), 9 * 640);
  EXPECT_EQ(many.at(0).group, many.at(9).group);
  EXPECT_EQ(many.at(0).shared_tokens, 640);
}

TEST(PrefixGroups, AreDroppedIfUnsharedPartsAreLarger) {
  for (const int32_t own_blocks : {4, 5}) {  // two sequences save 128 tokens and read 64 or 80 unshared tokens each
    Tables t;
    t.Add({{0, 8}, {1000, own_blocks}});
    t.Add({{0, 8}, {2000, own_blocks}});
    EXPECT_EQ(t.Find(), own_blocks == 4 ? 128 : 0);
    EXPECT_EQ(t.at(0).group, own_blocks == 4 ? 0 : -1);
  }
}

// A cache does not create such tables, but groups must compare the blocks anyway.
TEST(PrefixGroups, BlocksBeforeTheBoundaryAreCompared) {
  Tables t;
  t.Add({{0, 8}, {1000, 1}});
  t.Add({{50, 1}, {1, 7}, {2000, 1}});
  t.Add({{0, 8}, {3000, 1}});
  EXPECT_EQ(t.Find(), 128);
  EXPECT_EQ(t.at(0).group, t.at(2).group);
  EXPECT_EQ(t.at(1).group, -1);
}

TEST(PrefixGroups, GroupsOfRandomTreesAreCorrect) {
  Rng rng(4);
  for (int32_t round = 0; round < 300; ++round) {
    std::deque<std::vector<BlockId>> tables;
    std::vector<Sequence> sequences;
    BlockId next = 0;
    const int32_t block = std::array{16, 1, 7, 64, 256}[static_cast<size_t>(rng.UniformInt(0, 4))];
    for (int64_t i = rng.UniformInt(0, 40); i > 0; --i) {
      std::vector<BlockId> table;
      if (!tables.empty() && rng.UniformInt(0, 3) > 0) {  // branches off an earlier table
        const auto& from = tables[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(tables.size()) - 1))];
        table.assign(from.begin(), from.begin() + rng.UniformInt(0, static_cast<int64_t>(from.size())));
      }
      for (int64_t own = rng.UniformInt(1, 600 / block + 2); own > 0; --own) table.push_back(next++);
      tables.push_back(std::move(table));
      const auto tokens = static_cast<int64_t>(tables.back().size()) * block;
      sequences.push_back({tables.back().data(),
                           static_cast<int32_t>(rng.UniformInt(std::max<int64_t>(1, tokens - block + 1), tokens))});
    }
    const int64_t spared = PrefixGroups(block, 8).Find(sequences);
    std::map<int32_t, std::vector<size_t>> groups;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].group >= 0) groups[sequences[i].group].push_back(i);
    }
    int64_t sum = 0;
    for (const auto& [group, members] : groups) {
      ASSERT_GE(members.size(), 2u);
      const Sequence& first = sequences[members[0]];
      ASSERT_GE(first.shared_tokens, 128);
      ASSERT_EQ(first.shared_tokens % block, 0);
      sum += static_cast<int64_t>(members.size() - 1) * first.shared_tokens;
      for (const size_t i : members) {
        ASSERT_EQ(sequences[i].shared_tokens, first.shared_tokens);
        ASSERT_GE(sequences[i].tokens, first.shared_tokens);
        for (int32_t b = 0; b < first.shared_tokens / block; ++b) ASSERT_EQ(sequences[i].blocks[b], first.blocks[b]);
      }
    }
    ASSERT_EQ(spared, sum);
  }
}

}  // namespace
}  // namespace tactus
