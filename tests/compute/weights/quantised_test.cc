// Quantised weights of Hugging Face folders: every format against its decoder in NumPy
// (tools/make_quantised_weights.py), bit for bit, and what is refused.
#include "base/check.h"
#include "base/json.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"
#include "compute/tensor/quantize.h"
#include "compute/weights/quant/quantization.h"
#include "compute/weights/safetensors.h"
#include "model_files.h"

namespace tactus::quantised_test {
namespace {

using compute::DType;
using compute::TensorEntry;
using compute::TensorSet;

constexpr StatusCode kLoss = StatusCode::kDataLoss;

struct Case {
  std::string name, rows;
  SortedJson config;
};

std::string DataPath(const std::string& name) {
  return test::SourcePath("tests/compute/weights/data/quantised/") + name;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const SortedJson all = SortedJson::parse(test::ReadFile(DataPath("cases.json")));
  for (const auto& [name, c] : all.items()) {
    cases.push_back({name, c["rows"], {{"quantization_config", c["quantization_config"]}}});
  }
  return cases;
}
Case CaseOf(const std::string& name) {
  for (const Case& c : Cases()) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << name;
  return {};
}

// The tensors of a case's file, whose bytes it owns.
struct Loaded {
  explicit Loaded(const std::string& name) : bytes(test::ReadFile(DataPath(name + ".safetensors"))) {
    EXPECT_TRUE(compute::ParseSafetensors(test::Bytes(bytes), name, &set).ok()) << name;
    golden = *set.Find("golden");
    set.tensors.erase("golden");
  }
  std::string bytes;
  TensorSet set;
  TensorEntry golden;
};

Status Apply(const SortedJson& config, TensorSet* set) {
  const auto method = compute::ReadQuantization(config.dump(), "config.json");
  if (!method.ok()) return method.status();
  TACTUS_CHECK(*method != nullptr);
  return compute::ApplyQuantization(**method, set);
}

// The weight's rows as numbers (first), and as their format decodes (second).
std::pair<std::vector<float>, std::vector<float>> ValuesOf(const TensorEntry& weight) {
  const int64_t cols = weight.shape.back(), rows = compute::CheckedElements(weight.shape) / cols;
  std::vector<float> numbers(static_cast<size_t>(rows * cols)), stored(numbers.size());
  std::vector<std::byte> row(static_cast<size_t>(compute::RowBytes(weight.dtype, cols)));
  for (int64_t r = 0; r < rows; ++r) {
    weight.rows->Numbers(r, numbers.data() + r * cols);
    weight.rows->Stored(r, row.data());
    compute::Dequantize(weight.dtype, row.data(), cols, stored.data() + r * cols);
  }
  return {numbers, stored};
}

class Quantised : public testing::TestWithParam<Case> {};

TEST_P(Quantised, DecodesToTheBitsOfTheReference) {
  Loaded file(GetParam().name);
  const Status applied = Apply(GetParam().config, &file.set);
  ASSERT_TRUE(applied.ok()) << applied.ToString();
  ASSERT_EQ(file.set.tensors.size(), 1u);  // the weight alone: what it is made of is gone, as are activations' scales
  const auto& [name, weight] = *file.set.tensors.begin();
  EXPECT_EQ(name, GetParam().name == "mxfp4" ? "m" : "m.weight");
  EXPECT_EQ(weight.shape, file.golden.shape);
  EXPECT_EQ(compute::InfoOf(weight.dtype).name, GetParam().rows);
  ASSERT_NE(weight.rows, nullptr);
  const auto [numbers, stored] = ValuesOf(weight);
  ASSERT_EQ(numbers.size() * 4, static_cast<size_t>(file.golden.bytes));
  for (size_t i = 0; i < numbers.size(); ++i) {
    float want = 0;
    std::memcpy(&want, file.golden.data + 4 * i, sizeof want);
    ASSERT_EQ(compute::BitsOf(numbers[i]), compute::BitsOf(want)) << "element " << i << ": " << numbers[i];
    if (weight.dtype == DType::kBF16) want = compute::BF16ToF32(compute::F32ToBF16(want));
    ASSERT_EQ(stored[i], want) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Quantised, testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(QuantisedTensors, AMissingTensorIsNamed) {
  const auto without = [](const std::string& name, const std::string& tensor) {
    Loaded file(name);
    EXPECT_EQ(file.set.tensors.erase(tensor), 1u);
    return Apply(CaseOf(name).config, &file.set);
  };
  EXPECT_REFUSED(without("fp8-block", "m.weight_scale_inv"), kLoss, "fp8-block: tensor 'm.weight_scale_inv'",
                 "missing");
  EXPECT_REFUSED(without("compressed-w4", "m.weight_scale"), kLoss, "'m.weight_scale'", "missing");
  EXPECT_REFUSED(without("compressed-w4", "m.weight_shape"), kLoss, "'m.weight_shape'", "i64 or i32 [2]");
  EXPECT_REFUSED(without("compressed-nvfp4", "m.weight_global_scale"), kLoss, "'m.weight_global_scale'");
  EXPECT_REFUSED(without("gptq-4", "m.scales"), kLoss, "'m.scales'", "f16, bf16 or f32 [2, 8]", "beside");
  EXPECT_REFUSED(without("gptq-4", "m.qzeros"), kLoss, "'m.qzeros'", "i32 [2, 1]");
  EXPECT_REFUSED(without("awq", "m.qzeros"), kLoss, "'m.qzeros'");
  EXPECT_REFUSED(without("mxfp4", "m_scales"), kLoss, "'m_scales'", "missing");
  EXPECT_REFUSED(without("modelopt-nvfp4", "m.weight_scale"), kLoss, "'m.weight_scale'", "f8_e4m3 [8, 4]");
}

TEST(QuantisedTensors, AWrongShapeOrTypeIsNamed) {
  const auto with = [](const std::string& name, const std::string& tensor, std::vector<int64_t> shape) {
    Loaded file(name);
    file.set.tensors.at(tensor).shape = std::move(shape);
    return Apply(CaseOf(name).config, &file.set);
  };
  EXPECT_REFUSED(with("fp8-block", "m.weight_scale_inv", {9, 1}), kLoss, "'m.weight_scale_inv' is f32 [9, 1]",
                 "expected [3, 3]", "block of 3 x 24");
  EXPECT_REFUSED(with("fp8-channel", "m.weight_scale", {4, 2}), kLoss, "'m.weight_scale' is f32 [4, 2]", "[8, 1]");
  EXPECT_REFUSED(with("compressed-w4", "m.weight_scale", {16, 1}), kLoss, "is bf16 [16, 1]", "64 columns");
  EXPECT_REFUSED(with("compressed-w4", "m.weight_packed", {4, 16}), kLoss, "'m.weight_packed' is i32 [4, 16]",
                 "[8, 64], the weight_shape");
  EXPECT_REFUSED(with("gptq-4", "m.scales", {8, 2}), kLoss, "'m.scales' is f16 [8, 2]", "[2, 8]");
  EXPECT_REFUSED(with("gptq-4", "m.qweight", {64}), kLoss, "'m.qweight' is i32 [64]", "[any, any]");
  EXPECT_REFUSED(with("awq", "m.scales", {1, 16}), kLoss, "'m.scales'", "[2, 8]");
  EXPECT_REFUSED(with("mxfp4", "m_blocks", {2, 8, 1, 32}), kLoss, "'m_blocks' is u8 [2, 8, 1, 32]", "[2, 8, 2, 16]");
  EXPECT_REFUSED(with("compressed-nvfp4", "m.weight_scale", {4, 8}), kLoss, "'m.weight_scale'", "[8, 4]");
  Loaded file("gptq-4");
  file.set.tensors.at("m.qzeros").codes = compute::CodeType::kU8;
  EXPECT_REFUSED(Apply(CaseOf("gptq-4").config, &file.set), kLoss, "'m.qzeros' is u8 [2, 1]", "i32");
}

// Values that would choose an address, or a code that its format cannot hold.
TEST(QuantisedTensors, AWrongValueIsNamed) {
  const auto with = [](const std::string& name, const std::string& tensor, size_t at, uint32_t value) {
    Loaded file(name);
    const TensorEntry& t = file.set.tensors.at(tensor);
    std::memcpy(file.bytes.data() + (t.data - test::Bytes(file.bytes).data()) + 4 * at, &value, sizeof value);
    return Apply(CaseOf(name).config, &file.set);
  };
  EXPECT_REFUSED(with("gptq-4-zeros", "m.qzeros", 1, 0x0f000000), kLoss, "'m.qzeros' has the zero point 16",
                 "row 6, group 1", "0 to 15");
  EXPECT_REFUSED(with("gptq-4-order", "m.g_idx", 7, 2), kLoss, "'m.g_idx' has the group 2 for column 7", "2 groups");
  EXPECT_REFUSED(with("gptq-4-order", "m.g_idx", 0, UINT32_MAX), kLoss, "'m.g_idx' has the group -1 for column 0");
  EXPECT_REFUSED(with("compressed-w4-order", "m.weight_g_idx", 63, 1u << 31), kLoss, "'m.weight_g_idx'", "column 63");
  EXPECT_REFUSED(with("compressed-w4", "m.weight_shape", 1, 0x1000000), kLoss, "'m.weight_packed'", "weight_shape");
  EXPECT_REFUSED(with("compressed-w4", "m.weight_shape", 2, 63 * 8), kLoss, "'m.weight_packed'");
}

TEST(QuantisedTensors, AConfigurationThatDiffersFromTheFileIsRefused) {
  const auto with = [](const std::string& name, const std::string& pointer, const SortedJson& value) {
    Loaded file(name);
    SortedJson config = CaseOf(name).config;
    config[SortedJson::json_pointer("/quantization_config" + pointer)] = value;
    return Apply(config, &file.set);
  };
  EXPECT_REFUSED(with("gptq-4", "/group_size", 16), kLoss, "'m.scales' is f16 [2, 8]", "[4, 8]");
  EXPECT_REFUSED(with("gptq-4", "/group_size", 0), kLoss, "'quantization_config.group_size' is 0");
  EXPECT_REFUSED(with("gptq-4", "/bits", 3), kLoss, "'quantization_config.bits' is 3", "4 and 8");
  EXPECT_REFUSED(with("gptq-4", "/checkpoint_format", "marlin"), kLoss, "checkpoint_format", "'marlin'", "gptq_v2");
  EXPECT_REFUSED(with("gptq-4", "/dynamic", {{"-:.*", SortedJson::object()}}), kLoss, "dynamic");
  EXPECT_REFUSED(with("awq", "/version", "gemv"), kLoss, "version", "'gemv'", "gemm");
  EXPECT_REFUSED(with("awq", "/bits", 8), kLoss, "bits", "8", "4");
  EXPECT_REFUSED(with("fp8-block", "/fmt", "e5m2"), kLoss, "fmt", "'e5m2'", "e4m3");
  EXPECT_REFUSED(with("fp8-block", "/weight_block_size", {3}), kLoss, "weight_block_size");
  EXPECT_REFUSED(with("fp8-block", "/weight_block_size", {4, 24}), kLoss, "'m.weight_scale_inv'", "[2, 3]");
  EXPECT_REFUSED(with("compressed-w4", "/config_groups/group_0/weights/group_size", 128), kLoss, "'m.weight_scale'",
                 "groups of 32 columns of 4 bits");
  EXPECT_REFUSED(with("compressed-w4", "/config_groups/group_0/weights/num_bits", 2), kLoss,
                 "config_groups.group_0.weights.num_bits' is 2", "4 and 8");
  EXPECT_REFUSED(with("compressed-w4", "/format", "marlin-24"), kLoss, "format", "'marlin-24'", "pack-quantized");
  EXPECT_REFUSED(with("compressed-w4", "/sparsity_config", {{"format", "sparse-24-bitmask"}}), kLoss, "sparse-24");
  EXPECT_REFUSED(with("modelopt-nvfp4", "/quant_algo", "W4A8_AWQ"), kLoss, "quant_algo", "W4A8_AWQ", "NVFP4");
  EXPECT_REFUSED(with("awq", "/quant_method", "bitsandbytes"), StatusCode::kUnimplemented,
                 "quantization_config.quant_method' is 'bitsandbytes'", "awq, compressed-tensors", "GGUF");
  EXPECT_REFUSED(with("awq", "/quant_method", nullptr), StatusCode::kUnimplemented, "is missing");
}

TEST(QuantisedTensors, AWeightThatIsBothQuantisedAndPlainIsRefused) {
  Loaded file("gptq-4");
  file.set.tensors["m.weight"] = file.golden;
  EXPECT_REFUSED(Apply(CaseOf("gptq-4").config, &file.set), kLoss, "'m.weight'", "'m.qweight'");
}

// A module in the list of exceptions has no codes, and so do norms and embeddings.
TEST(QuantisedTensors, PlainTensorsStay) {
  Loaded file("compressed-w4");
  file.set.tensors["lm_head.weight"] = file.golden;
  ASSERT_TRUE(Apply(CaseOf("compressed-w4").config, &file.set).ok());
  EXPECT_EQ(file.set.Find("lm_head.weight")->rows, nullptr);
  EXPECT_EQ(file.set.Find("lm_head.weight")->dtype, DType::kF32);
}

TEST(QuantisedTensors, TheTextNamesTheFormat) {
  const auto text = [](const std::string& name) {
    return compute::QuantizationText(**compute::ReadQuantization(CaseOf(name).config.dump(), "config.json"));
  };
  EXPECT_EQ(text("gptq-4-order"), "GPTQ, 4 bits, groups of 32, act-order, version 2");
  EXPECT_EQ(text("awq"), "AWQ, 4 bits, groups of 32");
  EXPECT_EQ(text("fp8-block"), "FP8 (e4m3), blocks of 3 x 24");
  EXPECT_EQ(text("compressed-int8"), "compressed-tensors, int-quantized");
}

TEST(QuantisedTensors, AnUnquantisedConfigurationHasNoMethod) {
  for (const char* text : {"{}", R"({"quantization_config": null})", R"({"text_config": {}})"}) {
    const auto method = compute::ReadQuantization(text, "config.json");
    ASSERT_TRUE(method.ok()) << text;
    EXPECT_EQ(*method, nullptr) << text;
  }
  const auto inner =
      compute::ReadQuantization(R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})", "config.json");
  ASSERT_TRUE(inner.ok());
  EXPECT_NE(*inner, nullptr);
}

}  // namespace
}  // namespace tactus::quantised_test
