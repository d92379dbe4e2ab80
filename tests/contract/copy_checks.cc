// Copies of blocks: within the KV memory, to the host and back, and between executors.
#include <map>

#include "contract/bed.h"
#include "contract/checks.h"

namespace tactus::contract {
namespace {

Request SomePrompt(const Backend& backend, int32_t length, uint64_t seed) {
  SamplingParams p = Greedy();
  if (backend.logprobs) p.logprobs = 2;
  return MakeRequest(RandomTokens(backend, length, seed), p);
}

// A fork shares full blocks and gets a copy of the partial one; both continue in it.
void CopiedPartialBlocksHoldTheirTokens(const Backend& backend) {
  const int32_t length = 3 * backend.block_size / 2;
  const Request request = SomePrompt(backend, length, 3);
  const Output alone = Alone(backend, request);
  Bed bed(backend);
  StepDriver& driver = bed.driver();
  const int32_t parent = driver.Add(request);
  driver.Generate(parent, 2);
  const int32_t fork = driver.Fork(parent, length - 1);
  driver.Generate(fork, kOutput);
  driver.Generate(parent, kOutput);
  ExpectSame(alone, OutputOf(driver.at(fork)), "in a copied block");
  ExpectSame(alone, OutputOf(driver.at(parent)), "in a block that was copied");
}

// The victim's blocks, the last of them partial, are overwritten in the step that saves them, and return into others.
void SwappedSequencesContinueUnchanged(const Backend& backend) {
  const Request request = SomePrompt(backend, 3 * backend.block_size + 2, 3);
  const Request other = SomePrompt(backend, 4 * backend.block_size - 2, 5);
  Bed bed(backend);
  StepDriver& driver = bed.driver();
  const int32_t s = driver.Add(request), o = driver.Add(other);
  driver.Generate(s, 3);
  const std::vector<BlockId> before = driver.at(s).table;
  driver.SwapOut(s);
  driver.Generate(o, 1);
  driver.SwapIn(s);
  driver.Generate(s, kOutput);
  driver.Generate(o, kOutput);
  EXPECT_NE(driver.at(s).table, before);
  ExpectSame(Alone(backend, request), OutputOf(driver.at(s)), "swapped out and in");
  ExpectSame(Alone(backend, other), OutputOf(driver.at(o)), "in blocks that were swapped out in the same step");
}

// One-block sequences whose blocks are named by the check: the slot computes [first, first + count) of the prompt.
struct OneBlock {
  SlotId slot;
  const Request* request;
  BlockId block;
  int32_t first, count;
};
std::map<SlotId, Output> RunOneBlocks(Bed* bed, const std::vector<OneBlock>& items, StepPlan plan = {}) {
  for (const OneBlock& i : items) {
    const std::vector<TokenId>& prompt = *i.request->prompt;
    plan.starts.push_back({.slot = i.slot, .sampling = SamplingOf(*i.request, {})});
    plan.table_updates.push_back({i.slot, 0, 1, static_cast<int32_t>(plan.table_blocks.size())});
    plan.table_blocks.push_back(i.block);
    StepItem item;
    item.slot = i.slot;
    item.first_position = i.first;
    item.count = i.count;
    item.logit_rows = 1;
    item.sample = true;
    item.token_offset = static_cast<int32_t>(plan.tokens.size());
    plan.tokens.insert(plan.tokens.end(), prompt.begin() + i.first, prompt.begin() + i.first + i.count);
    plan.items.push_back(item);
  }
  const StepResult result = bed->Run(plan);
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  std::map<SlotId, Output> outputs;
  if (!result.status.ok()) return outputs;
  for (size_t i = 0; i < items.size(); ++i)
    outputs[items[i].slot].tokens = {result.tokens[static_cast<size_t>(result.items[i].token_offset)]};
  for (const auto& l : result.logprobs) outputs[items[static_cast<size_t>(l.item)].slot].logprobs = l.per_token;
  return outputs;
}

// A (block 3) is swapped out; a fork of B (block 5) is copied over it; D, swapped out earlier, returns over B's own
// block. Every pair of the three accesses one block, so another order changes tokens.
void OneStepSwapsOutThenCopiesThenSwapsIn(const Backend& backend) {
  const int32_t n = backend.block_size - 1;
  bool differ = false;  // tokens may be equal by chance
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Bed bed(backend);
    Request requests[3];
    Output want[3];
    for (size_t i = 0; i < 3; ++i) {
      requests[i] = SomePrompt(backend, n + 1, 100 + 10 * seed + i);
      want[i] = RunOneBlocks(&bed, {{0, &requests[i], 0, 0, n + 1}})[0];
    }
    differ = differ ||
             (want[0].tokens != want[1].tokens && want[0].tokens != want[2].tokens && want[1].tokens != want[2].tokens);
    const Request &a = requests[0], &b = requests[1], &d = requests[2];
    RunOneBlocks(&bed, {{3, &d, 6, 0, n}});
    StepPlan save;
    save.swap_outs = {{6, 1, n}};
    RunOneBlocks(&bed, {{0, &a, 3, 0, n}, {1, &b, 5, 0, n}}, save);

    StepPlan all;
    all.swap_outs = {{3, 0, n}};
    all.copies = {{5, 3, n}};
    all.swap_ins = {{5, 1, n}};
    auto got = RunOneBlocks(&bed, {{2, &b, 3, n, 1}, {3, &d, 5, n, 1}}, all);
    ExpectSame(want[1], got[2],
               "the fork did not get its parent's block: the copy ran before the swap-out or after the swap-in");
    ExpectSame(want[2], got[3], "the swapped-in block was overwritten by a copy");

    StepPlan back;
    back.swap_ins = {{7, 0, n}};
    ExpectSame(want[0], RunOneBlocks(&bed, {{0, &a, 7, n, 1}}, back)[0],
               "the saved content is not the block's content before the step: the copy ran before the swap-out");
  }
  EXPECT_TRUE(differ) << "no seed gives three tokens that differ, so that no wrong order can be seen";
}

// A sequence's blocks are read as bytes and written to another executor's host blocks.
void MovedBlocksContinueElsewhere(const Backend& backend) {
  const Request request = SomePrompt(backend, 3 * backend.block_size + 2, 3);
  Bed from(backend), to(backend);
  const int32_t s = from.driver().Add(request);
  from.driver().Generate(s, 3);
  const int64_t size = from.executor().kv_block_bytes();
  ASSERT_EQ(to.executor().kv_block_bytes(), size);
  StepDriver::Sequence moved = from.driver().at(s);
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < moved.table.size(); ++i) {
    from.executor().ReadKvBlock(moved.table[i], bytes.data());
    moved.host.push_back(static_cast<BlockId>(20 - i));
    to.executor().WriteHostBlock(moved.host.back(), bytes.data());
  }
  moved.table.clear();
  moved.announced = false;
  const int32_t arrived = to.driver().Add(request);
  to.driver().at(arrived) = moved;
  to.driver().SwapIn(arrived);
  to.driver().Generate(arrived, kOutput);
  ExpectSame(Alone(backend, request), OutputOf(to.driver().at(arrived)), "moved to another executor");
}

}  // namespace

std::span<const Check> CopyChecks() {
  static constexpr Check kChecks[] = {
      {"CopiedPartialBlocksHoldTheirTokens", CopiedPartialBlocksHoldTheirTokens},
      {"SwappedSequencesContinueUnchanged", SwappedSequencesContinueUnchanged, &Backend::swaps},
      {"OneStepSwapsOutThenCopiesThenSwapsIn", OneStepSwapsOutThenCopiesThenSwapsIn, &Backend::swaps},
      {"MovedBlocksContinueElsewhere", MovedBlocksContinueElsewhere, &Backend::moves},
  };
  return kChecks;
}

}  // namespace tactus::contract
