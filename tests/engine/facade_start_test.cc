// What the engine reports, reads and refuses at its start.
#include "engine/facade_fixture.h"
#include "engine/step_times/profile_model.h"

#include <fmt/format.h>

namespace tactus::engine {
namespace {

TEST_F(FacadeTest, AFailedStartNamesItsCause) {
  const auto fails = [](const std::function<void(EngineOptions*)>& spoil) {
    EngineOptions o = Options();
    spoil(&o);
    auto engine = Engine::Create(o);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.status().message();
  };
  const std::string absent = (folder_ / "absent").string();
  EXPECT_NE(fails([&](EngineOptions* o) { o->model = absent; }).find(absent), std::string::npos);
  EXPECT_NE(fails([](EngineOptions* o) { o->scheduler = "best"; }).find("sarathi-serve"), std::string::npos);
  // The length of a real answer is not known in advance.
  EXPECT_NE(fails([](EngineOptions* o) { o->scheduler = "trail-oracle"; }).find("which only a simulation has"),
            std::string::npos);
  for (const char* predictor : {"oracle", "noisy:0.5"}) {
    const std::string why = fails([predictor](EngineOptions* o) { o->predictor = predictor; });
    EXPECT_NE(why.find("--predictor history"), std::string::npos) << why;
  }
  EXPECT_NE(fails([](EngineOptions* o) { o->predictor = "crystal-ball"; }).find("known: none, history"),
            std::string::npos);
  EXPECT_NE(fails([](EngineOptions* o) { o->scheduler = "ltr", o->predictor = "none"; }).find("--predictor history"),
            std::string::npos);
  EXPECT_NE(fails([](EngineOptions* o) { o->kv_cache_memory.bytes = int64_t{1} << 60; }).find("kv-cache-memory"),
            std::string::npos);
  EXPECT_NE(fails([&](EngineOptions* o) { o->chat_template = absent; }).find(absent), std::string::npos);
  EXPECT_NE(fails([](EngineOptions* o) { o->load_format = "auto"; }), "");  // no weights, no tokeniser
}

TEST_F(FacadeTest, StartUpReportsMemoryAndSchedulerBeforeReady) {
  std::vector<std::string> lines;
  auto engine = Engine::Create(Options(), [&lines](std::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  const size_t memory = all.find("KV"), scheduler = all.find("scheduler tactus"), ready = all.find("ready");
  ASSERT_NE(memory, std::string::npos) << all;
  ASSERT_NE(scheduler, std::string::npos) << all;
  ASSERT_NE(ready, std::string::npos) << all;
  EXPECT_LT(memory, ready);
  EXPECT_LT(scheduler, ready);
  EXPECT_EQ((*engine)->model().name, "dummy");
  EXPECT_EQ((*engine)->model().vocab_size, 260);
}

TEST_F(FacadeTest, StartUpStatesTheObjectives) {
  EngineOptions o = Options();
  o.scheduler = "vllm";
  o.tbt_slo.ns = 50 * kSecond;
  o.slo_class = {"chat:ttft=500ms,tbt=50ms", "batch:weight=1"};
  std::string all;
  ASSERT_TRUE(Engine::Create(o, [&all](std::string_view line) { all += std::string(line) + "\n"; }).ok());
  EXPECT_NE(all.find("\nobjective of --tbt-slo: gap 50000 ms\n"), std::string::npos) << all;
  EXPECT_NE(all.find("\nobjectives of class 'chat': TTFT 500 ms, gap 50 ms\n"), std::string::npos) << all;
  EXPECT_EQ(all.find("class 'batch'"), std::string::npos) << all;
}

// Stored step times are read only where they can choose a budget.
TEST_F(FacadeTest, TheMachinesStepTimesAreReadOnlyWhereTheyDecide) {
  const std::filesystem::path cache = folder_ / "cache";
  setenv("TACTUS_CACHE_DIR", cache.c_str(), 1);
  EngineOptions o = Options();
  const std::filesystem::path profile = DefaultProfilePath(o.model, std::to_string(o.threads) + "t");
  ASSERT_EQ(profile.string().find(cache.string()), 0u) << profile;
  std::filesystem::create_directories(profile.parent_path());
  std::ofstream(profile) << "this is no profile\n";
  o.scheduler = "sarathi-serve";
  const auto reads = [&](int64_t slo_ns, int64_t budget, const char* named_budget) {
    o.tbt_slo.ns = slo_ns;
    o.token_budget = budget;
    o.budget = named_budget;
    return !Engine::Create(o).ok();
  };
  EXPECT_TRUE(reads(kSecond, 0, ""));
  EXPECT_TRUE(reads(kSecond, 256, "")) << "256 is only the maximum of a step";
  EXPECT_FALSE(reads(0, 0, "")) << "no objective to choose a budget for";
  EXPECT_FALSE(reads(kAutoDuration, 256, "")) << "the budget is given";
  EXPECT_FALSE(reads(kAutoDuration, 0, "")) << "step times that were not requested do not prevent a start";
  EXPECT_FALSE(reads(kSecond, 0, "fixed"));
  o.speculation = "ngram";
  EXPECT_FALSE(reads(0, 0, "fixed")) << "guesses need no step times, and none were requested";
  o.speculation = "none";
  o.scheduler = "tactus";
  EXPECT_TRUE(reads(0, 0, "")) << "requests may state objectives";
  unsetenv("TACTUS_CACHE_DIR");
}

// If no step times are stored, an objective makes the start measure them, on the executor that then serves.
TEST_F(FacadeTest, StepTimesThatAreNotStoredAreMeasuredQuickly) {
  setenv("TACTUS_CACHE_DIR", (folder_ / "empty_cache").c_str(), 1);
  std::string answer, predicted;
  const auto starts = [&](int64_t slo_ns, const char* preset, int64_t budget) {
    EngineOptions o = Options();
    o.tbt_slo.ns = slo_ns;
    o.scheduler = preset;
    o.token_budget = budget;
    std::string all;
    auto engine = Engine::Create(o, [&all](std::string_view line) { all += std::string(line) + "\n"; });
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return all;
    // Its answers equal those of an engine that measured nothing.
    const auto told = Run(**engine, Ask(**engine, std::string(300, 'x'), 5));
    for (const TokenId token : told->choices[0].tokens) answer += fmt::format("{} ", token);
    const std::string metrics = (*engine)->MetricsText();
    const size_t at = metrics.find("\ntactus_predicted_step_seconds_total{");
    predicted = at != std::string::npos ? metrics.substr(metrics.find("} ", at) + 2, 2) : "";
    return all;
  };
  const std::string none = starts(0, "sarathi-serve", 0), expected = answer;
  EXPECT_EQ(none.find("measuring"), std::string::npos) << none;
  EXPECT_EQ(predicted, "0\n");
  for (const int64_t slo_ns : {kAutoDuration, 50 * kMillisecond}) {
    answer.clear();
    std::filesystem::remove_all(folder_ / "empty_cache");
    const std::string text = starts(slo_ns, "sarathi-serve", 0);
    EXPECT_NE(text.find("measuring some for about 2 s; `tactus profile`"), std::string::npos) << text;
    EXPECT_NE(text.find("empty_cache/profiles/"), std::string::npos) << text;
    EXPECT_NE(text.find("step times measured in"), std::string::npos) << text;
    EXPECT_NE(text.find("every step the largest of at most"), std::string::npos) << text;
    EXPECT_EQ(text.find("warning"), std::string::npos) << text;
    EXPECT_EQ(answer, expected);
    EXPECT_EQ(predicted, "0.");
  }
  EXPECT_EQ(starts(kAutoDuration, "vllm", 0).find("measuring"), std::string::npos) << "it does not size by time";
  for (const char* preset : {"accelgen", "fastserve", "blend"}) {
    std::filesystem::remove_all(folder_ / "empty_cache");
    const std::string text = starts(kAutoDuration, preset, 0);
    EXPECT_NE(text.find("step times measured in"), std::string::npos) << preset << "\n" << text;
    EXPECT_EQ(text.find("warning"), std::string::npos) << text;
  }
  EXPECT_EQ(starts(kAutoDuration, "sarathi-serve", 64).find("measuring"), std::string::npos) << "a size is given";
  unsetenv("TACTUS_CACHE_DIR");
}

// A start stores its step times for the next one of the same build, machine, model, format and limits: in the folder of
// --weight-cache, otherwise in the cache folder.
TEST_F(FacadeTest, StepTimesOfAStartAreStoredForTheNext) {
  setenv("TACTUS_CACHE_DIR", (folder_ / "empty_cache").c_str(), 1);
  const std::filesystem::path kept = folder_ / "kept" / "here";
  EngineOptions o = Options();
  o.weight_cache = kept.string();
  const auto start = [&o] {
    std::string all;
    auto engine = Engine::Create(o, [&all](std::string_view line) { all += std::string(line) + "\n"; });
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return all;
  };
  const auto files = [&kept] {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(kept)) found.push_back(entry.path());
    return found;
  };
  const auto measures = [](const std::string& text) { return text.find("step times measured in") != text.npos; };
  const std::string first = start();
  EXPECT_TRUE(measures(first)) << first;
  EXPECT_EQ(first.find("of an earlier start"), std::string::npos) << first;
  ASSERT_EQ(files().size(), 1u);
  const std::string file = files()[0].string();
  const std::string second = start();
  EXPECT_FALSE(measures(second)) << second;
  EXPECT_NE(second.find("step times of an earlier start, " + file + ": "), std::string::npos) << second;
  EXPECT_NE(second.find("every step the largest of at most"), std::string::npos) << second;

  o.max_num_seqs = 4;  // measured for fewer decodes: another file
  EXPECT_TRUE(measures(start()));
  EXPECT_FALSE(measures(start()));
  EXPECT_EQ(files().size(), 2u);
  o.max_num_seqs = 8;
  EXPECT_FALSE(measures(start())) << "both files are kept";

  o.threads = 1;
  EXPECT_TRUE(measures(start()));
  EXPECT_EQ(files().size(), 3u);
  o.threads = 2;

  // A file that is torn, changed or from another program is measured again, and replaced.
  const auto read = [&file] {
    std::ifstream in(file);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const std::string whole = read();
  const auto changed = [&whole](const std::string& from, const std::string& to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), whole.substr(0, whole.rfind('#')), whole + "1,0,0,0,1\n",
        changed(",0,", ",1,"), changed("# build: ", "# build: x"),
        std::string("prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n1,0,nonsense\n")}) {
    std::ofstream(file) << damaged;
    const std::string text = start();
    EXPECT_NE(text.find(file + ", are not used: "), std::string::npos) << text;
    EXPECT_TRUE(measures(text)) << text;
    EXPECT_FALSE(measures(start())) << "the damaged file has been replaced";
  }
  o.measure_step_times = true;
  EXPECT_TRUE(measures(start())) << "--measure-step-times";
  o.measure_step_times = false;

  o.weight_cache.clear();
  std::filesystem::remove_all(folder_ / "empty_cache");
  EXPECT_TRUE(measures(start()));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "empty_cache" / "step_times"));
  const std::string later = start();
  EXPECT_FALSE(measures(later)) << later;
  EXPECT_NE(later.find("--measure-step-times measures again"), std::string::npos) << later;

  std::ofstream(folder_ / "no_folder") << "a file";
  o.weight_cache = (folder_ / "no_folder").string();
  const std::string unwritable = start();
  EXPECT_TRUE(measures(unwritable)) << unwritable;
  EXPECT_NE(unwritable.find("warning: cannot write --weight-cache '"), std::string::npos) << unwritable;
  unsetenv("TACTUS_CACHE_DIR");
}

// Step times of another model, machine, kernel set or number of threads: refused if requested by --profile, measured
// again if only found in the cache.
TEST_F(FacadeTest, StepTimesOfAnotherModelOrMachineAreNotUsed) {
  setenv("TACTUS_CACHE_DIR", (folder_ / "cache").c_str(), 1);
  const std::filesystem::path asked = folder_ / "other.csv";
  EngineOptions o = Options();
  const std::filesystem::path stored = DefaultProfilePath(o.model, std::to_string(o.threads) + "t");
  std::filesystem::create_directories(stored.parent_path());
  const auto write = [](const std::filesystem::path& path, const std::string& remarks) {
    std::ofstream out(path);
    out << remarks << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
    for (const int prefill : {0, 16, 64, 256}) {
      for (const int decodes : {0, 1, 8, 32}) {
        if (prefill + decodes > 0)
          out << prefill << ",0," << decodes << ',' << 100 * decodes << ',' << 1 + prefill << '\n';
      }
    }
  };
  const auto start = [&](const std::string& profile, const std::string& remarks) {
    o.profile = profile;
    std::filesystem::remove_all(folder_ / "cache" / "step_times");
    write(profile.empty() ? stored : asked, remarks);
    std::string all;
    auto engine = Engine::Create(o, [&all](std::string_view line) { all += std::string(line) + "\n"; });
    return engine.ok() ? all : "refused: " + engine.status().message();
  };
  for (const char* fits : {"", "# threads: 2\n"}) {
    EXPECT_EQ(start(asked, fits).find("measured with"), std::string::npos);
    const std::string text = start("", fits);
    EXPECT_EQ(text.find("measured with"), std::string::npos) << text;
    EXPECT_NE(text.find("step times " + stored.string()), std::string::npos) << text;
  }
  const std::pair<const char*, const char*> others[] = {{"# threads: 7\n", "measured with threads '7', this is '2'"},
                                                        {"# kernels: abacus\n", "measured with kernels 'abacus'"},
                                                        {"# device: gpu\n", "measured with device 'gpu'"},
                                                        {"# model: other.gguf\n", "measured with model 'other.gguf'"}};
  for (const auto& [remarks, why] : others) {
    const std::string refused = start(asked, remarks);
    EXPECT_EQ(refused.find("refused: the step times of"), 0u) << refused;
    EXPECT_NE(refused.find(why), std::string::npos) << refused;
    const std::string log = start("", remarks);
    EXPECT_NE(log.find("warning: the step times of"), std::string::npos) << log;
    EXPECT_NE(log.find(why), std::string::npos) << log;
    EXPECT_NE(log.find("step times measured in"), std::string::npos) << log;
  }
  unsetenv("TACTUS_CACHE_DIR");
}

// An offline run uses the stored step times of the machine, and measures none.
TEST_F(FacadeTest, StoredStepTimesSetTheCostOfTokens) {
  setenv("TACTUS_CACHE_DIR", (folder_ / "cache").c_str(), 1);
  EngineOptions o = Options();
  o.scheduler = "blend";
  const std::filesystem::path stored = DefaultProfilePath(o.model, std::to_string(o.threads) + "t");
  std::filesystem::create_directories(stored.parent_path());
  const auto model = [&](bool likes, std::string* lines) {
    o.likes_step_times = likes;
    auto engine = Engine::Create(o, [lines](std::string_view line) { *lines += std::string(line) + "\n"; });
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return (*engine)->model();
  };
  std::string lines;
  ModelInfo info = model(true, &lines);
  EXPECT_EQ(info.prompt_token_s, 0) << "nothing is stored";
  EXPECT_EQ(lines.find("measuring"), std::string::npos) << lines;
  EXPECT_GT(info.hidden_size, 0);
  EXPECT_GT(info.num_layers, 0);
  EXPECT_EQ(info.kv_bytes_per_token % (4 * info.num_layers), 0);
  EXPECT_GT(info.kv_bytes_per_token, 0);
  {
    // 10 us to compute a prompt token, 1 us to read a token's KV.
    std::ofstream out(stored);
    out << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
    for (const int prefill : {0, 16, 64, 256, 512}) {
      for (const int decodes : {0, 1, 8, 32}) {
        for (const int context : {100, 1000}) {
          if (prefill + decodes == 0) continue;
          out << prefill << ",0," << decodes << ',' << context * decodes << ','
              << 1 + 0.01 * prefill + 0.001 * context * decodes << '\n';
        }
      }
    }
  }
  info = model(true, &lines);
  EXPECT_NEAR(info.prompt_token_s, 1e-5, 5e-6);
  EXPECT_GT(info.kv_token_s, 0);
  lines.clear();
  o.scheduler = "vllm";
  EXPECT_EQ(model(false, &lines).prompt_token_s, 0) << "no option needs step times";
  EXPECT_EQ(lines.find("step times"), std::string::npos) << lines;
  o.scheduler = "blend";
  {
    std::ofstream out(stored);
    out << "# threads: 99\nnot a profile\n";
  }
  EXPECT_EQ(model(true, &lines).prompt_token_s, 0) << "a damaged file does not prevent a start";
  unsetenv("TACTUS_CACHE_DIR");
}

// The profile's shortest step takes 2 ms.
TEST_F(FacadeTest, AnObjectiveThatNoStepCanKeepIsRefusedWithTheFloor) {
  const std::filesystem::path profile = folder_ / "slow.csv";
  {
    std::ofstream out(profile);
    out << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
    for (const int prefill : {0, 16, 64, 256}) {
      for (const int decodes : {0, 1, 8, 32}) {
        if (prefill + decodes > 0) out << prefill << ",0," << decodes << ',' << 100 * decodes << ",2\n";
      }
    }
  }
  EngineOptions o = Options();
  o.profile = profile.string();
  o.slo_class = {"hopeless:tbt=1ms"};
  std::string lines;
  auto made = Engine::Create(o, [&lines](std::string_view line) { lines += std::string(line) + "\n"; });
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_NE(lines.find("warning: --slo-class 'hopeless': slo.tbt_ms is 1 and"), std::string::npos) << lines;
  const std::unique_ptr<Engine> engine = std::move(made).value();
  const auto refused = [&](Slo slo, const std::string& name = "") {
    Request request = Ask(*engine, "hello", 2);
    request.slo = slo;
    request.slo_class = name;
    const auto taken = engine->Submit(request, std::make_shared<Collector>(1));
    EXPECT_TRUE(taken.ok() || taken.status().code() == StatusCode::kInvalidArgument);
    return taken.ok() ? "" : taken.status().param() + ": " + taken.status().message();
  };
  // Before the first measured step the profile is not corrected.
  const std::string tbt = refused({.tbt_ns = kMillisecond});
  EXPECT_EQ(tbt.find("slo.tbt_ms: slo.tbt_ms is 1 and the shortest step of this engine takes 2 ms"), 0u) << tbt;
  EXPECT_EQ(refused({.ttft_ns = kMillisecond}).find("slo.ttft_ms"), 0u);
  EXPECT_EQ(refused({.jct_ns = kMillisecond}).find("slo.jct_ms"), 0u);
  EXPECT_EQ(refused({}, "hopeless").find("slo.tbt_ms"), 0u);
  EXPECT_NE(refused({.ttft_ns = 2 * kSecond, .jct_ns = kSecond}).find("due after the whole answer"), std::string::npos);
  EXPECT_EQ(refused({.ttft_ns = kSecond, .tbt_ns = 2 * kMillisecond, .jct_ns = kSecond}), "");
  engine->Drain(kNoLimitNs);
  EXPECT_EQ(engine->Outcome().rejected, 5);
}

TEST_F(FacadeTest, AStartWithUnboundedStepsIsRefused) {
  EngineOptions o = Options();
  o.scheduler = "orca";
  o.step_limit = "none";
  const auto made = Engine::Create(o);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().param(), "step-limit");
  EXPECT_NE(made.status().message().find("--step-limit context"), std::string::npos) << made.status().message();
  o.scheduler = "sarathi-serve";  // has its own budget
  EXPECT_TRUE(Engine::Create(o).ok());
}

TEST_F(FacadeTest, ChatWithoutATemplateIsRefusedWithTheWayOut) {
  auto engine = Make();
  const auto text = engine->ApplyChatTemplate(R"({"messages": [{"role": "user", "content": "hi"}]})");
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.status().message().find("--chat-template"), std::string::npos);
  EngineOptions o = Options();
  o.chat_template = (folder_ / "chat.jinja").string();
  std::ofstream(o.chat_template) << "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  auto chatty = Make(o);
  const auto rendered = chatty->ApplyChatTemplate(R"({"messages": [{"role": "user", "content": "hi"}]})");
  ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
  EXPECT_EQ(*rendered, "<user>hi");
  EXPECT_EQ(chatty->Detokenize(chatty->TokenizeChat(*rendered)), "<user>hi");
  EXPECT_FALSE(chatty->ApplyChatTemplate("[").ok());
}

// A model without its own tokeniser has one of bytes, whose special tokens take nothing of what is around them.
TEST_F(FacadeTest, SpecialTokensLeaveTheSpaceAroundThem) {
  auto engine = Make();
  const auto ids = engine->Tokenize("a  <bos>  b", false);
  ASSERT_EQ(ids.size(), 7u);
  EXPECT_EQ(ids[3], 256);
  EXPECT_EQ(engine->Detokenize(ids), "a  <bos>  b");
}

}  // namespace
}  // namespace tactus::engine
