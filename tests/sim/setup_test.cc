#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "sim/sim_options.h"

namespace tactus::sim {
namespace {

SimOptions Options() {
  SimOptions o;
  o.model = "llama-3.1-8b";
  o.device = "h100";
  o.workload = "chat";
  o.rate = 5;
  o.requests = 50;
  return o;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

SortedJson RunOptions(const SimOptions& o) {
  auto setup = SetUpSimulation(o, {});
  EXPECT_TRUE(setup.ok()) << setup.status().ToString();
  auto sim = Simulation::Create(setup->config, setup->workload.get());
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  EXPECT_TRUE((*sim)->Run().ok());
  return SortedJson::parse(ToJson((*sim)->Outcome()));
}

TEST(SetUp, AModelOnADeviceHasItsContextAndMemoryPlan) {
  const auto setup = SetUpSimulation(Options(), {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  const core::SchedulerLimits& l = setup->config.scheduler.limits;
  EXPECT_EQ(l.max_model_len, 131072);
  // 80 GB minus 16 GB of weights, at 131,072 bytes per token (32 layers, 8 heads of 128, K and V, 2 bytes): about
  // 28,000 blocks.
  EXPECT_GT(l.blocks_total, 24000);
  EXPECT_LT(l.blocks_total, 32000);
  EXPECT_EQ(setup->workload->count(), 50);
}

// Unlimited steps: activations are planned for one prompt, unless whole prompts of several sequences that each reserve
// their context may share a step.
TEST(SetUp, MemoryIsPlannedForThePromptsThatAStepMayHold) {
  const auto blocks = [](const std::string& scheduler, bool reserve_full) {
    SimOptions o = Options();
    o.scheduler = scheduler;
    o.step_limit = "none";
    o.max_model_len = 8192;
    o.reserve_full = reserve_full;
    const auto setup = SetUpSimulation(o, {});
    EXPECT_TRUE(setup.ok()) << scheduler << ": " << setup.status().ToString();
    return setup.ok() ? setup->config.scheduler.limits.blocks_total : 0;
  };
  const int64_t one_prompt = blocks("orca", false);
  EXPECT_EQ(blocks("orca-best", true), one_prompt) << "a step computes one prompt";
  // A token uses 131,072 bytes of KV and 2 x (3 x 14,336 + 3 x 4,096) = 110,592 of activations.
  const int64_t all = blocks("orca", true);
  EXPECT_NEAR(static_cast<double>(all) / static_cast<double>(one_prompt), 131072.0 / (131072 + 110592), 0.02)
      << "a step may compute as many tokens as the KV memory holds";
}

// A given context replaces the named model's: longer prompts are served, and a shorter context limits them.
TEST(SetUp, TheContextOfANamedModelCanBeOverridden) {
  SimOptions o = Options();
  o.model = "opt-13b";
  o.device = "a100";
  o.workload = "random:in=4000,out=100";
  o.requests = 5;
  EXPECT_EQ(RunOptions(o)["requests"]["rejected"], 5);
  o.override_context = 8192;
  EXPECT_EQ(SetUpSimulation(o, {})->config.scheduler.limits.max_model_len, 8192);
  const auto json = RunOptions(o);
  EXPECT_EQ(json["requests"]["completed"], 5) << json["first_rejection"];
  o.max_model_len = 6000;
  EXPECT_EQ(SetUpSimulation(o, {})->config.scheduler.limits.max_model_len, 6000);
  o.override_context = 1024;
  EXPECT_EQ(SetUpSimulation(o, {})->config.scheduler.limits.max_model_len, 1024);
}

TEST(SetUp, TheNetworksLatencyReachesTheCostModel) {
  SimOptions o = Options();
  o.tp = 8;
  o.devices_per_node = 4;
  const auto ns = [&o](DurationNs latency_ns) {
    const auto setup = SetUpSimulation(o, {.network_latency_ns = latency_ns});
    const ChunkShape chunk{0, 100};
    return setup->step_time->StepTimeNs({.chunks = {&chunk, 1}});
  };
  EXPECT_GT(ns(1'000'000), ns(0) + 200'000'000);
  EXPECT_EQ(ns(-1), ns(17'000));
}

TEST(SetUp, ThePathBetweenPeersReachesTheCostModel) {
  SimOptions o = Options();
  o.model = "qwen3-30b-a3b";
  o.device = "rtxpro6000";
  o.replicas = o.ep = 2;
  const auto ns = [&o](DurationNs latency_ns) {
    const auto setup = SetUpSimulation(o, {.peer_latency_ns = latency_ns});
    return setup->step_time->StepTimeNs({.decodes = 8, .decode_context_tokens = 8000, .logit_rows = 8});
  };
  EXPECT_EQ(ns(1'000'000) - ns(0), 48 * 2 * 1'000'000);
  const DurationNs usual = ns(3000);
  o.peer_gbytes_per_s = 1;
  EXPECT_GT(ns(3000), usual);
}

TEST(SetUp, OverlapReachesTheCostModel) {
  SimOptions o = Options();
  const auto ns = [&o] {
    const ChunkShape chunk{0, 512};
    return SetUpSimulation(o, {})->step_time->StepTimeNs(
        {.chunks = {&chunk, 1}, .decodes = 128, .decode_context_tokens = 128 * 2000});
  };
  const DurationNs off = ns();
  o.overlap = "nano";
  const DurationNs nano = ns();
  EXPECT_LT(nano, off);
  o.overlap_interference = 0;
  EXPECT_LT(ns(), nano);
  o.overlap_interference = 1;
  EXPECT_LE(ns(), off) << "steps stay whole if that is faster";
}

TEST(SetUp, EveryPresetSimulates) {
  for (const core::PresetInfo& preset : core::Presets()) {
    SimOptions o = Options();
    o.scheduler = preset.name;
    o.rate = 20;
    o.requests = 60;
    o.kv_blocks = 2000;  // tight
    o.max_model_len = 16000;
    o.swap_space.bytes = int64_t{1} << 30;
    const auto json = RunOptions(o);
    EXPECT_EQ(json["requests"]["completed"], 60) << preset.name;
  }
}

TEST(SetUp, AMeasuredProfileNeedsNoModel) {
  std::string text = "# device: test\nprefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (int tokens = 0; tokens <= 512; tokens += 64) {
    for (int decodes = 0; decodes <= 32; decodes += 8) {
      if (tokens + decodes > 0) {
        text += std::to_string(tokens) + ",0," + std::to_string(decodes) + "," + std::to_string(decodes * 500) + "," +
                std::to_string(2 + 0.05 * tokens + 0.1 * decodes) + "\n";
      }
    }
  }
  SimOptions o;
  o.cost = WriteFile("profile.csv", text);
  o.workload = "random:in=128,out=16";
  o.concurrency = 4;
  o.requests = 16;
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "max-model-len");
  o.max_model_len = 1024;
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "kv-blocks");
  o.kv_blocks = 1000;
  const auto json = RunOptions(o);
  EXPECT_EQ(json["requests"]["completed"], 16);
  o.overlap = "nano";
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "overlap") << "the profile's steps are measured values";
  o.overlap = "off";
  const auto refused = [&o](const std::function<void(SimOptions*)>& change, const std::string& flag) {
    SimOptions changed = o;
    change(&changed);
    const Status status = SetUpSimulation(changed, {}).status();
    EXPECT_EQ(status.param(), flag);
    EXPECT_NE(status.message().find("needs a cost model"), std::string::npos) << status.message();
  };
  refused([](auto* c) { c->attention_kernels = "two"; }, "attention-kernels");
  refused([](auto* c) { c->cost_scale = "products=2"; }, "cost-scale");
  refused([](auto* c) { c->replicas = c->ep = 2; }, "ep");
  refused([](auto* c) { c->peer_gbytes_per_s = 16; }, "peer-gbytes-per-s");
  refused([](auto* c) { c->peer_latency = "3us"; }, "peer-latency");
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_TRUE(json["extrapolation"].is_null());
  o.workload = "random:in=900,out=16";  // chunks after 512 tokens, which no row has
  EXPECT_NE(RunOptions(o)["extrapolation"].dump().find("context"), std::string::npos);
  o.model = "llama-3.1-8b", o.device = "h100";  // for the memory plan; step times still come from the profile
  EXPECT_NE(RunOptions(o)["extrapolation"].dump().find("context"), std::string::npos);
}

// The file's steps ran in two parts from its limit on, and a server with the file cuts its steps there too.
TEST(SetUp, ProfileOfStepsInTwoPartsNamesTheirLimit) {
  std::string text = "# overlap: nano\n# overlap interference: 0.3\n";
  const std::string rows = "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  std::string samples;
  for (int tokens = 0; tokens <= 512; tokens += 32) {
    samples += std::to_string(tokens) + ",0,4,400," + std::to_string(2 + tokens / 64) + "\n";
  }
  SimOptions o;
  o.workload = "random:in=128,out=16";
  o.concurrency = 4;
  o.requests = 16;
  o.max_model_len = 1024;
  o.kv_blocks = 1000;
  const auto notes = [&](const std::string& limit) {
    o.cost = WriteFile("profile.csv", text + limit + rows + samples);
    const auto setup = SetUpSimulation(o, {});
    EXPECT_TRUE(setup.ok()) << setup.status().ToString();
    std::string all;
    for (const std::string& note : setup->notes) all += note + "\n";
    return all;
  };
  EXPECT_NE(notes("# tokens of steps in two parts, least: 77\n").find("steps of 77 tokens or more ran in two parts"),
            std::string::npos);
  EXPECT_EQ(notes("").find("in two parts"), std::string::npos) << "no limit was measured";
  o.cost = WriteFile("profile.csv", text + "# tokens of steps in two parts, least: many\n" + rows + samples);
  EXPECT_EQ(SetUpSimulation(o, {}).status().code(), StatusCode::kDataLoss);
}

TEST(SetUp, SmallKvMemoryShortensTheContextWithANote) {
  SimOptions o = Options();
  o.kv_blocks = 100;
  const auto setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok());
  EXPECT_EQ(setup->config.scheduler.limits.max_model_len, 1600);
  bool said = false;
  for (const std::string& note : setup->notes) said = said || note.find("1600 tokens") != std::string::npos;
  EXPECT_TRUE(said);
}

TEST(SetUp, OptionsWithoutEffectAreNoted) {
  const auto noted = [](const std::function<void(SimOptions*)>& change, const char* words) {
    SimOptions o = Options();
    change(&o);
    const auto setup = SetUpSimulation(o, {});
    EXPECT_TRUE(setup.ok()) << setup.status().ToString();
    return setup.ok() && std::any_of(setup->notes.begin(), setup->notes.end(),
                                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
  };
  const auto swap = [](auto* o) { o->scheduler = "sarathi-serve", o->swap_space.bytes = int64_t{1} << 30; };
  EXPECT_TRUE(noted(swap, "--swap-space has no effect"));
  EXPECT_FALSE(noted([&](auto* o) { swap(o), o->preemption = "swap"; }, "--swap-space has no effect"));
  EXPECT_TRUE(noted([](auto* o) { o->overlap_interference = 0.3; }, "--overlap-interference has no effect"));
  EXPECT_FALSE(noted([](auto* o) { o->overlap = "nano", o->overlap_interference = 0.3; }, "has no effect"));
  EXPECT_TRUE(noted([](auto* o) { o->peer_gbytes_per_s = 16; }, "--peer-latency have no effect"));
  EXPECT_FALSE(noted([](auto* o) { o->peer_gbytes_per_s = 16, o->device = "rtxpro6000", o->tp = 2; }, "no effect"));
  EXPECT_TRUE(noted([](auto* o) { o->max_model_len = 131073; }, "131072"));
  EXPECT_FALSE(noted([](auto* o) { o->max_model_len = 131072; }, "--max-model-len"));
}

TEST(SetUp, ThePrefixCacheIsOnAsInTheServer) {
  const auto cached = [](const std::string& workload, bool on, const std::string& identities) {
    SimOptions o = Options();
    o.workload = workload;
    o.prefix_caching = on;
    o.identities = identities;
    const auto setup = SetUpSimulation(o, {});
    EXPECT_TRUE(setup.ok()) << setup.status().ToString();
    return setup.ok() && setup->config.prefix_caching;
  };
  const std::string shared =
      "lengths:" + WriteFile("shared.csv", "prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,,\n50,5,1,32\n");
  const std::string alone = "lengths:" + WriteFile("alone.csv", "prompt_tokens,output_tokens\n50,5\n");
  EXPECT_TRUE(cached("multi-turn", true, "stated") && cached("prefix", true, "stated") &&
              cached(shared, true, "stated"));
  EXPECT_FALSE(cached("chat", true, "stated") || cached(alone, true, "stated") ||
               cached("multi-turn", false, "stated"));
  EXPECT_TRUE(cached("chat", true, "all") && cached(alone, true, "all"));
  EXPECT_FALSE(cached("chat", false, "all"));
  EXPECT_TRUE(SimOptions().prefix_caching && SimOptions().identities == "all");
}

TEST(SetUp, FilesAreLookedUpInTheDataFolder) {
  // Not the folder in which the test may run.
  const std::filesystem::path data = std::filesystem::path(::testing::TempDir()) / "sim_setup_data";
  std::filesystem::create_directories(data);
  std::ofstream(data / "lengths_here.csv") << "prompt_tokens,output_tokens\n10,5\n20,6\n";
  SimOptions o = Options();
  o.workload = "lengths:lengths_here.csv";
  o.requests = -1;
  EXPECT_EQ(SetUpSimulation(o, {}).status().code(), StatusCode::kNotFound);
  o.data = data.string();
  const auto setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  EXPECT_EQ(setup->workload->count(), 2);  // the file's number of rows
  std::filesystem::create_directories(data / "traces");
  std::filesystem::rename(data / "lengths_here.csv", data / "traces/lengths_here.csv");
  EXPECT_TRUE(SetUpSimulation(o, {}).ok());
  std::filesystem::remove_all(data);
}

TEST(SetUp, EveryOptionReachesTheSimulation) {
  SimOptions o = Options();
  o.replicas = 3;
  o.balancer = "p2c";
  o.balancer_polls = 3;
  o.max_queue = 17;
  o.default_max_tokens = 99;
  o.ignore_eos = false;
  o.long_prompts = "clip";
  o.request_class = "gold";
  o.seed = 5;
  o.trace_out = "t.bin";
  o.exact_percentiles = true;
  o.requests_out = "r.csv";
  o.order = "fcfs";
  o.max_num_seqs = 33;
  o.block_size = 32;
  o.token_budget = 700;
  o.tbt_slo.ns = 40 * kMillisecond;
  o.watermark = 0.25;
  o.reserve_full = true;
  o.kv_blocks = 5000;
  o.max_model_len = 8000;
  o.swap_space.bytes = (int64_t{10} << 20) + 1;
  SimTexts texts;
  texts.slo.ttft_ns = kSecond;
  const auto setup = SetUpSimulation(o, texts);
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  const SimulationConfig& c = setup->config;
  EXPECT_EQ(c.replicas, 3);
  EXPECT_EQ(c.balancer, "p2c");
  EXPECT_EQ(c.balancer_polls, 3);
  EXPECT_EQ(c.max_queue, 17);
  EXPECT_EQ(c.default_max_tokens, 99);
  EXPECT_TRUE(!c.exact_max_tokens && c.clip_prompts && c.exact_percentiles);
  EXPECT_EQ(c.slo_class, "gold");
  EXPECT_EQ(c.slo.ttft_ns, kSecond);
  EXPECT_EQ(c.seed, 5u);
  EXPECT_EQ(c.trace_out, "t.bin");
  EXPECT_EQ(c.requests_out, "r.csv");
  EXPECT_EQ(c.model_name, "llama-3.1-8b");
  EXPECT_EQ(c.meter, setup->cost.get());
  EXPECT_EQ(c.step_time, setup->step_time.get());
  EXPECT_EQ(c.scheduler.order, "fcfs");
  const core::SchedulerLimits& l = c.scheduler.limits;
  EXPECT_EQ(l.max_num_seqs, 33);
  EXPECT_EQ(l.block_size, 32);
  EXPECT_EQ(l.token_budget, 700);
  EXPECT_EQ(l.tbt_slo_ns, 40 * kMillisecond);
  EXPECT_EQ(l.watermark, 0.25);
  EXPECT_TRUE(l.reserve_full);
  EXPECT_EQ(l.blocks_total, 5000);
  EXPECT_EQ(l.max_model_len, 8000);
  EXPECT_EQ(c.swap_blocks, 2);  // blocks of 32 x 131,072 bytes = 4 MiB
  EXPECT_FALSE(setup->oracle);
  const SimOptions plain = Options();
  const auto other = SetUpSimulation(plain, {});
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->config.exact_max_tokens && !other->config.clip_prompts && !other->config.exact_percentiles);
  EXPECT_EQ(other->config.swap_blocks, 0);
}

TEST(SetUp, TheDefaultNumberOfRequests) {
  SimOptions o = Options();
  o.requests = -1;
  EXPECT_EQ(SetUpSimulation(o, {})->workload->count(), 1000);
  o.workload = "lengths:" + WriteFile("three.csv", "prompt_tokens,output_tokens\n10,5\n20,6\n0,1\n30,7\n");
  const auto setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok());
  EXPECT_EQ(setup->workload->count(), 3);
  EXPECT_TRUE(std::any_of(setup->notes.begin(), setup->notes.end(), [](const std::string& note) {
    return note.find("1 rows without a prompt or an output dropped") != std::string::npos;
  }));
  o.requests = 7;
  EXPECT_EQ(SetUpSimulation(o, {})->workload->count(), 7);
  o.requests = -2;
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "requests");
  o.requests = 1;
  EXPECT_TRUE(SetUpSimulation(o, {}).ok());
  // Opening again gives the same requests.
  auto again = SetUpSimulation(Options(), {});
  ASSERT_TRUE(again.ok());
  const auto second = again->open_workload();
  ASSERT_TRUE(second.ok());
  WorkloadRequest a, b;
  while (again->workload->Next(&a)) {
    ASSERT_TRUE((*second)->Next(&b));
    ASSERT_EQ(a.prompt_tokens, b.prompt_tokens);
    ASSERT_EQ(a.arrival_ns, b.arrival_ns);
  }
}

TEST(SetUp, AMixOfObjectivesReachesTheRequests) {
  SimOptions o = Options();
  SimTexts texts;
  texts.slo_mix.classes = {{.name = "tight", .share = 1, .ttft = {.low = 2, .high = 2, .times_alone = true}},
                           {.name = "none", .share = 1}};
  auto setup = SetUpSimulation(o, texts);
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  WorkloadRequest r;
  int tight = 0;
  while (setup->workload->Next(&r)) {
    if (r.slo_class != "tight") continue;
    ++tight;
    const ChunkShape prompt{0, static_cast<int32_t>(r.prompt_tokens)};
    EXPECT_EQ(r.slo.ttft_ns, 2 * setup->step_time->StepTimeNs({.chunks = {&prompt, 1}, .logit_rows = 1}));
  }
  EXPECT_GT(tight, 10);
  EXPECT_LT(tight, 40);
  // Classes without shares must be parts of a mix: workload.
  SimTexts parts = texts;
  for (SloClass& c : parts.slo_mix.classes) c.share = 0;
  EXPECT_EQ(SetUpSimulation(o, parts).status().param(), "slo-mix");
  // Objectives must come from a single source.
  o.slo_mix = "as typed";
  EXPECT_TRUE(SetUpSimulation(o, texts).ok());
  o.slo = "ttft=1s";
  EXPECT_EQ(SetUpSimulation(o, texts).status().message(), "give --slo or --slo-mix, not both");
  o.slo = "";
  o.request_class = "a";
  EXPECT_EQ(SetUpSimulation(o, texts).status().param(), "slo-mix");
  o.request_class = "";
  o.workload = "lengths:" + WriteFile("stated.csv", "prompt_tokens,output_tokens,slo_tbt_ms\n9,5,\n9,5,70\n");
  EXPECT_NE(SetUpSimulation(o, texts).status().message().find("states objectives"), std::string::npos);
}

TEST(SetUp, AClassWithoutObjectivesNamesTheLoadsRequests) {
  SimOptions o = Options();
  o.slo_class = {"gold"};
  auto setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  EXPECT_EQ(setup->config.slo_class, "gold");
  EXPECT_TRUE(setup->config.scheduler.limits.classes.empty());
  o.slo_class = {"gold", "gold:ttft=1s"};
  setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  EXPECT_EQ(setup->config.scheduler.limits.classes.size(), 1u);
  o.slo_class = {"gold", "silver"};
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "slo-class");
  o.slo_class = {"gold:ttft=0s"};
  EXPECT_EQ(SetUpSimulation(o, {}).status().param(), "slo-class");
}

TEST(SetUp, StatedPredictionsNeedAWorkloadWithPredictions) {
  SimOptions o = Options();
  o.scheduler = "trail";
  o.predictor = "stated";
  const Status none = SetUpSimulation(o, {}).status();
  EXPECT_EQ(none.param(), "predictor");
  EXPECT_NE(none.message().find("predicted_output_tokens"), std::string::npos) << none.message();
  // One request at a time: after the first, the request with the shortest predicted answer is next, whatever its true
  // length.
  o.max_num_seqs = 1;
  o.requests = -1;
  o.ignore_eos = false;  // otherwise the stated length bounds the prediction
  o.requests_out = ::testing::TempDir() + "/predicted_requests.csv";
  o.workload = "lengths:" + WriteFile("predicted.csv",
                                      "prompt_tokens,output_tokens,predicted_output_tokens\n"
                                      "9,5,5\n9,5,90\n9,90,5\n9,5,40\n");
  o.rate = 1e6;
  o.arrivals = "constant";
  RunOptions(o);
  std::ifstream log(o.requests_out);
  std::string line, order;
  std::getline(log, line);
  while (std::getline(log, line)) order += line[0];
  EXPECT_EQ(order, "0231");
}

// Two requests of 20 tokens with answers of 3: both prompts in one step, then two steps of two decodes.
TEST(SetUp, StepsAreLogged) {
  SimOptions o = Options();
  o.workload = "random:in=20,out=3";
  o.rate = 0;
  o.concurrency = 2;
  o.requests = 2;
  o.scheduler = "sarathi-serve";
  o.token_budget = 300;
  o.steps_out = ::testing::TempDir() + "/steps.csv";
  RunOptions(o);
  std::ifstream in(o.steps_out);
  std::string header, line, held;
  std::getline(in, header);
  EXPECT_EQ(header,
            "replica,start_s,end_s,prompt_tokens,prompt_context_tokens,decodes,decode_context_tokens,budget_tokens");
  double last_s = 0;
  while (std::getline(in, line)) {
    int replica = -1, used = 0;
    double start_s = 0, end_s = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d,%lf,%lf,%n", &replica, &start_s, &end_s, &used), 3) << line;
    EXPECT_EQ(replica, 0);
    EXPECT_LE(last_s, start_s) << line;
    EXPECT_LT(start_s, end_s) << line;
    last_s = end_s;
    held += line.substr(static_cast<size_t>(used)) + " ";
  }
  EXPECT_EQ(held, "40,0,0,0,300 0,0,2,42,300 0,0,2,44,300 ");
}

TEST(SetUp, ErrorsNameOptionValueAndFix) {
  const auto status_of = [](const std::function<void(SimOptions*)>& change) {
    SimOptions o = Options();
    change(&o);
    const auto setup = SetUpSimulation(o, {});
    return setup.ok() ? Status() : setup.status();
  };
  EXPECT_EQ(status_of([](auto* o) { o->model = ""; }).param(), "model");
  EXPECT_EQ(status_of([](auto* o) { o->model = "llama-9"; }).param(), "model");
  EXPECT_EQ(status_of([](auto* o) { o->device = "b17"; }).param(), "device");
  EXPECT_NE(status_of([](auto* o) { o->device = "b17"; }).message().find("h100"), std::string::npos);
  const Status big = status_of([](auto* o) { o->model = "opt-175b"; });
  EXPECT_EQ(big.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(big.message().find("tp"), std::string::npos) << big.message();
  EXPECT_EQ(status_of([](auto* o) { o->model = "qwen3-30b-a3b", o->ep = 2; }).param(), "ep") << "one replica";
  EXPECT_EQ(status_of([](auto* o) { o->replicas = o->ep = 2; }).param(), "ep") << "no experts";
  EXPECT_TRUE(status_of([](auto* o) { o->model = "qwen3-30b-a3b", o->replicas = o->ep = 2; }).ok());
  EXPECT_EQ(status_of([](auto* o) { o->scheduler = "first"; }).param(), "scheduler");
  EXPECT_EQ(status_of([](auto* o) { o->overlap = "nano", o->overlap_interference = -0.5; }).param(),
            "overlap-interference");
  EXPECT_EQ(status_of([](auto* o) { o->workload = "chatty"; }).param(), "workload");
  EXPECT_EQ(status_of([](auto* o) { o->workload = "trace:" + ::testing::TempDir() + "/no_such_folder/t.csv"; }).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(status_of([](auto* o) { o->arrivals = "gamma:0"; }).param(), "arrivals");
  EXPECT_EQ(status_of([](auto* o) { o->arrivals = "jitter:1s"; }).param(), "arrivals");
  EXPECT_EQ(status_of([](auto* o) { o->concurrency = 5; }).param(), "rate");
  EXPECT_EQ(status_of([](auto* o) { o->rate = 0; }).param(), "rate");
  EXPECT_EQ(status_of([](auto* o) { o->requests = 0; }).param(), "requests");
  EXPECT_EQ(status_of([](auto* o) { o->scheduler = "oracle", o->trace_out = "t"; }).param(), "trace-out");
  EXPECT_EQ(status_of([](auto* o) { o->scheduler = "oracle", o->requests_out = "r"; }).param(), "requests-out");
  EXPECT_TRUE(status_of([](auto* o) { o->scheduler = "oracle"; }).ok());
  EXPECT_TRUE(status_of([](auto* o) { o->scheduler = "oracle", o->oracle_without = "tactus"; }).ok());
  EXPECT_EQ(status_of([](auto* o) { o->scheduler = "oracle", o->oracle_without = "none"; }).param(), "oracle-without");
  EXPECT_EQ(status_of([](auto* o) { o->oracle_without = "tactus"; }).param(), "oracle-without");
  // 131,072 bytes per token: a block of 16 has 2 MiB.
  const Status swap = status_of([](auto* o) { o->swap_space.bytes = (2 << 20) - 1; });
  EXPECT_EQ(swap.param(), "swap-space");
  EXPECT_NE(swap.message().find("2097152"), std::string::npos) << swap.message();
  EXPECT_TRUE(status_of([](auto* o) { o->swap_space.bytes = 2 << 20; }).ok());
  EXPECT_EQ(status_of([](auto* o) { o->cost = ::testing::TempDir() + "/no_such_folder/profile.csv"; }).code(),
            StatusCode::kNotFound);
}

// Autoscaling and headroom: errors name the value and the fix.
TEST(SetUp, AutoscalingIsSetUpOrRejected) {
  const auto set_up = [](const std::function<void(SimOptions*)>& change) {
    SimOptions o = Options();
    o.replicas = 2;
    o.balancer = "llumnix";
    change(&o);
    return SetUpSimulation(o, {});
  };
  const auto refused = [&](const std::function<void(SimOptions*)>& change, const std::string& flag,
                           const std::string& instead) {
    const auto setup = set_up(change);
    ASSERT_FALSE(setup.ok()) << flag;
    EXPECT_EQ(setup.status().param(), flag) << setup.status().message();
    EXPECT_NE(setup.status().message().find(instead), std::string::npos) << setup.status().message();
  };
  const auto grows = set_up([](auto* o) { o->most_replicas = 5, o->scale_up_below = 20; });
  ASSERT_TRUE(grows.ok()) << grows.status().ToString();
  EXPECT_EQ(grows->config.replicas, 5);
  EXPECT_EQ(grows->config.scaling->least, 2);
  EXPECT_EQ(grows->config.scaling->start_below, 20);
  EXPECT_TRUE(grows->config.migration) << "sequences of a drained replica move";
  EXPECT_FALSE(set_up([](auto*) {})->config.scaling);
  refused([](auto* o) { o->most_replicas = 2; }, "most-replicas", "must be larger");
  refused([](auto* o) { o->most_replicas = 4, o->offline = true, o->rate = 0; }, "most-replicas", "only --replicas");
  refused([](auto* o) { o->most_replicas = 5, o->model = "qwen3-30b-a3b", o->ep = 2; }, "most-replicas", "--ep 2");
  refused([](auto* o) { o->most_replicas = 4, o->scale_up_below = 60; }, "scale-up-below", "--scale-down-above 60");
  refused([](auto* o) { o->scale_up_below = 5; }, "scale-up-below", "--most-replicas");
  refused([](auto* o) { o->scale_down_above = 5; }, "scale-down-above", "--most-replicas");
  refused([](auto* o) { o->scale_after.ns = 1; }, "scale-after", "--most-replicas");
  refused([](auto* o) { o->replica_start_time.ns = 1; }, "replica-start-time", "--most-replicas");

  const std::string file =
      WriteFile("high_priority.csv", "prompt_tokens,output_tokens,priority\n100,20,-1\n100,20,0\n");
  const auto with_headroom = [&](SimOptions* o, int64_t tokens) {
    o->workload = "lengths:" + file;
    o->priority_headroom = tokens;
  };
  const auto headroom = set_up([&](auto* o) { with_headroom(o, 1600); });
  ASSERT_TRUE(headroom.ok()) << headroom.status().ToString();
  EXPECT_EQ(headroom->config.priority_headroom, 1600);
  refused([&](auto* o) { with_headroom(o, 1600), o->balancer = "sal"; }, "priority-headroom", "--balancer llumnix");
  refused([&](auto* o) { with_headroom(o, 1600), o->replicas = 1; }, "priority-headroom", "--replicas 2");
  refused([&](auto* o) { with_headroom(o, 1600), o->kv_blocks = 100; }, "priority-headroom", "1600 tokens");
  refused([&](auto* o) { o->priority_headroom = 1600; }, "priority-headroom", "column priority");
}

}  // namespace
}  // namespace tactus::sim
