// The public engine from end to end on a dummy model: only config.json, seeded random weights, one token per byte.
#include "base/token_grammar.h"
#include "engine/facade_fixture.h"

#include <future>
#include <limits>

#include "time_limit.h"

namespace tactus::engine {
namespace {

TEST_F(FacadeTest, StreamsExactlyMaxTokens) {
  auto engine = Make();
  Request request = Ask(*engine, "hello", 20);
  const auto prompt_tokens = static_cast<int64_t>(request.prompt->size());
  auto answer = Run(*engine, std::move(request));
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(answer->choices[0].tokens.size(), 20u);
  EXPECT_GE(answer->choices[0].deltas, 2) << "not streamed";
  EXPECT_EQ(answer->usage.prompt_tokens, prompt_tokens);
  EXPECT_EQ(answer->usage.completion_tokens, 20);
  EXPECT_EQ(answer->usage.cached_tokens, 0);
}

TEST_F(FacadeTest, ARuleIsCompiledOverTheModelsVocabulary) {
  auto engine = Make();
  const auto grammar = engine->CompileRule({OutputRule::Kind::kRegex, "[ab]é"});
  if (grammar.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << grammar.status().message();
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  EXPECT_EQ((*grammar)->vocab_size(), engine->model().vocab_size);
  const auto state = (*grammar)->Start();
  for (const TokenId token : engine->Tokenize("aé", false)) EXPECT_TRUE(state->Accept(token)) << token;
  EXPECT_TRUE(state->Accept(257));  // the model's end token
  const auto wrong = engine->CompileRule({OutputRule::Kind::kRegex, "["});
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(FacadeTest, GreedyIsTheSameAloneInABatchFromTheCacheAndUnderEveryScheduler) {
  auto engine = Make();
  const std::string prompt = "The quick brown fox jumps over the lazy dog, again and again.";
  const auto alone = Run(*engine, Ask(*engine, prompt, 24))->choices[0].tokens;
  std::vector<std::shared_ptr<Collector>> batch;
  for (int i = 0; i < 6; ++i) {
    batch.push_back(std::make_shared<Collector>(1));
    ASSERT_TRUE(
        engine->Submit(Ask(*engine, i % 2 == 0 ? prompt : prompt.substr(static_cast<size_t>(i)), 24), batch.back())
            .ok());
  }
  for (auto& sink : batch) sink->Wait();
  for (int i = 0; i < 6; i += 2) {
    EXPECT_EQ(batch[static_cast<size_t>(i)]->choices[0].tokens, alone) << i;
    EXPECT_GT(batch[static_cast<size_t>(i)]->usage.cached_tokens, 0) << i;
  }
  for (const char* scheduler :
       {"vllm", "vllm-v0", "orca", "orca-best", "request-level", "fastgen", "no-preempt", "sarathi", "chunked-only",
        "hybrid-only", "s3", "pia", "trail", "ltr", "larry", "fastserve"}) {
    EngineOptions o = Options();
    o.scheduler = scheduler;
    o.threads = 1;
    if (o.scheduler == "vllm" || o.scheduler == "fastgen") o.token_budget = 16;
    auto other = Make(o);
    EXPECT_EQ(Run(*other, Ask(*other, prompt, 24))->choices[0].tokens, alone) << scheduler;
  }
}

// Eight sampled answers with penalties (whose history must survive) in a KV cache for two of them: sequences that are
// swapped to host memory and back, or recomputed, end in the same tokens, bit for bit.
TEST_F(FacadeTest, TokensUnderSwapAreTheTokensWithoutIt) {
  const auto answers = [](const EngineOptions& options, EngineStats* stats, std::string* said) {
    auto engine = Engine::Create(options, [said](std::string_view line) { *said += std::string(line) + "\n"; });
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 8; ++i) {
      Request r = Ask(**engine, "Sequence number " + std::to_string(i * i) + " begins here and goes on for a while.",
                      150 + 10 * i);
      r.sampling.temperature = 1.3f;
      r.sampling.seed = static_cast<uint64_t>(i + 7);
      r.sampling.has_seed = true;
      r.sampling.frequency_penalty = 0.7f;
      sinks.push_back(std::make_shared<Collector>(1));
      EXPECT_TRUE((*engine)->Submit(std::move(r), sinks.back()).ok());
    }
    std::vector<std::vector<TokenId>> tokens;
    for (auto& sink : sinks) {
      sink->Wait();
      tokens.push_back(sink->choices[0].tokens);
    }
    (*engine)->Drain(60'000'000'000);
    *stats = (*engine)->Stats();
    return tokens;
  };
  EngineStats stats;
  std::string said;
  const auto expected = answers(Options(), &stats, &said);
  EXPECT_EQ(stats.preemptions, 0);

  EngineOptions o = Options();
  o.kv_cache_memory.bytes = 128 << 10;  // 32 blocks, 512 tokens
  o.preemption = "swap";
  o.swap_space.bytes = 1 << 20;
  EXPECT_EQ(answers(o, &stats, &said), expected);
  EXPECT_NE(said.find("256 blocks"), std::string::npos) << said;
  EXPECT_GT(stats.swapped_sequences, 2);
  EXPECT_GT(stats.swapped_in_blocks, 10);
  EXPECT_EQ(stats.recomputed_tokens, 0);
  EXPECT_EQ(stats.swap_blocks_used, 0);

  said.clear();
  o.swap_space.bytes = 0;
  EXPECT_EQ(answers(o, &stats, &said), expected);
  EXPECT_NE(said.find("recompute: no --swap-space"), std::string::npos) << said;
  EXPECT_EQ(stats.swapped_sequences, 0);
  EXPECT_GT(stats.recomputed_tokens, 0);

  o.scheduler = "fastserve";
  o.preemption.clear();
  o.swap_space.bytes = 80 << 10;  // 20 blocks: sometimes it is full
  o.max_num_seqs = 4;
  EXPECT_EQ(answers(o, &stats, &said), expected);
  EXPECT_GT(stats.swapped_sequences, 2);

  said.clear();
  o = Options();
  o.scheduler = "sarathi-serve";
  o.swap_space.bytes = 1 << 20;
  answers(o, &stats, &said);
  EXPECT_NE(said.find("--swap-space is not used"), std::string::npos) << said;
  EXPECT_EQ(stats.swap_blocks_total, 0);
}

// A client that waits for room, instead of retrying, can submit every request, and a drain ends its wait.
TEST_F(FacadeTest, WaitForRoomAdmitsEveryRequestAndEndsAtADrain) {
  const test::TimeLimit limit("WaitForRoom does not return when there is room, or at the drain");
  constexpr int64_t kForEverNs = std::numeric_limits<int64_t>::max();
  EngineOptions o = Options();
  o.max_queue = 1;
  o.max_num_seqs = 1;
  auto engine = Make(o);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(engine->WaitForRoom(1, kForEverNs).ok()) << i;
    sinks.push_back(std::make_shared<Collector>(1));
    const auto handle = engine->Submit(Ask(*engine, "room " + std::to_string(i), 20), sinks.back());
    ASSERT_TRUE(handle.ok()) << i << ": " << handle.status().ToString();
  }
  for (auto& sink : sinks) sink->Wait();

  // Two requests that do not end within the test: one runs, one waits.
  auto full = [&] {
    EngineOptions options = LongOptions();
    options.max_queue = 1;
    options.max_num_seqs = 1;
    return Make(options);
  }();
  std::vector<std::shared_ptr<Collector>> endless;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(full->WaitForRoom(1, kForEverNs).ok());
    endless.push_back(std::make_shared<Collector>(1));
    ASSERT_TRUE(full->Submit(Ask(*full, "long", 100000), endless.back()).ok());
    if (i == 0) endless[0]->WaitForTokens(1);
  }
  EXPECT_EQ(full->WaitForRoom(1, 1'000'000).code(), StatusCode::kDeadlineExceeded);
  auto waits = std::async(std::launch::async, [&] { return full->WaitForRoom(1, kForEverNs); });
  full->Drain(0);
  EXPECT_EQ(waits.get().code(), StatusCode::kUnavailable);
}

TEST_F(FacadeTest, ASeedFixesTheAnswerAndItsAbsenceDoesNot) {
  auto engine = Make();
  const auto ask = [&](uint64_t seed) {
    Request r = Ask(*engine, "dice", 24);
    r.sampling.temperature = 1;
    r.sampling.has_seed = seed != 0;
    r.sampling.seed = seed;
    return Run(*engine, std::move(r))->choices[0].tokens;
  };
  EXPECT_EQ(ask(7), ask(7));
  EXPECT_NE(ask(7), ask(8));
  const auto first = ask(0), second = ask(0);
  EXPECT_NE(first, second);
  auto again = Make();  // the same --seed draws the same seeds, in order of arrival
  engine.swap(again);
  const auto third = ask(0);
  EXPECT_EQ(third, first);
}

TEST_F(FacadeTest, StopStringsEndTheTextBeforeThemAndNeverLeak) {
  auto engine = Make();
  const auto whole = Run(*engine, Ask(*engine, "stop here", 48));
  const std::string bytes = engine->Detokenize(whole->choices[0].tokens);
  // Any two neighbouring ASCII characters of the answer.
  const std::string& text = whole->choices[0].text;
  size_t at = 5;
  while (at + 2 < text.size() && !((text[at] & 0x80) == 0 && (text[at + 1] & 0x80) == 0)) ++at;
  ASSERT_LT(at + 2, text.size()) << "the seeded model wrote no two ASCII characters in a row: change the prompt";
  const std::string stop = text.substr(at, 2);
  const size_t first = text.find(stop);
  Request r = Ask(*engine, "stop here", 48);
  r.stop.stop = {"\x01never", stop};
  const auto answer = Run(*engine, std::move(r));
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(answer->choices[0].stop_string, stop);
  EXPECT_EQ(answer->choices[0].text, text.substr(0, first));
  EXPECT_LT(answer->usage.completion_tokens, 48);
}

TEST_F(FacadeTest, StopIdsEndWithoutTheirText) {
  auto engine = Make();
  const auto whole = Run(*engine, Ask(*engine, "ids", 16))->choices[0];
  const TokenId id = whole.tokens[4];
  size_t first = 0;
  while (whole.tokens[first] != id) ++first;
  Request r = Ask(*engine, "ids", 16);
  r.stop.stop_token_ids = {id};
  const auto answer = Run(*engine, std::move(r));
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(answer->choices[0].tokens.size(), first + 1);
  EXPECT_EQ(answer->choices[0].stop_string, "");
}

TEST_F(FacadeTest, ThreeChoicesOfARequestDiffer) {
  auto engine = Make();
  Request r = Ask(*engine, "three answers to one and the same question", 12);
  r.n = 3;
  r.sampling.temperature = 1;
  r.sampling.has_seed = true;
  r.sampling.seed = 5;
  Request single = r;
  single.n = 1;
  const auto answer = Run(*engine, r);
  std::set<std::vector<TokenId>> different;
  for (const auto& choice : answer->choices) {
    EXPECT_EQ(choice.tokens.size(), 12u);
    different.insert(choice.tokens);
  }
  EXPECT_EQ(different.size(), 3u);
  EXPECT_EQ(answer->usage.completion_tokens, 36);
  EXPECT_EQ(Run(*engine, single)->choices[0].tokens, answer->choices[0].tokens);
  EXPECT_EQ(Run(*engine, r)->choices[2].tokens, answer->choices[2].tokens);
}

TEST_F(FacadeTest, LogprobsComeWithEveryTokenChosenFirstThenInOrder) {
  auto engine = Make();
  Request r = Ask(*engine, "logs", 6);
  r.sampling.logprobs = 3;
  r.prompt_logprobs = true;
  const auto prompt_tokens = r.prompt->size();
  const auto answer = Run(*engine, std::move(r));
  ASSERT_EQ(answer->choices[0].logprobs.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const auto& row = answer->choices[0].logprobs[i];
    ASSERT_EQ(row.size(), 4u);
    EXPECT_EQ(row[0].token, answer->choices[0].tokens[i]);
    EXPECT_EQ(row[1].token, row[0].token);  // greedy
    EXPECT_GE(row[1].logprob, row[2].logprob);
    EXPECT_GE(row[2].logprob, row[3].logprob);
    EXPECT_LE(row[0].logprob, 0.0f);
  }
  EXPECT_EQ(answer->prompt_rows.size(), prompt_tokens - 1);
}

TEST_F(FacadeTest, CancelEndsTheRequestAndFreesItsMemory) {
  auto engine = Make(LongOptions());
  auto sink = std::make_shared<Collector>(1);
  auto handle = engine->Submit(Ask(*engine, "a long one", 120000), sink);
  ASSERT_TRUE(handle.ok()) << handle.status().ToString();
  sink->WaitForTokens(3);
  engine->Cancel(*handle);
  engine->Cancel(*handle);
  engine->Cancel(999999);
  sink->Wait();
  EXPECT_EQ(sink->choices[0].finish, FinishReason::kCancelled);
  EXPECT_LT(sink->choices[0].tokens.size(), 120000u);
  EXPECT_EQ(engine->Drain(kNoLimitNs), 0);
  EXPECT_EQ(engine->Stats().kv_blocks_in_use, 0);
  EXPECT_EQ(engine->Stats().finished_cancelled, 1);
}

TEST_F(FacadeTest, DrainFinishesRunningRequestsAndRefusesNewOnes) {
  auto engine = Make();
  auto sink = std::make_shared<Collector>(1);
  ASSERT_TRUE(engine->Submit(Ask(*engine, "finish me", 60), sink).ok());
  EXPECT_EQ(engine->Drain(kNoLimitNs), 0);
  sink->Wait();
  EXPECT_EQ(sink->choices[0].finish, FinishReason::kLength);
  const auto late = engine->Submit(Ask(*engine, "too late", 4), std::make_shared<Collector>(1));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
}

TEST_F(FacadeTest, DrainEndsSlowRequestsWithAnError) {
  auto engine = Make(LongOptions());
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 12; ++i) {  // more than run at once
    sinks.push_back(std::make_shared<Collector>(1));
    ASSERT_TRUE(engine->Submit(Ask(*engine, "never enough time", 120000), sinks.back()).ok());
  }
  EXPECT_GT(engine->Drain(0), 0);
  for (auto& sink : sinks) sink->Wait();  // no accepted request is lost silently
  EXPECT_EQ(sinks.back()->choices[0].finish, FinishReason::kError);
  EXPECT_FALSE(sinks.back()->choices[0].error.ok());
}

TEST_F(FacadeTest, DestructionEndsEveryStream) {
  auto sink = std::make_shared<Collector>(1);
  {
    auto engine = Make(LongOptions());
    ASSERT_TRUE(engine->Submit(Ask(*engine, "goodbye", 120000), sink).ok());
  }
  sink->Wait();
}

TEST_F(FacadeTest, AFullQueueRefusesRequests) {
  EngineOptions o = LongOptions();
  o.max_num_seqs = 1;
  o.max_queue = 2;
  auto engine = Make(o);
  std::vector<std::shared_ptr<Collector>> accepted;
  Status refused;
  for (int i = 0; i < 50 && refused.ok(); ++i) {
    auto sink = std::make_shared<Collector>(1);
    auto handle = engine->Submit(Ask(*engine, "queue", 120000), sink);
    if (handle.ok())
      accepted.push_back(sink);
    else
      refused = handle.status();
  }
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("2"), std::string::npos) << refused.message();
  EXPECT_GE(accepted.size(), 2u);
  engine->Drain(0);
  for (auto& sink : accepted) sink->Wait();
}

TEST_F(FacadeTest, BadRequestsAreRefusedWithTheirNumbers) {
  auto engine = Make();
  const auto refuse = [&](const std::function<void(Request*)>& spoil) {
    Request r = Ask(*engine, "fine", 4);
    spoil(&r);
    auto sink = std::make_shared<Collector>(std::max(r.n, 1));
    auto handle = engine->Submit(std::move(r), sink);
    EXPECT_FALSE(handle.ok());
    return handle.ok() ? Status() : handle.status();
  };
  const Status length = refuse([](Request* r) { r->stop.max_tokens = 600; });
  EXPECT_EQ(length.code(), StatusCode::kInvalidArgument);
  for (const char* number : {"600", "512"})
    EXPECT_NE(length.message().find(number), std::string::npos) << length.message();
  EXPECT_EQ(refuse([](Request* r) { r->prompt = std::make_shared<std::vector<TokenId>>(); }).param(), "prompt");
  EXPECT_EQ(refuse([](Request* r) { r->prompt = nullptr; }).param(), "prompt");
  EXPECT_EQ(refuse([](Request* r) {
              r->prompt = std::make_shared<std::vector<TokenId>>(std::vector<TokenId>{1, 260});
            }).param(),
            "prompt");
  EXPECT_EQ(
      refuse([](Request* r) { r->prompt = std::make_shared<std::vector<TokenId>>(std::vector<TokenId>{-1}); }).param(),
      "prompt");
  EXPECT_EQ(refuse([](Request* r) { r->sampling.logit_bias = {{260, 1.0f}}; }).param(), "logit_bias");
  EXPECT_EQ(refuse([](Request* r) { r->n = 0; }).param(), "n");
  EXPECT_EQ(refuse([](Request* r) { r->n = 1 << 20; }).param(), "n");
  EXPECT_EQ(refuse([](Request* r) { r->stop.max_tokens = 0; }).param(), "max_tokens");
  EXPECT_EQ(Run(*engine, Ask(*engine, "still alive", 3))->choices[0].tokens.size(), 3u);
}

TEST_F(FacadeTest, ResultAndMetricsCountWhatHappened) {
  auto engine = Make();
  for (int i = 0; i < 3; ++i) Run(*engine, Ask(*engine, "count me", 10));
  engine->Drain(kNoLimitNs);
  const auto result = SortedJson::parse(ToJson(engine->Outcome()));
  EXPECT_EQ(result["requests"]["completed"], 3);
  EXPECT_EQ(result["requests"]["failed"], 0);
  EXPECT_GT(result["output_token_throughput"].get<double>(), 0);
  for (const char* name : {"ttft_ms", "normalized_ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "scheduling_delay_ms"}) {
    for (const char* figure : {"mean", "p50", "p90", "p95", "p99", "max"}) {
      EXPECT_TRUE(result[name][figure].is_number()) << name << " " << figure;
    }
  }
  EXPECT_TRUE(result["goodput"].is_null());  // no SLO was stated: unknown, not 0
  EXPECT_TRUE(result["slo_attainment"].is_null());
  EXPECT_GE(result["steps"].get<int64_t>(), 30);
  EXPECT_EQ(result["plan_hash"].get<std::string>().size(), 16u);
  EXPECT_GT(result["decision_us"]["p99"].get<double>(), 0);
  EXPECT_GT(result["budget_utilization"].get<double>(), 0);
  const std::string metrics = engine->MetricsText();
  EXPECT_NE(metrics.find("vllm:request_success_total{model_name=\"dummy\",engine=\"0\",finished_reason=\"length\"} 3"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("vllm:generation_tokens_total{model_name=\"dummy\",engine=\"0\"} 30"), std::string::npos)
      << metrics;
}

TEST_F(FacadeTest, LatenciesCountFromTheRequestsArrival) {
  auto engine = Make();
  Request request = Ask(*engine, "count me", 3);
  request.arrival_ns = SystemClock().NowNs() - 5 * kSecond;
  Run(*engine, request);
  request.arrival_ns = SystemClock().NowNs() + 1000 * kSecond;  // a wrong client clock: counts as arriving now
  Run(*engine, request);
  engine->Drain(kNoLimitNs);
  const RunResult result = engine->Outcome();
  EXPECT_GE(result.ttft_ms.max, 5000);
  EXPECT_GE(result.engine->scheduling_delay_ms.max, 5000);
  EXPECT_GE(result.duration_s, 5);
  EXPECT_LT(result.duration_s, 500);
}

TEST_F(FacadeTest, ARefusedRequestCountsAsRejected) {
  auto engine = Make();
  Request request = Ask(*engine, "too long", 1 << 20);
  request.slo.ttft_ns = kSecond;
  request.slo_class = "chat";
  EXPECT_FALSE(engine->Submit(request, std::make_shared<Collector>(1)).ok());
  engine->Drain(kNoLimitNs);
  const RunResult result = engine->Outcome();
  EXPECT_EQ(result.rejected, 1);
  EXPECT_NE(result.first_rejection, "");
  EXPECT_EQ(result.classes.at("chat").slo_attainment(), 0.0);
}

TEST_F(FacadeTest, ARequestHasTheObjectivesOfItsClass) {
  EngineOptions options = Options();
  options.slo_class = {"chat:ttft=1h,tbt=1h"};
  auto engine = Make(options);
  Request request = Ask(*engine, "hello", 4);
  request.slo_class = "chat";
  Run(*engine, request);
  request.slo_class = "gold";
  const auto refused = engine->Submit(request, std::make_shared<Collector>(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().param(), "slo.class");
  engine->Drain(kNoLimitNs);
  const RunResult result = engine->Outcome();
  EXPECT_EQ(result.rejected, 1);
  ASSERT_EQ(result.classes.size(), 1u);
  EXPECT_EQ(result.classes.at("chat").slo_attainment(), 1.0) << "the request stated no objectives itself";
}

TEST_F(FacadeTest, CloseReportsARecordingThatCouldNotBeWritten) {
  auto engine = Make();
  Run(*engine, Ask(*engine, "hello", 4));
  EXPECT_TRUE(engine->Close().ok());  // nothing was recorded
  EXPECT_TRUE(engine->Close().ok());
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EngineOptions recorded = Options();
  recorded.trace_out = "/dev/full";
  engine = Make(recorded);
  Run(*engine, Ask(*engine, "hello", 4));
  const Status status = engine->Close();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tactus::engine
