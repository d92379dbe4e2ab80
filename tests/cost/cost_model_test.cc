#include "cost/cost_model.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tactus::cost {
namespace {

Deployment Of(const std::string& model, const std::string& device, int32_t tp = 1, int32_t pp = 1) {
  Deployment d;
  d.model = model;
  d.device = device;
  d.tp = tp;
  d.pp = pp;
  return d;
}

std::unique_ptr<CostModel> Make(const Deployment& d) {
  Result<std::unique_ptr<CostModel>> made = CostModel::Create(d);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

struct Step {
  std::vector<ChunkShape> chunks;
  int64_t decodes = 0, context = 0, rows = 0;
  StepShape shape() const {
    StepShape s;
    s.chunks = chunks;
    s.decodes = decodes;
    s.decode_context_tokens = context;
    s.logit_rows = rows;
    return s;
  }
};

double Ms(const CostModel& m, const Step& s) {
  return static_cast<double>(m.StepTimeNs(s.shape())) / 1e6;
}

Step RandomStep(Rng* rng) {
  Step s;
  const int64_t chunks = rng->UniformInt(0, 3);
  for (int64_t i = 0; i < chunks; ++i) {
    s.chunks.push_back({static_cast<int32_t>(rng->Uniform() < 0.3 ? 0 : rng->UniformInt(1, 20000)),
                        static_cast<int32_t>(rng->UniformInt(1, rng->Uniform() < 0.2 ? 20000 : 600))});
  }
  s.decodes = rng->Uniform() < 0.2 ? 0 : rng->UniformInt(1, 300);
  s.context = s.decodes * rng->UniformInt(1, rng->Uniform() < 0.2 ? 100000 : 4000);
  s.rows = s.decodes + rng->UniformInt(0, chunks);
  return s;
}

// More work is never faster: every shipped device, shapes in and beyond the tables.
void ExpectMonotone(const CostModel& m, const std::string& name, uint64_t seed, int rounds) {
  Rng rng(seed);
  for (int i = 0; i < rounds; ++i) {
    const Step s = RandomStep(&rng);
    const DurationNs before = m.StepTimeNs(s.shape());
    Step t = s;
    const char* what = "";
    const int kind = static_cast<int>(rng.UniformInt(0, 5));
    if (kind == 0 && !t.chunks.empty()) {
      what = "a longer chunk";
      t.chunks[0].tokens += static_cast<int32_t>(rng.UniformInt(1, 200));
    } else if (kind == 1 && !t.chunks.empty()) {
      what = "a chunk behind more context";
      t.chunks.back().context_tokens += static_cast<int32_t>(rng.UniformInt(1, 5000));
    } else if (kind == 2) {
      what = "one more chunk";
      t.chunks.push_back({static_cast<int32_t>(rng.UniformInt(0, 5000)), static_cast<int32_t>(rng.UniformInt(1, 600))});
    } else if (kind == 3 && t.decodes > 0) {
      what = "more context of the decodes";
      t.context += rng.UniformInt(1, 5000);
    } else if (kind == 4) {
      // Sums cannot distinguish a short newcomer from a better spread of the same KV, and real kernels read the latter
      // faster: only a newcomer of at least the mean context is guaranteed to cost more.
      what = "one more decode";
      t.context += (t.decodes > 0 ? (t.context + t.decodes - 1) / t.decodes : 0) + rng.UniformInt(1, 5000);
      ++t.decodes;
      ++t.rows;
    } else {
      what = "one more row of logits";
      ++t.rows;
    }
    EXPECT_LE(before, m.StepTimeNs(t.shape())) << name << ": " << what << ", round " << i;
  }
}

TEST(CostModel, MoreWorkIsNeverFasterOnAnyDevice) {
  for (const NamedEntry& device : KnownDevices()) {
    ExpectMonotone(*Make(Of("llama-3.1-8b", device.name)), device.name, 1, 1000);
    ExpectMonotone(*Make(Of("llama-2-70b", device.name, 4)), device.name + " tp 4", 2, 500);
  }
  ExpectMonotone(*Make(Of("mistral-7b", "a100")), "sliding window", 3, 2000);
  Deployment nano = Of("llama-3.1-8b", "a100");
  nano.overlap = "nano";
  ExpectMonotone(*Make(nano), "nano-batches", 4, 2000);
  nano.overlap_fit = {.linear = 0, .quadratic = 1};
  ExpectMonotone(*Make(nano), "nano-batches with the steepest fit", 5, 2000);
}

TEST(CostModel, InvalidOverlapIsRefusedByOption) {
  Deployment d = Of("llama-3.1-8b", "a100");
  EXPECT_DOUBLE_EQ(Make(d)->overlap().Together(1, 1), 2) << "off";
  d.overlap = "nano";
  EXPECT_NEAR(Make(d)->overlap().Together(1, 1), 2 / 1.59, 1e-12);
  for (const OverlapFit bad :
       {OverlapFit{.linear = -0.1}, OverlapFit{.linear = 0.6, .quadratic = 0.6}, OverlapFit{.linear = std::nan("")}}) {
    d.overlap_fit = bad;
    EXPECT_EQ(CostModel::Create(d).status().param(), "overlap-interference");
  }
  d.overlap = "perfect";
  EXPECT_EQ(CostModel::Create(d).status().param(), "overlap");
}

TEST(CostModel, EveryModelFitsH200AndTakesLongerThanItsBytes) {
  for (const NamedEntry& name : KnownModels()) {
    const auto m = Make(Of(name.name, "h200"));
    const Step decode{{}, 1, 512, 1};
    const double floor_ms = m->StepBytes(decode.shape()) / m->peak_bandwidth() * 1e3;
    EXPECT_GT(Ms(*m, decode), floor_ms) << name.name;
    EXPECT_LT(Ms(*m, decode), 2.0 * floor_ms + 3) << name.name;
    const Step prefill{{{0, 2048}}, 0, 0, 1};
    const double peak_ms = m->StepFlops(prefill.shape()) / m->peak_flops() * 1e3;
    EXPECT_GT(Ms(*m, prefill), peak_ms) << name.name;
    // Each expert has few of the rows, and all of them are read.
    const double read_ms = m->StepBytes(prefill.shape()) / m->peak_bandwidth() * 1e3;
    EXPECT_LT(Ms(*m, prefill), 3 * std::max(peak_ms, read_ms) + 10) << name.name;
  }
}

TEST(CostModel, OnlyMixturesShareExperts) {
  Deployment d = Of("qwen3-30b-a3b", "rtxpro6000");
  const int64_t alone = Make(d)->PlanKv(0.9, 16, 2048)->weight_bytes_per_device;
  const DurationNs one = Make(d)->StepTimeNs(Step{{}, 64, 64 * 500, 64}.shape());
  d.ep = 2;
  const auto shared = Make(d);
  EXPECT_NE(shared->Describe().find("experts over 2 replicas"), std::string::npos);
  // Half of 128 experts of 3 x 2048 x 768 in 48 layers, 2 bytes each.
  EXPECT_EQ(alone - shared->PlanKv(0.9, 16, 2048)->weight_bytes_per_device,
            int64_t{48} * 64 * (3 * 2048 * 768 + 2048) * 2);
  EXPECT_LT(shared->StepTimeNs(Step{{}, 64, 64 * 500, 64}.shape()), one);
  d.ep = 0;
  EXPECT_EQ(CostModel::Create(d).status().param(), "ep");
  d = Of("llama-3.1-8b", "h100");
  d.ep = 2;
  EXPECT_EQ(CostModel::Create(d).status().param(), "ep");
}

TEST(CostModel, StagesAndSendsAddUpToTheStep) {
  for (const int32_t pp : {1, 2, 3, 8}) {
    const auto m = Make(Of("llama-2-70b", "a100", 4, pp));
    ASSERT_EQ(m->stages(), pp);
    Rng rng(4);
    for (int i = 0; i < 200; ++i) {
      const Step s = RandomStep(&rng);
      DurationNs sum = (pp - 1) * m->SendTimeNs(s.shape());
      for (int32_t stage = 0; stage < pp; ++stage) sum += m->StageTimeNs(s.shape(), stage);
      EXPECT_EQ(sum, m->StepTimeNs(s.shape()));
    }
  }
}

TEST(CostModel, TwoChunksTakeLessThanTwiceOneChunk) {
  // Chunks that do not fill the device overlap: two of them take less than twice the time of one, and more than one.
  const auto m = Make(Of("llama-3.1-8b", "h100"));
  const Step one{{{4096, 128}}, 0, 0, 0}, two{{{4096, 128}, {4096, 128}}, 0, 0, 0};
  EXPECT_LT(Ms(*m, two), 2 * Ms(*m, one));
  EXPECT_GT(Ms(*m, two), Ms(*m, one));
}

TEST(CostModel, BadDeploymentsAreRefusedWithTheNumbers) {
  const auto refusal = [](const Deployment& d) {
    const auto made = CostModel::Create(d);
    EXPECT_FALSE(made.ok());
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_NE(refusal(Of("llama-2-70b", "h100", 3))
                .find("--tp 3 does not divide the 64 attention heads of llama-2-70b; 1, 2, 4, 8"),
            std::string::npos);
  EXPECT_NE(refusal(Of("llama-2-7b", "h100", 1, 33)).find("--pp 33 is more than the 32 layers"), std::string::npos);
  EXPECT_NE(refusal(Of("llama-2-7b", "tpu")).find("rtx4090"), std::string::npos);
  EXPECT_NE(refusal(Of("no-model", "h100")).find("codellama-34b"), std::string::npos);
  EXPECT_NE(refusal(Of("llama-2-7b", "h100", 0)).find("--tp 0"), std::string::npos);
  Deployment d = Of("llama-2-7b", "h100");
  d.weight_dtype = "fp3";
  EXPECT_NE(refusal(d).find("'fp3'"), std::string::npos);
  d = Of("llama-2-7b", "h100");
  d.kv_dtype = "int2";
  EXPECT_NE(refusal(d).find("'int2'"), std::string::npos);
  d = Of("llama-2-7b", "h100");
  d.backend = "mystery";
  EXPECT_NE(refusal(d).find("trtllm"), std::string::npos);
  d = Of("llama-2-7b", "h100");
  d.attention_kernels = "three";
  EXPECT_NE(refusal(d).find("auto, one, two"), std::string::npos);
  d = Of("llama-2-7b", "h100");
  d.source = "guess";
  EXPECT_NE(refusal(d).find("roofline"), std::string::npos);
}

// The host time of a backend is added to each step, unless the deployment states another.
TEST(CostModel, EachBackendAddsItsHostTime) {
  const Step one{{}, 1, 100, 1};
  const auto with = [&one](const std::string& backend, DurationNs overhead_ns) {
    Deployment d = Of("llama-2-7b", "a100");
    d.source = "roofline";
    d.backend = backend;
    d.cpu_overhead_ns = overhead_ns;
    return Make(d)->StepTimeNs(one.shape());
  };
  const DurationNs none = with("", 0);
  EXPECT_EQ(with("", -1), none + 50'000);
  EXPECT_EQ(with("vllm", -1), none + 500'000);
  EXPECT_EQ(with("sglang", -1), none + 100'000);
  EXPECT_EQ(with("trtllm", -1), none + 100'000);
  EXPECT_EQ(with("vllm", 7'000), none + 7'000);
  EXPECT_EQ(with("vllm", 0), none);
}

// Decodes beside a chunk are slower only in one kernel for all sequences of a step; for devices without measurements
// the deployment must state that kernel.
TEST(CostModel, OneAttentionKernelSlowsMixedStepsOnly) {
  const Step mixed{{{0, 512}}, 32, 32 * 2048, 33}, decodes{{}, 32, 32 * 2048, 32};
  const auto ns = [](const char* device, const std::string& kernels, const Step& step) {
    Deployment d = Of("llama-3.1-8b", device);
    d.attention_kernels = kernels;
    return Make(d)->StepTimeNs(step.shape());
  };
  EXPECT_EQ(ns("a100", "auto", mixed), ns("a100", "two", mixed));
  EXPECT_GT(ns("a100", "one", mixed), ns("a100", "two", mixed));
  EXPECT_EQ(ns("rtx4090", "auto", mixed), ns("rtx4090", "one", mixed));
  EXPECT_GT(ns("rtx4090", "one", mixed), ns("rtx4090", "two", mixed));
  EXPECT_EQ(ns("rtx4090", "one", decodes), ns("rtx4090", "two", decodes));
}

// Four devices per node instead of eight, or another network, change the all-reduce time of eight devices.
TEST(CostModel, DeploymentOverridesNodeSizeAndNetwork) {
  const Step step{{{0, 512}}, 0, 0, 1};
  const auto ns = [&step](int32_t per_node, double gbytes) {
    Deployment d = Of("llama-2-7b", "h100", 16);
    d.source = "roofline";
    d.devices_per_node = per_node;
    d.network_gbytes_per_s = gbytes;
    return Make(d)->StepTimeNs(step.shape());
  };
  EXPECT_EQ(ns(0, 0), ns(8, 50)) << "default of an H100: 8 per node, 50 GB/s between nodes";
  EXPECT_GT(ns(4, 0), ns(0, 0));
  EXPECT_LT(ns(16, 0), ns(0, 0));
  EXPECT_GT(ns(0, 25), ns(0, 0));
}

// Two boards that exchange tokens through the host's memory are slower than two that reach each other directly.
TEST(CostModel, DeploymentOverridesThePathBetweenPeers) {
  const Step step{{}, 128, 128 * 1000, 128};
  const auto ns = [&step](const char* model, int32_t ep, double gbytes, DurationNs latency_ns) {
    Deployment d = Of(model, "rtxpro6000");
    d.ep = ep;
    d.peer_gbytes_per_s = gbytes;
    d.peer_latency_ns = latency_ns;
    return Make(d)->StepTimeNs(step.shape());
  };
  const DurationNs direct = ns("qwen3-30b-a3b", 2, 0, -1), slow = ns("qwen3-30b-a3b", 2, 17.1, 11'200);
  EXPECT_GT(slow, direct);
  // 48 layers with two messages each.
  EXPECT_EQ(ns("qwen3-30b-a3b", 2, 17.1, 21'200) - slow, 48 * 2 * 10'000);
  EXPECT_EQ(ns("llama-3.1-8b", 1, 17.1, 11'200), ns("llama-3.1-8b", 1, 0, -1)) << "nothing to exchange";
  Deployment d = Of("qwen3-30b-a3b", "rtxpro6000");
  d.peer_gbytes_per_s = -1;
  EXPECT_EQ(CostModel::Create(d).status().param(), "peer-gbytes-per-s");
}

TEST(CostModel, ThePathBetweenPeersIsStatedWhereItIsUsed) {
  const auto text = [](const std::string& model, const std::string& device, int32_t tp, int32_t pp, int32_t ep) {
    Deployment d = Of(model, device, tp, pp);
    d.ep = ep;
    d.peer_gbytes_per_s = 15.9;
    d.peer_latency_ns = 11'200;
    const auto m = Make(d);
    EXPECT_EQ(m->uses_peers(), m->Describe().find(", PCIe of a node 15.9 GB/s, 11.2 us") != std::string::npos);
    return m->uses_peers();
  };
  EXPECT_TRUE(text("qwen3-30b-a3b", "rtxpro6000", 1, 1, 2));
  EXPECT_TRUE(text("llama-3.1-8b", "rtxpro6000", 2, 1, 1));
  EXPECT_TRUE(text("llama-3.1-8b", "rtxpro6000", 1, 2, 1));
  EXPECT_FALSE(text("llama-3.1-8b", "rtxpro6000", 1, 1, 1)) << "one device";
  EXPECT_FALSE(text("llama-3.1-8b", "h100", 8, 1, 1)) << "links join all";
  EXPECT_FALSE(text("qwen3-30b-a3b", "h100", 4, 1, 4)) << "and the network joins nodes of them";
}

// Two replicas of eight devices are two nodes.
TEST(CostModel, AnExchangeBetweenNodesTakesTheNetwork) {
  const Step step{{}, 128, 128 * 1000, 128};
  const auto make = [](int32_t tp, DurationNs latency_ns) {
    Deployment d = Of("mixtral-8x7b", "h100", tp);
    d.ep = 2;
    d.network_latency_ns = latency_ns;
    return Make(d);
  };
  const auto ns = [&](int32_t tp, DurationNs latency_ns) { return make(tp, latency_ns)->StepTimeNs(step.shape()); };
  EXPECT_EQ(ns(4, 100'000), ns(4, 0));
  EXPECT_EQ(ns(8, 100'000) - ns(8, 0), 32 * 2 * 100'000) << "32 layers with two messages each";
  EXPECT_NE(make(8, -1)->Describe().find(", nodes of 8 ("), std::string::npos);
  EXPECT_EQ(make(4, -1)->Describe().find(", nodes of 8 ("), std::string::npos);
}

TEST(CostModel, TheSourceOfTheExchangeIsStated) {
  Deployment d = Of("qwen3-30b-a3b", "rtxpro6000");
  d.ep = 2;
  EXPECT_NE(Make(d)->Describe().find("exchange of experts' tokens fitted (median error on regions left out"),
            std::string::npos)
      << Make(d)->Describe();
  d.peer_gbytes_per_s = 17;
  EXPECT_NE(Make(d)->Describe().find("exchange of experts' tokens roofline"), std::string::npos);
}

// The network's latency counts wherever devices of a split are in different nodes, under tp and pp.
TEST(CostModel, NetworkIsPricedBetweenNodesOnly) {
  const Step step{{{0, 512}}, 0, 0, 1};
  const auto ns = [&step](int32_t tp, int32_t pp, int32_t per_node, DurationNs latency_ns) {
    Deployment d = Of("llama-2-7b", "h100", tp, pp);
    d.devices_per_node = per_node;
    d.network_latency_ns = latency_ns;
    return Make(d)->StepTimeNs(step.shape());
  };
  // With four devices per node tp 8 spans two nodes: 64 all-reduces a step, a quarter of whose 14 hops use the network,
  // and one message that gathers the head's shares.
  EXPECT_EQ(ns(8, 1, 0, 0), ns(8, 1, 0, 1'000'000)) << "one node";
  EXPECT_GT(ns(8, 1, 4, -1), 2 * ns(8, 1, 0, -1));
  EXPECT_NEAR(static_cast<double>(ns(8, 1, 4, 1'000'000) - ns(8, 1, 4, 0)), (64 * 14 / 4.0 + 1) * 1e6, 1e3);
  EXPECT_EQ(ns(8, 1, 4, -1), ns(8, 1, 4, 17'000)) << "the default latency of an H100";
  EXPECT_EQ(ns(4, 1, 4, 0), ns(4, 1, 4, 1'000'000)) << "four devices fit one node";
  // A stage that sends its result to another node pays the latency once.
  EXPECT_EQ(ns(4, 2, 0, 0), ns(4, 2, 0, 1'000'000)) << "both stages in a node";
  EXPECT_EQ(ns(4, 2, 4, 1'000'000) - ns(4, 2, 4, 0), 1'000'000);
  // Links between pairs stay pairs in a node of four; a switch ends with its node.
  Deployment pairs = Of("llama-2-7b", "a100-pcie", 4);
  const DurationNs of_eight = Make(pairs)->StepTimeNs(step.shape());
  pairs.devices_per_node = 4;
  EXPECT_EQ(Make(pairs)->StepTimeNs(step.shape()), of_eight);
}

// A named model with a longer context than its default.
TEST(CostModel, DeploymentOverridesTheModelsContext) {
  Deployment d = Of("opt-13b", "a100");
  EXPECT_EQ(Make(d)->max_model_len(), 2048);
  d.context = 16384;
  EXPECT_EQ(Make(d)->max_model_len(), 16384);
  d.context = -1;
  EXPECT_FALSE(CostModel::Create(d).ok());
}

TEST(CostModel, SplitLimitsAreChecked) {
  EXPECT_TRUE(CostModel::Create(Of("llama-2-7b", "h100", 1, 32)).ok()) << "a stage per layer";
  // 232 query heads and 8 KV heads: 29 divides 232, but neither divides nor is a multiple of 8.
  const auto odd = CostModel::Create(Of("falcon-180b", "h100", 29));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.status().message().find("--tp 29 neither divides nor is a multiple of the 8 KV heads"),
            std::string::npos)
      << odd.status().message();
  const auto none = CostModel::Create(Of("llama-2-7b", "h100", 1, 0));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().param(), "pp");
}

TEST(CostModel, KvPlanHoldsWhatTheMemoryLeaves) {
  const auto m = Make(Of("llama-2-7b", "a100"));
  const auto plan = m->PlanKv(0.9, 16, 2048);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kv_bytes_per_token, 524288);  // 2 x 32 layers x 4096 x 2 bytes
  EXPECT_NEAR(static_cast<double>(plan->weight_bytes_per_device), 13.48e9, 0.02e9);
  const double usable = 0.9 * 81050.0 * 1048576.0;
  EXPECT_LE(static_cast<double>(plan->weight_bytes_per_device + plan->activation_bytes_per_device +
                                plan->kv_bytes_per_device),
            usable);
  EXPECT_GT(static_cast<double>(plan->num_blocks) * 16 * 524288, 0.97 * (usable - 13.48e9 - 0.8e9));
  // Tensor parallelism halves the weights and a token's KV per device; a model too large names a split that fits.
  const auto two = Make(Of("llama-2-7b", "a100", 2))->PlanKv(0.9, 16, 2048);
  EXPECT_GT(two->num_blocks, 2 * plan->num_blocks);
  const auto big = Make(Of("falcon-180b", "a100"))->PlanKv(0.9, 16, 2048);
  ASSERT_FALSE(big.ok());
  EXPECT_NE(big.status().message().find("falcon-180b does not fit a100: weights 334"), std::string::npos)
      << big.status().message();
  EXPECT_NE(big.status().message().find("--tp 8 --pp 1 fits"), std::string::npos) << big.status().message();
  EXPECT_TRUE(Make(Of("falcon-180b", "a100", 8))->PlanKv(0.9, 16, 2048).ok());
  EXPECT_FALSE(m->PlanKv(1.5, 16, 2048).ok());
  EXPECT_FALSE(m->PlanKv(0.9, 0, 2048).ok());
}

}  // namespace
}  // namespace tactus::cost
