#include "compute/cuda/kernels/experts.h"

#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product.h"
#include "compute/cuda/kernels/router_math.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256;

struct CombineArgs {
  const float *y, *shared, *shared_logits, *weights;  // weights null: 1
  const int32_t* row;
  float* out;
  int64_t dim;
  int32_t chosen;
  bool adds;
};

struct Four {
  static constexpr int kColumns = 4;
  float4 v{};
  TACTUS_DEVICE static Four From(const Global<const float>& p, int64_t at) { return {p.Load<float4>(at)}; }
  TACTUS_DEVICE static Four From(const Global<float>& p, int64_t at) { return {p.Load<float4>(at)}; }
  TACTUS_DEVICE void Add(float factor, const Four& b) {
    v = {Fma(factor, b.v.x, v.x), Fma(factor, b.v.y, v.y), Fma(factor, b.v.z, v.z), Fma(factor, b.v.w, v.w)};
  }
  TACTUS_DEVICE void Write(const Global<float>& p, int64_t at) const { p.Store(at, v); }
};
struct One {
  static constexpr int kColumns = 1;
  float v = 0.0f;
  TACTUS_DEVICE static One From(const Global<const float>& p, int64_t at) { return {p[at]}; }
  TACTUS_DEVICE static One From(const Global<float>& p, int64_t at) { return {p.Load<float>(at)}; }
  TACTUS_DEVICE void Add(float factor, const One& b) { v = Fma(factor, b.v, v); }
  TACTUS_DEVICE void Write(const Global<float>& p, int64_t at) const { p.Store(at, v); }
};

// A thread adds V's columns of a token.
template <class V>
__global__ void __launch_bounds__(kThreads) Combine(CombineArgs a) {
  const int64_t token = blockIdx.x;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V::kColumns;
  if (column >= a.dim) return;
  const Global<const float> y(a.y), shared(a.shared), logits(a.shared_logits), weights(a.weights);
  const Global<const int32_t> rows(a.row);
  const Global<float> out(a.out);
  V sum;
  if (a.adds) sum = V::From(out, token * a.dim + column);
  if (a.shared != nullptr) {
    const float weight = a.shared_logits != nullptr ? SigmoidOf(logits[token]) : 1.0f;
    sum.Add(weight, V::From(shared, token * a.dim + column));
  }
  for (int n = 0; n < a.chosen; ++n) {
    const int64_t choice = token * a.chosen + n;
    const float weight = a.weights != nullptr ? weights[choice] : 1.0f;
    sum.Add(weight, V::From(y, rows[choice] * a.dim + column));
  }
  sum.Write(out, token * a.dim + column);
}

template <class V>
void LaunchCombine(Stream& s, const CombineArgs& args, int64_t tokens) {
  const int64_t columns = kThreads * V::kColumns;
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>((args.dim + columns - 1) / columns));
  Launch("CombineExperts", s, Combine<V>, grid, kThreads, 0, args);
}

}  // namespace

void MultiplyGrouped(Stream& s, const GroupedProduct& call) {
  ProductArgs args = ArgsOf(call.shape);
  args.x = call.x;
  args.bias = call.biases;
  args.y = call.y;
  args.y_stride = call.shape.rows;
  args.tokens = static_cast<int32_t>(call.max_rows);
  args.y_float = call.y_type == Real::kF32;
  args.first = call.rows->first;
  args.token = call.gathered ? nullptr : call.rows->token;
  args.matrices = call.w;
  args.row_weights = call.weigh_inputs;
  args.experts = static_cast<int32_t>(call.experts);
  const int64_t per_expert = (call.max_rows + call.experts - 1) / call.experts;
  LaunchProduct(s, ShapeOf(call.shape, call.type, args, per_expert), args);
}

void CombineExperts(Stream& s, const CombineCall& call) {
  const CombineArgs args = {
      call.y,         call.shared, call.shared_logits, call.weighs_input ? nullptr : call.rows->weights,
      call.rows->row, call.out,    call.dim,           call.chosen,
      call.adds};
  if (call.dim % 4 == 0) {
    LaunchCombine<Four>(s, args, call.tokens);
  } else {
    LaunchCombine<One>(s, args, call.tokens);
  }
}

}  // namespace tactus::compute::cuda
