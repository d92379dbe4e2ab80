// Tokens and logprobs of a sequence do not depend on what else is done in its steps, or with its blocks.
#include "base/rng.h"
#include "contract/bed.h"
#include "contract/checks.h"
#include "support/mixed_steps.h"

namespace tactus::contract {
namespace {

void ChunksChangeNoToken(const Backend& backend) {
  const std::vector<Request> requests = MixedRequests(backend);
  const std::vector<Output> alone = EachAlone(backend, requests);
  const int32_t b = backend.block_size;
  for (const int32_t chunk : {1, 7, b - 1, b, b + 1}) {
    Bed bed(backend);
    StepDriver& driver = bed.driver();
    for (const Request& request : requests) {
      const int32_t s = driver.Add(request);
      while (driver.at(s).pending() > chunk) {
        const StepResult result = driver.Step({{s, chunk, {}}});
        ASSERT_TRUE(result.status.ok()) << result.status.ToString();
      }
      driver.Generate(s, kOutput);
    }
    ExpectAllSame(alone, driver, "prompts in chunks of " + std::to_string(chunk));
  }
}

// Runs random hybrid batches over the sequences of MixedRequests.
void RunMixedSteps(const Backend& backend, const test::MixedSteps& options, const std::string& schedule) {
  const std::vector<Request> requests = MixedRequests(backend);
  const std::vector<Output> alone = EachAlone(backend, requests);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Bed bed(backend);
    for (const Request& request : requests) bed.driver().Add(request);
    Rng rng(seed);
    test::RunMixed(bed.driver(), static_cast<int32_t>(requests.size()), options, rng);
    ExpectAllSame(alone, bed.driver(), schedule + " (seed " + std::to_string(seed) + ")");
    if (testing::Test::HasFailure()) return;
  }
}

void BatchesChangeNoToken(const Backend& backend) {
  RunMixedSteps(backend, {.output = kOutput}, "batched with other sequences, in any order");
}

void PreemptionChangesNoToken(const Backend& backend) {
  RunMixedSteps(backend, {.output = kOutput, .preempt = true}, "preempted and recomputed");
}

void SwappingChangesNoToken(const Backend& backend) {
  RunMixedSteps(backend, {.output = kOutput, .preempt = true, .swap = true}, "swapped out and in");
}

// Sequences 4 and 5 read the first two blocks of sequence 3, computed in an earlier step, or by an item between theirs.
void SharedPrefixesChangeNoToken(const Backend& backend) {
  const std::vector<Request> requests = MixedRequests(backend);
  const std::vector<Output> alone = EachAlone(backend, requests);
  for (const bool same_step : {false, true}) {
    Bed bed(backend);
    StepDriver& driver = bed.driver();
    for (const Request& request : requests) driver.Add(request);
    if (same_step) {
      // Leaves the last shared position to the common step.
      ASSERT_TRUE(driver.Step({{3, 2 * backend.block_size - 1, {}}}).status.ok());
    } else {
      driver.Generate(3, 1);
    }
    driver.ShareBlocks(4, 3, 2);
    driver.ShareBlocks(5, 3, 2);
    if (same_step) {
      ASSERT_TRUE(driver.Step({{4, 3, {}}, {3, 2, {}}, {5, 1, {}}}).status.ok());
    }
    Rng rng(7);
    test::RunMixed(driver, static_cast<int32_t>(requests.size()), {.output = kOutput}, rng);
    ExpectAllSame(alone, driver, same_step ? "prefix written in the step that reads it" : "prefix shared");
  }
}

// The blocks and slots of finished sequences are used by others, in another order.
void ReusedBlocksAndSlotsKeepNothing(const Backend& backend) {
  std::vector<Request> requests = MixedRequests(backend);
  const std::vector<Output> alone = EachAlone(backend, requests);
  Bed bed(backend);
  StepDriver& driver = bed.driver();
  const auto count = static_cast<int32_t>(requests.size());
  for (const Request& request : requests) driver.Add(request);
  Rng rng(3);
  for (int round = 0; round < 3; ++round) {
    test::RunMixed(driver, count, {.output = kOutput + round}, rng);
    ExpectAllSame(alone, driver, "blocks and slots used " + std::to_string(round) + " times before");
    for (int32_t s = 0; s < count; ++s) driver.Restart((s + round) % count);
    std::vector<Output> other;  // now other requests in the slots
    for (int32_t s = 0; s < count; ++s) {
      StepDriver::Sequence& q = driver.at(s);
      q.request = std::make_shared<Request>(requests[static_cast<size_t>(count - 1 - s)]);
      q.tokens = *q.request->prompt;
      other.push_back(alone[static_cast<size_t>(count - 1 - s)]);
    }
    test::RunMixed(driver, count, {.output = kOutput}, rng);
    ExpectAllSame(other, driver, "slots of other requests, used again");
    for (int32_t s = 0; s < count; ++s) {
      driver.Restart(s);
      driver.at(s).request = std::make_shared<Request>(requests[static_cast<size_t>(s)]);
      driver.at(s).tokens = *driver.at(s).request->prompt;
    }
  }
}

// Eight live sequences of eight blocks fill the memory.
void EveryBlockHoldsItsOwnTokens(const Backend& backend) {
  Bed bed(backend);
  StepDriver& driver = bed.driver();
  std::vector<Request> requests;
  for (uint64_t s = 0; s < 8; ++s) {
    requests.push_back(MakeRequest(RandomTokens(backend, 8 * backend.block_size - 2, 40 + s), Greedy()));
    driver.Add(requests.back());
  }
  for (int32_t s = 0; s < 8; ++s) driver.Generate(s, 1);
  std::vector<StepDriver::Take> decodes;
  for (int32_t s = 0; s < 8; ++s) decodes.push_back({s, 1, {}});
  for (int i = 0; i < 2; ++i) {
    const StepResult result = driver.Step(decodes);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  }
  for (int32_t s = 0; s < 8; ++s) {
    ExpectSame(Alone(backend, requests[static_cast<size_t>(s)], 0, 3), OutputOf(driver.at(s), 3),
               "all blocks in use, sequence " + std::to_string(s));
  }
}

// One prompt with two seeds and two choices, in one batch and alone.
void SeedAndChoiceAloneDecideSamples(const Backend& backend) {
  SamplingParams p;
  p.temperature = 1.5f;
  const std::vector<TokenId> prompt = RandomTokens(backend, 20, 9);
  std::vector<Output> alone, batched;
  Bed bed(backend);
  std::vector<StepDriver::Take> takes;
  for (const auto& [seed, choice] : {std::pair<uint64_t, int32_t>{5, 0}, {6, 0}, {5, 1}}) {
    p.seed = seed;
    const Request request = MakeRequest(prompt, p);
    alone.push_back(Alone(backend, request, choice));
    takes.push_back({bed.driver().Add(request, choice), 20, {}});
  }
  for (int32_t i = 0; i < kOutput; ++i) {
    if (!bed.driver().Step(takes).status.ok()) break;
    for (StepDriver::Take& take : takes) take.count = 1;
  }
  ExpectAllSame(alone, bed.driver(), "in a batch of samples");
  EXPECT_NE(alone[0].tokens, alone[1].tokens) << "the seed does not change the samples";
  EXPECT_NE(alone[0].tokens, alone[2].tokens) << "the choice does not change the samples";
}

}  // namespace

std::span<const Check> ScheduleChecks() {
  static constexpr Check kChecks[] = {
      {"ChunksChangeNoToken", ChunksChangeNoToken},
      {"BatchesChangeNoToken", BatchesChangeNoToken},
      {"PreemptionChangesNoToken", PreemptionChangesNoToken},
      {"SwappingChangesNoToken", SwappingChangesNoToken, &Backend::swaps},
      {"SharedPrefixesChangeNoToken", SharedPrefixesChangeNoToken},
      {"ReusedBlocksAndSlotsKeepNothing", ReusedBlocksAndSlotsKeepNothing},
      {"EveryBlockHoldsItsOwnTokens", EveryBlockHoldsItsOwnTokens},
      {"SeedAndChoiceAloneDecideSamples", SeedAndChoiceAloneDecideSamples},
  };
  return kChecks;
}

}  // namespace tactus::contract
