// Tokens in e4m3 (--activation-dtype fp8): products and passes against f64 with the same rounding of tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/check.h"
#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/dense.h"
#include "compute/exec/quantised_folders.h"
#include "compute/model/loader.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/device_test.h"
#include "support/step_driver.h"

namespace tactus::test::fp8_tokens_test {
namespace {

using compute::ModelDescription;
using compute::Role;
using namespace compute::cuda;  // NOLINT: what is tested

// A row in e4m3 with its scale, as QuantizeToFp8 defines it.
std::vector<double> Quantised(const std::vector<double>& x) {
  float most = 0.0f;
  for (const double v : x) most = std::max(most, std::abs(static_cast<float>(v)));
  const float scale = most > 0.0f ? most / 448.0f : 1.0f;
  std::vector<double> values;
  for (const double v : x) {
    values.push_back(double{FromE4m3Bits(E4m3Bits(static_cast<float>(v) / scale))} * double{scale});
  }
  return values;
}

class CudaFp8Tokens : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    emulator::SetDeviceShape({.capability = kFp8Capability});
    const auto device = OpenDevice(0);
    TACTUS_CHECK_MSG(device.ok(), device.status().ToString());
    if (device->capability < kFp8Capability) GTEST_SKIP() << device->name << " does not multiply codes in e4m3";
  }
  void TearDown() override {
    DeviceTest::TearDown();
    emulator::SetDeviceShape({});
  }
};
TACTUS_DEVICE_TESTS(CudaFp8Tokens);

// ---- products ----

struct ProductCase {
  int64_t tokens, rows, cols;
  bool one_scale = false, bias = false, adds = false;
  Real y_type = Real::kF32;
};

uint32_t Next(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}
std::vector<float> Numbers(int64_t n, uint32_t seed, float most) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = most * (static_cast<float>(Next(seed)) * 0x1p-23f - 1.0f);
  return v;
}

void CheckProduct(Stream& stream, const ProductCase& c) {
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.rows << " x " << c.cols << ", one scale "
                                  << c.one_scale << ", bias " << c.bias << ", adds " << c.adds);
  const std::vector<bf16> x = Rounded<bf16>(Numbers(c.tokens * c.cols, 1, 3.0f));
  const std::vector<e4m3> w = Rounded<e4m3>(Numbers(c.rows * c.cols, 2, 448.0f));
  std::vector<float> w_scales = Numbers(c.one_scale ? 1 : c.rows, 3, 0.001f);
  const std::vector<float> bias = Numbers(c.rows, 4, 2.0f), before = Numbers(c.tokens * c.rows, 5, 2.0f);
  const Buffer<bf16> x_at(x);
  const Buffer<e4m3> w_at(w), codes(c.tokens * c.cols);
  const Buffer<float> w_scales_at(w_scales), bias_at(bias), scales(c.tokens);
  const Buffer<float> y_float(before);
  const Buffer<bf16> y_half(c.tokens * c.rows);
  auto gemm = Gemm::Create(true);
  ASSERT_TRUE(gemm.ok()) << gemm.status().ToString();
  const Status prepared = (*gemm)->PrepareFp8(c.rows, c.cols, c.tokens);
  ASSERT_TRUE(prepared.ok()) << prepared.ToString();
  QuantizeToFp8(stream, x_at.data(), Real::kBF16, c.tokens, c.cols, codes.data(), scales.data());
  const bool half = c.y_type == Real::kBF16;
  (*gemm)->Multiply(stream, {.x = codes.data(),
                             .w = w_at.data(),
                             .tokens = c.tokens,
                             .rows = c.rows,
                             .cols = c.cols,
                             .bias = c.bias ? bias_at.data() : nullptr,
                             .y = half ? static_cast<void*>(y_half.data()) : y_float.data(),
                             .y_type = c.y_type,
                             .y_stride = c.rows,
                             .adds = c.adds,
                             .x_scales = scales.data(),
                             .w_scales = w_scales_at.data(),
                             .one_w_scale = c.one_scale});
  const std::vector<float> got = half ? Floats(y_half.Read()) : y_float.Read();
  for (int64_t t = 0; t < c.tokens; ++t) {
    const auto first = x.begin() + t * c.cols;
    const std::vector<float> row = Floats(std::vector<bf16>(first, first + c.cols));
    const std::vector<double> token = Quantised({row.begin(), row.end()});
    for (int64_t r = 0; r < c.rows; ++r) {
      const double scale = w_scales[static_cast<size_t>(c.one_scale ? 0 : r)];
      double want = 0, size = 0;
      for (int64_t k = 0; k < c.cols; ++k) {
        const double part = token[static_cast<size_t>(k)] * ToFloat(w[static_cast<size_t>(r * c.cols + k)]) * scale;
        want += part;
        size += std::abs(part);
      }
      const auto at = static_cast<size_t>(t * c.rows + r);
      if (c.bias) want += bias[static_cast<size_t>(r)];
      if (c.adds) want += before[at];
      // A card's matrix unit adds products of e4m3 with fewer bits than f32 has.
      ASSERT_NEAR(got[at], want, size * 0x1p-11 + std::abs(want) * (half ? 0x1p-8 : 1e-6) + 1e-6) << t << " " << r;
    }
  }
}

TEST_P(CudaFp8Tokens, ProductsAreThoseOfTheRoundedTokens) {
  CheckProduct(stream(), {.tokens = 1, .rows = 16, .cols = 16});
  CheckProduct(stream(), {.tokens = 5, .rows = 48, .cols = 272});
  CheckProduct(stream(), {.tokens = 33, .rows = 32, .cols = 144, .one_scale = true});
  CheckProduct(stream(), {.tokens = 3, .rows = 32, .cols = 64, .bias = true, .adds = true});
  CheckProduct(stream(), {.tokens = 3, .rows = 32, .cols = 64, .bias = true, .y_type = Real::kBF16});
}

// ---- passes ----

ModelDescription Described(const std::string& path) {
  auto description = compute::DescribeModel(path);
  TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
  return *description;
}

// The model of compressed_fp8: one layer, matrices in e4m3 with a scale for each row.
struct Model {
  Model() {
    const quantised::Format& format = quantised::FormatNamed("compressed_fp8");
    WriteQuantised(format, folder);
    WriteDecoded(format, folder, decoded);
    description = Described(folder.path());
  }
  TempFolder folder, decoded;
  ModelDescription description;
};

ExecutorSize SizeOfRun() {
  ExecutorSize size;
  size.num_blocks = 16;
  size.max_slots = 4;
  size.max_step_tokens = 40;
  size.max_step_items = 40;
  size.max_model_len = 64;
  return size;
}

// Logits of all positions of a prompt.
std::vector<float> LogitsOf(const ModelDescription& description, const CudaModelOptions& options,
                            std::vector<TokenId> prompt) {
  const ExecutorSize size = SizeOfRun();
  auto runner = CudaRunner::Create(description, options, size);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  StepDriver driver(**runner, size.num_blocks, size.block_size, true);
  const int32_t s = driver.Add(MakeRequest(std::move(prompt), Greedy()));
  const StepResult result = driver.Step({{s, driver.at(s).pending()}}, true);
  TACTUS_CHECK_MSG(result.status.ok(), result.status.ToString());
  std::vector<float> all;
  for (const auto& [position, logits] : driver.at(s).logits) all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

// In the 2-norm, relative.
template <class T>
double Distance(const std::vector<float>& a, const std::vector<T>& b) {
  TACTUS_CHECK(a.size() == b.size() && !a.empty());
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(error / norm);
}

// A pass of one token in f64. Values are rounded where the device rounds them: to bf16 between operators, to e4m3
// before matrices in FP8. Attention to one position is its v.
class OneTokenPass {
 public:
  explicit OneTokenPass(const Model& model) : config_(model.description.config) {
    const ModelDescription decoded = Described(model.decoded.path());
    compute::LoadWeightsOptions options;
    options.dequantize_to_f32 = true;
    const auto weights = compute::LoadWeights(decoded, options, SystemClock());
    TACTUS_CHECK_MSG(weights.ok(), weights.status().ToString());
    for (const compute::ModelTensor& t : config_.Tensors()) {
      std::vector<float>& values = values_[t.role];
      const int64_t n = t.rows * (IsMatrix(t.role) ? t.cols : 1);
      const float* const from = IsMatrix(t.role) ? static_cast<const float*>(MatrixAt(*weights, t).data)
                                                 : OwnerOf(*weights, t).vector(t.role);
      values.assign(from, from + n);
    }
  }

  std::vector<double> Logits(TokenId token) const {
    const auto dim = static_cast<size_t>(config_.hidden_size);
    const std::vector<float>& table = values_.at(Role::kEmbedding);
    const auto row = table.begin() + static_cast<int64_t>(static_cast<size_t>(token) * dim);
    std::vector<double> hidden(row, row + static_cast<int64_t>(dim));
    const std::vector<double> v = ToBf16(Multiply(Role::kV, Quantised(Norm(hidden, Role::kAttentionNorm))));
    const size_t width = dim / quantised::kHeads;
    std::vector<double> mixed;
    for (size_t i = 0; i < dim; ++i) {
      const size_t kv_head = i / width / (quantised::kHeads / quantised::kKvHeads);
      mixed.push_back(v[kv_head * width + i % width]);
    }
    Add(Multiply(Role::kO, Quantised(mixed)), &hidden);
    const std::vector<double> x = Quantised(Norm(hidden, Role::kFeedForwardNorm));
    std::vector<double> gate = ToBf16(Multiply(Role::kGate, x));
    const std::vector<double> up = ToBf16(Multiply(Role::kUp, x));
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    Add(Multiply(Role::kDown, Quantised(ToBf16(gate))), &hidden);
    return Multiply(Role::kLmHead, Norm(hidden, Role::kFinalNorm));
  }

 private:
  static std::vector<double> ToBf16(std::vector<double> values) {
    for (double& v : values) v = FromBf16Bits(Bf16Bits(static_cast<float>(v)));
    return values;
  }
  static void Add(const std::vector<double>& from, std::vector<double>* to) {
    for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
  }
  std::vector<double> Multiply(Role role, const std::vector<double>& x) const {
    const std::vector<float>& w = values_.at(role);
    std::vector<double> y(w.size() / x.size());
    for (size_t i = 0; i < w.size(); ++i) y[i / x.size()] += double{w[i]} * x[i % x.size()];
    return y;
  }
  std::vector<double> Norm(const std::vector<double>& x, Role role) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + config_.final_norm.eps);
    std::vector<double> y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * factor * values_.at(role)[i]);
    return ToBf16(y);
  }

  const compute::ModelConfig& config_;
  std::map<Role, std::vector<float>> values_;
};

TEST_P(CudaFp8Tokens, PassIsThatOfF64WithTokensRoundedBeforeEachMatrix) {
  const Model model;
  const OneTokenPass reference(model);
  for (const TokenId token : {3, 40, 77}) {
    SCOPED_TRACE(token);
    const std::vector<double> want = reference.Logits(token);
    const CudaModelOptions options{.type = Real::kBF16, .kv_type = KvType::kF32};
    CudaModelOptions fp8 = options;
    fp8.fp8_tokens = true;
    // The embedding is most of the logits. So the limit is a part of what the rounding of tokens changes: sums in f32
    // change some roundings to bf16 and to e4m3.
    const double rounding = Distance(LogitsOf(model.description, options, {token}), want);
    EXPECT_GT(rounding, 2e-4) << "tokens in bf16 are as near: the reference shows nothing";
    EXPECT_LT(Distance(LogitsOf(model.description, fp8, {token}), want), 0.2 * rounding);
  }
}

std::vector<TokenId> Prompt() {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 24; ++i) tokens.push_back(static_cast<TokenId>((i * 11 + 8) % quantised::kVocab));
  return tokens;
}

TEST_P(CudaFp8Tokens, PassesAreNearThoseOfUnroundedTokens) {
  const Model model;
  for (const Real type : {Real::kBF16, Real::kF16}) {
    CudaModelOptions options{.type = type, .kv_type = type == Real::kBF16 ? KvType::kBF16 : KvType::kF16};
    const std::vector<float> unrounded = LogitsOf(model.description, options, Prompt());
    options.fp8_tokens = true;
    const std::vector<float> got = LogitsOf(model.description, options, Prompt());
    EXPECT_LT(Distance(got, unrounded), 0.002);
    EXPECT_GT(Distance(got, unrounded), 1e-4) << "tokens were not rounded";
  }
}

TEST_P(CudaFp8Tokens, FusedProductsHaveTheBitsOfSingleOnes) {
  const Model model;
  CudaModelOptions options{.type = Real::kBF16, .kv_type = KvType::kBF16, .fp8_tokens = true};
  const std::vector<float> fused = LogitsOf(model.description, options, Prompt());
  options.fuse = false;
  EXPECT_EQ(LogitsOf(model.description, options, Prompt()), fused);
}

// The limit of the library; such matrices are multiplied with tokens of 16 bits.
TEST(CudaFp8Matrices, HaveSidesThatAreMultiplesOf16) {
  const auto takes = [](MatrixFormat format, int64_t rows, int64_t cols) {
    return TakesFp8Tokens({.format = format, .rows = rows, .cols = cols});
  };
  EXPECT_TRUE(takes(MatrixFormat::kFp8, 16, 48));
  EXPECT_FALSE(takes(MatrixFormat::kFp8, 24, 48));
  EXPECT_FALSE(takes(MatrixFormat::kFp8, 16, 40));
  EXPECT_FALSE(takes(MatrixFormat::kInt8, 16, 48));
  EXPECT_FALSE(takes(MatrixFormat::kReal, 16, 48));
}

}  // namespace
}  // namespace tactus::test::fp8_tokens_test
