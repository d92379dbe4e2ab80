// The limits of a model and a memory plan: the last accepted value and the first refused one.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "compute/kernels/kernel_set.h"
#include "compute/model/catalog.h"
#include "compute/model/decoder.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::compute {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
constexpr StatusCode kBad = StatusCode::kInvalidArgument;

test::HandMadeModel SmallModel() {
  test::HandMadeModel m;
  m.config.hidden_size = 64;
  m.config.vocab_size = 1000;
  m.config.max_position = 512;
  m.shape.num_layers = 2;
  m.shape.num_heads = 4;
  m.shape.num_kv_heads = 2;
  m.shape.head_dim = 16;
  m.shape.intermediate_size = 128;
  m.shape.window.assign(2, 0);
  return m;
}
ModelConfig Small() {
  return SmallModel().Make();
}

TEST(ModelLimits, BothEndsOfEveryRangeAreAccepted) {
  struct Range {
    std::function<void(test::HandMadeModel*, int64_t)> set;
    int64_t low, high;
    int64_t step = 1;
  };
  using M = test::HandMadeModel;
  for (const Range& r : {Range{[](M* m, int64_t v) { m->config.hidden_size = v; }, 1, 1 << 20},
                         Range{[](M* m, int64_t v) {
                                 m->shape.num_layers = v;
                                 m->shape.window.assign(static_cast<size_t>(v), 0);
                               },
                               1, kMaxLayers},
                         Range{[](M* m, int64_t v) {
                                 m->shape.num_heads = v;
                                 m->shape.num_kv_heads = 1;
                               },
                               1, 1 << 14},
                         Range{[](M* m, int64_t v) { m->shape.num_kv_heads = m->shape.num_heads = v; }, 1, 1 << 14},
                         Range{[](M* m, int64_t v) { m->shape.head_dim = v; }, 2, kMaxConfigHeadDim, 2},
                         Range{[](M* m, int64_t v) { m->shape.intermediate_size = v; }, 1, 1 << 22},
                         Range{[](M* m, int64_t v) { m->config.vocab_size = v; }, 1, 1 << 24},
                         Range{[](M* m, int64_t v) { m->config.max_position = v; }, 1, 1 << 30}}) {
    const auto validate = [&](int64_t value) {
      test::HandMadeModel m = SmallModel();
      r.set(&m, value);
      return m.Validate();
    };
    const std::string range = std::to_string(r.low) + " to " + std::to_string(r.high);
    EXPECT_TRUE(validate(r.low).ok()) << validate(r.low).message();
    EXPECT_TRUE(validate(r.high).ok()) << validate(r.high).message();
    EXPECT_REFUSED(validate(r.low - r.step), kBad, range);
    EXPECT_REFUSED(validate(r.high + r.step), kBad, range);
  }
}

TEST(ModelLimits, DependentFieldsMustFitEachOther) {
  const auto with = [](const std::function<void(StatedShape*, RopeConfig*)>& change) {
    test::HandMadeModel m = SmallModel();
    change(&m.shape, &m.config.rope);
    return m.Validate();
  };
  using S = StatedShape;
  EXPECT_REFUSED(with([](S* s, RopeConfig*) { s->num_heads = 5; }), kBad, "5 is not a multiple of num_kv_heads 2");
  EXPECT_REFUSED(with([](S* s, RopeConfig*) { s->head_dim = 17; }), kBad, "even");
  EXPECT_REFUSED(with([](S* s, RopeConfig*) { s->window[1] = -1; }), kBad, "-1");
  EXPECT_TRUE(with([](S* s, RopeConfig*) { s->window[1] = 1; }).ok());
  EXPECT_REFUSED(with([](S* s, RopeConfig*) { s->window.push_back(0); }), kBad, "3 entries for 2");
  for (const float eps : {0.0f, 1.0f, -1e-5f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_REFUSED(with([&](S* s, RopeConfig*) { s->norm_eps = eps; }), kBad, "rms_eps");
  }
  EXPECT_TRUE(with([](S* s, RopeConfig*) { s->norm_eps = 0.5f; }).ok());
  for (const float theta :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_REFUSED(with([&](S*, RopeConfig* r) { r->theta = theta; }), kBad, "theta");
  }
  EXPECT_TRUE(with([](S*, RopeConfig* r) { r->frequency_factors.assign(8, 1.0f); }).ok());
  EXPECT_REFUSED(with([](S*, RopeConfig* r) { r->frequency_factors.assign(9, 1.0f); }), kBad,
                 "9 RoPE frequency factors for head_dim 16");
}

TEST(ModelLimits, ChunksHaveLimits) {
  const auto with = [](int32_t chunk, int32_t window) {
    ModelConfig c = Small();
    auto& attention = test::BlockIn<AttentionBlock>(c.layers[1]);
    attention.chunk = chunk;
    attention.window = window;
    return ValidateConfig(c);
  };
  EXPECT_TRUE(with(1, 0).ok());
  EXPECT_REFUSED(with(-1, 0), kBad, "a chunk of attention is -1");
  EXPECT_REFUSED(with(8, 4), kBad, "8 beside a window of 4");
}

TEST(ModelLimits, RopeScalingHasLimits) {
  const auto with = [](RopeScaling scaling, float factor, int64_t original, float low = 1, float high = 4) {
    ModelConfig c = Small();
    c.rope.scaling = scaling;
    c.rope.factor = factor;
    c.rope.original_max_position = original;
    c.rope.low_freq_factor = low;
    c.rope.high_freq_factor = high;
    return ValidateConfig(c);
  };
  EXPECT_TRUE(with(RopeScaling::kNone, 0.0f, 0).ok()) << "without scaling the factor has no effect";
  EXPECT_TRUE(with(RopeScaling::kLinear, 1.0f, 0).ok());
  EXPECT_TRUE(with(RopeScaling::kLinear, 1e4f, 0).ok());
  EXPECT_REFUSED(with(RopeScaling::kLinear, 0.99f, 0), kBad, "factor");
  EXPECT_REFUSED(with(RopeScaling::kLinear, 10001.0f, 0), kBad, "factor");
  for (const RopeScaling scaling : {RopeScaling::kDynamic, RopeScaling::kLlama3}) {
    EXPECT_REFUSED(with(scaling, 2, 0), kBad, "original_max_position is 0");
    EXPECT_TRUE(with(scaling, 2, 1).ok());
  }
  EXPECT_REFUSED(with(RopeScaling::kLlama3, 2, 8, 0, 4), kBad, "low_freq_factor");
  EXPECT_REFUSED(with(RopeScaling::kLlama3, 2, 8, 5, 4), kBad, "low_freq_factor");
  EXPECT_TRUE(with(RopeScaling::kLlama3, 2, 8, 1, 1).ok()) << "Llama 4 Scout";
  EXPECT_TRUE(with(RopeScaling::kDynamic, 2, 8, 4, 4).ok()) << "only for llama3";
}

TEST(ModelLimits, KAndVAreReadFromAnEarlierLayerOfTheSameShape) {
  const auto with = [](int32_t source, int64_t head_dim) {
    ModelConfig c = Small();
    c.rope.rotary_dim = 8;
    auto& second = std::get<AttentionBlock>(c.layers[1][0].block);
    second.kv_layer = source;
    second.head_dim = head_dim;
    return ValidateConfig(c);
  };
  EXPECT_TRUE(with(0, 16).ok());
  EXPECT_REFUSED(with(1, 16), kBad, "layer 1 reads K and V of layer 1");
  EXPECT_REFUSED(with(0, 32), kBad, "which stores none of 2 heads of 32");
}

TEST(ModelLimits, LayersWithTheSamePositionsHaveHeadsOfOneSize) {
  ModelConfig c = Small();
  std::get<AttentionBlock>(c.layers[1][0].block).head_dim = 32;
  EXPECT_REFUSED(ValidateConfig(c), kBad, "head_dim is 16 in one layer and 32 in another");
  std::get<AttentionBlock>(c.layers[1][0].block).rope = RopeChoice::kLocal;
  c.local_rope.emplace();
  EXPECT_TRUE(ValidateConfig(c).ok());
}

TEST(ModelLimits, QueriesGrowOverALength) {
  const auto with = [](float beta, int64_t length) {
    ModelConfig c = Small();
    std::get<AttentionBlock>(c.layers[0][0].block).query_beta = beta;
    std::get<AttentionBlock>(c.layers[0][0].block).query_length = length;
    return ValidateConfig(c);
  };
  EXPECT_TRUE(with(0.0f, 0).ok());
  EXPECT_TRUE(with(0.1f, 1).ok());
  EXPECT_REFUSED(with(0.1f, 0), kBad, "floor_scale (or original_max_position_embeddings) is 0; possible is 1 to");
  EXPECT_REFUSED(with(-0.1f, 8), kBad, "attn_scale (or llama_4_scaling_beta) is -0.1");
  EXPECT_REFUSED(with(std::numeric_limits<float>::quiet_NaN(), 8), kBad, "attn_scale");
}

TEST(ModelLimits, NormsWithinBlocksAreChecked) {
  const auto with = [](const Block& block) {
    ModelConfig c = Small();
    c.streams = 2;
    c.layers[0].push_back({.block = block});
    return ValidateConfig(c);
  };
  for (const float eps : {0.5f, 2.0f}) {
    const NormSpec norm = RmsNormOf(Role::kRouterNorm, eps);
    for (const Block& block : {Block(ExpertsBlock{.experts = 2, .router_norm = norm, .expert = {.inner = 8}}),
                               Block(LowRankBlock{4, norm}), Block(StreamsBlock{StreamStep::kCorrect, 2, norm})}) {
      if (eps < 1.0f) {
        EXPECT_TRUE(with(block).ok()) << with(block).message();
      } else {
        EXPECT_REFUSED(with(block), kBad, "rms_eps is 2");
      }
    }
  }
}

TEST(ModelLimits, StreamsOfLayersAreThoseOfTheModel) {
  ModelConfig c = Small();
  c.streams = 4;
  c.layers[0].push_back({.block = StreamsBlock{StreamStep::kPredict, 4, {}}});
  EXPECT_TRUE(ValidateConfig(c).ok()) << ValidateConfig(c).message();
  std::get<StreamsBlock>(c.layers[0].back().block).streams = 3;
  EXPECT_REFUSED(ValidateConfig(c), kBad, "altup_num_inputs is 3 in a layer and 4 in the model");
}

// The branch that waits and the stream of parallel blocks are in one buffer.
TEST(ModelLimits, AJointNormNeedsABranchBeforeItAndNoParallelBlock) {
  const auto with = [](const std::function<void(Layer*)>& change) {
    ModelConfig c = Small();
    c.streams = 2;
    Layer& layer = c.layers[1];
    layer.push_back({.block = FeedForwardBlock{16}});
    change(&layer);
    return ValidateConfig(c);
  };
  const NormSpec norm = RmsNormOf(Role::kFeedForwardPostNorm, 1e-5f);
  EXPECT_TRUE(with([&](Layer* l) { (*l)[1].joint = norm; }).ok());
  EXPECT_TRUE(with([&](Layer* l) { (*l)[1].joint = norm, (*l)[2].joint = norm; }).ok());
  EXPECT_REFUSED(with([&](Layer* l) { (*l)[0].joint = norm; }), kBad,
                 "block 0 of a layer has a joint norm and no branch");
  EXPECT_REFUSED(with([&](Layer* l) {
                   (*l)[1].joint = norm;
                   (*l)[0].block = StreamsBlock{StreamStep::kPredict, 2, {}};
                 }),
                 kBad, "block 1 of a layer has a joint norm and no branch");
  for (const size_t parallel : {1, 2}) {
    EXPECT_REFUSED(with([&](Layer* l) { (*l)[1].joint = norm, (*l)[parallel].parallel = true; }), kBad,
                   "block 1 of a layer has a joint norm and is parallel");
  }
}

// Two layers of two KV heads of 16 in bf16: 256 bytes a token, 4 KiB a block.
constexpr int64_t kBlock = 4096;
MemoryPlanInput Input(int64_t left) {
  MemoryPlanInput in;
  in.weight_bytes = 10 * kMiB;
  in.max_num_seqs = 4;
  in.max_step_tokens = 64;
  in.available_bytes = kGiB;
  in.available_bytes = in.weight_bytes + PlanMemory(Small(), in)->activation_bytes + left;
  return in;
}

TEST(MemoryPlanLimits, APlanFitsToTheLastByte) {
  EXPECT_REFUSED(PlanMemory(Small(), Input(0)).status(), kBad, "memory are available: use smaller weights");
  EXPECT_EQ(PlanMemory(Small(), Input(0)).status().param(), "model");
  MemoryPlanInput in = Input(10 * kBlock);
  in.kv_memory_bytes = 10 * kBlock;
  auto plan = PlanMemory(Small(), in);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->num_blocks, 10);
  EXPECT_EQ(plan->total_bytes, in.available_bytes);
  EXPECT_EQ(plan->max_model_len, 160);
  in.kv_memory_bytes = 10 * kBlock + 1;
  EXPECT_REFUSED(PlanMemory(Small(), in).status(), kBad, "--kv-cache-memory to at most 40.0 KiB");
  in.kv_memory_bytes = kBlock;
  EXPECT_EQ(PlanMemory(Small(), in)->num_blocks, 1);
  in.kv_memory_bytes = kBlock - 1;
  EXPECT_REFUSED(PlanMemory(Small(), in).status(), kBad, "a KV block of 16 tokens takes 4.0 KiB (0.2 KiB per token)");
  in.kv_memory_bytes = 5 * kBlock;
  in.swap_bytes = 5 * kBlock;
  plan = PlanMemory(Small(), in);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->total_bytes, in.available_bytes);
  in.swap_bytes = 6 * kBlock;
  EXPECT_REFUSED(PlanMemory(Small(), in).status(), kBad, "+ swap space 24.0 KiB",
                 "--kv-cache-memory to at most 16.0 KiB");
  in.swap_bytes = 10 * kBlock;
  EXPECT_REFUSED(PlanMemory(Small(), in).status(), kBad, "lower --swap-space");
}

TEST(MemoryPlanLimits, DefaultKvIsHalfOfTheRestAndNoMoreThanUseful) {
  EXPECT_EQ(PlanMemory(Small(), Input(20 * kBlock))->num_blocks, 10);
  EXPECT_EQ(PlanMemory(Small(), Input(22 * kBlock - 1))->num_blocks, 10);
  MemoryPlanInput in = Input(1000 * kBlock);
  EXPECT_EQ(PlanMemory(Small(), in)->num_blocks, 4 * 32) << "four sequences of 512 tokens";
  in.max_model_len = 33;
  EXPECT_EQ(PlanMemory(Small(), in)->num_blocks, 4 * 3) << "33 tokens begin a third block";
  EXPECT_EQ(PlanMemory(Small(), in)->max_model_len, 33);
  in.max_model_len = 512;
  EXPECT_TRUE(PlanMemory(Small(), in).ok()) << "the model's own context";
  in.max_model_len = 513;
  EXPECT_REFUSED(PlanMemory(Small(), in).status(), kBad, "--max-model-len 513", "use at most 512");
}

TEST(MemoryPlanLimits, ImpossibleNumbersAreRefused) {
  for (const auto& change : std::vector<std::function<void(MemoryPlanInput*)>>{
           [](MemoryPlanInput* in) { in->max_num_seqs = 0; }, [](MemoryPlanInput* in) { in->max_step_tokens = 0; },
           [](MemoryPlanInput* in) { in->threads = 0; }, [](MemoryPlanInput* in) { in->max_num_seqs = (1 << 24) + 1; },
           [](MemoryPlanInput* in) { in->max_step_tokens = (1 << 24) + 1; },
           [](MemoryPlanInput* in) { in->weight_bytes = -1; }, [](MemoryPlanInput* in) { in->kv_memory_bytes = -1; },
           [](MemoryPlanInput* in) { in->swap_bytes = -1; }, [](MemoryPlanInput* in) { in->max_model_len = -1; },
           [](MemoryPlanInput* in) { in->available_bytes = -1; }, [](MemoryPlanInput* in) { in->block_size = 0; }}) {
    MemoryPlanInput in = Input(10 * kBlock);
    change(&in);
    EXPECT_EQ(PlanMemory(Small(), in).status().code(), kBad);
  }
  MemoryPlanInput one = Input(10 * kBlock);
  one.block_size = 1;
  EXPECT_TRUE(PlanMemory(Small(), one).ok());
}

TEST(MemoryPlanLimits, TheTableShowsEveryPart) {
  MemoryPlan p;
  p.weight_bytes = 3 * kGiB;
  p.kv_bytes = 5 * kMiB;
  p.activation_bytes = 7 * 1024;
  p.total_bytes = 11 * kGiB;
  p.available_bytes = 13 * kGiB;
  p.num_blocks = 17;
  p.max_model_len = 19;
  EXPECT_EQ(
      p.ToString(),
      "memory plan\n  weights             3.00 GiB\n  activations          7.0 KiB\n"
      "  KV cache     up to   5.0 MiB as needed, 17 blocks\n"
      "  total        up to 11.00 GiB of the 13.00 GiB that are available\n  context                   19 tokens\n");
  p.swap_blocks = 23;
  p.swap_bytes = kMiB;
  EXPECT_NE(p.ToString().find("  swap space   up to   1.0 MiB as needed, 23 blocks\n"), std::string::npos)
      << p.ToString();
}

TEST(DecoderLimits, LogitRowsAtOnceStayWithinTheirMemory) {
  ModelConfig c = Small();
  c.vocab_size = 32768;  // 2,048 rows fill 256 MiB
  EXPECT_EQ(DecoderLogitRows(c, 10), 10);
  EXPECT_EQ(DecoderLogitRows(c, 2048), 2048);
  EXPECT_EQ(DecoderLogitRows(c, 2049), 2048);
  EXPECT_EQ(DecoderLogitRows(c, 0), 1);
  c.vocab_size = 1 << 24;  // four rows would fill it: sixteen are the minimum
  EXPECT_EQ(DecoderLogitRows(c, 100), 16);
  EXPECT_EQ(DecoderLogitRows(c, 3), 3);
}

TEST(DecoderLimits, BuffersGrowLinearlyWithTokens) {
  const ModelConfig c = Small();
  const auto bytes = [&](int64_t tokens, int64_t rows, int32_t threads) {
    DecoderOptions o;
    o.max_tokens = tokens;
    o.max_logit_rows = rows;
    o.threads = threads;
    return DecoderBufferBytes(c, o);
  };
  // Four of hidden, two each of query and key, one of inner: 4 * 64 + 2 * 64 + 2 * 32 + 128 floats, beside the kernels'
  // memory. Packed tokens of 64 columns share three buffers of hidden, those of 128 the second of inner.
  const auto own = [&](int64_t tokens) {
    return bytes(tokens, 1, 1) - WorkspaceBytes(tokens, 128, 4, 16, 1) - PackedTokenBytes(tokens, 128);
  };
  EXPECT_NEAR(static_cast<double>(own(1024) - own(512)), 512 * 576 * 4, 3 * 64);
  EXPECT_EQ(bytes(64, 33, 1) - bytes(64, 17, 1), 16 * 1000 * 4);
  EXPECT_GT(bytes(64, 1, 4), bytes(64, 1, 1));
}

TEST(CacheFolder, FollowsTheEnvironmentInOrder) {
  const auto get = [](const char* own, const char* xdg, const char* home) {
    const std::pair<const char*, const char*> wanted[] = {
        {"TACTUS_CACHE_DIR", own}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}};
    std::vector<std::pair<const char*, std::optional<std::string>>> before;
    for (const auto& [name, value] : wanted) {
      const char* old = std::getenv(name);
      before.push_back({name, old == nullptr ? std::nullopt : std::optional<std::string>(old)});
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    }
    const std::string folder = CacheFolder();
    for (const auto& [name, value] : before) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
    return folder;
  };
  EXPECT_EQ(get("/own", "/xdg", "/home/u"), "/own");
  EXPECT_EQ(get(nullptr, "/xdg", "/home/u"), "/xdg/tactus");
  EXPECT_EQ(get("", "", "/home/u"), "/home/u/.cache/tactus");
  EXPECT_EQ(get(nullptr, nullptr, nullptr), "./.cache/tactus");
}

}  // namespace
}  // namespace tactus::compute
