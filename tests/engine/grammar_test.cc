// Grammars through the public engine: beside other sequences, with several choices, after preemptions, and that their
// states are freed when the sequences have ended.
#include <algorithm>

#include "engine/facade_fixture.h"
#include "support/listed_grammar.h"

namespace tactus::engine {
namespace {

using test::ListedGrammar;

class EngineGrammarTest : public FacadeTest {
 protected:
  // One token per byte; the answers end with 'e', a stop token of the request that no answer contains.
  static std::shared_ptr<ListedGrammar> Grammar(const Engine& engine, const std::vector<std::string>& answers,
                                                bool tells_forced = true) {
    std::vector<std::vector<TokenId>> tokens;
    for (const std::string& answer : answers) tokens.push_back(engine.Tokenize(answer, false));
    return std::make_shared<ListedGrammar>(engine.model().vocab_size, engine.Tokenize("e", false)[0], tokens,
                                           tells_forced);
  }
  static Request AskFor(const Engine& engine, std::shared_ptr<const TokenGrammar> grammar, int64_t max_tokens = 32) {
    Request request = Ask(engine, "hello", max_tokens);
    request.stop.stop_token_ids = engine.Tokenize("e", false);
    request.grammar = std::move(grammar);
    return request;
  }
};

TEST_F(EngineGrammarTest, AnswersKeepToTheirGrammarsBesideOthers) {
  auto engine = Make();
  const auto grammar = Grammar(*engine, {"abc", "abd", "xyz"});
  const auto free_alone = Run(*engine, Ask(*engine, "hello", 20))->choices[0].tokens;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (uint64_t i = 0; i < 12; ++i) {
    Request request = i % 3 == 0 ? Ask(*engine, "hello", 20) : AskFor(*engine, grammar);
    if (i % 3 != 0) {
      request.n = 2;
      request.sampling.temperature = 1;
      request.sampling.seed = i;
      request.sampling.has_seed = true;
    }
    sinks.push_back(std::make_shared<Collector>(request.n));
    ASSERT_TRUE(engine->Submit(std::move(request), sinks.back()).ok());
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->Wait();
    for (const Collector::Choice& choice : sinks[i]->choices) {
      if (i % 3 == 0) {
        EXPECT_EQ(choice.tokens, free_alone) << "a grammar beside it changed an answer";
        continue;
      }
      EXPECT_EQ(choice.finish, FinishReason::kStop);
      EXPECT_TRUE(choice.text == "abc" || choice.text == "abd" || choice.text == "xyz") << choice.text;
    }
  }
}

TEST_F(EngineGrammarTest, APreemptedAnswerContinuesInItsGrammar) {
  EngineOptions o = Options();
  o.kv_cache_memory.bytes = 64 << 10;  // 256 tokens; the eight answers need 450
  o.scheduler = "vllm-v0";
  o.max_model_len = 96;
  o.block_size = 8;
  auto engine = Make(o);
  const std::string answer = "abcdfghijklmnopqrstuvwxyzabcdfghijklmnopqrstuvwxyz";
  const auto grammar = Grammar(*engine, {answer}, false);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<Collector>(1));
    ASSERT_TRUE(engine->Submit(AskFor(*engine, grammar, 80), sinks.back()).ok());
  }
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_EQ(sink->choices[0].text, answer);
  }
  EXPECT_GT(engine->Stats().preemptions, 0) << "nothing was preempted";
}

TEST_F(EngineGrammarTest, AnAnswerWithoutAllowedTokensEndsAloneWithTheReason) {
  auto engine = Make();
  const auto sink = Run(*engine, AskFor(*engine, Grammar(*engine, {})));
  EXPECT_EQ(sink->choices[0].finish, FinishReason::kError);
  EXPECT_NE(sink->choices[0].error.message().find("grammar"), std::string::npos) << sink->choices[0].error.ToString();
  EXPECT_EQ(Run(*engine, Ask(*engine, "hello", 5))->choices[0].tokens.size(), 5u);
}

// min_tokens suppresses the end token while the grammar allows other tokens; after that the end token ends the answer
// before min_tokens.
TEST_F(EngineGrammarTest, MinTokensYieldsToTheGrammarsEnd) {
  auto engine = Make();
  constexpr TokenId kEnd = 257;  // the tiny model's end token
  std::vector<std::vector<TokenId>> answers = {engine->Tokenize("ab", false), engine->Tokenize("abcdf", false)};
  const auto grammar = std::make_shared<ListedGrammar>(engine->model().vocab_size, kEnd, answers);
  Request request = Ask(*engine, "hello", 32);
  request.stop.ignore_eos = false;
  request.grammar = grammar;
  request.sampling.logit_bias = {{kEnd, 100.0f}};
  EXPECT_EQ(Run(*engine, request)->choices[0].text, "ab") << "the end is the likeliest token";
  request.stop.min_tokens = 10;
  const auto sink = Run(*engine, request);
  EXPECT_EQ(sink->choices[0].text, "abcdf");
  EXPECT_EQ(sink->choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(sink->choices[0].tokens.size(), 6u);
}

TEST_F(EngineGrammarTest, GrammarStatesEndWithTheirSequences) {
  auto engine = Make();
  const auto grammar = Grammar(*engine, {"abc", "xyz"});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 24; ++i) {
    sinks.push_back(std::make_shared<Collector>(1));
    ASSERT_TRUE(engine->Submit(AskFor(*engine, grammar), sinks.back()).ok());
  }
  for (const auto& sink : sinks) sink->Wait();
  Run(*engine, Ask(*engine, "hello", 5));  // a later plan frees the states in the executor
  EXPECT_EQ(grammar->live_states(), 0);
}

}  // namespace
}  // namespace tactus::engine
