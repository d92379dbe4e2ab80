// What one device holds, computed by hand: weights under every split, a step's activations, the remaining KV.
#include <cmath>

#include <gtest/gtest.h>

#include "cost/hybrid_model.h"
#include "cost/known_operators.h"

namespace tactus::cost {
namespace {

// Three layers of 64 x (2 x 64 + 2 x 16) + 3 x 64 x 96 = 28,672 weights, and two tables of 64,000.
UniformShape Small() {
  UniformShape m;
  m.name = "small";
  m.layers = 3;
  m.hidden = 64;
  m.q_heads = 8;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn = 96;
  m.vocab = 1000;
  m.context = 4096;
  return m;
}
const WeightFormat kBf16{"bfloat16", 2, 2, 1e14};

TEST(WeightBytes, WholeModelCountsLayersAndTables) {
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), kBf16, 1, 1), 2 * (3 * 28672 + 2 * 64000));
  EXPECT_EQ(UniformModel(Small()).Parameters(), 3 * 28672 + 2 * 64000);
}

TEST(WeightBytes, TiedHeadSharesTheEmbedding) {
  UniformShape tied = Small();
  tied.tied = true;
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(tied), kBf16, 1, 1), 2 * (3 * 28672 + 64000));
}

TEST(WeightBytes, UngatedFeedForwardHasOneProjectionLess) {
  UniformShape plain = Small();
  plain.gated = false;
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(plain), kBf16, 1, 1), 2 * (3 * (28672 - 64 * 96) + 2 * 64000));
}

TEST(WeightBytes, TensorParallelSharesDivideEverything) {
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), kBf16, 2, 1), 2 * (3 * 28672 + 2 * 64000) / 2);
}

// Four devices and two KV heads: each holds two of the eight query heads and one KV head, which two devices share.
TEST(WeightBytes, KvHeadsAreReplicatedBeyondTheirNumber) {
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), kBf16, 4, 1),
            2 * (3 * (64 * (2 * 16 + 2 * 8) + 3 * 64 * 24) + 2 * 16000));
}

// Three layers on two stages: two on the first. The first stage holds the embedding, the last the head: one table each.
TEST(WeightBytes, TheLargestStageCounts) {
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), kBf16, 1, 2), 2 * (2 * 28672 + 64000));
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), kBf16, 1, 3), 2 * (28672 + 64000));
  UniformShape tied = Small();
  tied.tied = true;  // the last stage needs a copy of the embedding
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(tied), kBf16, 1, 2), 2 * (2 * 28672 + 64000));
}

// A quantised format narrows the layers; the tables keep 16 bits.
TEST(WeightBytes, TablesKeepSixteenBits) {
  EXPECT_EQ(WeightBytesPerDevice(UniformModel(Small()), {"int8", 1, 1, 1e14}, 1, 1), 3 * 28672 + 2 * 2 * 64000);
}

// Projections of tokens are the first stage's; tables are divided among its devices.
TEST(WeightBytes, MatricesOfNoLayerCountToo) {
  ModelSpec m = UniformModel(Small());
  m.tables = 4000, m.token_projections = 200, m.logit_projections = 30;
  EXPECT_EQ(m.Parameters(), UniformModel(Small()).Parameters() + 4230);
  EXPECT_EQ(m.ActiveParameters(), UniformModel(Small()).ActiveParameters() + 230);
  const auto more = [&](int32_t tp, int32_t pp) {
    return WeightBytesPerDevice(m, kBf16, tp, pp) - WeightBytesPerDevice(UniformModel(Small()), kBf16, tp, pp);
  };
  EXPECT_EQ(more(1, 1), 2 * 4230);
  EXPECT_EQ(more(2, 1), 2 * (2000 + 230));
  EXPECT_EQ(more(1, 3), 2 * 4200);
}

// A first layer as in Small, then two with four experts of 32 beside one of 16.
ModelSpec Mixed() {
  ModelSpec m = UniformModel(Small());
  compute::ExpertsBlock experts{.experts = 4, .shared_inner = 16};
  experts.router.chosen = 2;
  experts.expert.inner = 32;
  for (const size_t l : {1, 2}) m.layers[l][1].block = experts;
  return m;
}

TEST(WeightBytes, EveryLayerCountsAsItIs) {
  const int64_t attention = 64 * (2 * 64 + 2 * 16), mixture = attention + 4 * 64 + 3 * 64 * (4 * 32 + 16);
  EXPECT_EQ(WeightBytesPerDevice(Mixed(), kBf16, 1, 1), 2 * (28672 + 2 * mixture + 2 * 64000));
  // The second of three stages has the largest layer. Two replicas have half of the experts each, and of the router.
  EXPECT_EQ(WeightBytesPerDevice(Mixed(), kBf16, 1, 3), 2 * (mixture + 64000));
  const int64_t half = attention + 2 * 64 + 3 * 64 * (2 * 32 + 16);
  EXPECT_EQ(WeightBytesPerDevice(Mixed(), kBf16, 1, 1, 2), 2 * (28672 + 2 * half + 2 * 64000));
}

class KvPlanTest : public testing::Test {
 protected:
  static HybridModel Model(const UniformShape& shape, int32_t tp = 1, int32_t pp = 1,
                           const std::string& kv = "bfloat16") {
    Deployment d;
    d.tp = tp;
    d.pp = pp;
    d.kv_dtype = kv;
    const DeviceSpec device = Device();
    return HybridModel(d, UniformModel(shape), device, kBf16, HostTimes(), MakeRoofline(device), {});
  }
  static DeviceSpec Device() {
    DeviceSpec device = *FindDevice("h100");
    device.memory_bytes = kMemory;
    return device;
  }
  static constexpr int64_t kMemory = int64_t{1} << 30;
  static constexpr int64_t kRuntime = int64_t{256} << 20;
};

// Each token of a step holds gate, up and their product (96 each) and three copies of the residual stream (64 each) at
// 2 bytes; 256 rows of logits take 12 bytes per vocabulary entry.
TEST_F(KvPlanTest, ActivationsScaleWithTheStep) {
  const auto plan = Model(Small()).PlanKv(0.5, 16, 2048);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->activation_bytes_per_device, 2048 * 2 * (3 * 96 + 3 * 64) + 256 * 1000 * 12 + kRuntime);
  UniformShape plain = Small();
  plain.gated = false;
  EXPECT_EQ(Model(plain).PlanKv(0.5, 16, 2048)->activation_bytes_per_device,
            2048 * 2 * (2 * 96 + 3 * 64) + 256 * 1000 * 12 + kRuntime);
  EXPECT_EQ(Model(Small(), 2).PlanKv(0.5, 16, 2048)->activation_bytes_per_device,
            2048 * 2 * (3 * 48 + 3 * 64) + 256 * 1000 * 12 + kRuntime);
  // A step of 100 tokens has at most 100 rows.
  EXPECT_EQ(Model(Small()).PlanKv(0.5, 16, 100)->activation_bytes_per_device,
            100 * 2 * (3 * 96 + 3 * 64) + 100 * 1000 * 12 + kRuntime);
}

// Steps without a limit are planned for 16,384 tokens, or for one context if that is longer.
TEST_F(KvPlanTest, UnlimitedStepsArePlannedForOneContext) {
  const int64_t token = 2 * (3 * 96 + 3 * 64), rest = 256 * 1000 * 12 + kRuntime;
  const int64_t unlimited = int64_t{1} << 40;
  EXPECT_EQ(Model(Small()).PlanKv(0.9, 16, unlimited)->activation_bytes_per_device, 16384 * token + rest);
  EXPECT_EQ(Model(Small()).PlanKv(0.9, 16, 16385)->activation_bytes_per_device, 16384 * token + rest);
  UniformShape deep = Small();
  deep.context = 20000;
  EXPECT_EQ(Model(deep).PlanKv(0.9, 16, unlimited)->activation_bytes_per_device, 20000 * token + rest);
  EXPECT_EQ(Model(deep).PlanKv(0.9, 16, 18000)->activation_bytes_per_device, 18000 * token + rest);
}

// Where a step may hold the whole prompts of all sequences, each token in KV also counts in the largest step.
TEST_F(KvPlanTest, WholePromptStepsCountEveryKvToken) {
  const int64_t token = 2 * (3 * 96 + 3 * 64), rest = 256 * 1000 * 12 + kRuntime;
  const int64_t weights = Model(Small()).PlanKv(0.9, 16, 1)->weight_bytes_per_device;
  const auto usable = static_cast<int64_t>(0.9 * static_cast<double>(kMemory));
  const auto plan = Model(Small()).PlanKv(0.9, 16, int64_t{1} << 40, LargestStep::kOfAllThatKvHolds);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->num_blocks, (usable - weights - rest) / (16 * (192 + token)));
  EXPECT_EQ(plan->activation_bytes_per_device, plan->num_blocks * 16 * token + rest);
  // At most 2,048 tokens: like steps of 2,048.
  const auto few = Model(Small()).PlanKv(0.9, 16, 2048, LargestStep::kOfAllThatKvHolds);
  ASSERT_TRUE(few.ok()) << few.status().message();
  EXPECT_EQ(few->num_blocks, Model(Small()).PlanKv(0.9, 16, 2048)->num_blocks);
}

// A token's K and V: 2 x 3 layers x 2 heads x 8 x 2 bytes = 192. The remaining memory is cut into blocks of 16 tokens.
TEST_F(KvPlanTest, BlocksFillTheRemainingMemory) {
  const auto plan = Model(Small()).PlanKv(0.5, 16, 2048);
  EXPECT_EQ(plan->kv_bytes_per_token, 192);
  const int64_t left = kMemory / 2 - plan->weight_bytes_per_device - plan->activation_bytes_per_device;
  EXPECT_EQ(plan->num_blocks, left / (16 * 192));
  EXPECT_EQ(plan->kv_bytes_per_device, plan->num_blocks * 16 * 192);
  EXPECT_EQ(Model(Small(), 1, 1, "fp8").PlanKv(0.5, 16, 2048)->kv_bytes_per_token, 96);
}

// A token of a mixture holds gate, up and their product of its two experts and the shared one; K and V as stated by
// each layer's attention.
TEST_F(KvPlanTest, WidestLayerAndEveryLayersKvCount) {
  ModelSpec mixed = Mixed();
  std::get<compute::AttentionBlock>(mixed.layers[2][0].block).kv_heads = 4;
  std::get<compute::ExpertsBlock>(mixed.layers[2][1].block).shared_inner = 160;
  const DeviceSpec device = Device();
  const HybridModel model({}, mixed, device, kBf16, HostTimes(), MakeRoofline(device), {});
  const auto plan = model.PlanKv(0.5, 16, 2048);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kv_bytes_per_token, 2 * 2 * 8 * (2 + 2 + 4));
  EXPECT_EQ(plan->kv_bytes_per_device, plan->num_blocks * 16 * 2 * 2 * 8 * (2 + 2 + 4));
  EXPECT_EQ(plan->activation_bytes_per_device, 2048 * 2 * (3 * (2 * 32 + 160) + 3 * 64) + 256 * 1000 * 12 + kRuntime);
}

// Layers that read another layer's K and V store none.
TEST_F(KvPlanTest, EveryModelsLayersStoreItsKv) {
  DeviceSpec device = Device();
  device.memory_bytes = int64_t{1} << 50;
  for (const ModelSpec& m : Models()) {
    const HybridModel model({}, m, device, kBf16, HostTimes(), std::make_unique<known::KnownOperators>(), {});
    const auto plan = model.PlanKv(0.5, 16, 2048);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->kv_bytes_per_device, plan->num_blocks * 16 * plan->kv_bytes_per_token) << m.name;
  }
}

// Every stream of the residual is in memory, and the inputs of all layers.
TEST_F(KvPlanTest, StreamsAndLayerInputsAreActivations) {
  ModelSpec spec = UniformModel(Small());
  for (compute::Layer& layer : spec.layers) {
    layer.push_back({.block = compute::LayerInputBlock{.inner = 8}});
    layer.push_back({.block = compute::StreamsBlock{.streams = 4}});
  }
  const DeviceSpec device = Device();
  const HybridModel model({}, spec, device, kBf16, HostTimes(), MakeRoofline(device), {});
  EXPECT_EQ(model.PlanKv(0.5, 16, 2048)->activation_bytes_per_device,
            2048 * 2 * (3 * 96 + 3 * 4 * 64 + 3 * 8) + 256 * 1000 * 12 + kRuntime);
}

// The stage with the most layers decides: two of three. Four devices per layer hold one KV head each.
TEST_F(KvPlanTest, DeviceWithMostLayersDecidesTheBlocks) {
  const auto two_stages = Model(Small(), 1, 2).PlanKv(0.5, 16, 2048);
  EXPECT_EQ(two_stages->kv_bytes_per_token, 192);
  EXPECT_EQ(two_stages->kv_bytes_per_device, two_stages->num_blocks * 16 * (2 * 2 * 2 * 8 * 2));
  const auto four = Model(Small(), 4).PlanKv(0.5, 16, 2048);
  EXPECT_EQ(four->kv_bytes_per_device, four->num_blocks * 16 * (2 * 3 * 1 * 8 * 2));
}

// Up to the whole memory may be planned with; a larger share, zero and NaN are refused.
TEST_F(KvPlanTest, MemoryShareIsChecked) {
  const HybridModel model = Model(Small());
  EXPECT_TRUE(model.PlanKv(1.0, 16, 2048).ok());
  for (const double share : {0.0, -0.5, 1.001, std::nan("")}) EXPECT_FALSE(model.PlanKv(share, 16, 2048).ok()) << share;
  EXPECT_FALSE(model.PlanKv(0.5, 16, 0).ok());
}

// The refusal names the fewest devices that fit the model with a tenth of the memory left for KV; at most eight devices
// share a layer.
TEST_F(KvPlanTest, RefusalNamesTheFewestDevicesThatFit) {
  UniformShape wide = Small();  // three layers of 128 MiB
  wide.hidden = 2048;
  wide.q_heads = wide.kv_heads = 16;
  wide.head_dim = 128;
  wide.ffn = 8192;
  const auto needed = [&wide](int32_t tp, int32_t pp) {
    const auto plan = Model(wide, tp, pp).PlanKv(1, 16, 2048);
    return plan->weight_bytes_per_device + plan->activation_bytes_per_device;
  };
  const auto refusal = [&wide](int64_t memory) {
    const auto plan = Model(wide).PlanKv(static_cast<double>(memory) / static_cast<double>(kMemory), 16, 2048);
    return plan.ok() ? std::string("fits") : plan.status().message();
  };
  const auto between = [](int64_t a, int64_t b) { return (a + b) / 2 * 10 / 9; };
  EXPECT_NE(refusal(between(needed(4, 1), needed(2, 1))).find("--tp 4 --pp 1 fits"), std::string::npos)
      << refusal(between(needed(4, 1), needed(2, 1)));
  EXPECT_NE(refusal(needed(2, 1) * 100 / 95).find("--tp 4 --pp 1 fits"), std::string::npos)
      << "two devices leave a twentieth for KV";
  EXPECT_NE(refusal(between(needed(8, 2), needed(8, 1))).find("--tp 8 --pp 2 fits"), std::string::npos)
      << refusal(between(needed(8, 2), needed(8, 1)));
  EXPECT_NE(refusal(needed(8, 3)).find("no tp x pp up to 64 devices holds it"), std::string::npos)
      << refusal(needed(8, 3));
}

// One block is enough; with less memory the refusal states the numbers.
TEST_F(KvPlanTest, OneBlockIsEnough) {
  const HybridModel model = Model(Small());
  const auto plan = model.PlanKv(0.5, 16, 2048);
  const int64_t needed = plan->weight_bytes_per_device + plan->activation_bytes_per_device + 16 * 192;
  const auto share = [](int64_t bytes) { return (static_cast<double>(bytes) + 0.5) / static_cast<double>(kMemory); };
  EXPECT_EQ(model.PlanKv(share(needed), 16, 2048)->num_blocks, 1);
  const auto refused = model.PlanKv(share(needed - 1), 16, 2048);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("small does not fit h100"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace tactus::cost
