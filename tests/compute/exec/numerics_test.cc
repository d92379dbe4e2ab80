#include "compute/exec/numerics.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tactus/options.h"

namespace tactus::compute {
namespace {

using Tokens = Numerics::Tokens;

constexpr DType kIntegers[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};

TEST(Numerics, AutoFollowsTheWeights) {
  const auto bf16 = ChooseNumerics({}, DType::kBF16);
  EXPECT_EQ(bf16->tokens, Tokens::kBF16);
  EXPECT_NE(bf16->packing.rounding, Rounding::kNone);
  for (const DType stored : kIntegers) {
    const auto n = ChooseNumerics({}, stored);
    EXPECT_EQ(n->tokens, Tokens::kMixed);
    EXPECT_EQ(n->packing.rounding, Rounding::kMixed);
    EXPECT_EQ(n->packing.quantization, Quantization::kNone);
    EXPECT_FALSE(n->packing.round_to_bf16);
    EXPECT_EQ(n->kv_dtype, DType::kBF16);
    EXPECT_FALSE(n->dequantize_to_f32);
  }
  for (const DType stored : {DType::kF32, DType::kF16}) {
    const auto exact = ChooseNumerics({}, stored);
    EXPECT_EQ(exact->tokens, Tokens::kF32) << "used exactly as stored";
    EXPECT_EQ(exact->packing.rounding, Rounding::kNone) << "by every matrix of the file, in any format";
    EXPECT_FALSE(exact->packing.round_to_bf16);
    const auto rounded = ChooseNumerics({.dtype = "bfloat16"}, stored);
    EXPECT_TRUE(rounded->tokens == Tokens::kBF16 && rounded->packing.round_to_bf16);
  }
}

TEST(Numerics, Bfloat16LeavesQuantizedWeightsAsTheyAre) {
  const auto n = ChooseNumerics({.dtype = "bfloat16"}, DType::kQ4_1);
  EXPECT_EQ(n->tokens, Tokens::kMixed);
  EXPECT_FALSE(n->packing.round_to_bf16);
  EXPECT_TRUE(ChooseNumerics({.activation_dtype = "bfloat16"}, DType::kQ4_1)->packing.round_to_bf16);
}

TEST(Numerics, QuantizationMakesAnyWeightsIntegers) {
  for (const DType stored : {DType::kF32, DType::kBF16, DType::kQ4_1}) {
    const auto n = ChooseNumerics({.quantization = "int4"}, stored);
    EXPECT_EQ(n->tokens, Tokens::kMixed);
    EXPECT_EQ(n->packing.quantization, Quantization::kInt4);
    EXPECT_EQ(n->packing.rounding, Rounding::kMixed);
    const auto int8 = ChooseNumerics({.activation_dtype = "int8", .quantization = "int8"}, stored);
    EXPECT_EQ(int8->packing.rounding, Rounding::kInt8);
  }
}

TEST(Numerics, Float32IsTheReferenceMode) {
  for (const char* activation : {"auto", "float32", ""}) {
    const auto n = ChooseNumerics({.dtype = "float32", .activation_dtype = activation}, DType::kBF16);
    EXPECT_TRUE(n->dequantize_to_f32);
    EXPECT_EQ(n->tokens, Tokens::kF32);
    EXPECT_EQ(n->kv_dtype, DType::kF32);
  }
}

// Uses panels like every other choice: only --dtype float32 is the reference.
TEST(Numerics, Float32ActivationsUseWeightsAsStored) {
  for (const DType stored : {DType::kBF16, DType::kQ4_1, DType::kF32}) {
    const auto n = ChooseNumerics({.activation_dtype = "float32"}, stored);
    EXPECT_EQ(n->tokens, Tokens::kF32);
    EXPECT_EQ(n->packing.rounding, Rounding::kNone);
    EXPECT_FALSE(n->dequantize_to_f32 || n->packing.round_to_bf16);
    EXPECT_TRUE(LoadOptionsFor(*n).pack);
  }
}

TEST(Numerics, KvDtypeOverrides) {
  EXPECT_EQ(ChooseNumerics({.dtype = "float32", .kv_cache_dtype = "bfloat16"}, DType::kF32)->kv_dtype, DType::kBF16);
  EXPECT_EQ(ChooseNumerics({.dtype = "bfloat16", .kv_cache_dtype = "float32"}, DType::kF32)->kv_dtype, DType::kF32);
  EXPECT_EQ(ChooseNumerics({.kv_cache_dtype = "int8"}, DType::kQ4_1)->kv_dtype, DType::kInt8);
}

TEST(Numerics, RefusalsNameFlagValueAndChoices) {
  const auto expect = [](const NumericsOptions& options, DType stored, const char* flag,
                         std::initializer_list<const char*> parts) {
    const Status status = ChooseNumerics(options, stored).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.param(), flag);
    for (const char* part : parts)
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " not in: " << status.message();
  };
  expect({.dtype = "int3"}, DType::kF32, "dtype", {"int3", "auto, float32, bfloat16"});
  expect({.activation_dtype = "int4"}, DType::kF32, "activation-dtype", {"int4", "int16", "fp8"});
  expect({.quantization = "q5"}, DType::kF32, "quantization", {"q5", "q8_0, int8, int4"});
  expect({.kv_cache_dtype = "int4"}, DType::kF32, "kv-cache-dtype", {"int4", "float32, int8, float16, fp8"});
  // Words of GPUs.
  expect({.dtype = "float16"}, DType::kF32, "dtype", {"float16", "needs a GPU", "CPUs have auto, float32, bfloat16"});
  expect({.activation_dtype = "fp8"}, DType::kF32, "activation-dtype", {"fp8", "needs a GPU", "CPUs have auto"});
  expect({.kv_cache_dtype = "fp8"}, DType::kF32, "kv-cache-dtype", {"fp8", "needs a GPU", "CPUs have auto"});
  // Values that are valid alone.
  expect({.dtype = "float32", .quantization = "int8"}, DType::kF32, "quantization", {"--dtype float32", "leave one"});
  expect({.dtype = "float32", .activation_dtype = "int8"}, DType::kQ8_0, "activation-dtype",
         {"--dtype float32", "int8"});
  expect({.dtype = "bfloat16", .activation_dtype = "float32"}, DType::kBF16, "activation-dtype", {"--dtype bfloat16"});
  expect({.activation_dtype = "bfloat16", .quantization = "int4"}, DType::kBF16, "activation-dtype",
         {"int4", "auto, mixed, int16 or int8"});
  expect({.activation_dtype = "float32", .quantization = "int4"}, DType::kBF16, "activation-dtype", {"int4"});
  expect({.activation_dtype = "int8"}, DType::kBF16, "activation-dtype", {"bf16", "--quantization"});
  expect({.activation_dtype = "mixed"}, DType::kF32, "activation-dtype", {"f32", "--quantization"});
  expect({.activation_dtype = "int16"}, DType::kF16, "activation-dtype", {"f16", "--quantization"});
}

// The words that --help lists (tactus/options.h) are those that have a value.
TEST(Numerics, AcceptedWordsAreThoseOfTheOptions) {
  const auto error = [](const char* flag, std::string words) {
    for (size_t at = words.find('|'); at != std::string::npos; at = words.find('|')) words.replace(at, 1, ", ");
    return std::string("--") + flag + " other is none of " + words;
  };
  const auto refused = [](const NumericsOptions& options) {
    return ChooseNumerics(options, DType::kBF16).status().message();
  };
  EXPECT_EQ(refused({.dtype = "other"}), error("dtype", kDtypeChoices));
  EXPECT_EQ(refused({.activation_dtype = "other"}), error("activation-dtype", kActivationDtypeChoices));
  EXPECT_EQ(refused({.quantization = "other"}), error("quantization", kQuantizationChoices));
  EXPECT_EQ(refused({.kv_cache_dtype = "other"}), error("kv-cache-dtype", kKvCacheDtypeChoices));
}

TEST(Numerics, WordsOfGpusCanBeLeftOut) {
  const NumericsOptions left =
      WithoutGpuWords({.dtype = "float16", .activation_dtype = "int8", .kv_cache_dtype = "fp8"});
  EXPECT_EQ(left.dtype, "auto");
  EXPECT_EQ(left.kv_cache_dtype, "auto");
  EXPECT_EQ(left.activation_dtype, "int8");
  EXPECT_EQ(WithoutGpuWords({.activation_dtype = "fp8"}).activation_dtype, "auto");
  EXPECT_EQ(WithoutGpuWords({.dtype = "bfloat16", .kv_cache_dtype = "int8"}).dtype, "bfloat16");
  EXPECT_EQ(WithoutGpuWords({.dtype = "bfloat16", .kv_cache_dtype = "int8"}).kv_cache_dtype, "int8");
}

TEST(Numerics, EveryOptionWordHasItsValue) {
  EXPECT_EQ(ChooseNumerics({.quantization = "none"}, DType::kF32)->packing.quantization, Quantization::kNone);
  EXPECT_EQ(ChooseNumerics({.quantization = "q8_0"}, DType::kF32)->packing.quantization, Quantization::kQ8_0);
  EXPECT_EQ(ChooseNumerics({.quantization = "int8"}, DType::kF32)->packing.quantization, Quantization::kInt8);
  for (const auto& [word, calibrate] : {std::pair("int4", true), {"int4_nearest", false}}) {
    const PackChoice packing = ChooseNumerics({.quantization = word}, DType::kF32)->packing;
    EXPECT_TRUE(packing.quantization == Quantization::kInt4 && packing.calibrate == calibrate) << word;
  }
  for (const auto& [word, rounding, tokens] : {std::tuple("mixed", Rounding::kMixed, Tokens::kMixed),
                                               {"int16", Rounding::kInt16, Tokens::kInt16},
                                               {"int8", Rounding::kInt8, Tokens::kInt8}}) {
    const auto n = ChooseNumerics({.activation_dtype = word}, DType::kQ8_0);
    EXPECT_TRUE(n->packing.rounding == rounding && n->tokens == tokens) << word;
  }
  EXPECT_EQ(ChooseNumerics({.kv_cache_dtype = "auto"}, DType::kQ8_0)->kv_dtype, DType::kBF16);
}

TEST(Numerics, LoadOptionsFollowFromNumerics) {
  const LoadWeightsOptions reference = LoadOptionsFor(*ChooseNumerics({.dtype = "float32"}, DType::kQ4_1));
  EXPECT_TRUE(reference.dequantize_to_f32);
  EXPECT_FALSE(reference.pack);
  const LoadWeightsOptions packed =
      LoadOptionsFor(*ChooseNumerics({.activation_dtype = "int8", .quantization = "int4"}, DType::kBF16));
  EXPECT_FALSE(packed.dequantize_to_f32);
  EXPECT_TRUE(packed.pack);
  EXPECT_EQ(packed.packing.quantization, Quantization::kInt4);
  EXPECT_EQ(packed.packing.rounding, Rounding::kInt8);
}

TEST(Numerics, TextDescribesTheArithmetic) {
  EXPECT_EQ(NumericsText(*ChooseNumerics({}, DType::kQ4_1)), "mixed int8 and int16 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({.activation_dtype = "int8"}, DType::kQ4_1)), "int8 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({}, DType::kBF16)), "bf16 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({.activation_dtype = "bfloat16"}, DType::kQ4_1)), "bf16 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({.quantization = "int8", .kv_cache_dtype = "int8"}, DType::kBF16)),
            "mixed int8 and int16 activations, KV int8");
  EXPECT_EQ(NumericsText(*ChooseNumerics({.activation_dtype = "float32"}, DType::kQ4_1)), "f32 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({}, DType::kF16)), "f32 activations, KV bf16");
  EXPECT_EQ(NumericsText(*ChooseNumerics({.dtype = "float32"}, DType::kF16)),
            "f32 activations, KV f32, weights dequantised to f32");
}

}  // namespace
}  // namespace tactus::compute
