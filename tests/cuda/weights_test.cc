// The forms of weights on the device: their bytes, their values, and the logits of passes with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compute/cuda/kernels/quantized.h"
#include "compute/exec/quantised_folders.h"
#include "compute/exec/tiny_model.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/device_test.h"

namespace tactus::test::cuda_weights_test {
namespace {

using compute::ModelDescription;
using compute::ModelTensor;
using compute::PackChoice;
using compute::Quantization;
using compute::Role;
using namespace compute::cuda;  // NOLINT: what is tested

constexpr PackChoice kQ80 = {.quantization = Quantization::kQ8_0}, kInt8 = {.quantization = Quantization::kInt8},
                     kInt4 = {.quantization = Quantization::kInt4};

std::string GoldenPath(const std::string& name) {
  const std::string folder = SourcePath("tests/golden/data/") + name;
  return name.starts_with("gguf") ? folder + "/model.gguf" : folder;
}
ModelDescription Described(const std::string& path) {
  auto description = compute::DescribeModel(path);
  TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
  return *description;
}

// The matrix of a tensor, and the row of it that the tensor begins at.
std::pair<DeviceMatrix, int64_t> FindMatrix(const DeviceWeights& weights, const compute::ModelConfig& config,
                                            const ModelTensor& t) {
  const DeviceMatrix& own = MatrixAt(weights, t);
  if (own.rows > 0) return {own, 0};
  for (size_t f = 0; f < kFusions; ++f) {
    int64_t row = 0;
    for (const Role role : RolesOf(static_cast<Fusion>(f)).matrices) {
      if (role == t.role) return {OwnerOf(weights, t).fused[f].matrix, row};
      for (const ModelTensor& other : config.Tensors()) {
        if (other.layer == t.layer && other.expert < 0 && other.role == role) row += other.rows;
      }
    }
  }
  return {};
}

// Row by row, as products read it: each column is the product with one token that is 1 there and 0 elsewhere.
std::vector<float> ValuesOf(const DeviceMatrix& m) {
  std::vector<bf16> ones(static_cast<size_t>(m.cols * m.cols), bf16{0});
  for (int64_t c = 0; c < m.cols; ++c) ones[static_cast<size_t>(c * m.cols + c)] = bf16{Bf16Bits(1.0f)};
  const Buffer<bf16> x(ones);
  const Buffer<float> y(m.cols * m.rows);
  MultiplyQuantized(TestStream(),
                    {.x = x.data(), .tokens = m.cols, .w = m, .y = y.data(), .y_type = Real::kF32, .y_stride = m.rows});
  const std::vector<float> columns = y.Read();
  std::vector<float> rows(columns.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = i / static_cast<size_t>(m.cols), column = i % static_cast<size_t>(m.cols);
    rows[i] = columns[column * static_cast<size_t>(m.rows) + row];
  }
  return rows;
}

// Compares each matrix that has codes on the device with `row_of`(tensor, row, out). Returns how many there are.
template <class RowOf>
int CompareValues(const ModelDescription& description, const DeviceWeights& weights, const RowOf& row_of) {
  int compared = 0;
  for (const ModelTensor& t : description.config.Tensors()) {
    if (!IsMatrix(t.role)) continue;
    const auto [m, first] = FindMatrix(weights, description.config, t);
    EXPECT_GT(m.rows, 0) << "no matrix of role " << static_cast<int>(t.role) << " in layer " << t.layer;
    if (m.format == MatrixFormat::kReal) continue;
    ++compared;
    const std::vector<float> values = ValuesOf(m);
    std::vector<float> want(static_cast<size_t>(t.cols));
    for (int64_t r = 0; r < t.rows; ++r) {
      row_of(t, r, want.data());
      float largest = 0.0f;
      for (const float v : want) largest = std::max(largest, std::abs(v));
      for (int64_t c = 0; c < t.cols; ++c) {
        const float v = want[static_cast<size_t>(c)];
        // A scale is off by a part in 512, and so is an offset, which is not much larger than the largest value.
        const float rounding = m.format == MatrixFormat::kFp8 ? 0.0f : 0x1p-8f;
        const float limit = rounding * (std::abs(v) + (m.offsets != nullptr ? 2.0f * largest : 0.0f)) + 1e-9f;
        const float got = values[static_cast<size_t>((first + r) * t.cols + c)];
        if (std::abs(got - v) <= limit) continue;
        ADD_FAILURE() << "role " << static_cast<int>(t.role) << " of layer " << t.layer << ", expert " << t.expert
                      << ", row " << r << ", column " << c << " is " << got << ", and in the file " << v;
        return compared;
      }
    }
  }
  return compared;
}

class CudaWeights : public testing::Test {
 protected:
  void SetUp() override {
    emulator::ResetDevice();
    emulator::TakeFindings();
  }
  void TearDown() override { ExpectNoFindings(); }

  static DeviceWeights Load(const ModelDescription& description, const CudaModelOptions& options) {
    auto weights = LoadCudaWeights(description, options);
    TACTUS_CHECK_MSG(weights.ok(), weights.status().ToString());
    return std::move(*weights);
  }

  // Compares with what the CPU packs, and returns the loaded weights' format.
  static std::string CompareWithPacked(const std::string& path, const PackChoice& packing, int matrices) {
    SCOPED_TRACE(path);
    const ModelDescription description = Described(path);
    const DeviceWeights weights = Load(description, {.type = Real::kBF16, .packing = packing});
    compute::LoadWeightsOptions options;
    options.pack = true;
    options.packing = packing;
    const auto cpu = compute::LoadWeights(description, options, SystemClock());
    TACTUS_CHECK_MSG(cpu.ok(), cpu.status().ToString());
    const int compared = CompareValues(description, weights, [&](const ModelTensor& t, int64_t row, float* out) {
      UnpackRow(MatrixAt(*cpu->packed, t), row, out);
    });
    EXPECT_EQ(compared, matrices) << weights.format;
    return weights.format;
  }
};

// ---- forms and values ----

// Rows of 32 columns have one group.
TEST_F(CudaWeights, FilesKeepTheirCodes) {
  const auto compare = [&](const char* name, int matrices) {
    return CompareWithPacked(GoldenPath(name), {}, matrices);
  };
  EXPECT_EQ(compare("gguf-q8_0", 15), "int8 by row (13), int8 by 32 (2), bf16 (1) from q8_0 (16)");
  EXPECT_EQ(compare("gguf-q4_0", 15), "int4 by row (13), int4 by 32 (2), bf16 (1) from q4_0 (16)");
  EXPECT_EQ(compare("gguf-q4_1", 15), "int4 by row (13), int4 by 32 (2), bf16 (1) from q4_1 (16)");
  EXPECT_EQ(compare("gguf-q5_0", 15), "int8 by row (13), int8 by 32 (2), bf16 (1) from q5_0 (16)");
  EXPECT_EQ(compare("gguf-q5_1", 15), "int8 by row (13), int8 by 32 (2), bf16 (1) from q5_1 (16)");
  EXPECT_EQ(compare("gguf-q4_k", 8), "int4 by 32 (6), int8 by row (2), bf16 (1) from q4_k (7), q8_0 (2)");
  EXPECT_EQ(compare("gguf-q5_k", 8), "int8 by 32 (6), int8 by row (2), bf16 (1) from q5_k (7), q8_0 (2)");
  EXPECT_EQ(compare("gguf-q6_k", 8), "int8 by 16 (6), int8 by row (2), bf16 (1) from q6_k (7), q8_0 (2)");
  EXPECT_EQ(compare("gguf-mixed", 12),
            "int4 by 32 (5), bf16 (4), int8 by 32 (3), int8 by row (3), int8 by 16 (1) from q8_0 (3), f16 (2), "
            "q4_0 (2), q4_k (2), q6_k (2), bf16 (1), q4_1 (1), q5_0 (1), q5_1 (1), q5_k (1)");
}

TEST_F(CudaWeights, ExpertsKeepTheirCodes) {
  EXPECT_EQ(CompareWithPacked(GoldenPath("gguf-experts-mixed"), {}, 32),
            "bf16 (26), int4 by row (16), int8 by row (16) from f16 (16), q4_1 (16), q8_0 (16), bf16 (10)");
  EXPECT_EQ(CompareWithPacked(GoldenPath("gpt-oss-mxfp4"), {}, 24),
            "int8 by row (16), bf16 (10), int8 by 32 (8) from mxfp4 (24), bf16 (10)");
}

TEST_F(CudaWeights, QuantisedAtLoadAreTheCpusCodes) {
  const std::string llama = GoldenPath("llama-bias");
  EXPECT_EQ(CompareWithPacked(llama, kQ80, 15), "int8 by row (13), int8 by 32 (2), bf16 (1) from bf16 (16)");
  EXPECT_EQ(CompareWithPacked(llama, kInt8, 15), "int8 by row (15), bf16 (1) from bf16 (16)");
  EXPECT_EQ(CompareWithPacked(llama, kInt4, 15), "int4 by row (14), bf16 (1), int8 by row (1) from bf16 (16)");
  EXPECT_EQ(CompareWithPacked(llama, {.quantization = Quantization::kInt4, .calibrate = true}, 15),
            "int4 by row (14), bf16 (1), int8 by row (1) by least squares from bf16 (16)");
  EXPECT_EQ(CompareWithPacked(GoldenPath("qwen2-moe"), kInt8, 70), "int8 by row (70), bf16 (1) from bf16 (71)");
}

TEST_F(CudaWeights, MayBeRoundedToBf16) {
  EXPECT_EQ(CompareWithPacked(GoldenPath("gguf-q8_0"), {.round_to_bf16 = true}, 0), "bf16 from q8_0 (16)");
}

// GPTQ, AWQ, compressed-tensors, FP8: folders of one layer.
class CudaQuantisedFolders : public CudaWeights, public testing::WithParamInterface<quantised::Format> {};

TEST_P(CudaQuantisedFolders, KeepTheirCodes) {
  const quantised::Format& format = GetParam();
  const TempFolder folder, decoded;
  WriteQuantised(format, folder);
  WriteDecoded(format, folder, decoded);
  const ModelDescription description = Described(folder.path());
  const DeviceWeights weights = Load(description, {.type = Real::kBF16});
  compute::LoadWeightsOptions options;
  options.dequantize_to_f32 = true;
  const auto cpu = compute::LoadWeights(Described(decoded.path()), options, SystemClock());
  TACTUS_CHECK_MSG(cpu.ok(), cpu.status().ToString());
  const int compared = CompareValues(description, weights, [&](const ModelTensor& t, int64_t row, float* out) {
    const compute::MatrixView& m = MatrixAt(*cpu, t);
    std::copy_n(static_cast<const float*>(m.data) + row * m.cols, m.cols, out);
  });
  // A block of FP8 covers the rows of all matrices but one.
  const std::map<std::string, std::pair<int, std::string>> wanted = {
      {"fp8_blocks", {6, "fp8 (6), bf16 (3)"}},
      {"compressed_fp8", {7, "fp8 (7), bf16 (2)"}},
      {"compressed_w4", {7, "int4 by row (6), bf16 (2), int4 by 128 (1) from i4_bf16 (7), bf16 (2)"}},
      {"compressed_w4_zeros", {7, "int4 by row (6), bf16 (2), int4 by 128 (1) from u4_bf16 (7), bf16 (2)"}},
      {"compressed_w8a8", {7, "int8 by row (7), bf16 (2) from i8_row (7), bf16 (2)"}},
      {"compressed_mxfp4", {7, "int8 by 32 (7), bf16 (2) from mxfp4 (7), bf16 (2)"}},
      {"gptq_4", {7, "int4 by 64 (7), bf16 (2) from u4_f16 (7), bf16 (2)"}},
      {"gptq_4_fused", {7, "int4 by 64 (7), bf16 (2) from u4_f16 (7), bf16 (2)"}},
      {"gptq_4_order", {0, "bf16"}},
      {"gptq_8", {7, "int8 by 32 (7), bf16 (2) from q8_0 (7), bf16 (2)"}},
      {"awq", {7, "int4 by row (6), bf16 (2), int4 by 128 (1) from u4_f16 (7), bf16 (2)"}},
      {"modelopt_nvfp4", {0, "bf16"}}};
  EXPECT_EQ(compared, wanted.at(format.name).first);
  EXPECT_EQ(weights.format, wanted.at(format.name).second);
}
INSTANTIATE_TEST_SUITE_P(Formats, CudaQuantisedFolders, testing::ValuesIn(quantised::kFormats),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- bytes ----

TEST_F(CudaWeights, TakeTheBytesOfThePlan) {
  for (const char* const name :
       {"llama-bias", "gguf-mixed", "gguf-q4_k", "gpt-oss-mxfp4", "qwen2-moe", "gemma3n", "gemma4-12b", "gpt2"}) {
    for (const PackChoice& packing : {PackChoice{}, kQ80, kInt8, kInt4}) {
      for (const Real type : {Real::kBF16, Real::kF32}) {
        if (type == Real::kF32 && packing.quantization != Quantization::kNone) continue;
        SCOPED_TRACE(testing::Message() << name << " quantization " << static_cast<int>(packing.quantization)
                                        << " type " << static_cast<int>(type));
        const ModelDescription description = Described(GoldenPath(name));
        const int64_t before = emulator::CurrentCounts().memory_bytes;
        const DeviceWeights weights = Load(description, {.type = type, .packing = packing});
        int64_t bytes = 0;
        for (const DeviceMemory& memory : weights.memory) bytes += memory.bytes();
        const auto planned = PlanDeviceWeightBytes(description, {.type = type, .packing = packing});
        ASSERT_TRUE(planned.ok()) << planned.status().ToString();
        EXPECT_EQ(bytes, *planned);
        EXPECT_EQ(weights.bytes, *planned);
        EXPECT_GE(emulator::CurrentCounts().memory_bytes - before, *planned);
      }
    }
  }
}

// The matrix `down` has [128, 256].
TEST_F(CudaWeights, CodesTakeTheirBitsAndTheirScales) {
  const auto bytes = [](const quantised::Format& format, const PackChoice& packing) {
    const TempFolder folder;
    WriteQuantised(format, folder);
    const ModelDescription description = Described(folder.path());
    const auto opened = compute::OpenWeights(description, compute::MatrixUse::kRows);
    TACTUS_CHECK_MSG(opened.ok(), opened.status().ToString());
    const auto plan = PlanDeviceWeights(description.config, **opened, {.packing = packing});
    TACTUS_CHECK_MSG(plan.ok(), plan.status().ToString());
    for (const DeviceSlot& slot : plan->slots) {
      if (plan->packing.slots[slot.parts[0]].tensor.role == Role::kDown) return slot.bytes;
    }
    return int64_t{0};
  };
  constexpr int64_t kRows = 128, kCols = 256;
  EXPECT_EQ(bytes(quantised::FormatNamed("compressed_w4"), {}), kRows * (kCols / 2 + 2 * kCols / 128));
  EXPECT_EQ(bytes(quantised::FormatNamed("awq"), {}), kRows * (kCols / 2 + 4 * kCols / 128)) << "with offsets";
  EXPECT_EQ(bytes(quantised::FormatNamed("gptq_8"), {}), kRows * (kCols + 2 * kCols / 32));
  EXPECT_EQ(bytes(quantised::FormatNamed("compressed_w8a8"), {}), kRows * (kCols + 2));
  EXPECT_EQ(bytes(quantised::FormatNamed("compressed_fp8"), {}), kRows * (kCols + 4));
  EXPECT_EQ(bytes(quantised::FormatNamed("awq"), {.round_to_bf16 = true}), kRows * kCols * 2);
  EXPECT_EQ(bytes(quantised::FormatNamed("awq"), kInt8), kRows * (kCols + 2));
}

TEST_F(CudaWeights, TheReferenceIsInF32) {
  const DeviceWeights weights = Load(Described(GoldenPath("gguf-q8_0")), {.type = Real::kF32});
  EXPECT_EQ(weights.format, "f32 from q8_0 (16)");
  for (const DeviceLayer& layer : weights.layers) {
    EXPECT_EQ(layer[Role::kDown].format, MatrixFormat::kReal);
    EXPECT_EQ(layer[Role::kDown].real, Real::kF32);
  }
}

// ---- passes ----

std::vector<TokenId> Prompt(int64_t vocab) {
  std::vector<TokenId> tokens(24);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>((i * 11 + 8) % static_cast<size_t>(vocab));
  return tokens;
}

// Logits of all positions of a prompt, then of two decodes.
template <class Runner>
std::vector<float> LogitsOf(Runner& runner, const ExecutorSize& size, int64_t vocab) {
  StepDriver driver(runner, size.num_blocks, size.block_size, true);
  const int32_t s = driver.Add(MakeRequest(Prompt(vocab), Greedy(), 8));
  const StepResult result = driver.Step({{s, driver.at(s).pending()}}, true);
  TACTUS_CHECK_MSG(result.status.ok(), result.status.ToString());
  driver.Step({{s, 1}}, true);
  driver.Step({{s, 1}}, true);
  std::vector<float> all;
  for (const auto& [position, logits] : driver.at(s).logits) all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

ExecutorSize SizeOfRun() {
  ExecutorSize size;
  size.num_blocks = 8;
  size.max_slots = 1;
  size.max_step_tokens = 32;
  size.max_step_items = 32;
  size.max_model_len = 40;
  return size;
}

std::vector<float> DeviceLogits(const ModelDescription& description, const CudaModelOptions& options) {
  auto runner = CudaRunner::Create(description, options, SizeOfRun());
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  return LogitsOf(**runner, SizeOfRun(), description.config.vocab_size);
}

// The CPU with weights of the same codes, tokens and KV in f32.
std::vector<float> CpuLogits(const ModelDescription& description, PackChoice packing) {
  compute::LoadWeightsOptions load;
  load.pack = true;
  load.packing = packing;
  load.packing.rounding = compute::Rounding::kNone;
  auto weights = compute::LoadWeights(description, load, SystemClock());
  TACTUS_CHECK_MSG(weights.ok(), weights.status().ToString());
  const ExecutorSize size = SizeOfRun();
  compute::CpuExecutorOptions options;
  options.clock = &SystemClock();
  options.kv_dtype = compute::DType::kF32;
  options.num_blocks = size.num_blocks;
  options.max_slots = size.max_slots;
  options.max_step_tokens = size.max_step_tokens;
  options.max_step_items = size.max_step_items;
  options.max_model_len = size.max_model_len;
  auto runner = compute::StepRunner::Create(description.config, *weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  return LogitsOf(**runner, size, description.config.vocab_size);
}

// The relative distance of a position's logits in the 2-norm, the median over positions: rounding may change a
// mixture's choice of experts at some of them.
double MedianDistance(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab) {
  TACTUS_CHECK(a.size() == b.size() && !a.empty());
  std::vector<double> distances;
  for (size_t first = 0; first < a.size(); first += static_cast<size_t>(vocab)) {
    double error = 0, norm = 0;
    for (size_t i = first; i < first + static_cast<size_t>(vocab); ++i) {
      error += std::pow(double{a[i]} - b[i], 2);
      norm += std::pow(double{b[i]}, 2);
    }
    distances.push_back(std::sqrt(error / norm));
  }
  std::sort(distances.begin(), distances.end());
  return distances[distances.size() / 2];
}

TEST_F(CudaWeights, FusedProductsHaveTheBitsOfSingleOnes) {
  for (const char* const name : {"llama-bias", "qwen2", "gguf-q8_0", "gguf-q4_k", "gguf-mixed", "qwen2-moe", "olmo2",
                                 "gemma4-12b", "gemma3n", "phi3"}) {
    for (const Real type : {Real::kBF16, Real::kF32}) {
      SCOPED_TRACE(testing::Message() << name << " type " << static_cast<int>(type));
      const ModelDescription description = Described(GoldenPath(name));
      const std::vector<float> fused = DeviceLogits(description, {.type = type});
      EXPECT_EQ(DeviceLogits(description, {.type = type, .fuse = false}), fused);
    }
  }
}

// Which products are fused.
TEST_F(CudaWeights, LayersFuseWhatHasOneInputAndOneForm) {
  const auto rows = [&](const char* name, Fusion fusion) {
    const DeviceWeights weights = Load(Described(GoldenPath(name)), {.type = Real::kBF16});
    const FusedProduct* const fused = weights.layers[0].FusedOf(fusion);
    return fused == nullptr ? 0 : fused->matrix.rows;
  };
  EXPECT_EQ(rows("llama-bias", Fusion::kQkv), 32 + 2 * 16);
  EXPECT_EQ(rows("llama-bias", Fusion::kGateUp), 2 * 64);
  EXPECT_EQ(rows("gemma4-12b", Fusion::kQkv), 64);
  EXPECT_EQ(rows("qwen2-moe", Fusion::kSharedGateUp), 2 * 48);
  EXPECT_EQ(rows("olmo2", Fusion::kQkv), 0) << "norms over all heads read rows one after another";
  EXPECT_EQ(rows("gpt2", Fusion::kGateUp), 0);
}

TEST_F(CudaWeights, PassesAreNearTheCpusWithTheSameCodes) {
  for (const char* const name : {"llama-bias", "mixtral", "gguf-q4_k", "gguf-q6_k"}) {
    const ModelDescription description = Described(GoldenPath(name));
    for (const PackChoice& packing : {PackChoice{}, kQ80, kInt8, kInt4}) {
      SCOPED_TRACE(testing::Message() << name << " quantization " << static_cast<int>(packing.quantization));
      // The CPU quantises the embedding too.
      const double limit = packing.quantization == Quantization::kNone ? 0.015 : 0.04;
      const std::vector<float> got = DeviceLogits(description, {.type = Real::kBF16, .packing = packing});
      EXPECT_LT(MedianDistance(got, CpuLogits(description, packing), description.config.vocab_size), limit);
    }
  }
}

}  // namespace
}  // namespace tactus::test::cuda_weights_test
