// How a step's time is composed of its operators' times, with operators simple enough to compute by hand.
#include "cost/hybrid_model.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace tactus::cost {
namespace {

// 1 ns per multiplication of a product; small operators take the ns per byte that a test sets.
struct KnownOperators final : OperatorTimes {
  double norm = 0, rope = 0, activation = 0, add = 0, kv_write = 0, embed = 0, sample = 0;  // ns per byte
  double launch = 0;  // per product and small operator, however small
  double gemm = 0, touched = 0, base = 0, adds = 0, alone = 0, decode = 0, beside = 0, all_reduce = 0, send = 0,
         apart = 0;

  std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const override {
    return [this, n, k, wide = format.weight_bytes / 2](int64_t m) {
      return launch + gemm * wide * static_cast<double>(m * n * k);
    };
  }
  // 1 ns per touched expert's element, and 1 ns per row's multiplication.
  std::function<double(int64_t)> Experts(const WeightFormat&, const ExpertsShape& s) const override {
    return [this, s](int64_t m) {
      const auto tokens = static_cast<double>(m);
      return s.ExpertElements() * (gemm * s.Rows(tokens) + touched * s.Touched(tokens));
    };
  }
  double PrefillBaseNs(const AttentionShape&) const override { return base; }
  double PrefillAddsNs(const AttentionShape&, double tokens, double context) const override {
    return adds * (tokens + context);
  }
  double PrefillAloneNs(const AttentionShape&, double tokens, double context) const override {
    return alone * (tokens + context);
  }
  double DecodeNs(const AttentionShape&, double batch, double context) const override {
    return decode * (batch + context);
  }
  double DecodeBesideChunkNs(const AttentionShape&, double batch, double context) const override {
    return beside * (batch + context);
  }
  double ElementwiseNs(Elementwise op, double bytes) const override { return launch + StreamNs(op, bytes); }
  double StreamNs(Elementwise op, double bytes) const {
    switch (op) {
      case Elementwise::kEmbed:
        return embed * bytes;
      case Elementwise::kNorm:
        return norm * bytes;
      case Elementwise::kRope:
        return rope * bytes;
      case Elementwise::kActivation:
        return activation * bytes;
      case Elementwise::kAdd:
        return add * bytes;
      case Elementwise::kKvWrite:
        return kv_write * bytes;
      case Elementwise::kSample:
        return sample * bytes;
    }
    return 0;
  }
  double AllReduceNs(double bytes, int32_t gpus) const override { return all_reduce * bytes * gpus; }
  double SendNs(double bytes, int32_t among) const override { return (send + apart * among) * bytes; }
};

struct Parts {
  UniformShape model;
  Deployment deployment;
  DeviceSpec device;
  KnownOperators operators;
  FitCoverage coverage;
  HostTimes host;

  // Five layers; 8 query heads and 2 KV heads of 4: widths 32 and 8, hidden 16, feed-forward 24, vocabulary 100.
  Parts() {
    model.name = "five";
    model.layers = 5;
    model.hidden = 16;
    model.q_heads = 8;
    model.kv_heads = 2;
    model.head_dim = 4;
    model.ffn = 24;
    model.vocab = 100;
    model.context = 4096;
    device = *FindDevice("h100");
  }
  HybridModel Make() const {
    return HybridModel(deployment, UniformModel(model), device, {"bfloat16", 2, 2, device.bf16_flops}, host,
                       std::make_unique<KnownOperators>(operators), {"", coverage});
  }
};

struct Shape {
  std::vector<ChunkShape> chunks;
  int64_t decodes = 0, context = 0, rows = 0, padded = 0, swapped = 0;
};
StepShape Of(const Shape& s) {
  StepShape shape;
  shape.chunks = s.chunks;
  shape.decodes = s.decodes;
  shape.decode_context_tokens = s.context;
  shape.logit_rows = s.rows;
  shape.padded_tokens = s.padded;
  shape.swap_blocks = s.swapped;
  return shape;
}

// Ten tokens, five layers, four products: qkv 48 x 16, out 16 x 32, gate and up 48 x 16, down 16 x 24.
TEST(HybridModel, MatrixProductsOfAllLayersAddUp) {
  Parts p;
  p.operators.gemm = 1;
  const int64_t layer = 48 * 16 + 16 * 32 + 48 * 16 + 16 * 24;
  const Shape ten{{{0, 10}}};
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 10 * layer);
  p.model.gated = false;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 10 * (layer - 24 * 16));
  // Two devices halve every width and have one KV head each; with four devices it remains one.
  p.model.gated = true;
  p.deployment.tp = 2;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 10 * layer / 2);
  p.deployment.tp = 4;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 10 * (16 * 16 + 16 * 8 + 12 * 16 + 16 * 6));
}

// Decodes, chunks and padding are all rows of the products.
TEST(HybridModel, EveryTokenIsARowOfTheProducts) {
  Parts p;
  p.operators.gemm = 1;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 10}}, 3, 100})), m.StepTimeNs(Of({{{0, 13}}})));
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 10}}, 3, 100, 0, 4})), m.StepTimeNs(Of({{{0, 17}}})));
}

// Bytes per layer and token: hidden 32, queries 64, K or V 16, feed-forward 48.
TEST(HybridModel, SmallOperatorsTakeTimeByTheirBytes) {
  const Shape one{{{0, 1}}};
  const auto ns = [&one](const Parts& p) { return p.Make().StepTimeNs(Of(one)); };
  Parts p;
  p.operators.norm = 1;
  EXPECT_EQ(ns(p), 5 * 2 * 4 * 32);
  p.model.qk_norm = true;
  EXPECT_EQ(ns(p), 5 * (2 * 4 * 32 + 2 * (64 + 16)));
  p.model.qk_norm = false;
  p.model.parallel = true;  // one norm for attention and feed-forward, and one sum of both
  EXPECT_EQ(ns(p), 5 * 4 * 32);
  p.operators.norm = 0;
  p.operators.add = 1;
  EXPECT_EQ(ns(p), 5 * 3 * 32);
  p.model.parallel = false;
  EXPECT_EQ(ns(p), 0);

  Parts rope;
  rope.operators.rope = 1;
  EXPECT_EQ(ns(rope), 5 * 2 * (64 + 16));
  rope.model.rope = false;
  EXPECT_EQ(ns(rope), 0);

  Parts write;
  write.operators.kv_write = 1;
  EXPECT_EQ(ns(write), 5 * 2 * (16 + 16));  // K and V: read and written
  write.deployment.kv_dtype = "fp8";
  EXPECT_EQ(ns(write), 5 * 2 * (16 + 8));  // written at a byte each

  Parts activation;
  activation.operators.activation = 1;
  EXPECT_EQ(ns(activation), 5 * 3 * 48);
  activation.model.gated = false;
  EXPECT_EQ(ns(activation), 5 * 2 * 48);
}

// Two all-reduces per layer under tensor parallelism, one where attention and feed-forward run in parallel.
TEST(HybridModel, EachLayerTakesItsAllReduces) {
  Parts p;
  p.operators.all_reduce = 1;
  const Shape ten{{{0, 10}}};
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 0);
  p.deployment.tp = 2;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 2 * 10 * 32 * 2);
  p.model.parallel = true;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 10 * 32 * 2);
}

// The embedding is read and written per token; the head multiplies rows, and the sampler reads their 16-bit logits.
TEST(HybridModel, EmbeddingCountsTokensHeadAndSamplerCountRows) {
  Parts p;
  p.operators.embed = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * 32);
  p.operators.embed = 0;
  p.operators.sample = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{0, 10}}, 0, 0, 3})), 3 * 100 * 4);
  p.operators.sample = 0;
  p.operators.gemm = 1;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 10}}, 0, 0, 3})) - m.StepTimeNs(Of({{{0, 10}}})), 3 * 100 * 16);
  // Three devices have 34 columns each; their shares are gathered from the two others.
  p.deployment.tp = 3;
  p.operators.send = 1;
  const HybridModel three = p.Make();
  EXPECT_EQ(three.StepTimeNs(Of({{{0, 10}}, 0, 0, 3})) - three.StepTimeNs(Of({{{0, 10}}})),
            3 * 34 * 16 + 2 * 3 * 34 * 2);
}

// Operators without work are not launched: without logit rows no head and sampler, without tokens nothing. A layer
// launches four products, two norms, rope, the write of K and V, and the activation.
TEST(HybridModel, NothingIsLaunchedForNoRows) {
  Parts p;
  p.operators.launch = 1000;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StepTimeNs(Of({})), 0);
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 10}}})), 5 * 9 * 1000 + 1000) << "nine per layer, and the embedding";
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 10}}, 0, 0, 1})), 5 * 9 * 1000 + 1000 + 2 * 1000) << "the head and the sampler";
}

// The kernel's base once plus what each chunk adds, or the longest chunk alone, whichever is longer.
TEST(HybridModel, ChunksShareOneAttentionKernel) {
  Parts p;
  p.operators.base = 100;
  p.operators.adds = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{127, 15}}})), 5 * (100 + 142));
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{127, 15}, {63, 31}}})), 5 * (100 + 142 + 94));
  p.operators.alone = 3;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{63, 31}, {127, 15}}})), 5 * 3 * 142);
  EXPECT_EQ(p.Make().StepTimeNs(Of({})), 0) << "no chunk, no kernel";
}

// Decodes alone, and as measured beside a chunk; but a step with a chunk is never faster than one without.
TEST(HybridModel, DecodesBesideAChunkTakeTheirMeasuredTime) {
  Parts p;
  p.operators.decode = 2;
  p.operators.beside = 3;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StepTimeNs(Of({{}, 7, 7 * 63})), 5 * 2 * (7 + 63));
  EXPECT_EQ(m.StepTimeNs(Of({{{0, 1}}, 7, 7 * 63})), 5 * 3 * (7 + 63));
  p.operators.beside = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{0, 1}}, 7, 7 * 63})), 5 * 2 * (7 + 63));
  p.operators.base = 40;
  p.operators.beside = 0;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{0, 1}}, 7, 7 * 63})), 5 * 2 * (7 + 63));  // 40 of the chunk's base, and the rest
}

// One half reads the KV of its decodes while the other multiplies: the longer part, plus a share of the shorter one. A
// chunk's attention is arithmetic. Decodes beside a chunk take the time that they take alone.
TEST(HybridModel, NanoBatchesReadAndMultiplyAtOnce) {
  Parts p;
  p.operators.kv_write = 1;  // 32 bytes of each token's K and V: 32 ns per token and layer
  p.operators.decode = 2;
  p.operators.beside = 3;
  p.operators.adds = 1;
  const int64_t rows = 7 * 32, decode = 2 * (7 + 63);
  const Shape decodes{{}, 7, 7 * 63}, mixed{{{127, 15}}, 7, 7 * 63};
  EXPECT_EQ(p.Make().StepTimeNs(Of(decodes)), 5 * (rows * 2 + decode)) << "off";
  p.deployment.overlap = "nano";
  p.deployment.overlap_fit = {.linear = 0.25};
  EXPECT_EQ(p.Make().StepTimeNs(Of(decodes)), 5 * (rows * 2 + decode / 4));
  EXPECT_EQ(p.Make().StepTimeNs(Of(mixed)), 5 * (22 * 64 + 142 + decode / 4));
  p.operators.decode = 20;
  EXPECT_EQ(p.Make().StepTimeNs(Of(decodes)), 5 * (10 * decode + rows * 2 / 4)) << "reads are the longer part";
  p.deployment.overlap_fit = kNoOverlap;
  EXPECT_EQ(p.Make().StepTimeNs(Of(decodes)), 5 * (10 * decode + rows * 2));
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{127, 15}}})), 5 * (15 * 64 + 142)) << "no reads";
}

// Each half launches its kernels and reads the weights: a step that would be slower in two halves is not split.
TEST(HybridModel, AStepIsSplitOnlyWhereThatIsFaster) {
  Parts p;
  p.operators.launch = 1000;
  p.operators.decode = 2;
  const Shape decodes{{}, 7, 7 * 63};
  const DurationNs whole = p.Make().StepTimeNs(Of(decodes));
  p.deployment.overlap = "nano";
  p.deployment.overlap_fit = {};
  EXPECT_EQ(p.Make().StepTimeNs(Of(decodes)), whole);
  p.operators.decode = 2000;
  EXPECT_LT(p.Make().StepTimeNs(Of(decodes)), 5 * (9 * 1000 + 2000 * (7 + 63)) + 2000)
      << "faster despite a second launch";
}

// A window of 63 tokens: no decode reads more, and a long chunk is a series of pieces, each with its own window.
TEST(HybridModel, SlidingWindowBoundsTheContext) {
  Parts p;
  p.model.window = 63;
  p.operators.decode = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{}, 7, 7 * 1023})), 5 * (7 + 63));
  EXPECT_EQ(p.Make().StepTimeNs(Of({{}, 7, 7 * 31})), 5 * (7 + 31));
  p.operators.decode = 0;
  p.operators.adds = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{1023, 31}}})), 5 * (31 + 63));
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{1023, 127}}})), std::llround(5 * (63 + 63) * (127 / 63.0)));
  p.operators.adds = 0;
  p.operators.alone = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{1023, 31}}})), 5 * (31 + 63));
  // A long chunk alone: its first piece alone, plus what the rest adds.
  p.operators.alone = 5;
  p.operators.adds = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{1023, 127}}})), std::llround(5 * (63 + 63) * (5 + 64 / 63.0)));
}

// Five layers on two stages: three and two. The first stage has the embedding, the host's time and the swaps; the last
// has the head.
TEST(HybridModel, StagesTakeTheirLayersAndEnds) {
  Parts p;
  p.deployment.pp = 2;
  p.operators.gemm = 1;
  const int64_t layer = 48 * 16 + 16 * 32 + 48 * 16 + 16 * 24;
  const StepShape ten = Of({});
  EXPECT_EQ(p.Make().StageTimeNs(ten, 0), 0);
  const Shape step{{{0, 10}}, 0, 0, 3};
  EXPECT_EQ(p.Make().StageTimeNs(Of(step), 0), 3 * 10 * layer);
  EXPECT_EQ(p.Make().StageTimeNs(Of(step), 1), 2 * 10 * layer + 3 * 100 * 16);
  p.operators.gemm = 0;
  p.operators.embed = 1;
  p.host.step = {7, 0};
  EXPECT_EQ(p.Make().StageTimeNs(Of(step), 0), 640 + 7);
  EXPECT_EQ(p.Make().StageTimeNs(Of(step), 1), 0);
  EXPECT_EQ(p.Make().StageTimeNs(Of({}), 0), 0) << "no host time without tokens";
  EXPECT_EQ(p.Make().SendTimeNs(Of(step)), 0);
  p.operators.send = 1;
  EXPECT_EQ(p.Make().SendTimeNs(Of(step)), 10 * 32);
  EXPECT_EQ(p.Make().StepTimeNs(Of(step)), 647 + 320);
  p.operators.apart = 5;
  EXPECT_EQ(p.Make().SendTimeNs(Of(step)), 10 * 32 * (1 + 5 * 2)) << "from one stage's device to the next stage's";
  p.deployment.tp = 2;
  EXPECT_EQ(p.Make().SendTimeNs(Of(step)), 10 * 32 * (1 + 5 * 4));
  p.deployment.pp = 1;
  EXPECT_EQ(p.Make().SendTimeNs(Of(step)), 0);
}

// The host's time per step is in the first stage, its time per stage in every stage; the part per sequence counts
// chunks and decodes.
TEST(HybridModel, HostTimeIsSplitOverStages) {
  Parts p;
  p.host.step = {1000, 10};
  p.host.stage = {200, 3};
  p.host.sampler = {50, 1};
  const Shape step{{{0, 10}, {0, 20}}, 5, 500};  // seven sequences
  EXPECT_EQ(p.Make().StepTimeNs(Of(step)), 1000 + 70 + 200 + 21 + 50 + 7);
  EXPECT_EQ(p.Make().StepTimeNs(Of({})), 0);
  p.deployment.pp = 3;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StageTimeNs(Of(step), 0), 1000 + 70 + 200 + 21);
  EXPECT_EQ(m.StageTimeNs(Of(step), 1), 200 + 21);
  EXPECT_EQ(m.StageTimeNs(Of(step), 2), 200 + 21 + 50 + 7);
  EXPECT_EQ(m.StepTimeNs(Of(step)), 1000 + 70 + 3 * (200 + 21) + 50 + 7);
  const std::vector<StepPart> parts = m.StepParts(Of(step));
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].name, "host");
  EXPECT_EQ(parts[0].ns, 1000 + 70 + 3 * (200 + 21) + 50 + 7);
}

// Two all-reduces per layer, launched one by one by the host; between nodes the hop's time includes the launch.
TEST(HybridModel, HostLaunchesAddToAllReduces) {
  Parts p;
  p.host.all_reduce_ns = 40;
  const Shape ten{{{0, 10}}};
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 0) << "no all-reduce on one device";
  p.deployment.tp = 2;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 2 * 40);
  p.model.parallel = true;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 5 * 40);
  p.device.node = 1;
  EXPECT_EQ(p.Make().StepTimeNs(Of(ten)), 0);
}

// A layer takes at least its kernels' launch time where the host launches them.
TEST(HybridModel, LayersTakeAtLeastTheirLaunchTime) {
  Parts p;
  p.operators.decode = 2;
  p.host.layer_ns = 300;
  const Shape few{{}, 7, 7 * 63}, more{{}, 7, 7 * 255};
  const HybridModel m = p.Make();
  EXPECT_EQ(m.StepTimeNs(Of(few)), 5 * 300);
  EXPECT_EQ(m.StepTimeNs(Of(more)), 5 * 2 * (7 + 255));
  EXPECT_EQ(m.StepTimeNs(Of({})), 0);
  double waited = 0;
  for (const StepPart& part : m.StepParts(Of(few))) waited += part.kind == "host" ? part.ns : 0;
  EXPECT_NEAR(waited, 5 * (300 - 2 * (7 + 63)), 1e-6);
}

// A block: 16 tokens x 2 x 8 x 2 bytes x 5 layers = 2,560 bytes, at 80 % of PCIe's 64 GB/s 50 ns.
TEST(HybridModel, SwappedBlocksTakePcieTime) {
  Parts p;
  p.deployment.block_size = 16;
  EXPECT_EQ(p.Make().StepTimeNs(Of({{{0, 1}}, 0, 0, 0, 0, 4})), 4 * 50);
}

// A model whose layers differ: each kind has its own operators, windows and number in each stage.
struct MixedParts : Parts {
  ModelSpec spec;

  // Layers 0 and 1 as in Parts, then two with a window of 64 and eight experts of 6, two per token, beside one of 10.
  MixedParts() {
    model.layers = 4;
    spec = UniformModel(model);
    for (const size_t l : {2, 3}) {
      std::get<compute::AttentionBlock>(spec.layers[l][0].block).window = 64;
      compute::ExpertsBlock experts{.experts = 8, .shared_inner = 10};
      experts.router.chosen = 2;
      experts.expert.inner = 6;
      spec.layers[l][1].block = experts;
    }
  }
  HybridModel MakeMixed() const {
    return HybridModel(deployment, spec, device, {"bfloat16", 2, 2, device.bf16_flops}, host,
                       std::make_unique<KnownOperators>(operators), {"", coverage});
  }
};
constexpr int64_t kQkvAndOut = 48 * 16 + 16 * 32, kFeedForward = 3 * 16 * 24, kExpert = 3 * 16 * 6;
constexpr int64_t kRouterAndShared = 8 * 16 + 3 * 16 * 10;

TEST(HybridModel, ExpertsAreMultipliedForTheirRowsAlone) {
  MixedParts p;
  p.operators.gemm = 1;
  const int64_t dense = kQkvAndOut + kFeedForward, mixture = kQkvAndOut + kRouterAndShared + 2 * kExpert;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * (dense + mixture));
  // Each of two devices has half of every expert, and the router whole.
  p.deployment.tp = 2;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * (dense + mixture + 8 * 16) / 2);
}

TEST(HybridModel, ExpectedExpertsAreRead) {
  MixedParts p;
  p.operators.touched = 1;
  const auto touched = [](double tokens) { return 8 * (1 - std::pow(0.75, tokens)); };
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 1}}})), 2 * 2 * kExpert);
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), std::llround(2 * touched(5) * kExpert));
  // Two replicas share the experts: a device has four and reads them for the tokens of both.
  p.deployment.ep = 2;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), std::llround(2 * touched(10) / 2 * kExpert));
}

// The tokens of both replicas are gathered and their sums scattered: an all-reduce of twice the residual stream.
TEST(HybridModel, SharedExpertsCostAnExchange) {
  MixedParts p;
  p.operators.all_reduce = 1;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), 0);
  p.deployment.ep = 2;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), 2 * (5 * 16 * 2 * 2) * 2);
}

TEST(HybridModel, EachKindOfLayerHasItsWindow) {
  MixedParts p;
  p.operators.decode = 2;
  EXPECT_NEAR(static_cast<double>(p.MakeMixed().StepTimeNs(Of({{}, 4, 4 * 1024}))),
              2 * 2 * (4 + 1024) + 2 * 2 * (4 + 64), 20);
  // The first stage has the layers without windows, the second those with.
  p.deployment.pp = 2;
  const HybridModel m = p.MakeMixed();
  EXPECT_NEAR(static_cast<double>(m.StageTimeNs(Of({{}, 4, 4 * 1024}), 0)), 2 * 2 * (4 + 1024), 10);
  EXPECT_NEAR(static_cast<double>(m.StageTimeNs(Of({{}, 4, 4 * 1024}), 1)), 2 * 2 * (4 + 64), 10);
}

TEST(HybridModel, FlopsAndBytesFollowEachKindOfLayer) {
  const HybridModel m = MixedParts().MakeMixed();
  const Shape shape{{{100, 10}}, 3, 3 * 90, 0};
  const StepShape step = Of(shape);
  const double dense = 2 * 13 * (kQkvAndOut + kFeedForward) + 4 * 32 * (10 * 105.5 + 3 * 90);
  const double mixture = 2 * 13 * (kQkvAndOut + kRouterAndShared + 2 * kExpert) + 4 * 32 * (10 * (64 + 5.5) + 3 * 64);
  EXPECT_NEAR(m.StepFlops(step), 2 * (dense + mixture), 1e-6);
  const double read = kQkvAndOut + kRouterAndShared + 8 * (1 - std::pow(0.75, 13)) * kExpert;
  EXPECT_NEAR(m.StepBytes(step),
              2 * (2 * (kQkvAndOut + kFeedForward) + 32 * (110 + 270) + 2 * read + 32 * (74 + 3 * 64)), 1e-6);
  MixedParts p;
  for (compute::Layer& l : p.spec.layers) std::get<compute::AttentionBlock>(l[0].block).chunk = 40;
  const auto bytes = [&](int64_t context) { return p.MakeMixed().StepBytes(Of({{}, 4, 4 * context})); };
  EXPECT_EQ(bytes(1023) - bytes(31), 4 * 4 * (40 - 31) * 32) << "a decode reads a chunk at most";
}

// Norms after a block: beside a norm before it they read and write the block's output; alone they are the sum's.
TEST(HybridModel, NormsAfterBlocksCount) {
  MixedParts p;
  p.operators.norm = 1;
  const double before = p.MakeMixed().StepTimeNs(Of({{{0, 10}}}));
  EXPECT_EQ(before, 4 * 2 * 10 * 4 * 32);
  for (compute::Layer& layer : p.spec.layers) {
    for (compute::LayerBlock& b : layer) b.post = b.norm;
  }
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), before + 4 * 2 * 10 * 2 * 32);
  for (compute::Layer& layer : p.spec.layers) {
    for (compute::LayerBlock& b : layer) b.norm = {};
  }
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), before);
}

// Two norms of one stream are two kernels, and the sum of both blocks one.
TEST(HybridModel, ParallelBlocksWithTwoNormsHaveTwo) {
  MixedParts p;
  p.operators.norm = 1;
  for (compute::Layer& layer : p.spec.layers) layer[1].parallel = true;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 4 * 2 * 10 * 4 * 32);
}

TEST(HybridModel, PartsOfMixedLayersAddUp) {
  MixedParts p;
  p.operators.gemm = 1, p.operators.norm = 2, p.operators.decode = 3, p.operators.adds = 1;
  const HybridModel m = p.MakeMixed();
  const Shape shape{{{20, 10}}, 3, 270, 4};
  const StepShape step = Of(shape);
  double sum = 0;
  std::set<std::string> names;
  for (const StepPart& part : m.StepParts(step)) {
    sum += part.ns;
    EXPECT_TRUE(names.insert(part.name).second) << part.name;
  }
  EXPECT_NEAR(sum, static_cast<double>(m.StepTimeNs(step)), 1);
  EXPECT_TRUE(names.contains("experts") && names.contains("down product") && names.contains("shared down product"));
}

// FLOPs and bytes of a step (for utilisation) cover the whole model, under every split.
TEST(HybridModel, FlopsAndBytesIgnoreTheSplit) {
  Parts p;
  const double layer = 16 * (8 + 4) * 4 + 32 * 16 + 3 * 16 * 24;
  for (const int32_t tp : {1, 2, 4}) {
    p.deployment.tp = tp;
    const HybridModel m = p.Make();
    // Ten tokens behind 20, and three decodes over 90: 4 x 32 FLOPs per query and key.
    const Shape step{{{20, 10}}, 3, 90, 4};
    const StepShape s = Of(step);
    EXPECT_NEAR(m.StepFlops(s), 5 * (2 * layer * 13 + 4 * 32 * (10 * (20 + 5.5) + 90)) + 2 * 1600 * 4, 1e-6);
    EXPECT_NEAR(m.StepBytes(s), 5 * (layer * 2 + 2 * 8 * 2 * (90 + 30)) + 1600 * 2, 1e-6);
    EXPECT_NEAR(m.StepBytes(Of({{{20, 10}}, 3, 90, 1})), 5 * (layer * 2 + 2 * 8 * 2 * (90 + 30)) + 1600 * 2, 1e-6);
    EXPECT_NEAR(m.StepBytes(Of({{{20, 10}}, 3, 90, 0})), 5 * (layer * 2 + 2 * 8 * 2 * (90 + 30)), 1e-6)
        << "no rows, so no head";
  }
}

TEST(HybridModel, DescriptionNamesEveryPart) {
  Parts p;
  p.deployment.tp = 2;
  p.deployment.pp = 5;
  p.host.step = {7000, 0};
  p.device.node = 9;
  p.device.network = "ethernet";
  p.device.network_bandwidth = 12.5e9;
  p.device.network_hop_ns = 25e3;
  EXPECT_EQ(p.Make().Describe(),
            "five on " + p.device.name +
                ", tp 2, pp 5, nodes of 9 (12.5 GB/s of ethernet for each device, 25 us): ; 7 us of "
                "host time per step");
  p.device.node = 10;
  EXPECT_EQ(p.Make().Describe(), "five on " + p.device.name + ", tp 2, pp 5: ; 7 us of host time per step");
}

// Requests beyond the measurements are named, with the ratio.
TEST(HybridModel, ExtrapolationNamesValuesBeyondMeasurements) {
  Parts p;
  p.coverage.most_tokens = 100;
  p.coverage.most_chunk = 50;
  p.coverage.most_batch = 8;
  p.coverage.most_context = 64;
  const HybridModel m = p.Make();
  EXPECT_EQ(m.Extrapolation(Of({{{0, 50}}, 8, 8 * 64})), "");
  EXPECT_EQ(
      m.Extrapolation(Of({{{0, 51}}, 9, 9 * 128, 0, 60})),
      "tokens per step 120 (measured up to 100: 1.2 x beyond); tokens per chunk 51 (measured up to 50: 1.0 x beyond); "
      "decodes 9 (measured up to 8: 1.1 x beyond); mean context of decodes 128 (measured up to 64: 2.0 x beyond)");
}

// A prefix shared by decodes is a chunk with one query per decode, beside the step's chunks; the decodes' separate
// parts remain. The grids are exact for linear functions, up to rounding.
TEST(HybridModel, SharedPrefixesAreReadOnceWhereThatIsFaster) {
  Parts p;
  p.operators.base = 1000;
  p.operators.adds = 3;
  p.operators.decode = 100;
  p.operators.beside = 200;
  const Shape apart{{}, 16, 16 * 1088};
  const PrefixShape prefixes[] = {{1024, 12}, {512, 2}};
  StepShape together = Of(apart);
  together.prefixes = prefixes;
  const double own = (16 * 1088 - 12 * 1024 - 2 * 512) / 16.0, chunks = 1000 + 3 * (12 + 1024) + 3 * (2 + 512);
  const auto ns = [&](const StepShape& s) { return static_cast<double>(p.Make().StepTimeNs(s)); };
  EXPECT_NEAR(ns(Of(apart)) / (5 * 100 * (16 + 1088)), 1, 0.01);
  EXPECT_NEAR(ns(together) / (5 * (chunks + 100 * (16 + own))), 1, 0.01);
  // A chunk in the step shares the kernel.
  const Shape chunk{{{0, 64}}, 16, 16 * 1088};
  together = Of(chunk);
  together.prefixes = prefixes;
  EXPECT_NEAR(ns(together) / (5 * (chunks + 3 * 64 + 200 * (16 + own))), 1, 0.01);
  // The shared kernel is not used where it would be slower.
  p.operators.adds = 1000;
  together = Of(apart);
  together.prefixes = prefixes;
  EXPECT_EQ(ns(together), ns(Of(apart)));
  // A window cuts off the front of a shared prefix.
  p.operators.adds = 3;
  p.model.window = 4000;
  EXPECT_EQ(ns(together), ns(Of(apart)));
  EXPECT_EQ(p.Make().StepBytes(together), p.Make().StepBytes(Of(apart)));
  p.model.window = 0;
  const double token_bytes = 5 * 2 * 2 * 4 * 2;  // layers, K and V, heads, dimensions, bytes
  EXPECT_EQ(p.Make().StepBytes(Of(apart)) - p.Make().StepBytes(together), (11 * 1024 + 512) * token_bytes);
  EXPECT_EQ(p.Make().StepFlops(Of(apart)), p.Make().StepFlops(together));
}

}  // namespace
}  // namespace tactus::cost
