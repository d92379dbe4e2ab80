// --quantization int4 on models with trained weights: what is loaded, and that its outputs are closer.
#include "compute/model/calibrate.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "compute/model/decoder.h"
#include "compute/model/loader.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::compute {
namespace {

using test::GoldenFolder;

ModelDescription Describe(const std::string& path) {
  Result<ModelDescription> d = DescribeModel(path);
  EXPECT_TRUE(d.ok()) << d.status().ToString();
  return d.ok() ? *d : ModelDescription();
}

LoadWeightsOptions Int4(bool calibrate, int32_t threads = 2) {
  LoadWeightsOptions options;
  options.pack = true;
  options.packing.quantization = Quantization::kInt4;
  options.packing.calibrate = calibrate;
  options.threads = threads;
  return options;
}

CpuWeights Load(const ModelDescription& d, const LoadWeightsOptions& options) {
  Result<CpuWeights> w = LoadWeights(d, options, SystemClock());
  EXPECT_TRUE(w.ok()) << w.status().ToString();
  return w.ok() ? *w : CpuWeights();
}

std::string Bytes(const PackedMatrix& m) {
  return {reinterpret_cast<const char*>(m.data), static_cast<size_t>(m.bytes())};
}

std::vector<const PackedMatrix*> MatricesOf(const CpuWeights& w) {
  std::vector<const PackedMatrix*> all = {&w.packed->embedding, &w.packed->lm_head};
  for (const PackedLayerWeights& l : w.packed->layers)
    all.insert(all.end(), {&l[Role::kQ], &l[Role::kK], &l[Role::kV], &l[Role::kO], &l[Role::kGate], &l[Role::kUp],
                           &l[Role::kDown]});
  return all;
}

TEST(Calibrate, EveryMatrixIsRoundedAndThreadsChangeNothing) {
  for (const char* name : {"llama-gqa", "qwen3", "gguf-mixed"}) {
    SCOPED_TRACE(name);
    const ModelDescription d = Describe(GoldenFolder(name));
    const CpuWeights one = Load(d, Int4(true, 1)), many = Load(d, Int4(true, 3)), nearest = Load(d, Int4(false));
    const auto a = MatricesOf(one), b = MatricesOf(many), plain = MatricesOf(nearest);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(Bytes(*a[i]), Bytes(*b[i])) << i;
      EXPECT_EQ(Bytes(*a[i]) == Bytes(*plain[i]), i < 2) << "matrix " << i << "; the vocabulary matrices have 8 bits";
    }
    EXPECT_NE(one.format, nearest.format);
  }
}

// Logits [count, vocab] after each of `ids`, one sequence.
std::vector<float> LogitsOf(const ModelConfig& config, const CpuWeights& weights, const std::vector<int32_t>& ids) {
  const auto count = static_cast<int32_t>(ids.size());
  ThreadPool pool(1, SystemClock());
  DecoderOptions options;
  options.ops = SelectOps("scalar");
  options.max_tokens = options.max_model_len = options.max_logit_rows = count;
  const auto decoder = Decoder::Create(config, weights, options);
  EXPECT_TRUE(decoder.ok());
  std::vector<int32_t> positions, blocks(static_cast<size_t>(count + 15) / 16);
  std::vector<int64_t> slots;
  for (int32_t i = 0; i < count; ++i) {
    positions.push_back(i);
    slots.push_back(i);
  }
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  AttentionItem item;
  item.count = count;
  item.block_table = blocks.data();
  const size_t layer =
      blocks.size() * 16 * static_cast<size_t>(test::AttentionIn(config).kv_heads * test::AttentionIn(config).head_dim);
  std::vector<float> memory(2 * layer * static_cast<size_t>(config.num_layers()));
  std::vector<KvLayer> kv;
  for (size_t l = 0; l < static_cast<size_t>(config.num_layers()); ++l) {
    float* k = memory.data() + 2 * l * layer;
    kv.push_back({k, k + layer, DType::kF32, 16, static_cast<int32_t>(test::AttentionIn(config).kv_heads),
                  static_cast<int32_t>(test::AttentionIn(config).head_dim)});
  }
  (*decoder)->Forward(pool, {count, ids.data(), positions.data(), slots.data(), {&item, 1}, positions}, kv);
  const float* logits = (*decoder)->Logits(pool, 0, count);
  return {logits, logits + count * config.vocab_size};
}

double Divergence(std::span<const float> p, const float* q) {
  double zp = 0, zq = 0, kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    zp += std::exp(double{p[i]});
    zq += std::exp(double{q[i]});
  }
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(double{p[i]}) / zp * (p[i] - std::log(zp) - q[i] + std::log(zq));
  return kl;
}

// How far a model's answers with 4-bit weights are from those with its weights, per token.
struct Divergences {
  double nearest = 0, calibrated = 0;
};
Divergences DivergencesOf(const ModelDescription& d) {
  const auto vocab = static_cast<size_t>(d.config.vocab_size);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 96; ++i) ids.push_back((i * 37 + 5) % static_cast<int32_t>(vocab));
  LoadWeightsOptions exact;
  exact.dequantize_to_f32 = true;
  const std::vector<float> want = LogitsOf(d.config, Load(d, exact), ids);
  const auto of = [&](bool calibrate) {
    const std::vector<float> got = LogitsOf(d.config, Load(d, Int4(calibrate)), ids);
    double kl = 0;
    for (size_t i = 0; i < want.size(); i += vocab) kl += Divergence({want.data() + i, vocab}, got.data() + i);
    return kl / static_cast<double>(ids.size());
  };
  return {of(false), of(true)};
}

// Gemma 4: the last two layers read K and V of earlier ones, and every layer has an input of each token.
TEST(Calibrate, LayersMayShareKvAndHaveInputs) {
  const ModelDescription d = Describe(GoldenFolder("gemma4"));
  const CpuWeights one = Load(d, Int4(true, 1)), many = Load(d, Int4(true, 3)), nearest = Load(d, Int4(false));
  for (size_t l = 0; l < one.packed->layers.size(); ++l) {
    for (const Role role : {Role::kQ, Role::kO, Role::kDown, Role::kInputGate}) {
      const std::string rounded = Bytes(one.packed->layers[l][role]);
      EXPECT_EQ(rounded, Bytes(many.packed->layers[l][role])) << "layer " << l;
      EXPECT_NE(rounded, Bytes(nearest.packed->layers[l][role])) << "layer " << l;
    }
  }
  for (const Role role : {Role::kInputTable, Role::kInputProjection}) {
    EXPECT_EQ(Bytes(one.packed->outside[role]), Bytes(nearest.packed->outside[role]));
  }
}

// Gemma 3n: the projections of streams and the matrices that mix them keep their formats.
TEST(Calibrate, StreamsAndLowRankResidualsArePassed) {
  const ModelDescription d = Describe(GoldenFolder("gemma3n"));
  const CpuWeights one = Load(d, Int4(true, 1)), many = Load(d, Int4(true, 3)), nearest = Load(d, Int4(false));
  for (size_t l = 0; l < one.packed->layers.size(); ++l) {
    for (const Role role : {Role::kQ, Role::kLowRankLeft, Role::kDown, Role::kInputGate}) {
      const std::string rounded = Bytes(one.packed->layers[l][role]);
      EXPECT_EQ(rounded, Bytes(many.packed->layers[l][role])) << "layer " << l;
      EXPECT_NE(rounded, Bytes(nearest.packed->layers[l][role])) << "layer " << l;
    }
    EXPECT_EQ(Bytes(one.packed->layers[l][Role::kPredict]), Bytes(nearest.packed->layers[l][Role::kPredict]));
  }
  EXPECT_EQ(Bytes(one.packed->outside.experts.at(1)[Role::kStreamOut]),
            Bytes(nearest.packed->outside.experts.at(1)[Role::kStreamOut]));
  const Divergences divergences = DivergencesOf(d);
  EXPECT_LT(divergences.calibrated, 0.93 * divergences.nearest);
}

// The tiny models' weights are random, so their activations offer little to exploit: these three gain a quarter.
TEST(Calibrate, AnswersAreCloserThanWithNearestWeights) {
  Divergences sum;
  for (const char* name : {"llama-bias", "qwen2", "qwen3"}) {
    const Divergences d = DivergencesOf(Describe(GoldenFolder(name)));
    sum.nearest += d.nearest;
    sum.calibrated += d.calibrated;
  }
  EXPECT_LT(sum.calibrated, 0.85 * sum.nearest);
}

TEST(Calibrate, DummyWeightsAreNotCalibrated) {
  const ModelDescription d = Describe(GoldenFolder("llama-gqa"));
  LoadWeightsOptions with = Int4(true), without = Int4(false);
  with.dummy = without.dummy = DummyWeights();
  EXPECT_EQ(Bytes(Load(d, with).packed->layers[0][Role::kQ]), Bytes(Load(d, without).packed->layers[0][Role::kQ]));
}

TEST(Calibrate, UsesASeparateCacheFile) {
  test::TempFolder folder;
  const ModelDescription d = Describe(GoldenFolder("llama-gqa"));
  std::string said;
  LoadWeightsOptions with = Int4(true), without = Int4(false);
  for (LoadWeightsOptions* options : {&with, &without}) {
    options->cache_folder = folder.path() + "/cache";
    options->say = [&](const std::string& line) { said += line + "\n"; };
    const CpuWeights fresh = Load(d, *options), cached = Load(d, *options);
    EXPECT_EQ(Bytes(fresh.packed->layers[0][Role::kDown]), Bytes(cached.packed->layers[0][Role::kDown]));
  }
  EXPECT_NE(said.find("packed weights from"), std::string::npos) << said;
  EXPECT_EQ(said.find("not used"), std::string::npos) << said;
  EXPECT_NE(Bytes(Load(d, with).packed->layers[0][Role::kQ]), Bytes(Load(d, without).packed->layers[0][Role::kQ]));
}

}  // namespace
}  // namespace tactus::compute
