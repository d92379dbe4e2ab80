// Drafts change how many tokens a step yields, never which: the executor accepts them as far as they equal its samples.
#include "base/rng.h"
#include "contract/bed.h"
#include "contract/checks.h"
#include "support/listed_grammar.h"

namespace tactus::contract {
namespace {

constexpr int32_t kDrafted = 24;  // output tokens

// The greedy request and two sampled ones, with penalties.
std::vector<Request> Requests(const Backend& backend) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    SamplingParams p = Greedy();
    if (seed > 0) {
      p.temperature = 1.1f;
      p.top_p = 0.95f;
      p.seed = seed;
      p.frequency_penalty = 0.4f;
      p.repetition_penalty = 1.1f;
    }
    if (backend.logprobs) p.logprobs = 2;
    requests.push_back(MakeRequest(RandomTokens(backend, 7, seed), p));
  }
  return requests;
}

// Drafts of 0 to 6 tokens that become wrong at a random place, or nowhere.
void DraftsAreAcceptedAsFarAsTheyEqualTheSamples(const Backend& backend) {
  int64_t accepted = 0, guessed = 0;
  for (const Request& request : Requests(backend)) {
    const Output alone = Alone(backend, request, 0, kDrafted);
    const std::vector<TokenId>& expected = alone.tokens;
    Rng rng(request.sampling.seed);
    Bed bed(backend);
    StepDriver& driver = bed.driver();
    const int32_t s = driver.Add(request);
    driver.Generate(s, 1);
    for (size_t have = 1; have < expected.size(); have = driver.at(s).output().size()) {
      std::vector<TokenId> drafts;
      const auto count = static_cast<size_t>(rng.UniformInt(0, 6));
      for (size_t i = have; i < std::min(have + count, expected.size()); ++i) drafts.push_back(expected[i]);
      size_t right = drafts.size();
      if (right > 0 && rng.UniformInt(0, 2) > 0) {
        right = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(drafts.size()) - 1));
        drafts[right] = (drafts[right] + 1) % backend.vocab_size;
      }
      guessed += static_cast<int64_t>(drafts.size());
      const StepResult result = driver.Step({{s, 1, drafts}});
      ASSERT_TRUE(result.status.ok()) << result.status.ToString();
      ASSERT_EQ(static_cast<size_t>(result.items[0].num_tokens), right + 1)
          << "drafts accepted, of which " << right << " equal the samples, at output token " << have;
      accepted += result.items[0].num_tokens - 1;
    }
    ExpectSame(alone, OutputOf(driver.at(s), kDrafted), "with drafts");
  }
  EXPECT_GT(accepted, 15);
  EXPECT_LT(accepted, guessed);
}

// Rejected positions leave garbage in K and V, which must not be read and must not affect other items of the step.
void RejectedDraftsAffectNothing(const Backend& backend) {
  const std::vector<Request> requests = Requests(backend);
  Bed bed(backend);
  StepDriver& driver = bed.driver();
  for (size_t i = 0; i < 2; ++i) driver.Add(requests[i]);
  driver.Step({{0, 7, {}}, {1, 7, {}}});
  for (int32_t i = 0; i < kDrafted; ++i) {
    const StepResult result = driver.Step({{0, driver.at(0).pending(), {5, 5, 5, 5}}, {1, 1, {}}});
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  }
  for (int32_t s = 0; s < 2; ++s) {
    ExpectSame(Alone(backend, requests[static_cast<size_t>(s)], 0, kDrafted), OutputOf(driver.at(s), kDrafted),
               s == 0 ? "with wrong drafts" : "beside wrong drafts");
  }
}

// A draft that the grammar allows but that is not sampled must not move the grammar's state.
void WrongDraftsDoNotMoveAGrammar(const Backend& backend) {
  if (!backend.grammars) return;
  constexpr TokenId kEnd = 3;
  const std::vector<std::vector<TokenId>> answers = {{40, 41, 42, 43}, {40, 51, 52, 53}};
  Request request = MakeRequest(RandomTokens(backend, 7, 8), Greedy());
  request.grammar = std::make_shared<test::ListedGrammar>(backend.vocab_size, kEnd, answers);
  const std::vector<TokenId> expected = Alone(backend, request, 0, 5).tokens;
  const std::vector<TokenId>& other = answers[expected[1] == 41 ? 1 : 0];
  for (const size_t right : {0, 1, 3}) {
    std::vector<TokenId> drafts(expected.begin() + 1, expected.begin() + 1 + static_cast<int64_t>(right));
    if (right == 0) drafts = {other[1], other[2]};
    if (right == 1) drafts.insert(drafts.end(), {other[2], other[3]});
    Bed bed(backend);
    const int32_t s = bed.driver().Add(request);
    bed.driver().Generate(s, 1);
    const StepResult result = bed.driver().Step({{s, 1, drafts}});
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_EQ(result.items[0].num_tokens, static_cast<int32_t>(right) + 1) << right;
    bed.driver().Generate(s, 5);
    EXPECT_EQ(bed.driver().at(s).status, ItemStatus::kOk);
    EXPECT_EQ(OutputOf(bed.driver().at(s), 5).tokens, expected) << "with " << right << " right drafts";
  }
}

void TheMostDraftsOfAnItemAreVerified(const Backend& backend) {
  const Request request = MakeRequest(RandomTokens(backend, 3, 1), Greedy(), 140);
  Bed bed(backend);
  const int32_t most = std::min(bed.executor().traits().max_draft_tokens, static_cast<int32_t>(9 * backend.block_size));
  const std::vector<TokenId> expected = Alone(backend, request, 0, most + 2).tokens;
  ASSERT_EQ(expected.size(), static_cast<size_t>(most) + 2);
  const int32_t s = bed.driver().Add(request);
  bed.driver().Generate(s, 1);
  const StepResult result =
      bed.driver().Step({{s, 1, std::vector<TokenId>(expected.begin() + 1, expected.begin() + 1 + most)}});
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(result.items[0].num_tokens, most + 1);
  EXPECT_EQ(bed.driver().at(s).output(), expected);
}

}  // namespace

std::span<const Check> DraftChecks() {
  static constexpr Check kChecks[] = {
      {"DraftsAreAcceptedAsFarAsTheyEqualTheSamples", DraftsAreAcceptedAsFarAsTheyEqualTheSamples, &Backend::drafts},
      {"RejectedDraftsAffectNothing", RejectedDraftsAffectNothing, &Backend::drafts},
      {"WrongDraftsDoNotMoveAGrammar", WrongDraftsDoNotMoveAGrammar, &Backend::drafts},
      {"TheMostDraftsOfAnItemAreVerified", TheMostDraftsOfAnItemAreVerified, &Backend::drafts},
  };
  return kChecks;
}

}  // namespace tactus::contract
