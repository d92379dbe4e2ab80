#include "compute/kernels/fit/product.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/clones.h"

namespace tactus::compute {
namespace {

constexpr int64_t kTile = 128;   // rows and columns of c per task
constexpr int64_t kDepth = 256;  // of a chain
constexpr int kLanes = 16, kRows = 4, kVectors = 2;
constexpr int64_t kCols = kLanes * kVectors;  // of a register tile

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

// [ceil(count / kWidth)][depth][kWidth] of element (k, i) of the view, zeros beyond count.
template <int64_t kWidth>
void PackSlivers(const StridedView& from, int64_t k0, int64_t depth, int64_t first, int64_t count, float* out) {
  for (int64_t s = 0; s < count; s += kWidth) {
    const int64_t width = std::min(kWidth, count - s);
    if (width < kWidth) std::memset(out, 0, static_cast<size_t>(depth * kWidth) * sizeof(float));
    const float* at = from.data + k0 * from.row_stride + (first + s) * from.col_stride;
    if (from.col_stride == 1) {
      for (int64_t k = 0; k < depth; ++k, at += from.row_stride)
        std::memcpy(out + k * kWidth, at, static_cast<size_t>(width) * sizeof(float));
    } else {
      for (int64_t i = 0; i < width; ++i)
        for (int64_t k = 0; k < depth; ++k) out[k * kWidth + i] = at[k * from.row_stride + i * from.col_stride];
    }
    out += depth * kWidth;
  }
}

// sums[kRows][kCols] = a [depth][kRows] * b [depth][kCols]
TACTUS_CLONES void RegisterTile(const float* a, const float* b, int64_t depth, float* sums) {
  Lanes acc[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += kCols) {
    Lanes v[kVectors];
    std::memcpy(v, b, sizeof v);
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) acc[r][j] += a[r] * v[j];
  }
  std::memcpy(sums, acc, sizeof acc);
}

void AddTile(const ProductCall& p, int64_t row, int64_t col, float* a, float* b) {
  const int64_t rows = std::min(kTile, p.m - row), cols = std::min(kTile, p.n - col);
  const StridedView a_by_k{p.a.data, p.a.col_stride, p.a.row_stride};
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k);
    PackSlivers<kRows>(a_by_k, k, depth, row, rows, a);
    PackSlivers<kCols>(p.b, k, depth, col, cols, b);
    for (int64_t j = 0; j < cols; j += kCols) {
      for (int64_t i = 0; i < rows; i += kRows) {
        float sums[kRows * kCols];
        RegisterTile(a + i * depth, b + j * depth, depth, sums);
        for (int64_t r = 0; r < std::min<int64_t>(kRows, rows - i); ++r) {
          float* c = p.c + (row + i + r) * p.c_stride + col + j;
          const int64_t n = std::min(kCols, cols - j);
          if (p.subtract) {
            for (int64_t x = 0; x < n; ++x) c[x] -= sums[r * kCols + x];
          } else {
            for (int64_t x = 0; x < n; ++x) c[x] += sums[r * kCols + x];
          }
        }
      }
    }
  }
}

}  // namespace

void AddProduct(ThreadPool& pool, const ProductCall& call) {
  const int64_t down = (call.m + kTile - 1) / kTile, across = (call.n + kTile - 1) / kTile;
  pool.ParallelFor(down * across, [&](int64_t task, int32_t) {
    const int64_t i = task / across, j = task % across;
    if (call.part == ProductPart::kUpper && j < i) return;
    alignas(64) float a[kTile * kDepth], b[kTile * kDepth];
    AddTile(call, i * kTile, j * kTile, a, b);
  });
}

}  // namespace tactus::compute
