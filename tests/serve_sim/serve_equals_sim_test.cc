// `tactus serve` and `tactus sim` behave the same: one workload through the server (its options, engine, server and
// HTTP; scripted steps, served_run.h) and through the simulator gives the same plans, step by step, and the same result
// object.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "base/rng.h"
#include "cli/options/command_options.h"
#include "core/trace/replay.h"
#include "engine/step_times/profile_model.h"
#include "results/obs/run_result.h"
#include "scripted_backend.h"
#include "served_run.h"
#include "sim/replay/replay_model.h"
#include "sim/simulator/simulator.h"
#include "support/tiny_config.h"

namespace tactus {
namespace {

using Args = std::vector<std::string>;

// The test folder: a model without weights, step times as `tactus profile` writes them, workloads.
class ServeEqualsSim : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("tactus_serve_sim_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << test::kTinyConfig;
    // Step times grow with every prompt token, every decode and every KV token read.
    WriteProfile("profile.csv", 1);
    WriteProfile("slow.csv", 10);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static void WriteProfile(const char* name, double slower) {
    std::ofstream profile(folder_ / name);
    profile << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
    for (const int prefill : {0, 16, 64, 256, 1024}) {
      for (const int context : {0, 512}) {
        for (const int decodes : {0, 1, 8, 32}) {
          if (prefill + decodes == 0 || (prefill == 0 && context > 0)) continue;
          const int read = decodes * 300;
          const double ms = 5 + 0.05 * prefill + 0.0001 * prefill * context + 0.2 * decodes + 0.0005 * read;
          profile << prefill << ',' << context << ',' << decodes << ',' << read << ',' << slower * ms << '\n';
        }
      }
    }
  }

  // `count` requests of up to 600 tokens, in bursts; some share a prefix, some can never fit into 1,024 tokens.
  static std::string Trace(int count, uint64_t seed, double gap_s) {
    const std::filesystem::path path = folder_ / ("trace" + std::to_string(seed) + ".csv");
    std::ofstream out(path);
    out << "arrival_s,prompt_tokens,output_tokens,prefix_id,shared_tokens\n";
    double at = 0.25;
    for (int i = 0; i < count; ++i) {
      const auto draw = [&](uint64_t stream) { return UniformAt(seed, stream, static_cast<uint64_t>(i)); };
      if (draw(1) < 0.4) at += 2 * gap_s * draw(2);  // else at the same instant as the previous one
      const bool never = draw(3) < 0.04;
      const int prompt = 20 + static_cast<int>(draw(4) * 400) + (never ? 900 : 0);
      const int output = 1 + static_cast<int>(draw(5) * 120);
      out << fmt::format("{:.6f},{},{},", at, prompt, output);
      if (draw(6) < 0.5) {
        out << fmt::format("{},{}\n", static_cast<int>(draw(7) * 3), std::min(prompt, 100));
      } else {
        out << ",\n";
      }
    }
    return path.string();
  }

  struct Case {
    Args shared;  // flags of both
    Args sim;     // the load, and the KV memory, which the script also uses
    Args serve = {};
    const char* profile = "profile.csv";
    bool stored = false;  // the server finds the profile at the default path of `tactus profile`
  };

  static cli::SimCommandOptions ParseSim(const Case& c) {
    cli::SimCommandOptions options;
    Args args = c.shared;
    args.insert(args.end(), {"--model", "llama-3.1-8b", "--device", "h100", "--cost", Profile(c)});
    args.insert(args.end(), c.sim.begin(), c.sim.end());
    EXPECT_EQ(cli::SimLine(&options).Parse(args), cli::CommandLine::Outcome::kRun);
    return options;
  }
  static std::string Profile(const Case& c) { return (folder_ / c.profile).string(); }

  // Compares field by field, without fields of the wall clock and those that only a simulator has.
  static void ExpectEqual(Json served, Json simulated) {
    served.erase("decision_us");
    simulated.erase("decision_us");
    for (const char* name : {"mfu", "mbu", "bubbles", "extrapolation", "clipped_prompts", "cut_outputs", "rows_dropped",
                             "replicas", "migrations", "scaling", "objectives_below_a_step", "shortest_step_ms"}) {
      EXPECT_FALSE(served.contains(name)) << name;
      EXPECT_TRUE(simulated.contains(name)) << name;
      simulated.erase(name);
    }
    for (const auto& [name, value] : simulated.items()) {
      EXPECT_TRUE(served.contains(name)) << name;
      EXPECT_EQ(served.value(name, Json()), value) << name;
    }
    EXPECT_EQ(served.size(), simulated.size());
  }

  // Copies the profile to the default path of the model's server.
  static void Store(const Case& c) {
    setenv("TACTUS_CACHE_DIR", (folder_ / "cache").c_str(), 1);
    const std::filesystem::path stored = engine::DefaultProfilePath(folder_.string(), "1t");
    std::filesystem::create_directories(stored.parent_path());
    std::filesystem::copy_file(Profile(c), stored, std::filesystem::copy_options::overwrite_existing);
  }

  struct Outcome {
    RunResult simulated, served;
    int64_t refused = 0;
    std::string simulated_by, served_by;  // the texts of the schedulers
    std::shared_ptr<const StepTimeModel> step_time;
  };
  static Outcome Compare(const Case& c) {
    Outcome out;
    const cli::SimCommandOptions options = ParseSim(c);
    auto setup = cli::SetUp(options.sim);
    EXPECT_TRUE(setup.ok()) << setup.status().ToString();
    if (!setup.ok()) return out;
    std::vector<std::string> plans;
    sim::SimulationConfig config = setup->config;
    config.on_step = [&plans](int32_t, const StepPlan& plan, TimeNs, TimeNs) { plans.push_back(PlanText(plan)); };
    auto sim = sim::Simulation::Create(config, setup->workload.get());
    EXPECT_TRUE(sim.ok()) << sim.status().ToString();
    if (!sim.ok()) return out;
    EXPECT_TRUE((*sim)->Run().ok());
    out.simulated = (*sim)->Outcome();
    out.simulated_by = (*sim)->Describe();
    out.step_time = setup->step_time;

    Args args = {folder_.string(), "--load-format", "dummy", "--port", "0"};
    if (c.stored)
      Store(c);
    else
      args.insert(args.end(), {"--profile", Profile(c)});
    // Time jumps, and limits of clients are not compared.
    for (const char* flag :
         {"--request-timeout", "--read-timeout", "--write-timeout", "--idle-timeout", "--ping-interval"})
      args.insert(args.end(), {flag, "1000h"});
    args.insert(args.end(), {"--max-streams-per-client", "100000"});
    args.insert(args.end(), c.shared.begin(), c.shared.end());
    args.insert(args.end(), c.serve.begin(), c.serve.end());
    cli::LoadOptions load;
    load.slo = setup->config.slo;
    load.slo_class = setup->config.slo_class;
    load.send_slo = true;
    load.ignore_eos = options.sim.ignore_eos;
    const auto served = Serve(args, *setup, load);
    EXPECT_TRUE(served.ok()) << served.status().ToString();
    if (!served.ok()) return out;
    unsetenv("TACTUS_CACHE_DIR");
    out.served = served->result;
    out.served_by = served->scheduler;
    out.refused = served->refused;
    EXPECT_EQ(served->answers, std::vector<std::string>());

    size_t same = 0;
    while (same < plans.size() && same < served->plans.size() && plans[same] == served->plans[same]) ++same;
    EXPECT_TRUE(same == plans.size() && same == served->plans.size())
        << "of " << plans.size() << " simulated and " << served->plans.size() << " served steps the first " << same
        << " are equal; then\nsimulated " << (same < plans.size() ? plans[same] : "none") << "\nserved    "
        << (same < served->plans.size() ? served->plans[same] : "none");
    ExpectEqual(results::RunJson(out.served), results::RunJson(out.simulated));
    return out;
  }

  static inline std::filesystem::path folder_;
};

Args With(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// A flag that both commands have has the same meaning and the same default. Two name what the backend is: a server's
// device is one that computes here, a simulation's is one of its list.
TEST(SharedOptions, FlagsOfServeAndSimHaveTheSameDefaults) {
  cli::ServeCommandOptions serve;
  cli::SimCommandOptions sim;
  const cli::CommandLine served = cli::ServeLine(&serve), simulated = cli::SimLine(&sim);
  int shared = 0;
  for (const cli::FieldBinding& a : served.fields()) {
    for (const cli::FieldBinding& b : simulated.fields()) {
      if (a.name != b.name || a.name == "kv-cache-dtype" || a.name == "device") continue;
      ++shared;
      EXPECT_EQ(a.default_text, b.default_text) << a.name;
      EXPECT_STREQ(a.spec.unit, b.spec.unit) << a.name;
      EXPECT_STREQ(a.spec.choices, b.spec.choices) << a.name;
      if (a.name == "seed" || a.name == "json") continue;
      EXPECT_EQ(a.spec.min, b.spec.min) << a.name;
      EXPECT_STREQ(a.spec.help, b.spec.help) << a.name;
    }
  }
  EXPECT_GT(shared, 20);
  EXPECT_EQ(cli::LoadOptions().ignore_eos, sim::SimOptions().ignore_eos) << "tactus bench and tactus sim";
}

TEST(SharedOptions, AsPaperImpliesOtherOptions) {
  const auto parsed = [](const Args& args) {
    cli::SimCommandOptions options;
    EXPECT_EQ(cli::SimLine(&options).Parse(args), cli::CommandLine::Outcome::kRun);
    return options.sim;
  };
  const sim::SimOptions paper = parsed({"--as-paper"});
  EXPECT_EQ(paper.step_limit, "none");
  EXPECT_EQ(paper.max_queue, 1 << 20);
  EXPECT_FALSE(paper.ignore_eos);
  EXPECT_EQ(paper.identities, "stated");
  EXPECT_EQ(paper.tbt_slo.ns, 0);
  EXPECT_EQ(parsed({}).tbt_slo.ns, kAutoDuration);
  EXPECT_EQ(parsed({"--as-paper", "--tbt-slo", "auto"}).tbt_slo.ns, kAutoDuration);
  EXPECT_TRUE(paper.prefix_caching);
  const sim::SimOptions some = parsed({"--as-paper", "--ignore-eos", "on", "--identities", "all", "--max-queue", "5"});
  EXPECT_EQ(some.step_limit, "none");
  EXPECT_TRUE(some.ignore_eos && some.identities == "all" && some.max_queue == 5);
}

const Args kSizes = {"--max-model-len", "1024", "--max-num-seqs", "12"};

TEST_F(ServeEqualsSim, EveryPresetMakesTheSamePlansAndFigures) {
  const std::string trace = "trace:" + Trace(120, 1, 0.08);
  for (const char* preset : {"sarathi-serve", "vllm", "vllm-v0", "larry", "fastgen", "orca"}) {
    SCOPED_TRACE(preset);
    const Outcome out =
        Compare({.shared = With(kSizes, {"--scheduler", preset}), .sim = {"--kv-blocks", "150", "--workload", trace}});
    EXPECT_GT(out.served.completed, 100);
    EXPECT_GT(out.refused, 0) << "requests that can never fit";
    EXPECT_EQ(out.served.rejected, out.refused);
    EXPECT_NE(out.served.first_rejection.find("exceed the context of 1024 tokens"), std::string::npos);
    EXPECT_GT(out.served.engine->prefix_sharing.value_or(0), 0.05);
    if (std::string_view(preset) != "orca") {
      EXPECT_GT(out.served.engine->preemptions, 0) << "memory is not scarce";
    }
  }
}

TEST_F(ServeEqualsSim, DefaultsMakeTheSamePlans) {
  const Outcome out = Compare({.shared = {"--max-model-len", "2048"},
                               .sim = {"--kv-blocks", "400", "--workload", "trace:" + Trace(60, 2, 0.1)}});
  EXPECT_EQ(out.served.completed, 60);
}

// A machine on which 512 prompt tokens take 300 ms, and a decode 60 ms: without flags the default objective limits the
// gaps.
TEST_F(ServeEqualsSim, TheDefaultObjectiveSizesStepsEqually) {
  const std::string trace = "trace:" + Trace(80, 10, 1.5);
  const auto run = [&](const Args& more) {
    return Compare(
        {.shared = With(kSizes, more), .sim = {"--kv-blocks", "1000", "--workload", trace}, .profile = "slow.csv"});
  };
  const Outcome usual = run({}), none = run({"--tbt-slo", "none"}), strict = run({"--tbt-slo", "150ms"});
  EXPECT_GT(usual.served.completed, 60);
  EXPECT_LE(usual.served.tbt_ms.max, 190) << "the profile is exact here: 187.5 ms, within a bucket";
  EXPECT_LE(strict.served.tbt_ms.max, 152);
  EXPECT_GT(none.served.tbt_ms.max, 250);
  const Outcome paper = run({"--tbt-slo", "auto", "--max-num-batched-tokens", "512"});
  EXPECT_EQ(paper.served.engine->plan_hash, none.served.engine->plan_hash)
      << "a given size excludes the default objective";
}

TEST_F(ServeEqualsSim, AFullQueueRefusesTheSameRequests) {
  const Outcome out = Compare({.shared = With(kSizes, {"--max-queue", "3", "--scheduler", "vllm"}),
                               .sim = {"--kv-blocks", "150", "--workload", "trace:" + Trace(100, 3, 0.02)}});
  EXPECT_GT(out.refused, 20);
  EXPECT_GT(out.served.completed, 10);
  EXPECT_NE(out.served.first_rejection.find("--max-queue is 3"), std::string::npos) << out.served.first_rejection;
}

TEST_F(ServeEqualsSim, ObjectivesHaveTheSameEffect) {
  const std::string trace = "trace:" + Trace(100, 4, 0.06);
  for (const char* preset : {"accelgen", "accelgen-no-chunk", "sarathi-serve"}) {
    SCOPED_TRACE(preset);
    const Outcome out =
        Compare({.shared = With(kSizes, {"--scheduler", preset, "--tbt-slo", "60ms"}),
                 .sim = {"--kv-blocks", "150", "--workload", trace, "--slo", "ttft=400ms,tbt=60ms,jct=8s"}});
    EXPECT_EQ(out.served.objectives.stated, 100);
    EXPECT_GT(out.served.objectives.kept, 0);
    EXPECT_LT(out.served.objectives.kept, 100);
  }
}

// Classes and objectives drawn for each request, and those stated in a trace file.
TEST_F(ServeEqualsSim, ObjectivesPerRequestHaveTheSameEffect) {
  const std::string mix = "chat:0.5:ttft=4..30x,tbt=40..90ms;job:0.3:jct=3x;batch:0.2:none";
  for (const char* preset : {"accelgen", "sarathi-serve"}) {
    SCOPED_TRACE(preset);
    const Outcome out =
        Compare({.shared = With(kSizes, {"--scheduler", preset}),
                 .sim = {"--kv-blocks", "150", "--workload", "trace:" + Trace(100, 8, 0.06), "--slo-mix", mix}});
    ASSERT_EQ(out.served.classes.size(), 3u);
    for (const char* name : {"chat", "job"}) {
      EXPECT_GT(out.served.classes.at(name).kept, 0) << name;
      EXPECT_LT(out.served.classes.at(name).kept, out.served.classes.at(name).stated) << name;
    }
    EXPECT_EQ(out.served.classes.at("batch").stated, 0);
    EXPECT_GT(out.served.classes.at("batch").completed, 5);
    const std::optional<double> gaps = out.served.objectives.gaps.attainment();
    ASSERT_TRUE(gaps.has_value());
    if (std::string_view(preset) == "sarathi-serve") {
      EXPECT_LT(*gaps, 1) << "it ignores the objectives";
    }
  }
  const std::filesystem::path path = folder_ / "stated.csv";
  std::ofstream out(path);
  out << "arrival_s,prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,slo_class,priority,client\n";
  for (int i = 0; i < 80; ++i) {
    const auto draw = [&](uint64_t stream) { return UniformAt(9, stream, static_cast<uint64_t>(i)); };
    out << fmt::format("{:.3f},{},{},", 0.25 + 0.05 * i, 20 + static_cast<int>(300 * draw(1)),
                       1 + static_cast<int>(90 * draw(2)));
    out << (i % 3 == 0   ? fmt::format("{:.3f},{:.3f},,gold,", 50 + 900 * draw(3), 30 + 50 * draw(4))
            : i % 3 == 1 ? fmt::format(",,{:.1f},,", 9000 * draw(3))
                         : ",,,plain,")
        << i % 4 - 1 << ",client " << i % 5 << "\n";
  }
  out.close();
  for (const Args& how : {Args{"--scheduler", "accelgen"}, Args{"--scheduler", "ltr"},
                          Args{"--scheduler", "vllm", "--order", "priority"}}) {
    SCOPED_TRACE(how.back());
    const Outcome stated =
        Compare({.shared = With(kSizes, how),
                 .sim = {"--kv-blocks", "150", "--workload", "trace:" + path.string(), "--slo-class", "other"}});
    EXPECT_EQ(stated.served.classes.at("gold").stated, 27);
    EXPECT_EQ(stated.served.classes.at("other").jct.stated, 27);
    EXPECT_EQ(stated.served.classes.at("plain").stated, 0);
  }
}

TEST_F(ServeEqualsSim, SwappedSequencesReturnEqually) {
  for (const Args& how : {Args{"--scheduler", "fastserve"}, Args{"--scheduler", "vllm-v0", "--preemption", "swap"}}) {
    SCOPED_TRACE(how.back());
    // 300 MiB are 150 blocks of the model that the simulation plans memory for.
    const Outcome out = Compare({.shared = With(With(kSizes, how), {"--swap-space", "300MiB"}),
                                 .sim = {"--kv-blocks", "150", "--workload", "trace:" + Trace(100, 5, 0.05)}});
    EXPECT_GT(out.served.engine->swapped_sequences, 0);
    EXPECT_GT(out.served.completed, 80);
  }
}

TEST_F(ServeEqualsSim, LengthsArePredictedEqually) {
  const std::string trace = "trace:" + Trace(120, 6, 0.08);
  for (const char* preset : {"s3", "trail", "ltr", "pia"}) {
    for (const char* caching : {"on", "off"}) {
      SCOPED_TRACE(fmt::format("{}, prefix caching {}", preset, caching));
      const Outcome out = Compare({.shared = With(kSizes, {"--scheduler", preset, "--prefix-caching", caching}),
                                   .sim = {"--kv-blocks", "150", "--workload", trace}});
      EXPECT_GT(out.served.completed, 100);
      EXPECT_EQ(out.served.engine->prefix_sharing.has_value(), std::string_view(caching) == "on");
    }
  }
}

TEST_F(ServeEqualsSim, ClosedLoopsMakeTheSamePlans) {
  const Outcome out = Compare(
      {.shared = kSizes,
       .sim = {"--kv-blocks", "150", "--workload", "random:in=200,out=60", "--requests", "90", "--concurrency", "25"}});
  EXPECT_EQ(out.served.completed, 90);
}

TEST_F(ServeEqualsSim, TurnsOfConversationsReuseCachedPrefixes) {
  const Outcome out =
      Compare({.shared = {"--max-model-len", "4096", "--max-num-seqs", "12"},
               .sim = {"--kv-blocks", "1200", "--workload", "multi-turn:turns=3", "--requests", "60", "--rate", "3"}});
  EXPECT_GT(out.served.completed, 40);
  EXPECT_GT(out.served.engine->prefix_sharing.value_or(0), 0.1);
}

// No file of step times is named: a server loads the default one if its scheduler needs it. The same times then predict
// the recorded run exactly.
TEST_F(ServeEqualsSim, EveryPresetHasTheSameObjectivesAndItsRunIsPredicted) {
  const std::string trace = "trace:" + Trace(40, 11, 0.08);
  int objectives = 0;
  for (const core::PresetInfo& preset : core::Presets()) {
    if (!std::string(preset.predictor).empty()) continue;  // only for simulations
    SCOPED_TRACE(preset.name);
    const std::string file = (folder_ / "known.trace").string();
    const Outcome out = Compare({.shared = With(kSizes, {"--scheduler", preset.name}),
                                 .sim = {"--kv-blocks", "150", "--workload", trace, "--slo", "ttft=400ms,tbt=60ms"},
                                 .serve = {"--trace-out", file},
                                 .stored = true});
    EXPECT_EQ(out.served_by, out.simulated_by);
    EXPECT_GT(out.served.completed, 30);
    objectives += out.served.objectives.ttft.least_ns == 400 * kMillisecond;
    const auto predicted = sim::ReplayWithModel(file, *out.step_time);
    ASSERT_TRUE(predicted.ok()) << predicted.status().ToString();
    EXPECT_EQ(predicted->errors.median_abs, 0);
    EXPECT_EQ(predicted->errors.p90_abs, 0);
    EXPECT_EQ(predicted->measured.completed, out.served.completed);
    EXPECT_EQ(predicted->predicted.completed, out.served.completed);
    EXPECT_NEAR(predicted->predicted.duration_s / out.served.duration_s, 1, 0.05);
    EXPECT_NEAR(predicted->predicted.ttft_ms.p50 / out.served.ttft_ms.p50, 1, 0.1);
  }
  EXPECT_GT(objectives, 15) << "results state the objectives";
}

TEST_F(ServeEqualsSim, RecordingsOfBothReplayToTheSamePlans) {
  const std::string served = (folder_ / "served.trace").string(), simulated = (folder_ / "simulated.trace").string();
  const Outcome out =
      Compare({.shared = With(kSizes, {"--scheduler", "larry"}),
               .sim = {"--kv-blocks", "150", "--workload", "trace:" + Trace(80, 7, 0.08), "--trace-out", simulated},
               .serve = {"--trace-out", served}});
  for (const std::string& file : {served, simulated}) {
    const auto replay = core::ReplayTrace(file);
    ASSERT_TRUE(replay.ok()) << replay.status().ToString();
    EXPECT_TRUE(replay->identical() && replay->complete) << file << " differs at " << replay->first_difference;
    EXPECT_EQ(replay->plan_hash_replayed, out.served.engine->plan_hash) << file;
    EXPECT_EQ(replay->steps_replayed, out.served.engine->steps) << file;
  }
}

}  // namespace
}  // namespace tactus
