// The checks find faults: each executor here has one planted fault, and the check that guards against it must fail with
// a message that says what is wrong.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "contract/backends.h"

namespace tactus::contract {
namespace {

using SpoilPlan = std::function<void(StepPlan*)>;
using SpoilResult = std::function<void(StepResult*)>;

struct Fault {
  const char* name;
  const char* check;                                                      // finds it
  const char* message;                                                    // part of what the check says
  SpoilPlan plan;                                                         // runs other plans
  SpoilResult result = nullptr;                                           // returns other results
  void (*traits)(ExecutorTraits* traits) = nullptr;                       // declares other traits
  void (*applied)(const StepPlan& refused, StepPlan* applied) = nullptr;  // applies a part of refused plans
  bool repeats = false;                                                   // returns the last result again and again
};

class FaultyExecutor final : public Executor {
 public:
  FaultyExecutor(const FakeExecutorConfig& config, const Fault& fault) : fake_(config), fault_(fault) {}
  ExecutorTraits traits() const override {
    ExecutorTraits traits = fake_.traits();
    if (fault_.traits != nullptr) fault_.traits(&traits);
    return traits;
  }
  void Submit(const StepPlan& plan) override {
    last_plan_ = plan;
    StepPlan spoiled = plan;  // the fake reads it in Submit alone
    if (fault_.plan) fault_.plan(&spoiled);
    fake_.Submit(spoiled);
  }
  bool Poll(StepResult* result) override {
    if (!fake_.Poll(result)) {
      if (fault_.repeats) *result = last_result_;
      return fault_.repeats;
    }
    if (fault_.result) fault_.result(result);
    if (fault_.applied != nullptr && !result->status.ok()) ApplyPart();
    last_result_ = *result;
    return true;
  }
  void SetWakeup(std::function<void()> wakeup) override { fake_.SetWakeup(std::move(wakeup)); }
  int64_t kv_block_bytes() const override { return fake_.kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { fake_.ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId block, const std::byte* from) override { fake_.WriteHostBlock(block, from); }

 private:
  // Precondition: one step in flight at most.
  void ApplyPart() {
    StepPlan part;
    fault_.applied(last_plan_, &part);
    fake_.Submit(part);
    StepResult unreported;
    fake_.Poll(&unreported);
  }

  FakeExecutor fake_;
  const Fault fault_;
  StepPlan last_plan_;
  StepResult last_result_;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

void ForStarts(StepPlan* plan, const std::function<void(SamplingSpec*)>& change) {
  for (SequenceStart& start : plan->starts) change(&start.sampling);
}

// Positions of later chunks are one too low.
void ShiftLaterChunks(StepPlan* plan) {
  for (StepItem& item : plan->items) {
    if (item.first_position > 0 && item.count > 1 && item.draft_tokens == 0) --item.first_position;
  }
}

// The last block of the memory is the one before it.
void MergeLastBlocks(StepPlan* plan) {
  for (BlockId& block : plan->table_blocks) block = std::min(block, 62);
}

// Sequences that restart keep the beginning of their old table.
SpoilPlan KeepOldTables() {
  return [first_blocks = std::map<SlotId, BlockId>()](StepPlan* plan) mutable {
    for (const TableUpdate& u : plan->table_updates) {
      if (u.first_index > 0 || u.count == 0 || u.slot < 0) continue;
      BlockId& first = plan->table_blocks[static_cast<size_t>(u.offset)];
      first = first_blocks.emplace(u.slot, first).first->second;
    }
  };
}

void ReplaceChainedInputs(StepPlan* plan) {
  for (StepItem& item : plan->items) {
    if (item.input != InputSource::kChained) continue;
    item.input = InputSource::kHost;
    item.token_offset = 0;
    if (plan->tokens.empty()) plan->tokens = {0};
  }
}

void SwapCopiesFirst(StepPlan* plan) {
  if (plan->copies.empty() || plan->swap_outs.empty()) return;
  for (SwapCopy& out : plan->swap_outs) {
    for (const BlockCopy& copy : plan->copies) {
      if (copy.to == out.block) out.block = copy.from;  // what the block holds after the copy
    }
  }
}

// Tables of two blocks are reversed. The sequence that writes them gets its tokens still; those that share them do not.
void ReverseShortTables(StepPlan* plan) {
  for (const TableUpdate& u : plan->table_updates) {
    const auto first = plan->table_blocks.begin() + u.offset;
    if (u.first_index == 0 && u.count == 2) std::swap(first[0], first[1]);
  }
}

// Sequences with drafts continue one position too late, after a rejected draft.
void KeepOneDraft(StepPlan* plan) {
  for (StepItem& item : plan->items) item.first_position += item.draft_tokens > 0 ? 1 : 0;
}

void SwapFirstTokens(StepResult* result) {
  if (result->items.size() < 2) return;
  ItemResult &a = result->items[0], &b = result->items[1];
  if (a.num_tokens == b.num_tokens) std::swap(a.token_offset, b.token_offset);
}

void RejectLastDraft(StepResult* result) {
  for (ItemResult& item : result->items) {
    if (item.num_tokens > 1) --item.num_tokens, --item.accepted;
  }
  for (auto& l : result->logprobs) {
    l.per_token.resize(static_cast<size_t>(result->items[static_cast<size_t>(l.item)].num_tokens));
  }
}

Fault DeclaredTraits(const char* name, const char* message, void (*traits)(ExecutorTraits*)) {
  return {.name = name, .check = "TraitsAreThoseOfItsBackend", .message = message, .plan = nullptr, .traits = traits};
}

Fault AppliedPart(const char* name, const char* message, void (*applied)(const StepPlan&, StepPlan*)) {
  return {.name = name,
          .check = "PlansBeyondALimitAreRefusedWhole",
          .message = message,
          .plan = nullptr,
          .applied = applied};
}

// Checks without a fault, and why.
const std::map<std::string, std::string> kFaultless = {
    {"DestructionDropsOutstandingSteps", "a fault would end the test program, or hang it"},
};

const Fault kFaults[] = {
    DeclaredTraits("UndeclaredChains", "traits.can_chain", [](ExecutorTraits* t) { t->can_chain = false; }),
    DeclaredTraits("UndeclaredDrafts", "traits.max_draft_tokens", [](ExecutorTraits* t) { t->max_draft_tokens = 0; }),
    DeclaredTraits("OneStepInFlight", "traits.max_in_flight", [](ExecutorTraits* t) { t->max_in_flight = 1; }),
    AppliedPart("RefusedStartsRun", "after refused plans",
                [](const StepPlan& refused, StepPlan* p) { p->starts = {refused.starts.front()}; }),
    AppliedPart("RefusedTablesRun", "after refused plans",
                [](const StepPlan& refused, StepPlan* p) {
                  p->table_blocks = {refused.table_blocks.begin(), refused.table_blocks.begin() + 2};
                  p->table_updates = {refused.table_updates.front()};
                }),
    AppliedPart("RefusedCopiesRun", "after refused plans",
                [](const StepPlan& refused, StepPlan* p) { p->copies = {refused.copies.front()}; }),
    AppliedPart("RefusedSwapInsRun", "after refused plans",
                [](const StepPlan& refused, StepPlan* p) { p->swap_ins = {refused.swap_ins.front()}; }),
    AppliedPart("RefusedSwapOutsRun", "saved during refused plans",
                [](const StepPlan& refused, StepPlan* p) { p->swap_outs = {refused.swap_outs.front()}; }),
    AppliedPart("RefusedItemsRun", "after refused plans",
                [](const StepPlan& refused, StepPlan* p) {
                  p->items = {refused.items.front()};
                  p->tokens = refused.tokens;
                }),
    {"KeptRejectedDraft", "RejectedDraftsAffectNothing", "with wrong drafts", KeepOneDraft},
    {"OtherItemsTokenBesideDrafts", "RejectedDraftsAffectNothing", "beside wrong drafts", nullptr, SwapFirstTokens},
    {.name = "RepeatedResult",
     .check = "ResultsComeInTheOrderOfTheirSteps",
     .message = "a result of no step",
     .plan = nullptr,
     .repeats = true},
    {"IgnoredMask", "GrammarsAllowOnlyTheirAnswers", "the grammar forbids",
     [](StepPlan* p) { ForStarts(p, [](SamplingSpec* s) { s->grammar = nullptr; }); }},
    {"IgnoredEmptyMask", "GrammarsWithoutTokensEndTheirItemAlone", "kBadGrammar",
     [](StepPlan* p) { ForStarts(p, [](SamplingSpec* s) { s->grammar = nullptr; }); }},
    {"WrongPositionAfterAChunk", "ChunksChangeNoToken", "prompts in chunks of", ShiftLaterChunks},
    {"MergedBlocks", "EveryBlockHoldsItsOwnTokens", "all blocks in use", MergeLastBlocks},
    {"StaleTable", "ReusedBlocksAndSlotsKeepNothing", "blocks and slots used", KeepOldTables()},
    {"StaleTableAfterPreemption", "PreemptionChangesNoToken", "preempted and recomputed", KeepOldTables()},
    {"OtherItemsTokens", "BatchesChangeNoToken", "batched with other sequences", nullptr, SwapFirstTokens},
    {"ReversedTables", "SharedPrefixesChangeNoToken", "prefix shared", ReverseShortTables},
    {"NoBlockCopies", "CopiedPartialBlocksHoldTheirTokens", "in a copied block",
     [](StepPlan* p) { p->copies.clear(); }},
    {"ShortSwaps", "SwappingChangesNoToken", "swapped out and in",
     [](StepPlan* p) {
       for (SwapCopy& c : p->swap_outs) c.tokens = std::max(1, c.tokens - 1);
     }},
    {"NoSwapIns", "SwappedSequencesContinueUnchanged", "swapped out and in", [](StepPlan* p) { p->swap_ins.clear(); }},
    {"NoArrivals", "MovedBlocksContinueElsewhere", "moved to another executor",
     [](StepPlan* p) { p->swap_ins.clear(); }},
    {"CopiesBeforeSwapOuts", "OneStepSwapsOutThenCopiesThenSwapsIn", "the copy ran before the swap-out",
     SwapCopiesFirst},
    {"OtherSeedsInABatch", "SeedAndChoiceAloneDecideSamples", "in a batch of samples",
     [](StepPlan* p) { ForStarts(p, [&](SamplingSpec* s) { s->params.seed += p->items.size(); }); }},
    {"IgnoredSeed", "SeedAndChoiceAloneDecideSamples", "the seed does not change the samples",
     [](StepPlan* p) { ForStarts(p, [](SamplingSpec* s) { s->params.seed = 0; }); }},
    {"LostChainedToken", "ChainedStepsSampleTheHostsTokens", "chained, slot 0", ReplaceChainedInputs},
    {"ForgottenOutput", "GrammarsSurviveAPreemption", "not that of the output so far",
     [](StepPlan* p) { ForStarts(p, [](SamplingSpec* s) { s->output.clear(); }); }},
    {"RejectedGrammarDraft", "GrammarsSurviveAPreemption", "the grammar allows two of the drafts", nullptr,
     RejectLastDraft},
    {"EarlyEnd", "EndsWaitForTheLeastLength", "an end before its time",
     [](StepPlan* p) { ForStarts(p, [](SamplingSpec* s) { s->unended_tokens = 0; }); }},
    {"RejectedRightDraft", "DraftsAreAcceptedAsFarAsTheyEqualTheSamples", "equal the samples", nullptr,
     RejectLastDraft},
    {"RejectedDraftOfARule", "WrongDraftsDoNotMoveAGrammar", "result.items[0].num_tokens", nullptr, RejectLastDraft},
    {"ContinuesBehindARejectedDraft", "WrongDraftsDoNotMoveAGrammar", "right drafts", KeepOneDraft},
    {"FewerDraftsThanDeclared", "TheMostDraftsOfAnItemAreVerified", "most + 1", nullptr, RejectLastDraft},
    {"LogprobsOfTheBest", "LogprobsAreThoseOfTheReturnedTokens", "the first logprob is of another token", nullptr,
     [](StepResult* r) {
       for (auto& l : r->logprobs)
         for (auto& entry : l.per_token) entry[0] = entry.back();
     }},
    {"MixedLogprobs", "LogprobsOfSeveralItemsAreNotMixed", "beside others with logprobs", nullptr,
     [](StepResult* r) {
       if (r->prompt_logprobs.size() > 1) std::swap(r->prompt_logprobs[0].per_token, r->prompt_logprobs[1].per_token);
     }},
    {"UnreportedError", "PlansBeyondALimitAreRefusedWhole", "0 results for 2 items", nullptr,
     [](StepResult* r) { r->status = Status(); }},
    {"ClampedSlot", "PlansBeyondALimitAreRefusedWhole", "item of slot 8, limit 7",
     [](StepPlan* p) {
       for (StepItem& item : p->items) item.slot = std::min(item.slot, 7);
     }},
    {"OneSlotLess", "PlansAtEveryLimitRun", "the last slot: ",
     [](StepPlan* p) {
       for (StepItem& item : p->items) item.slot += item.slot == 7;
     }},
    {"IgnoredAdapter", "WhatIsNotOfferedIsRefused", "adapter 1, limit 0",
     [](StepPlan* p) {
       for (SequenceStart& start : p->starts) start.adapter = 0;
     }},
    {"WrongStep", "ResultsComeInTheOrderOfTheirSteps", "instead of step 11", nullptr,
     [](StepResult* r) { r->step = 10; }},
    {"SomeTokenForAWrongOne", "TokensOutsideTheVocabularyFailTheirItemAlone", "token 64",
     [](StepPlan* p) {
       for (TokenId& t : p->tokens) t = std::clamp(t, 0, 63);
     }},
};

class PlantedFaultTest : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFaultTest, IsFoundByItsCheck) {
  const Fault& fault = GetParam();
  Backend backend = FakeBackend();
  backend.make = [&](const ExecutorSize& size, int32_t max_in_flight) -> Result<std::unique_ptr<Executor>> {
    return std::unique_ptr<Executor>(std::make_unique<FaultyExecutor>(FakeConfig(size, max_in_flight), fault));
  };
  const auto check = std::find_if(Checks().begin(), Checks().end(),
                                  [&](const Check& c) { return std::string(c.name) == fault.check; });
  ASSERT_NE(check, Checks().end());
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    check->run(backend);
  }
  std::string messages;
  for (int i = 0; i < failures.size(); ++i) messages += std::string(failures.GetTestPartResult(i).message()) + "\n";
  EXPECT_NE(messages.find(fault.message), std::string::npos) << "the check says: " << messages;
}

TEST(PlantedFaultsTest, EveryCheckFindsOne) {
  for (const Check& check : Checks()) {
    const auto faults = std::count_if(std::begin(kFaults), std::end(kFaults),
                                      [&](const Fault& f) { return std::string(f.check) == check.name; });
    EXPECT_EQ(faults == 0, kFaultless.contains(check.name)) << check.name << " has " << faults << " faults";
  }
}

INSTANTIATE_TEST_SUITE_P(Fake, PlantedFaultTest, testing::ValuesIn(kFaults),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tactus::contract
