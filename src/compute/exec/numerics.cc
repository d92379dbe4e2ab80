#include "compute/exec/numerics.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace tactus::compute {
namespace {

template <class Value, size_t kCount>
struct Choices {
  const char* flag;
  std::array<std::pair<std::string_view, Value>, kCount> values;  // the first is the meaning of an empty option
  std::array<std::string_view, 2> gpu_words = {};                 // which CPUs refuse; empty: none

  bool IsForGpus(std::string_view text) const {
    return !text.empty() && std::find(gpu_words.begin(), gpu_words.end(), text) != gpu_words.end();
  }

  Result<Value> Of(std::string_view text) const {
    if (text.empty()) return values[0].second;
    std::string names;
    for (const auto& [name, value] : values) {
      if (name == text) return value;
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    const std::string typed = "--" + std::string(flag) + " " + std::string(text);
    if (IsForGpus(text)) {
      return InvalidArgument(typed + " needs a GPU (--device cuda); CPUs have " + names, flag);
    }
    for (const std::string_view word : gpu_words) {
      if (!word.empty()) names += ", " + std::string(word);
    }
    return InvalidArgument(typed + " is none of " + names, flag);
  }
};

enum class Compute { kAuto, kFloat32, kBFloat16 };
constexpr Choices<Compute, 3> kDtype{
    "dtype",
    {{{"auto", Compute::kAuto}, {"float32", Compute::kFloat32}, {"bfloat16", Compute::kBFloat16}}},
    {"float16"}};

enum class ActivationRow { kAuto, kFloat32, kBFloat16, kMixed, kInt16, kInt8 };
constexpr Choices<ActivationRow, 6> kActivation{"activation-dtype",
                                                {{{"auto", ActivationRow::kAuto},
                                                  {"float32", ActivationRow::kFloat32},
                                                  {"bfloat16", ActivationRow::kBFloat16},
                                                  {"mixed", ActivationRow::kMixed},
                                                  {"int16", ActivationRow::kInt16},
                                                  {"int8", ActivationRow::kInt8}}},
                                                {"fp8"}};

struct Quantizing {
  Quantization form = Quantization::kNone;
  bool calibrate = false;
};
constexpr Choices<Quantizing, 5> kQuantization{"quantization",
                                               {{{"none", {}},
                                                 {"q8_0", {Quantization::kQ8_0}},
                                                 {"int8", {Quantization::kInt8}},
                                                 {"int4", {Quantization::kInt4, true}},
                                                 {"int4_nearest", {Quantization::kInt4}}}}};

constexpr Choices<std::optional<DType>, 4> kKv{
    "kv-cache-dtype",
    {{{"auto", std::nullopt}, {"bfloat16", DType::kBF16}, {"float32", DType::kF32}, {"int8", DType::kInt8}}},
    {"float16", "fp8"}};

struct Asked {
  Compute dtype;
  ActivationRow activation;
  Quantizing quantization;
  bool integer;  // integer weights with scales, from the file or by --quantization
  DType stored;
  std::string typed_activation, typed_quantization;
};

Status CheckTogether(const Asked& a) {
  const std::string activation = "--activation-dtype " + a.typed_activation;
  const std::string quantization = "--quantization " + a.typed_quantization;
  const bool quantizes = a.quantization.form != Quantization::kNone;
  if (a.dtype == Compute::kFloat32) {
    if (quantizes) {
      return InvalidArgument(quantization + " contradicts --dtype float32, the reference mode: leave one of them out",
                             "quantization");
    }
    if (a.activation != ActivationRow::kAuto && a.activation != ActivationRow::kFloat32) {
      return InvalidArgument(activation + " contradicts --dtype float32, the reference mode: leave one of them out",
                             "activation-dtype");
    }
    return Status();
  }
  if (a.activation == ActivationRow::kFloat32 && a.dtype == Compute::kBFloat16) {
    return InvalidArgument(activation + " contradicts --dtype bfloat16: leave one of them out", "activation-dtype");
  }
  if (quantizes && (a.activation == ActivationRow::kFloat32 || a.activation == ActivationRow::kBFloat16)) {
    return InvalidArgument(
        activation + " does not fit " + quantization + ", whose weights are integers: use auto, mixed, int16 or int8",
        "activation-dtype");
  }
  const bool integers = a.activation == ActivationRow::kMixed || a.activation == ActivationRow::kInt16 ||
                        a.activation == ActivationRow::kInt8;
  if (!a.integer && integers) {
    return InvalidArgument(activation + " needs integer weights, and the file's are " + InfoOf(a.stored).name +
                               ": add --quantization q8_0, int8 or int4, or use --activation-dtype auto or bfloat16",
                           "activation-dtype");
  }
  return Status();
}

}  // namespace

NumericsOptions WithoutGpuWords(NumericsOptions options) {
  if (kDtype.IsForGpus(options.dtype)) options.dtype = "auto";
  if (kActivation.IsForGpus(options.activation_dtype)) options.activation_dtype = "auto";
  if (kKv.IsForGpus(options.kv_cache_dtype)) options.kv_cache_dtype = "auto";
  return options;
}

Result<Numerics> ChooseNumerics(const NumericsOptions& options, DType weight_dtype) {
  Asked a{};
  TACTUS_ASSIGN_OR_RETURN(a.dtype, kDtype.Of(options.dtype));
  TACTUS_ASSIGN_OR_RETURN(a.activation, kActivation.Of(options.activation_dtype));
  TACTUS_ASSIGN_OR_RETURN(a.quantization, kQuantization.Of(options.quantization));
  TACTUS_ASSIGN_OR_RETURN(const std::optional<DType> kv, kKv.Of(options.kv_cache_dtype));
  a.stored = weight_dtype;
  a.integer = a.quantization.form != Quantization::kNone || InfoOf(weight_dtype).block_elements > 1;
  a.typed_activation = options.activation_dtype;
  a.typed_quantization = options.quantization;
  TACTUS_RETURN_IF_ERROR(CheckTogether(a));

  Numerics n;
  n.dequantize_to_f32 = a.dtype == Compute::kFloat32;
  n.kv_dtype = kv.value_or(n.dequantize_to_f32 ? DType::kF32 : DType::kBF16);
  if (n.dequantize_to_f32) return n;
  n.packing.quantization = a.quantization.form;
  n.packing.calibrate = a.quantization.calibrate;
  n.packing.round_to_bf16 = a.activation == ActivationRow::kBFloat16 || (!a.integer && a.dtype == Compute::kBFloat16);
  if (n.packing.round_to_bf16) {
    n.tokens = Numerics::Tokens::kBF16;
  } else if (a.activation == ActivationRow::kFloat32) {
    n.tokens = Numerics::Tokens::kF32;
  } else if (a.integer) {
    n.tokens = a.activation == ActivationRow::kInt8    ? Numerics::Tokens::kInt8
               : a.activation == ActivationRow::kInt16 ? Numerics::Tokens::kInt16
                                                       : Numerics::Tokens::kMixed;
    n.packing.rounding = a.activation == ActivationRow::kInt8    ? Rounding::kInt8
                         : a.activation == ActivationRow::kInt16 ? Rounding::kInt16
                                                                 : Rounding::kMixed;
  } else {
    n.tokens = weight_dtype == DType::kBF16 ? Numerics::Tokens::kBF16 : Numerics::Tokens::kF32;
  }
  if (n.tokens == Numerics::Tokens::kF32) n.packing.rounding = Rounding::kNone;
  return n;
}

LoadWeightsOptions LoadOptionsFor(const Numerics& numerics) {
  LoadWeightsOptions options;
  options.dequantize_to_f32 = numerics.dequantize_to_f32;
  options.pack = !numerics.dequantize_to_f32;
  options.packing = numerics.packing;
  return options;
}

std::string NumericsText(const Numerics& n) {
  constexpr const char* kTokens[] = {"f32", "bf16", "mixed int8 and int16", "int16", "int8"};  // in the order of Tokens
  const std::string text =
      std::string(kTokens[static_cast<size_t>(n.tokens)]) + " activations, KV " + InfoOf(n.kv_dtype).name;
  return n.dequantize_to_f32 ? text + ", weights dequantised to f32" : text;
}

}  // namespace tactus::compute
