// Several steps in flight: order of results, chained inputs, and the end of an executor that is still at work.
#include "contract/bed.h"
#include "contract/checks.h"
#include "time_limit.h"

namespace tactus::contract {
namespace {

void TraitsAreThoseOfItsBackend(const Backend& backend) {
  for (const int32_t max_in_flight : {1, 3}) {
    Bed bed(backend, max_in_flight);
    const ExecutorTraits traits = bed.executor().traits();
    EXPECT_EQ(traits.max_in_flight, max_in_flight);
    EXPECT_EQ(traits.can_chain, backend.chains);
    EXPECT_EQ(traits.max_draft_tokens > 0, backend.drafts);
    EXPECT_EQ(bed.executor().kv_block_bytes() > 0, backend.moves);
    EXPECT_TRUE(traits.has_tokens);
    EXPECT_STRNE(traits.name, "");
  }
}

// Adds an item for the slot's whole prompt, whose KV goes to `blocks`.
void AddPrompt(StepPlan* plan, SlotId slot, const Request& request, const std::vector<BlockId>& blocks) {
  plan->starts.push_back({.slot = slot, .sampling = SamplingOf(request, {})});
  plan->table_updates.push_back(
      {slot, 0, static_cast<int32_t>(blocks.size()), static_cast<int32_t>(plan->table_blocks.size())});
  plan->table_blocks.insert(plan->table_blocks.end(), blocks.begin(), blocks.end());
  StepItem item;
  item.slot = slot;
  item.count = static_cast<int32_t>(request.prompt->size());
  item.logit_rows = 1;
  item.sample = true;
  item.token_offset = static_cast<int32_t>(plan->tokens.size());
  plan->tokens.insert(plan->tokens.end(), request.prompt->begin(), request.prompt->end());
  plan->items.push_back(item);
}

void ExpectNoResult(Bed* bed) {
  StepResult none;
  EXPECT_FALSE(bed->executor().Poll(&none)) << "a result of no step";
}

// Two prompts and then chained decodes, all submitted before the first result is polled.
void ChainedStepsSampleTheHostsTokens(const Backend& backend) {
  SamplingParams sampled;
  sampled.temperature = 1.5f;
  sampled.seed = 11;
  sampled.frequency_penalty = 1.0f;
  const int32_t length = backend.block_size + 1;
  const Request requests[] = {MakeRequest(RandomTokens(backend, length, 1), sampled),
                              MakeRequest(RandomTokens(backend, length, 2), Greedy())};
  Bed bed(backend, kOutput);
  std::vector<StepPlan> plans(kOutput);
  for (int32_t n = 0; n < kOutput; ++n) {
    StepPlan& plan = plans[static_cast<size_t>(n)];
    plan.step = n;
    if (n == 0) {
      AddPrompt(&plan, 0, requests[0], {5, 2});
      AddPrompt(&plan, 1, requests[1], {7, 1});
    }
    for (SlotId slot = 0; n > 0 && slot < 2; ++slot) {
      StepItem item;
      item.slot = slot;
      item.input = InputSource::kChained;
      item.first_position = length - 1 + n;
      item.count = item.logit_rows = 1;
      item.sample = true;
      plan.items.push_back(item);
    }
    bed.Submit(plan);
  }
  Output got[2];
  for (const StepPlan& plan : plans) {
    const StepResult result = bed.Next(plan);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    for (size_t slot = 0; slot < 2; ++slot)
      got[slot].tokens.push_back(result.tokens[static_cast<size_t>(result.items[slot].token_offset)]);
  }
  for (size_t slot = 0; slot < 2; ++slot)
    ExpectSame(Alone(backend, requests[slot]), got[slot], "chained, slot " + std::to_string(slot));
  ExpectNoResult(&bed);
}

// Steps of unequal sizes, submitted together.
void ResultsComeInTheOrderOfTheirSteps(const Backend& backend) {
  const std::vector<TokenId> prompt = RandomTokens(backend, backend.block_size, 4);
  Bed bed(backend, 4);
  std::vector<StepPlan> plans(4);
  for (size_t n = 0; n < plans.size(); ++n) {
    plans[n].step = 10 + static_cast<StepId>(n);
    const auto count = static_cast<int64_t>(n % 2 == 0 ? prompt.size() : 1);
    AddPrompt(&plans[n], static_cast<SlotId>(n), MakeRequest({prompt.begin(), prompt.begin() + count}, Greedy()),
              {static_cast<BlockId>(n)});
    bed.Submit(plans[n]);
  }
  TimeNs last_ns = 0;
  for (const StepPlan& plan : plans) {
    const StepResult result = bed.Next(plan);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_GE(result.start_ns, last_ns) << "step " << plan.step << " starts before the one before it ends";
    EXPECT_GE(result.end_ns, result.start_ns) << "step " << plan.step;
    last_ns = result.end_ns;
  }
  ExpectNoResult(&bed);
}

void DestructionDropsOutstandingSteps(const Backend& backend) {
  const test::TimeLimit limit("an executor with steps outstanding does not end");
  std::vector<StepPlan> plans(4);  // outlive the executor
  Bed bed(backend, 4);
  for (StepPlan& plan : plans) {
    plan.step = 1;
    AddPrompt(&plan, 0, MakeRequest(RandomTokens(backend, 4 * backend.block_size, 1), Greedy()), {0, 1, 2, 3});
    bed.Submit(plan);
  }
}

}  // namespace

std::span<const Check> PipelineChecks() {
  static constexpr Check kChecks[] = {
      {"TraitsAreThoseOfItsBackend", TraitsAreThoseOfItsBackend},
      {"ChainedStepsSampleTheHostsTokens", ChainedStepsSampleTheHostsTokens, &Backend::chains},
      {"ResultsComeInTheOrderOfTheirSteps", ResultsComeInTheOrderOfTheirSteps},
      {"DestructionDropsOutstandingSteps", DestructionDropsOutstandingSteps},
  };
  return kChecks;
}

}  // namespace tactus::contract
