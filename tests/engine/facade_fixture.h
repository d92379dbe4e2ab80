// A dummy model of bytes behind the public engine, and a sink that records its calls.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "base/clock.h"
#include "base/json.h"
#include "support/tiny_config.h"
#include "tactus/engine.h"

namespace tactus::engine {
constexpr std::chrono::seconds kWaitLimit{60};               // for events that come within milliseconds
constexpr int64_t kNoLimitNs = int64_t{60} * 1'000'000'000;  // for waits that end within milliseconds

// Collects an answer; Wait returns after OnDone.
class Collector final : public ResponseSink {
 public:
  struct Choice {
    std::string text, stop_string;
    std::vector<TokenId> tokens;
    std::vector<std::vector<TokenLogprob>> logprobs;
    FinishReason finish = FinishReason::kNone;
    Status error;
    int deltas = 0;
    bool after_end = false;  // a call came after the last delta
  };
  explicit Collector(int n = 1) : choices(static_cast<size_t>(n)) {}

  void OnDelta(const TokenDelta& delta) override {
    std::lock_guard lock(mutex_);
    Choice& c = choices[static_cast<size_t>(delta.choice)];
    c.after_end |= c.finish != FinishReason::kNone || done_ > 0;
    c.text += delta.text;
    c.tokens.insert(c.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    c.logprobs.insert(c.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    c.finish = delta.finish;
    if (delta.finish != FinishReason::kNone) {
      c.stop_string = delta.stop_string;
      c.error = delta.error;
    }
    ++c.deltas;
    changed_.notify_all();
  }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    std::lock_guard lock(mutex_);
    prompt_rows.insert(prompt_rows.end(), rows.begin(), rows.end());
  }
  void OnDone(const Usage& u) override {
    std::lock_guard lock(mutex_);
    usage = u;
    ++done_;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kWaitLimit, [this] { return done_ > 0; })) << "no OnDone came";
    EXPECT_EQ(done_, 1);
    for (const Choice& c : choices) {
      EXPECT_NE(c.finish, FinishReason::kNone);
      EXPECT_FALSE(c.after_end);
    }
  }
  void WaitForTokens(size_t n) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kWaitLimit, [&] { return choices[0].tokens.size() >= n || done_ > 0; }))
        << choices[0].tokens.size() << " tokens came and then nothing";
  }

  std::vector<Choice> choices;
  std::vector<std::vector<TokenLogprob>> prompt_rows;
  Usage usage;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int done_ = 0;
};

class FacadeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("tactus_facade_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << test::kTinyConfig;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static EngineOptions Options() {
    EngineOptions o;
    o.model = folder_.string();
    o.served_model_name = {"dummy"};
    o.load_format = "dummy";
    o.seed = 1;
    o.threads = 2;
    o.max_num_seqs = 8;
    o.max_model_len = 512;
    o.kv_cache_memory.bytes = 4 << 20;
    return o;
  }
  // Room for answers that take far longer than any test waits.
  static EngineOptions LongOptions() {
    EngineOptions o = Options();
    o.max_model_len = 131072;
    o.kv_cache_memory.bytes = 40 << 20;
    return o;
  }
  static std::unique_ptr<Engine> Make(const EngineOptions& options = Options()) {
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static Request Ask(const Engine& engine, const std::string& prompt, int64_t max_tokens) {
    Request r;
    r.prompt = std::make_shared<std::vector<TokenId>>(engine.Tokenize(prompt, true));
    r.stop.max_tokens = max_tokens;
    r.stop.ignore_eos = true;
    r.sampling.temperature = 0;
    return r;
  }
  static std::shared_ptr<Collector> Run(Engine& engine, Request request) {
    auto sink = std::make_shared<Collector>(request.n);
    auto handle = engine.Submit(std::move(request), sink);
    EXPECT_TRUE(handle.ok()) << handle.status().ToString();
    if (handle.ok()) sink->Wait();
    return sink;
  }

  static inline std::filesystem::path folder_;
};

}  // namespace tactus::engine
