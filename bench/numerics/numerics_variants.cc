#include "numerics_variants.h"

#include <algorithm>
#include <cmath>

#include "tensor/float16.h"

namespace tactus::bench {
namespace {

const kernels::Ops* g_base = nullptr;

// What int8 dot products make of their input: blocks of 32 values, scale max|x| / 127 kept as f16, values rounded to nearest.
void RoundToInt8Blocks(const float* x, int64_t n, float* out) {
  for (int64_t b = 0; b < n; b += 32) {
    const int64_t end = std::min(b + 32, n);
    float amax = 0.0f;
    for (int64_t i = b; i < end; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float scale = amax / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const float stored = F16ToF32(F32ToF16(scale));
    for (int64_t i = b; i < end; ++i) out[i] = std::round(x[i] * inverse) * stored;
  }
}

// The exact result of integer products over such blocks, f32 sums: the same numbers through the f32 kernel.
void LinearInt8(kernels::ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                kernels::LinearMode mode, float* y, kernels::Workspace scratch) {
  std::vector<float> rounded(static_cast<size_t>(tokens * w.cols));
  for (int64_t t = 0; t < tokens; ++t) RoundToInt8Blocks(x + t * w.cols, w.cols, rounded.data() + t * w.cols);
  g_base->linear(pool, rounded.data(), tokens, w, bias, mode, y, scratch);
}

const kernels::Ops* Int8Ops(const kernels::Ops* base) {
  static kernels::Ops ops;
  g_base = base;
  ops = *base;
  ops.name = "int8 activations";
  ops.linear = LinearInt8;
  return &ops;
}

struct Converted {
  std::shared_ptr<const void> source;
  std::vector<std::vector<uint16_t>> tensors;
};

MatrixView ToBF16(const MatrixView& f32, Converted* owner) {
  const auto n = static_cast<size_t>(f32.rows * f32.cols);
  std::vector<uint16_t> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = F32ToBF16(static_cast<const float*>(f32.data)[i]);
  owner->tensors.push_back(std::move(values));
  return {owner->tensors.back().data(), DType::kBF16, f32.rows, f32.cols, f32.cols * 2};
}

ModelWeights ConvertToBF16(const ModelWeights& f32) {
  auto owner = std::make_shared<Converted>();
  owner->source = f32.storage;   // norms stay where they are
  ModelWeights w = f32;
  w.embedding = ToBF16(f32.embedding, owner.get());
  w.lm_head = f32.lm_head.data == f32.embedding.data ? w.embedding : ToBF16(f32.lm_head, owner.get());
  for (LayerWeights& layer : w.layers) {
    for (MatrixView* m : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.w_gate, &layer.w_up, &layer.w_down}) {
      *m = ToBF16(*m, owner.get());
    }
  }
  w.storage = owner;
  return w;
}

}  // namespace

Result<std::vector<NumericsVariant>> MakeVariants(const ModelDescription& description) {
  const kernels::Ops* ops = kernels::SelectOps();
  LoadWeightsOptions load;
  load.dequantize_to_f32 = true;
  TACTUS_ASSIGN_OR_RETURN(ModelWeights f32, LoadWeights(description, load));
  load.dequantize_to_f32 = false;
  TACTUS_ASSIGN_OR_RETURN(ModelWeights stored, LoadWeights(description, load));
  const ModelWeights bf16 = ConvertToBF16(f32);
  using kernels::LinearMode;
  return std::vector<NumericsVariant>{
      {"float32 (reference)", f32, ops, LinearMode::kF32, DType::kF32},
      {"weights as stored, f32 activations, f32 KV", stored, ops, LinearMode::kF32, DType::kF32},
      {"**auto**: weights as stored, f32 activations, bf16 KV", stored, ops, LinearMode::kF32, DType::kBF16},
      {"weights rounded to bf16, f32 activations, bf16 KV", bf16, ops, LinearMode::kF32, DType::kBF16},
      {"weights and activations bf16, bf16 KV", bf16, ops, LinearMode::kBF16, DType::kBF16},
      {"weights as stored, int8 activations (blocks of 32), bf16 KV", stored, Int8Ops(ops), LinearMode::kF32, DType::kBF16},
  };
}

}  // namespace tactus::bench
