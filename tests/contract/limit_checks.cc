// What an executor accepts and refuses at every limit: the last plan that fits, and the first that does not. A refusal
// is the status of its step, and nothing of the plan is applied.
#include <functional>
#include <utility>

#include "contract/bed.h"
#include "contract/checks.h"
#include "support/listed_grammar.h"

namespace tactus::contract {
namespace {

using Change = std::function<void(StepPlan&)>;
using Plans = std::vector<std::pair<std::string, Change>>;

Change WithUpdate(const TableUpdate& update) {
  return [update](StepPlan& p) { p.table_updates.push_back(update); };
}
Change WithCopy(const BlockCopy& copy) {
  return [copy](StepPlan& p) { p.copies.push_back(copy); };
}
// `item` as the only one, with as many tokens as it has inputs.
Change OnlyItem(const StepItem& item) {
  return [item](StepPlan& p) {
    p.items.assign(1, item);
    p.tokens.assign(static_cast<size_t>(item.count), 1);
  };
}
Change WithTable(const std::vector<BlockId>& blocks, const TableUpdate& update) {
  return [blocks, update](StepPlan& p) {
    p.table_blocks = blocks;
    p.table_updates.push_back(update);
  };
}
Change WithStart(const SequenceStart& start) {
  return [start](StepPlan& p) { p.starts.push_back(start); };
}

constexpr StepId kStep = 5;

// One token at position 3 of slot 0.
StepPlan OneToken() {
  StepPlan plan;
  plan.step = kStep;
  StepItem item;
  item.slot = 0;
  item.first_position = 3;
  item.count = 1;
  item.logit_rows = 1;
  plan.items.push_back(item);
  plan.tokens = {1};
  return plan;
}

// All slots of the executor, live, each with a table of as many blocks as it can have.
void FillSlots(const Backend& backend, Bed* bed) {
  StepPlan plan = OneToken();
  for (SlotId slot = 0; slot < 8; ++slot) {
    plan.starts.push_back({.slot = slot, .sampling = SamplingOf(MakeRequest({1, 2}, Greedy()), {})});
    plan.table_updates.push_back({slot, 0, 10, static_cast<int32_t>(plan.table_blocks.size())});
    for (BlockId b = 0; b < 10; ++b) plan.table_blocks.push_back((slot * 10 + b) % 64);
  }
  const StepResult result = bed->Run(plan);
  ASSERT_TRUE(result.status.ok()) << backend.name << ": " << result.status.ToString();
}

void PlansAtEveryLimitRun(const Backend& backend) {
  const int32_t b = backend.block_size;
  std::vector<std::pair<const char*, Change>> plans = {
      {"as it is", [](StepPlan&) {}},
      {"the last slot", [](StepPlan& p) { p.items[0].slot = 7; }},
      {"the first position", [](StepPlan& p) { p.items[0].first_position = 0; }},
      {"the last position", [=](StepPlan& p) { p.items[0].first_position = 10 * b - 1; }},
      {"all positions", OnlyItem({0, 0, 10 * b, 10 * b, false})},
      {"no logits", [](StepPlan& p) { p.items[0].logit_rows = 0; }},
      {"the last token", [](StepPlan& p) { p.items[0].token_offset = 1, p.tokens.push_back(2); }},
      {"the most items",
       [](StepPlan& p) {
         for (SlotId slot = 1; slot < 8; ++slot) p.items.push_back(p.items[0]), p.items.back().slot = slot;
       }},
      {"the most tokens",
       [=](StepPlan& p) {
         p.items[0] = {0, 0, 8 * b, 1, false};
         p.items.push_back({1, 0, 8 * b, 1, false});
         p.tokens.assign(8 * b, 1);
       }},
      {"the last table entries", WithTable({63, 0}, {7, 8, 2, 0})},
      {"a whole table", WithTable(std::vector<BlockId>(10, 2), {0, 0, 10, 0})},
      {"a copy from the last block", WithCopy({63, 0, b})},
      {"a copy to the last block", WithCopy({0, 63, 1})},
      {"a start of the last slot",
       [](StepPlan& p) { p.starts.push_back({.slot = 7, .sampling = SamplingOf(MakeRequest({1}, Greedy()), {})}); }},
      {"an end of the last slot", [](StepPlan& p) { p.forgets = {7}; }},
  };
  const SwapCopy out = {63, 23, b}, in = {0, 0, 1};
  if (backend.swaps) {
    plans.emplace_back("the last host block",
                       [=](StepPlan& p) { p.swap_outs.push_back(out), p.swap_ins.push_back(in); });
  }
  Bed bed(backend);
  FillSlots(backend, &bed);
  for (const auto& [what, change] : plans) {
    StepPlan plan = OneToken();
    change(plan);
    const Status status = bed.Run(plan).status;
    EXPECT_TRUE(status.ok()) << what << ": " << status.ToString();
  }
}

// Plans that break one rule each, with the error that CheckPlan (base/plan_limits.h) gives.
Plans BrokenPlans(const Backend& backend, int32_t max_drafts) {
  const int32_t b = backend.block_size;
  const std::string len = std::to_string(10 * b), block = std::to_string(b), drafts = std::to_string(max_drafts);
  const std::string above = std::to_string(10 * b + 1), many = std::to_string(b + 1);
  const std::string host = std::to_string(backend.swaps ? 23 : -1);
  Plans plans = {
      {"item of slot -1, limit 7", [](StepPlan& p) { p.items.back().slot = -1; }},
      {"item of slot 8, limit 7", [](StepPlan& p) { p.items.back().slot = 8; }},
      {"start of slot -1, limit 7", WithStart({.slot = -1})},
      {"start of slot 8, limit 7", WithStart({.slot = 8})},
      {"end of slot 8, limit 7", [](StepPlan& p) { p.forgets.push_back(8); }},
      {"draft tokens -1, limit " + drafts, [](StepPlan& p) { p.items.back().draft_tokens = -1; }},
      {"draft tokens " + std::to_string(max_drafts + 1) + ", limit " + drafts,
       [=](StepPlan& p) { p.items.back().draft_tokens = max_drafts + 1; }},
      {"table of slot -1, limit 7", WithUpdate({-1, 0, 0, 0})},
      {"table of slot 8, limit 7", WithUpdate({8, 0, 0, 0})},
      {"table entry 0, limit 10", WithUpdate({0, -1, 1, 0})},
      {"table entry -1, limit 10", WithUpdate({0, 0, -1, 0})},
      {"table entry 11, limit 10", WithUpdate({0, 10, 1, 0})},
      {"end of table_blocks 0, limit 2", WithUpdate({0, 0, 1, -1})},
      {"end of table_blocks 3, limit 2", WithUpdate({0, 0, 1, 2})},
      {"block -1, limit 63", [](StepPlan& p) { p.table_blocks.push_back(-1); }},
      {"block 64, limit 63", [](StepPlan& p) { p.table_blocks.push_back(64); }},
      {"copy from block 64, limit 63", WithCopy({64, 0, 1})},
      {"copy from block -1, limit 63", WithCopy({-1, 0, 1})},
      {"copy to block 64, limit 63", WithCopy({0, 64, 1})},
      {"copied tokens " + many + ", limit " + block, WithCopy({0, 1, b + 1})},
      {"copied tokens -1, limit " + block, WithCopy({0, 1, -1})},
      {"items 9, limit 8", [](StepPlan& p) { p.items.resize(9, p.items[0]); }},
      {"end of item " + above + ", limit " + len, [=](StepPlan& p) { p.items.back().first_position = 10 * b; }},
      {"end of item 0, limit " + len, [](StepPlan& p) { p.items.back().first_position = -1; }},
      {"end of item 3, limit " + len, [](StepPlan& p) { p.items.back().count = 0; }},
      {"logit rows 2, limit 1", [](StepPlan& p) { p.items.back().logit_rows = 2; }},
      {"logit rows -1, limit 1", [](StepPlan& p) { p.items.back().logit_rows = -1; }},
      {"sampled item's logit rows 0, limit 1",
       [](StepPlan& p) { p.items.back().logit_rows = 0, p.items.back().sample = true; }},
      {"end of input tokens 2, limit 1", [](StepPlan& p) { p.items.back().token_offset = 1; }},
      {"end of input tokens 0, limit 1", [](StepPlan& p) { p.items.back().token_offset = -1; }},
      {"tokens " + std::to_string(16 * b + 1) + ", limit " + std::to_string(16 * b),
       [=](StepPlan& p) {
         p.items = {{0, 0, 8 * b, 1, false}, {1, 0, 8 * b + 1, 1, false}};
         p.tokens.assign(static_cast<size_t>(8 * b + 1), 1);
       }},
  };
  for (const auto swaps : {&StepPlan::swap_outs, &StepPlan::swap_ins}) {
    const auto add = [&](const std::string& error, SwapCopy swap) {
      plans.push_back({error, [=](StepPlan& p) { (p.*swaps).push_back(swap); }});
    };
    add("swapped block 64, limit 63", {64, 0, 1});
    add("swapped block -1, limit 63", {-1, 0, 1});
    add("host block 24, limit " + host, {0, 24, 1});
    add("host block -1, limit " + host, {0, -1, 1});
    if (!backend.swaps) continue;
    add("swapped tokens 0, limit " + block, {0, 0, 0});
    add("swapped tokens " + many + ", limit " + block, {0, 0, b + 1});
  }
  if (backend.drafts) {
    plans.push_back({"logit rows of an item with drafts 1, limit 2",
                     [](StepPlan& p) { p.items.back().draft_tokens = 1, p.items.back().sample = true; }});
  }
  if (backend.chains) {
    plans.push_back({"chained item's tokens 2, limit 1",
                     [](StepPlan& p) { p.items.back().input = InputSource::kChained, p.items.back().count = 2; }});
  }
  return plans;
}

// Plans that need what `backend` does not offer.
Plans UnofferedPlans(const Backend& backend) {
  Plans plans = {{"adapter 1, limit 0", WithStart({.slot = 0, .adapter = 1})}};
  const auto start = [](StepPlan& p) -> SamplingSpec& {
    return p.starts.emplace_back(SequenceStart{.slot = 0}).sampling;
  };
  if (!backend.chains)
    plans.push_back({"chained inputs 1, limit 0", [](StepPlan& p) { p.items.back().input = InputSource::kChained; }});
  if (!backend.drafts) {
    plans.push_back({"draft tokens 1, limit 0", [](StepPlan& p) {
                       p.items.back() = {0, 3, 2, 2, true, InputSource::kHost, 0, 1};
                       p.tokens = {1, 2};
                     }});
  }
  if (!backend.swaps)
    plans.push_back({"host block 0, limit -1", [](StepPlan& p) { p.swap_outs.push_back({0, 0, 1}); }});
  if (!backend.logprobs) {
    plans.push_back({"sequences with logprobs 1, limit 0", [=](StepPlan& p) { start(p).params.logprobs = 0; }});
    plans.push_back({"sequences with logprobs 1, limit 0", [=](StepPlan& p) { start(p).prompt_logprobs = true; }});
  }
  if (!backend.grammars) {
    const auto grammar =
        std::make_shared<test::ListedGrammar>(backend.vocab_size, 1, std::vector<std::vector<TokenId>>());
    plans.push_back({"grammars 1, limit 0", [=](StepPlan& p) { start(p).grammar = grammar; }});
  }
  return plans;
}

// A plan whose every part changes what `live` in slot 0 or `saved` in the host's memory gets: a restart with other
// parameters, another table, a block over the first one, and other tokens at position 3.
StepPlan HarmfulPlan(const Backend& backend, const StepDriver::Sequence& live, const StepDriver::Sequence& saved) {
  StepPlan plan = OneToken();
  plan.starts.push_back({.slot = 0, .sampling = SamplingOf(MakeRequest({1, 2}, Greedy()), {})});
  plan.table_blocks = {62, 63};
  plan.table_updates.push_back({0, 0, 2, 0});
  plan.copies.push_back({63, live.table[0], backend.block_size});
  if (backend.swaps) {
    plan.swap_outs.push_back({63, saved.host[0], backend.block_size});
    plan.swap_ins.push_back({live.table[1], 23, backend.block_size});
  }
  plan.tokens[0] = (live.tokens[3] + 1) % backend.vocab_size;
  plan.items.push_back(plan.items[0]);
  return plan;
}

// `plans` change the last item of a HarmfulPlan, or add to it.
void ExpectRefused(const Backend& backend, Bed* bed, const Plans& plans) {
  StepDriver& driver = bed->driver();
  SamplingParams p;
  p.temperature = 1.3f;
  p.seed = 3;
  if (backend.logprobs) p.logprobs = 1;
  const Request request = MakeRequest(RandomTokens(backend, backend.block_size + 4, 2), p);
  const int32_t s = driver.Add(request), saved = driver.Add(request);
  driver.Generate(saved, 2);
  if (backend.swaps) driver.SwapOut(saved);
  driver.Generate(s, 2);
  for (const auto& [what, change] : plans) {
    StepPlan plan = HarmfulPlan(backend, driver.at(s), driver.at(saved));
    change(plan);
    const Status status = bed->Run(plan).status;
    EXPECT_EQ(status.code(), StatusCode::kInternal) << "a plan is not refused: " << what;
    EXPECT_EQ(status.message(), "step " + std::to_string(kStep) + ": " + what);
  }
  driver.Generate(s, kOutput);
  if (backend.swaps) driver.SwapIn(saved);
  driver.Generate(saved, kOutput);
  const Output alone = Alone(backend, request);
  ExpectSame(alone, OutputOf(driver.at(s)), "after refused plans");
  ExpectSame(alone, OutputOf(driver.at(saved)), "saved during refused plans");
}

void PlansBeyondALimitAreRefusedWhole(const Backend& backend) {
  Bed bed(backend);
  ExpectRefused(backend, &bed, BrokenPlans(backend, bed.executor().traits().max_draft_tokens));
}

void WhatIsNotOfferedIsRefused(const Backend& backend) {
  Bed bed(backend);
  ExpectRefused(backend, &bed, UnofferedPlans(backend));
}

// The first and last token of the vocabulary are valid inputs; their neighbours outside it fail their item. The step's
// other item runs in both cases.
void TokensOutsideTheVocabularyFailTheirItemAlone(const Backend& backend) {
  for (const auto& [token, good] : {std::pair<TokenId, bool>(0, true),
                                    {backend.vocab_size - 1, true},
                                    {backend.vocab_size, false},
                                    {-1, false},
                                    {INT32_MAX, false}}) {
    std::vector<TokenId> prompt = RandomTokens(backend, 10, 1);
    const Request other = MakeRequest(prompt, Greedy());
    prompt[4] = token;
    Bed bed(backend);
    StepDriver& driver = bed.driver();
    const int32_t a = driver.Add(MakeRequest(prompt, Greedy())), b = driver.Add(other);
    const StepResult result = driver.Step({{a, 10, {}}, {b, 10, {}}});
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_EQ(result.items[0].status, good ? ItemStatus::kOk : ItemStatus::kFailed) << "token " << token;
    EXPECT_EQ(result.items[0].num_tokens, good ? 1 : 0) << "token " << token;
    driver.Generate(b, kOutput);
    ExpectSame(Alone(backend, other), OutputOf(driver.at(b)), "beside a prompt with token " + std::to_string(token));
  }
}

}  // namespace

std::span<const Check> LimitChecks() {
  static constexpr Check kChecks[] = {
      {"PlansAtEveryLimitRun", PlansAtEveryLimitRun},
      {"PlansBeyondALimitAreRefusedWhole", PlansBeyondALimitAreRefusedWhole},
      {"WhatIsNotOfferedIsRefused", WhatIsNotOfferedIsRefused},
      {"TokensOutsideTheVocabularyFailTheirItemAlone", TokensOutsideTheVocabularyFailTheirItemAlone},
  };
  return kChecks;
}

}  // namespace tactus::contract
