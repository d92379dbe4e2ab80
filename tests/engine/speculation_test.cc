// Answers with and without speculation, through the public engine: bit-identical at every temperature.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/facade_fixture.h"
#include "support/listed_grammar.h"

namespace tactus::engine {
namespace {

class SpeculationTest : public FacadeTest {
 protected:
  // Step times by which guesses cost nothing, so that many are verified.
  static EngineOptions With(const std::string& speculation, EngineOptions o = Options()) {
    const std::filesystem::path times = folder_ / "free_tokens.csv";
    std::ofstream(times) << "table,a,b,ms\nstep,0,0,5\ntokens,1,0,0.001\ntokens,512,0,0.002\n";
    o.profile = times.string();
    o.speculation = speculation;
    return o;
  }
  struct Answers {
    std::vector<std::shared_ptr<Collector>> sinks;
    EngineStats stats;
  };
  // Submits all requests at once.
  static Answers Ask(const EngineOptions& options, const std::vector<Request>& requests) {
    auto engine = Make(options);
    Answers answers;
    if (engine == nullptr) return answers;
    for (const Request& request : requests) {
      answers.sinks.push_back(std::make_shared<Collector>(request.n));
      EXPECT_TRUE(engine->Submit(request, answers.sinks.back()).ok());
    }
    for (auto& sink : answers.sinks) sink->Wait();
    engine->Drain(kNoLimitNs);
    answers.stats = engine->Stats();
    return answers;
  }
  static void ExpectSame(const Answers& a, const Answers& b) {
    ASSERT_EQ(a.sinks.size(), b.sinks.size());
    for (size_t i = 0; i < a.sinks.size(); ++i) {
      ASSERT_EQ(a.sinks[i]->choices.size(), b.sinks[i]->choices.size());
      for (size_t c = 0; c < a.sinks[i]->choices.size(); ++c) {
        SCOPED_TRACE("request " + std::to_string(i) + ", choice " + std::to_string(c));
        const Collector::Choice &x = a.sinks[i]->choices[c], &y = b.sinks[i]->choices[c];
        EXPECT_EQ(x.tokens, y.tokens);
        EXPECT_EQ(x.text, y.text);
        EXPECT_EQ(x.finish, y.finish);
        EXPECT_EQ(x.stop_string, y.stop_string);
        ASSERT_EQ(x.logprobs.size(), y.logprobs.size());
        for (size_t t = 0; t < x.logprobs.size(); ++t) {
          ASSERT_EQ(x.logprobs[t].size(), y.logprobs[t].size());
          for (size_t l = 0; l < x.logprobs[t].size(); ++l) {
            EXPECT_EQ(x.logprobs[t][l].token, y.logprobs[t][l].token);
            EXPECT_EQ(x.logprobs[t][l].logprob, y.logprobs[t][l].logprob);
          }
        }
      }
    }
  }
  // Biases towards few tokens, so that pairs of tokens repeat: the dummy model's own output at a temperature is noise.
  static void OfFewTokens(Request* r) {
    for (const TokenId token : {'a', 'b', 'c', 'd'}) r->sampling.logit_bias.push_back({token, 20.0f});
  }
  static constexpr int kHeldOff = 5, kLeast = 20;  // a request of several choices whose stops min_tokens delays
  // Requests of every kind over repetitive prompts.
  static std::vector<Request> Mixed(const Engine& engine, float temperature) {
    std::vector<Request> requests;
    for (int i = 0; i < 8; ++i) {
      std::string prompt;
      for (int k = 0; k < 6; ++k) prompt += "item " + std::to_string(i) + " of the list; ";
      Request r = FacadeTest::Ask(engine, prompt, 60 + 10 * i);
      r.sampling.temperature = temperature;
      r.sampling.has_seed = true;
      r.sampling.seed = static_cast<uint64_t>(i);
      if (temperature > 0) OfFewTokens(&r);
      if (i % 4 == 1) r.n = 3;
      if (i % 4 == 2) r.sampling.logprobs = 2;
      if (i % 4 == 3) r.sampling.frequency_penalty = 0.5f;
      if (i == 6) r.stop.stop = {"e", "it"};
      if (i == kHeldOff) {
        r.stop.stop_token_ids = {'a'};
        r.stop.min_tokens = kLeast;
      }
      requests.push_back(std::move(r));
    }
    return requests;
  }
};

TEST_F(SpeculationTest, AnswersAreTheSameToTheLastBit) {
  auto engine = Make();
  for (const float temperature : {0.0f, 0.8f}) {
    SCOPED_TRACE("temperature " + std::to_string(temperature));
    const std::vector<Request> requests = Mixed(*engine, temperature);
    const Answers plain = Ask(With("none"), requests), guessed = Ask(With("ngram"), requests);
    ExpectSame(plain, guessed);
    for (const Collector::Choice& choice : plain.sinks[kHeldOff]->choices) {
      ASSERT_GT(choice.tokens.size(), static_cast<size_t>(kLeast));
      EXPECT_EQ(std::count(choice.tokens.begin(), choice.tokens.begin() + kLeast, 'a'), 0) << "an end came early";
    }
    EXPECT_EQ(plain.stats.ngram_drafts.draft_tokens, 0);
    EXPECT_GT(guessed.stats.ngram_drafts.accepted_tokens, 5);  // the number depends on what is in flight at each moment
    EXPECT_GT(guessed.stats.ngram_drafts.draft_tokens, guessed.stats.ngram_drafts.accepted_tokens);
  }
}

// Too little KV for all: preempted sequences continue with the same tokens; their guesses are dropped.
TEST_F(SpeculationTest, AnswersAreTheSameWhereSequencesArePreempted) {
  auto engine = Make();
  EngineOptions small = Options();
  small.kv_cache_memory.bytes = 4 << 20;
  std::vector<Request> requests = Mixed(*engine, 0);
  for (Request& r : requests) r.stop.max_tokens = 200;
  const Answers plain = Ask(With("none"), requests);
  for (int64_t blocks = 4 << 20; blocks > 0; blocks = blocks * 3 / 4) {
    small.kv_cache_memory.bytes = blocks;
    auto made = Engine::Create(With("ngram", small));
    if (!made.ok()) break;
    made->reset();
    const Answers guessed = Ask(With("ngram", small), requests);
    ExpectSame(plain, guessed);
    if (guessed.stats.preemptions == 0) continue;
    EXPECT_GT(guessed.stats.ngram_drafts.accepted_tokens, 50);
    return;
  }
  FAIL() << "no KV memory was small enough for a preemption and large enough for the requests";
}

// Tokens that a grammar forces are computed as a chunk, without an option; guesses follow the grammar.
TEST_F(SpeculationTest, ForcedTokensAreAChunk) {
  auto engine = Make(With("ngram"));
  const std::string shared = "{\"name\": \"";
  std::vector<std::vector<TokenId>> answers;
  for (const std::string end : {"Ada\", \"city\": \"Oslo\"}", "Bob\", \"town\": \"Rome\"}"}) {
    std::vector<TokenId>& answer = answers.emplace_back();
    for (const char c : shared + end) answer.push_back(static_cast<unsigned char>(c));
  }
  constexpr TokenId kEnd = 2;
  Request r = FacadeTest::Ask(*engine, "a record, please", 100);
  r.grammar = std::make_shared<test::ListedGrammar>(engine->model().vocab_size, kEnd, answers);
  r.stop.stop_token_ids = {kEnd};
  const auto answer = Run(*engine, std::move(r));
  std::vector<TokenId> tokens = answer->choices[0].tokens;
  ASSERT_FALSE(tokens.empty());
  ASSERT_EQ(tokens.back(), kEnd);
  tokens.pop_back();
  EXPECT_TRUE(tokens == answers[0] || tokens == answers[1]) << answer->choices[0].text;
  engine->Drain(kNoLimitNs);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.forced_drafts.accepted_tokens, stats.forced_drafts.draft_tokens)
      << "forced tokens are always accepted";
  EXPECT_GE(stats.forced_drafts.accepted_tokens, 25);
  EXPECT_LE(stats.steps, 8);
}

// A draft model that is the served model guesses every greedy token; at a temperature many guesses are wrong. The
// answers are the same in both cases. The number of guesses after the first depends on the measured step times of both
// models, so draft_model_test tests the gain in steps.
TEST_F(SpeculationTest, ADraftModelChangesNoAnswer) {
  auto engine = Make();
  for (const float temperature : {0.0f, 0.8f}) {
    const std::vector<Request> requests = Mixed(*engine, temperature);
    EngineOptions o = With("draft");
    o.draft_model = o.model;
    o.draft_tokens = 4;
    const Answers plain = Ask(With("none"), requests), guessed = Ask(o, requests);
    ExpectSame(plain, guessed);
    const DraftCounts& counts = guessed.stats.model_drafts;
    EXPECT_GT(counts.draft_tokens, 0);
    if (temperature == 0) {
      EXPECT_GE(counts.accepted_tokens, counts.draft_tokens * 7 / 10) << "only penalties make its guesses wrong";
      const bool kept_guessing = counts.draft_tokens > plain.stats.steps;
      if (kept_guessing) {
        EXPECT_LT(guessed.stats.steps, plain.stats.steps * 2 / 3);
      }
    } else if (constexpr int64_t kMany = 50; counts.draft_tokens >= kMany) {
      EXPECT_LT(counts.accepted_tokens, counts.draft_tokens);
    }
  }
}

TEST_F(SpeculationTest, ADraftModelThatDoesNotFitIsRefusedWithTheReason) {
  const auto refused = [](const EngineOptions& o) {
    auto engine = Engine::Create(o);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? Status() : engine.status();
  };
  EngineOptions o = With("draft");
  EXPECT_EQ(refused(o).param(), "draft-model");
  o.draft_model = (folder_ / "nothing").string();
  EXPECT_EQ(refused(o).param(), "draft-model");
  EXPECT_NE(refused(o).message().find("nothing"), std::string::npos);
  o = With("ngram");
  o.draft_model = o.model;
  EXPECT_NE(refused(o).message().find("--speculation draft"), std::string::npos);
}

// Over many seeds, tokens with speculation have the same distribution as without: a chi-square test of two samples
// without a common seed.
TEST_F(SpeculationTest, TheDistributionOverSeedsIsTheSame) {
  constexpr int kAnswers = 400, kCells = 16;
  auto engine = Make();
  std::map<TokenId, std::array<int64_t, 2>> counts;
  std::array<int64_t, 2> total{};
  int64_t accepted = 0;
  for (const int which : {0, 1}) {
    std::vector<Request> requests;
    for (int i = 0; i < kAnswers; ++i) {
      Request r = FacadeTest::Ask(*engine, "again and again and again and again and", 24);
      OfFewTokens(&r);
      r.sampling.temperature = 1;
      r.sampling.has_seed = true;
      r.sampling.seed = static_cast<uint64_t>(which * kAnswers + i);
      requests.push_back(std::move(r));
    }
    EngineOptions o = With(which == 0 ? "none" : "ngram");
    o.max_queue = kAnswers;
    const Answers answers = Ask(o, requests);
    for (const auto& sink : answers.sinks) {
      // The last token only: the tokens of one answer depend on each other.
      ++counts[sink->choices[0].tokens.back()][static_cast<size_t>(which)];
      ++total[static_cast<size_t>(which)];
    }
    accepted = answers.stats.ngram_drafts.accepted_tokens;
  }
  EXPECT_GT(accepted, 20) << "too few guesses were accepted for the comparison";
  // Rare tokens share a cell.
  std::vector<std::array<int64_t, 2>> cells;
  std::array<int64_t, 2> rare{};
  for (const auto& [token, n] : counts) {
    if (n[0] + n[1] >= 2 * kAnswers / (4 * kCells)) {
      cells.push_back(n);
    } else {
      rare[0] += n[0], rare[1] += n[1];
    }
  }
  if (rare[0] + rare[1] > 0) cells.push_back(rare);
  double chi2 = 0;
  for (const auto& n : cells) {
    const double difference = static_cast<double>(n[0] - n[1]);
    chi2 += difference * difference / static_cast<double>(n[0] + n[1]);
  }
  const auto freedom = static_cast<double>(cells.size() - 1);
  // About the 0.999 quantile (Wilson and Hilferty's approximation).
  const double limit = freedom * std::pow(1 - 2 / (9 * freedom) + 3.09 * std::sqrt(2 / (9 * freedom)), 3);
  EXPECT_GE(cells.size(), 2u);
  EXPECT_LT(chi2, limit) << cells.size() << " cells";
}

}  // namespace
}  // namespace tactus::engine
