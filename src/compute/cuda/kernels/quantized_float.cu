// Products with f32 activations: a thread per row of w and token, in plain loops. The reference form, not a fast one.
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product_step.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 128;

TACTUS_DEVICE float AddFour(const Global<const float>& x, int64_t at, const float4& w, float sum) {
  const float4 v = x.Load<float4>(at);
  return Fma(v.w, w.w, Fma(v.z, w.z, Fma(v.y, w.y, Fma(v.x, w.x, sum))));
}

TACTUS_DEVICE float RealRow(const ProductArgs& a, const MatrixData& m, const Global<const float>& x, int64_t x_at,
                            int row) {
  const Global<const float> w(reinterpret_cast<const float*>(m.codes.p));
  float sum = 0.0f;
  for (int c = 0; c < a.cols; c += 4) {
    sum = AddFour(x, x_at + c, w.Load<float4>(static_cast<int64_t>(row) * a.cols + c), sum);
  }
  return sum;
}

TACTUS_DEVICE float Fp8Row(const ProductArgs& a, const MatrixData& m, const Global<const float>& x, int64_t x_at,
                           int row) {
  float sum = 0.0f;
  for (int c = 0; c < a.cols; c += 4) {
    const uchar4 v = m.codes.Load<uchar4>(static_cast<int64_t>(row) * a.cols + c);
    sum = AddFour(x, x_at + c, {ToFloat(e4m3{v.x}), ToFloat(e4m3{v.y}), ToFloat(e4m3{v.z}), ToFloat(e4m3{v.w})}, sum);
  }
  return sum;
}

// Value i of a lane's 16 of a row, as a number.
template <bool kFour>
TACTUS_DEVICE float CodeOf(const uint4& words, int i, bool offsets) {
  if constexpr (kFour) {
    const uint32_t code = (WordOf(words, i / 8) >> (i % 8 / 2 * 4 + i % 2 * 16)) & 15u;
    return static_cast<float>(static_cast<int>(code) - (offsets ? 0 : 8));
  } else {
    const uint32_t byte = (WordOf(words, i / 4) >> (i % 2 * 16 + i % 4 / 2 * 8)) & 255u;
    return static_cast<float>(static_cast<int>(byte) - 128);
  }
}

template <bool kFour, int kRun>
TACTUS_DEVICE float PackedRow(const ProductArgs& a, const MatrixData& m, const Global<const float>& x, int64_t x_at,
                              int row) {
  const Global<const float> scales(reinterpret_cast<const float*>(m.scales.p));
  const Global<const float> offsets(reinterpret_cast<const float*>(m.offsets.p));
  const bool has_offsets = m.offsets.exists();
  const int64_t tile = row / kTileRows;
  const int half = row % kTileRows / 8;
  float sum = 0.0f;
  for (int i = 0; i < a.steps * 4; ++i) {
    const int step = i / 4, share = i % 4, lane = row % 8 * 4 + share;
    uint4 words = {};
    if constexpr (kFour) {
      const uint2 v = m.codes.Load<uint2>((tile * a.steps + step) * 512 + lane * 16 + half * 8);
      words.x = v.x;
      words.y = v.y;
    } else {
      words = m.codes.Load<uint4>(((tile * a.steps + step) * 2 + half) * 512 + lane * 16);
    }
    for (int first = 0; first < 16; first += kRun) {
      const int column = step * kStep + ColumnOf<kRun>(share, first);
      if (column >= a.cols) break;
      const int64_t at = (tile * a.groups + (column >> a.group_shift)) * kTileRows + row % 8 * 2 + half;
      const float scale = scales[at];
      float offset = 0.0f;
      if (has_offsets) offset = offsets[at];
      const auto value = [&](int k) { return Fma(scale, CodeOf<kFour>(words, first + k, has_offsets), offset); };
      for (int k = 0; k < kRun; k += 4) {
        sum = AddFour(x, x_at + column + k, {value(k), value(k + 1), value(k + 2), value(k + 3)}, sum);
      }
    }
  }
  return sum;
}

template <class Row>
TACTUS_DEVICE void MultiplyRow(const ProductArgs& a, const Row& row_of) {
  const TokenTile tile = FindTile<1>(a);
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (tile.count <= 0 || row >= a.rows) return;
  const MatrixData matrix = MatrixOf(a, tile.expert);
  const Global<const float> x(static_cast<const float*>(a.x));
  const float sum = row_of(a, matrix, x, static_cast<int64_t>(InputRow(a, tile.row)) * a.cols, row);
  WriteProduct<float>(a, matrix, tile.expert, tile.row, row, sum);
}

__global__ void __launch_bounds__(kThreads) MultiplyRealFloat(ProductArgs a) {
  MultiplyRow(a, RealRow);
}
__global__ void __launch_bounds__(kThreads) MultiplyFp8Float(ProductArgs a) {
  MultiplyRow(a, Fp8Row);
}
template <bool kFour, int kRun>
__global__ void __launch_bounds__(kThreads) MultiplyPackedFloat(ProductArgs a) {
  MultiplyRow(a, PackedRow<kFour, kRun>);
}

}  // namespace

void MultiplyFloat(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  const bool four = shape.format == MatrixFormat::kInt4, sixteen = shape.unit == 16;
  const auto kernel = shape.format == MatrixFormat::kReal  ? MultiplyRealFloat
                      : shape.format == MatrixFormat::kFp8 ? MultiplyFp8Float
                      : four ? (sixteen ? MultiplyPackedFloat<true, 4> : MultiplyPackedFloat<true, 8>)
                             : (sixteen ? MultiplyPackedFloat<false, 4> : MultiplyPackedFloat<false, 8>);
  const dim3 grid(static_cast<unsigned>((args.rows + kThreads - 1) / kThreads),
                  static_cast<unsigned>(MostTiles(args, 1)));
  Launch("MultiplyFloat", s, kernel, grid, kThreads, 0, args);
}

}  // namespace tactus::compute::cuda
