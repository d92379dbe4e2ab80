// The tree and its totals, checked against the prompts' tokens.
#include "offline/plan/prefix_tree.h"

#include <gtest/gtest.h>

#include "offline/plan/jobs.h"
#include "offline/plan/totals.h"

namespace tactus {
namespace {

using offline::NodeTotals;
using offline::PrefixTree;
using offline::PromptSet;
using offline::TreeNode;
using testing::Job;
using testing::JobRequest;
using testing::kKeyTokens;
using testing::LeafNodes;
using testing::RandomJob;
using testing::SetOf;
using testing::SharedTokens;

std::vector<TokenId> Tokens(TokenId token, int32_t count) {
  return std::vector<TokenId>(static_cast<size_t>(count), token);
}

// The tree as text, with depths and requests: in "(0: 0 1 (8: 2 3))" requests 2 and 3 share 8 tokens.
std::string TextOf(const PrefixTree& tree, int32_t node = 0) {
  if (tree[node].is_leaf()) return std::to_string(tree[node].request);
  std::string text = "(" + std::to_string(tree[node].depth) + ":";
  tree.ForEachChild(node, [&](int32_t c) { text += " " + TextOf(tree, c); });
  return text + ")";
}

void CheckStructure(const PrefixTree& tree, size_t requests) {
  std::vector<int> seen(requests, 0);
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TreeNode& node = tree[i];
    ASSERT_GT(node.end, i);
    if (i > 0) {
      ASSERT_LT(node.parent, i);
      ASSERT_LE(node.end, tree[node.parent].end);
      ASSERT_GE(node.depth, tree[node.parent].depth);
      if (node.depth == tree[node.parent].depth) {
        ASSERT_EQ(node.depth, 0) << "only groups are as deep as the root";
      }
    }
    int children = 0;
    tree.ForEachChild(i, [&](int32_t c) {
      ++children;
      ASSERT_EQ(tree[c].parent, i);
    });
    if (node.is_leaf()) {
      ++seen[static_cast<size_t>(node.request)];
      ASSERT_EQ(children, 0);
    } else if (i > 0) {
      ASSERT_GE(children, 2) << "node " << i << " of " << TextOf(tree) << " is not compressed away";
    }
  }
  for (size_t r = 0; r < requests; ++r) ASSERT_EQ(seen[r], 1) << "request " << r;
  ASSERT_LE(tree.size(), static_cast<int32_t>(2 * requests) + 1);
}

TEST(PrefixTree, HandMadeTreesHaveTheExpectedShape) {
  const auto tree_of = [](const std::vector<std::vector<TokenId>>& prompts) {
    Job job;
    for (const auto& p : prompts) job.push_back({p, {}});
    return TextOf(PrefixTree::Build(SetOf(job, kKeyTokens)));
  };
  const auto join = [](std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(tree_of({Tokens(1, 1)}), "(0: 0)");
  EXPECT_EQ(tree_of({Tokens(1, 9), Tokens(2, 9)}), "(0: 0 1)");
  EXPECT_EQ(tree_of({Tokens(1, 9), Tokens(1, 9)}), "(0: (8: 0 1))");
  EXPECT_EQ(tree_of({Tokens(1, 8), Tokens(1, 8)}), "(0: (4: 0 1))") << "the last token is not shared";
  EXPECT_EQ(tree_of({Tokens(1, 4), Tokens(1, 40)}), "(0: 0 1)");
  // Requests 0 and 3 share a system prompt of 10 tokens with 2, and 3 more blocks with each other.
  const auto system = Tokens(5, 10);
  const auto question = join(system, Tokens(6, 14));
  EXPECT_EQ(
      tree_of({join(question, Tokens(1, 3)), Tokens(9, 3), join(system, Tokens(7, 5)), join(question, Tokens(2, 9))}),
      "(0: (8: (24: 0 3) 2) 1)");
}

TEST(PrefixTree, GroupsShareNothing) {
  Job job;
  for (const uint32_t group : {7u, 3u, 7u, 3u}) job.push_back({Tokens(1, 9), {.group = group}});
  EXPECT_EQ(TextOf(PrefixTree::Build(SetOf(job, kKeyTokens))), "(0: (8: 0 2) (8: 1 3))");
  job.push_back({Tokens(2, 9), {.group = 3}});
  EXPECT_EQ(TextOf(PrefixTree::Build(SetOf(job, kKeyTokens))), "(0: (8: 0 2) (0: (8: 1 3) 4))")
      << "a group of several prefixes has its own node";
}

TEST(PrefixTree, NoPromptsMakeAnEmptyTree) {
  const PrefixTree tree = PrefixTree::Build(PromptSet(0, kKeyTokens));
  EXPECT_EQ(TextOf(tree), "(0:)");
  EXPECT_EQ(offline::SumSubtrees(tree, testing::Llama8bOnA100(), {})[0].requests, 0);
}

// The depths of all pairs determine the tree.
TEST(PrefixTree, PairsDivergeWhereTheirTokensDo) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Job job = RandomJob(seed, 60);
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    ASSERT_NO_FATAL_FAILURE(CheckStructure(tree, job.size())) << "seed " << seed;
    const std::vector<int32_t> leaves = LeafNodes(tree, job.size());
    for (size_t a = 0; a < job.size(); ++a) {
      ASSERT_EQ(tree[leaves[a]].depth, static_cast<int32_t>(job[a].prompt.size()));
      for (size_t b = 0; b < job.size(); ++b) {
        if (a == b) continue;
        const int32_t shared = std::max(0, SharedTokens(job[a], job[b], kKeyTokens));
        ASSERT_EQ(tree[tree.CommonAncestor(leaves[a], leaves[b])].depth, shared)
            << "seed " << seed << ", requests " << a << " and " << b << " in " << TextOf(tree);
      }
    }
  }
}

TEST(PrefixTree, ChildrenAreInTheJobsOrder) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Job job = RandomJob(seed, 60);
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    const auto first_of = [&](int32_t node) {
      int32_t first = 1 << 30;
      for (int32_t i = node; i < tree[node].end; ++i) {
        if (tree[i].is_leaf()) first = std::min(first, tree[i].request);
      }
      return first;
    };
    for (int32_t i = 0; i < tree.size(); ++i) {
      int32_t last = -1;
      tree.ForEachChild(i, [&](int32_t c) {
        ASSERT_LT(last, first_of(c)) << TextOf(tree);
        last = first_of(c);
      });
    }
  }
}

// Contradictory keys, as from collisions, give a worse tree and do no other harm.
TEST(PrefixTree, CollidingKeysAreHarmless) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    PromptSet prompts(0, kKeyTokens);
    for (int i = 0; i < 200; ++i) {
      std::vector<Hash128> keys(static_cast<size_t>(rng.UniformInt(0, 12)));
      for (Hash128& key : keys) key.low = static_cast<uint64_t>(rng.UniformInt(0, 2));
      ASSERT_TRUE(prompts.AddKeys(keys, 50, {}).ok());
    }
    const PrefixTree tree = PrefixTree::Build(prompts);
    ASSERT_NO_FATAL_FAILURE(CheckStructure(tree, 200)) << "seed " << seed;
    EXPECT_EQ(offline::SumSubtrees(tree, testing::Llama8bOnA100(), std::vector<int32_t>(200, 3))[0].requests, 200);
  }
}

// Every node is compared with a trie over the tokens of the requests below it; some of them are done.
TEST(Totals, TotalsEqualThoseOfATrieOverTokens) {
  const offline::BatchCostModel cost = testing::Llama8bOnA100();
  for (uint64_t seed = 0; seed < 15; ++seed) {
    const Job job = RandomJob(seed, 50);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i) {
      outputs.push_back(rng.Uniform() < 0.2 ? 0 : static_cast<int32_t>(rng.UniformInt(1, 400)));
    }
    PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    for (const bool sorted : {false, true}) {
      const std::vector<NodeTotals> totals =
          sorted ? offline::SortByDensity(&tree, cost, outputs) : offline::SumSubtrees(tree, cost, outputs);
      ASSERT_NO_FATAL_FAILURE(CheckStructure(tree, job.size()));
      for (int32_t i = 0; i < tree.size(); ++i) {
        std::vector<int32_t> below;
        for (int32_t k = i; k < tree[i].end; ++k) {
          if (tree[k].is_leaf() && outputs[static_cast<size_t>(tree[k].request)] > 0) below.push_back(tree[k].request);
        }
        const testing::SlowTotals slow = testing::TotalsOf(job, below, outputs, cost, kKeyTokens);
        const NodeTotals& own = totals[static_cast<size_t>(i)];
        ASSERT_EQ(own.requests, static_cast<int32_t>(below.size()));
        ASSERT_EQ(own.prompt_tokens, slow.prompt_tokens) << "seed " << seed << " node " << i;
        ASSERT_EQ(own.computed_tokens, slow.computed_tokens) << "seed " << seed << " node " << i;
        ASSERT_NEAR(own.compute_s, slow.compute_s, 1e-9 * slow.compute_s) << "seed " << seed << " node " << i;
        ASSERT_NEAR(own.memory_s, slow.memory_s, 1e-9 * slow.memory_s) << "seed " << seed << " node " << i;
        if (!sorted) continue;
        double last = std::numeric_limits<double>::infinity();
        tree.ForEachChild(i, [&](int32_t c) {
          ASSERT_LE(totals[static_cast<size_t>(c)].density(), last * (1 + 1e-12)) << "children of node " << i;
          last = totals[static_cast<size_t>(c)].density();
        });
      }
    }
  }
}

TEST(CostModel, InvalidValuesAreNamed) {
  offline::BatchCostModel cost = testing::Llama8bOnA100();
  EXPECT_TRUE(cost.Check().ok());
  cost.attention_flops = 0;
  EXPECT_TRUE(cost.Check().ok());
  cost.bytes_per_s = 0;
  EXPECT_EQ(cost.Check().param(), "bytes_per_s");
  cost = testing::Llama8bOnA100();
  cost.flops_per_token = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(cost.Check().param(), "flops_per_token");
}

}  // namespace
}  // namespace tactus
