// Prompts that survive a restart, with a real (dummy) model: stored blocks are hits, and the tokens equal those of a
// cold run, bit for bit, for all KV formats and loads; damaged blocks are computed again.
#include <thread>

#include "compute/kernels/ops.h"
#include "core/trace/replay.h"
#include "engine/facade_fixture.h"
#include "tactus/version.h"
#include "time_limit.h"

namespace tactus::prompt_cache_test {
namespace {

class PromptCacheTest : public engine::FacadeTest {
 protected:
  void SetUp() override {
    dir_ = folder_ / ("kv_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(dir_);
  }
  EngineOptions OnDisk(EngineOptions o = Options()) const {
    o.kv_cache_dir = dir_.string();
    return o;
  }
  static Request Sampled(const Engine& engine, int i, int64_t tokens = 20, int length = 150) {
    std::string text = "Conversation " + std::to_string(i) + ": ";
    while (static_cast<int>(text.size()) < length)
      text += std::to_string(i * 7 + static_cast<int>(text.size())) + " and ";
    Request r = Ask(engine, text, tokens);
    r.sampling.temperature = 1.2f;
    r.sampling.repetition_penalty = 1.1f;
    r.sampling.seed = static_cast<uint64_t>(100 + i);
    r.sampling.has_seed = true;
    r.sampling.logprobs = 2;
    r.id = "r" + std::to_string(i);
    return r;
  }
  // Tokens of whole blocks before the last token.
  static int64_t Shareable(const engine::Collector& answer) { return (answer.usage.prompt_tokens - 1) / 16 * 16; }
  static CacheMatch MatchOf(const Engine& engine, const std::string& id) {
    const auto lines = engine.Timelines({.handle = 0, .id = id, .owner = {}, .arrival_ns = -1});
    EXPECT_EQ(lines.size(), 1u);
    return lines.empty() ? CacheMatch() : lines[0].cache.value_or(CacheMatch());
  }
  static double Metric(const Engine& engine, const std::string& name) {
    const std::string text = engine.MetricsText();
    const size_t at = text.find("\n" + name + "{");
    EXPECT_NE(at, std::string::npos) << name << " is not among the metrics";
    return at == std::string::npos ? -1 : std::stod(text.substr(text.find("} ", at) + 2));
  }
  std::vector<std::filesystem::path> BlockFiles() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      if (entry.path().extension() == ".blocks") files.push_back(entry.path());
    }
    return files;
  }
  std::filesystem::path dir_;
};

void ExpectSame(const engine::Collector& cold, const engine::Collector& warm) {
  const auto &a = cold.choices[0], &b = warm.choices[0];
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    for (size_t k = 0; k < a.logprobs[i].size(); ++k) {
      EXPECT_EQ(a.logprobs[i][k].token, b.logprobs[i][k].token);
      EXPECT_EQ(a.logprobs[i][k].logprob, b.logprobs[i][k].logprob) << "token " << i;
    }
  }
}

TEST_F(PromptCacheTest, AKnownPrefixIsAHitAfterARestartBitForBit) {
  std::vector<std::string> kernels;
  for (const char* name : {"scalar", "avx2", "avxvnni", "avx512", "amx"}) {
    if (compute::SelectOps(name) != nullptr) kernels.push_back(name);
  }
  for (const std::string& name : kernels) {
    for (const char* kv : {"bfloat16", "int8", "float32"}) {
      SCOPED_TRACE(name + ", KV " + kv);
      const test::TimeLimit limit("a prompt from disk does not come to its end");
      EngineOptions o = Options();
      o.kernels = name;
      o.kv_cache_dtype = kv;
      if (std::string(kv) == "float32") o.dtype = "float32";
      if (o.dtype == "float32" && name != kernels.front()) continue;  // the reference mode has its own kernels
      if (o.dtype == "float32") o.kernels.clear();
      std::vector<std::shared_ptr<engine::Collector>> cold;
      {
        const auto plain = Make(o);
        ASSERT_NE(plain, nullptr);
        for (int i = 0; i < 3; ++i) cold.push_back(Run(*plain, Sampled(*plain, i)));
      }
      {
        const auto first = Make(OnDisk(o));
        ASSERT_NE(first, nullptr);
        for (int i = 0; i < 3; ++i) {
          const auto answer = Run(*first, Sampled(*first, i));
          EXPECT_EQ(answer->usage.cached_tokens, 0) << "KV of other numerics was used";
          ExpectSame(*cold[static_cast<size_t>(i)], *answer);
        }
      }
      const auto second = Make(OnDisk(o));
      ASSERT_NE(second, nullptr);
      for (int i = 0; i < 3; ++i) {
        const auto answer = Run(*second, Sampled(*second, i));
        EXPECT_EQ(answer->usage.cached_tokens, Shareable(*answer));
        ExpectSame(*cold[static_cast<size_t>(i)], *answer);
        const CacheMatch match = MatchOf(*second, "r" + std::to_string(i));
        EXPECT_EQ(match.tokens, Shareable(*answer));
        EXPECT_EQ(match.disk_tokens, match.tokens);
        EXPECT_EQ(match.end, CacheEnd::kPrompt);
      }
      EXPECT_EQ(Metric(*second, "tactus_disk_kv_requests_total"), 3);
    }
  }
}

TEST_F(PromptCacheTest, ManyPromptsFromDiskAtOnceReplayUnderEveryPreset) {
  const test::TimeLimit limit("prompts from disk do not come to their end");
  constexpr int kRequests = 24;
  std::vector<std::shared_ptr<engine::Collector>> cold;
  {
    const auto first = Make(OnDisk());
    ASSERT_NE(first, nullptr);
    for (int i = 0; i < kRequests; ++i) cold.push_back(Run(*first, Sampled(*first, i)));
  }
  for (const char* preset : {"tactus", "vllm-v0", "sarathi-serve", "fastserve", "ltr", "orca", "trail"}) {
    SCOPED_TRACE(preset);
    EngineOptions o = OnDisk();
    o.scheduler = preset;
    o.trace_out = (folder_ / "prompt_cache.trace").string();
    o.kv_cache_memory.bytes = 1 << 19;  // short of memory: some are preempted
    o.swap_space.bytes = 1 << 18;
    const auto engine = Make(o);
    ASSERT_NE(engine, nullptr);
    std::vector<std::shared_ptr<engine::Collector>> warm;
    std::vector<RequestHandle> handles;
    for (int i = 0; i < kRequests; ++i) {
      warm.push_back(std::make_shared<engine::Collector>());
      const auto handle = engine->Submit(Sampled(*engine, i), warm.back());
      ASSERT_TRUE(handle.ok()) << handle.status().ToString();
      handles.push_back(*handle);
      if (i % 6 == 5) engine->Cancel(*handle);
    }
    int64_t cached = 0;
    for (int i = 0; i < kRequests; ++i) {
      warm[static_cast<size_t>(i)]->Wait();
      if (i % 6 == 5) continue;
      ExpectSame(*cold[static_cast<size_t>(i)], *warm[static_cast<size_t>(i)]);
      cached += warm[static_cast<size_t>(i)]->usage.cached_tokens;
    }
    EXPECT_GT(cached, 0);
    for (int i = 0; i < 3000 && engine->Stats().swap_blocks_used > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(engine->Stats().swap_blocks_used, 0) << "host blocks are still held";
    const uint64_t plan_hash = engine->Stats().plan_hash;
    ASSERT_TRUE(engine->Close().ok());
    const auto replay = core::ReplayTrace(o.trace_out);
    ASSERT_TRUE(replay.ok()) << replay.status().ToString();
    EXPECT_TRUE(replay->identical()) << "they differ from step " << replay->first_difference << " on";
    EXPECT_EQ(replay->plan_hash_replayed, plan_hash);
  }
}

TEST_F(PromptCacheTest, ADamagedBlockIsComputedAgainWithAWarning) {
  const test::TimeLimit limit("a damaged folder holds a request up");
  std::shared_ptr<engine::Collector> cold;
  {
    const auto first = Make(OnDisk());
    cold = Run(*first, Sampled(*first, 1));
  }
  ASSERT_EQ(BlockFiles().size(), 1u);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(BlockFiles()[0]));
  {
    std::fstream file(BlockFiles()[0], std::ios::in | std::ios::out | std::ios::binary);
    const int64_t at = size / (size / (2 * 16 * 16)) * 3;  // somewhere in the first blocks
    file.seekp(std::min(at, size - 1));
    file.put('\x5a');
    file.put('\xa5');
  }
  const auto second = Make(OnDisk());
  const auto answer = Run(*second, Sampled(*second, 1));
  ExpectSame(*cold, *answer);
  EXPECT_LT(answer->usage.cached_tokens, Shareable(*answer));
  EXPECT_EQ(MatchOf(*second, "r1").end, CacheEnd::kDamaged);
  const auto warnings = second->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("is damaged at byte"), std::string::npos) << warnings[0];
  EXPECT_EQ(Metric(*second, "tactus_disk_kv_damaged_blocks_total"), 1);
}

TEST_F(PromptCacheTest, SaltsAndOtherModelsShareNothing) {
  {
    const auto first = Make(OnDisk());
    Run(*first, Sampled(*first, 1));
  }
  {
    const auto second = Make(OnDisk());
    Request salted = Sampled(*second, 1);
    salted.cache_salt = "another client";
    EXPECT_EQ(Run(*second, salted)->usage.cached_tokens, 0);
    EXPECT_EQ(MatchOf(*second, "r1").end, CacheEnd::kUnknown);
  }
  for (const char* what : {"seed", "block size", "name"}) {
    EngineOptions o = OnDisk();
    if (std::string(what) == "seed") o.seed = 2;
    if (std::string(what) == "block size") o.block_size = 8;
    if (std::string(what) == "name") o.served_model_name = {"another"};
    const auto other = Make(o);
    EXPECT_EQ(Run(*other, Sampled(*other, 1))->usage.cached_tokens, 0) << "another " << what;
  }
}

// A change of the weights outside the sampled bytes is detected by the files' modification times.
TEST_F(PromptCacheTest, RewrittenWeightFilesAreAnotherModel) {
  const EngineOptions o = OnDisk();
  const auto file = std::filesystem::path(o.model) / "config.json";
  const auto time = std::filesystem::last_write_time(file);
  const auto cached = [&] {
    const auto engine = Make(o);
    return Run(*engine, Sampled(*engine, 1))->usage.cached_tokens;
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  std::filesystem::last_write_time(file, time + std::chrono::nanoseconds(1000));
  EXPECT_EQ(cached(), 0);
  std::filesystem::last_write_time(file, time);
  EXPECT_GT(cached(), 0);
}

TEST_F(PromptCacheTest, TheFolderNamesTheProgram) {
  Make(OnDisk());
  std::string about;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
    if (entry.path().filename() != "about") continue;
    std::ifstream in(entry.path());
    about.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string line = std::string("\nprogram ") + Version() + " ";
  const size_t at = about.find(line);
  ASSERT_NE(at, std::string::npos) << about;
  const std::string digest = about.substr(at + line.size(), 17);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), 16u) << "no digest of its file: " << about;
}

TEST_F(PromptCacheTest, TheKvOfAnAnswerIsStoredAndSharedByChoices) {
  std::vector<TokenId> both;
  {
    const auto first = Make(OnDisk());
    const Request asked = Sampled(*first, 1, 64);
    both = *asked.prompt;
    const auto answer = Run(*first, asked);
    both.insert(both.end(), answer->choices[0].tokens.begin(), answer->choices[0].tokens.end());
  }
  const auto second = Make(OnDisk());
  Request next = Sampled(*second, 1);
  next.prompt = std::make_shared<std::vector<TokenId>>(both);
  next.n = 3;
  const auto answer = Run(*second, next);
  EXPECT_EQ(answer->usage.cached_tokens, Shareable(*answer)) << "the KV of an answer is part of the next prompt's";
}

TEST_F(PromptCacheTest, TheTimelineStatesWhereAndWhyTheMatchEnded) {
  const auto engine = Make(OnDisk());
  Run(*engine, Sampled(*engine, 1));
  Request longer = Sampled(*engine, 1);
  auto prompt = *longer.prompt;
  prompt.resize(64);
  for (int i = 0; i < 40; ++i) prompt.push_back(static_cast<TokenId>('a' + i % 20));
  longer.prompt = std::make_shared<std::vector<TokenId>>(prompt);
  longer.id = "longer";
  EXPECT_EQ(Run(*engine, longer)->usage.cached_tokens, 64);
  CacheMatch match = MatchOf(*engine, "longer");
  EXPECT_EQ(match.tokens, 64);
  EXPECT_EQ(match.disk_tokens, 0);
  EXPECT_EQ(match.end, CacheEnd::kUnknown);
  Request logprobs = Sampled(*engine, 1);
  logprobs.prompt_logprobs = true;
  logprobs.id = "logprobs";
  EXPECT_EQ(Run(*engine, logprobs)->usage.cached_tokens, 0);
  EXPECT_EQ(MatchOf(*engine, "logprobs").end, CacheEnd::kLogprobs);
  EngineOptions off = Options();
  off.prefix_caching = false;
  const auto plain = Make(off);
  Run(*plain, Sampled(*plain, 1));
  EXPECT_EQ(MatchOf(*plain, "r1").end, CacheEnd::kOff);
}

TEST_F(PromptCacheTest, BlocksThatMemoryDroppedAreReportedAsEvicted) {
  EngineOptions o = Options();
  o.kv_cache_memory.bytes = 1 << 18;
  o.max_model_len = 256;
  const auto engine = Make(o);
  for (int i = 0; i < 40; ++i) Run(*engine, Sampled(*engine, i));
  Request again = Sampled(*engine, 0);
  again.id = "again";
  EXPECT_EQ(Run(*engine, again)->usage.cached_tokens, 0);
  EXPECT_EQ(MatchOf(*engine, "again").end, CacheEnd::kEvicted);
}

TEST_F(PromptCacheTest, BlocksThatMemoryDroppedAreReadFromDiskInTheSameRun) {
  const test::TimeLimit limit("a prompt from disk does not come to its end");
  EngineOptions o = OnDisk();
  o.kv_cache_memory.bytes = 1 << 18;
  o.max_model_len = 256;
  const auto engine = Make(o);
  const auto cold = Run(*engine, Sampled(*engine, 0));
  for (int i = 1; i < 40; ++i) Run(*engine, Sampled(*engine, i));
  Request again = Sampled(*engine, 0);
  again.id = "again";
  const auto answer = Run(*engine, again);
  EXPECT_EQ(answer->usage.cached_tokens, Shareable(*answer));
  EXPECT_GT(MatchOf(*engine, "again").disk_tokens, 0);
  ExpectSame(*cold, *answer);
}

TEST_F(PromptCacheTest, FaultyOptionsAreReportedAtTheStart) {
  const auto refusal = [](const EngineOptions& o) {
    const auto engine = Engine::Create(o);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.status().param() + ": " + engine.status().message();
  };
  EngineOptions o = OnDisk();
  o.prefix_caching = false;
  EXPECT_NE(refusal(o).find("kv-cache-dir: --kv-cache-dir stores the prefix cache"), std::string::npos);
  o = OnDisk();
  o.kv_cache_dir_size.bytes = 1000;
  EXPECT_NE(refusal(o).find("kv-cache-dir-size: --kv-cache-dir-size 1000 is too small"), std::string::npos);
  const auto first = Make(OnDisk());
  EXPECT_NE(refusal(OnDisk()).find("another process uses it"), std::string::npos);
}

}  // namespace
}  // namespace tactus::prompt_cache_test
