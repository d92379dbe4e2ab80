#include "compute/kernels/fit/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "compute/kernels/clones.h"
#include "compute/kernels/fit/product.h"
#include "compute/kernels/packed/quantize_blocks.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

constexpr int64_t kFactorBlock = 128;
constexpr int64_t kRowsPerTask = 16;

// R of a block [n, n] of h, whose rows are `stride` apart: h = R R^T, R upper. False: there is no such R.
bool FactorBlock(float* h, int64_t stride, int64_t n) {
  for (int64_t k = n - 1; k >= 0; --k) {
    const float pivot = h[k * stride + k];
    if (!(pivot > 0.0f) || !std::isfinite(pivot)) return false;
    const float root = std::sqrt(pivot);
    h[k * stride + k] = root;
    float column[kFactorBlock];
    for (int64_t i = 0; i < k; ++i) column[i] = h[i * stride + k] /= root;
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = i; j < k; ++j) h[i * stride + j] -= column[i] * column[j];
  }
  return true;
}

// x [n] = x R^-T, where by_column[p * n + q] = R[q, p].
TACTUS_CLONES void SolveRow(const float* by_column, int64_t n, float* x) {
  for (int64_t p = n - 1; p >= 0; --p) {
    const float* column = by_column + p * n;
    const float v = x[p] / column[p];
    x[p] = v;
    for (int64_t q = 0; q < p; ++q) x[q] -= v * column[q];
  }
}

// A group of 64 columns of a panel's rows, stored by column, while it is rounded.
struct Group {
  float values[kInt4Group][kPanelRows] = {};  // including the errors of earlier groups
  float errors[kInt4Group][kPanelRows] = {};  // initially the weights themselves
  float scale[kPanelRows], inverse[kPanelRows], zero[kPanelRows];
  uint8_t codes[kInt4Group][kPanelRows] = {};
};

// Rounds column after column; u: of the group's columns, rows `stride` apart. Leaves the rounded weights in values and
// their rounding errors in errors.
TACTUS_CLONES void RoundGroup(const float* u, int64_t stride, int64_t cols, Group* g) {
  for (int64_t k = 0; k < cols; ++k) {
    float *x = g->values[k], *e = g->errors[k];
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const int32_t code = Int4Code(x[r], g->inverse[r], g->zero[r]);
      g->codes[k][r] = static_cast<uint8_t>(code);
      x[r] = (4.0f * static_cast<float>(code) - g->zero[r]) * g->scale[r];
      e[r] -= x[r];
    }
    for (int64_t j = k + 1; j < cols; ++j) {
      const float part = u[k * stride + j];
      float* next = g->values[j];
      for (int64_t r = 0; r < kPanelRows; ++r) next[r] += part * e[r];
    }
  }
}

}  // namespace

void GramUpper(ThreadPool& pool, const float* x, int64_t tokens, int64_t cols, float* h) {
  std::fill(h, h + cols * cols, 0.0f);
  AddProduct(pool, {.a = {x, 1, cols},
                    .b = {x, cols, 1},
                    .c = h,
                    .m = cols,
                    .k = tokens,
                    .n = cols,
                    .c_stride = cols,
                    .part = ProductPart::kUpper});
}

bool FactorInputs(ThreadPool& pool, int64_t cols, float damping, float* h, float* importance) {
  double sum = 0;
  for (int64_t k = 0; k < cols; ++k) sum += h[k * cols + k];
  const auto add = static_cast<float>(damping * sum / static_cast<double>(cols));
  if (!(add > 0.0f) || !std::isfinite(add)) return false;
  for (int64_t k = 0; k < cols; ++k) importance[k] = h[k * cols + k] += add;

  std::vector<float> by_column(kFactorBlock * kFactorBlock);
  for (int64_t end = cols; end > 0;) {
    const int64_t begin = (end - 1) / kFactorBlock * kFactorBlock, n = end - begin;
    if (!FactorBlock(h + begin * cols + begin, cols, n)) return false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = 0; q <= p; ++q) by_column[static_cast<size_t>(p * n + q)] = h[(begin + q) * cols + begin + p];
    pool.ParallelFor((begin + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t) {
      const int64_t last = std::min(begin, (task + 1) * kRowsPerTask);
      for (int64_t i = task * kRowsPerTask; i < last; ++i) SolveRow(by_column.data(), n, h + i * cols + begin);
    });
    AddProduct(pool, {.a = {h + begin, cols, 1},
                      .b = {h + begin, 1, cols},
                      .c = h,
                      .m = begin,
                      .k = n,
                      .n = begin,
                      .c_stride = cols,
                      .subtract = true,
                      .part = ProductPart::kUpper});
    end = begin;
  }
  std::vector<float> inverse(static_cast<size_t>(cols));
  for (int64_t k = 0; k < cols; ++k) inverse[static_cast<size_t>(k)] = 1.0f / h[k * cols + k];
  for (int64_t i = 0; i < cols; ++i)
    for (int64_t k = i + 1; k < cols; ++k) h[i * cols + k] *= inverse[static_cast<size_t>(k)];
  return true;
}

void RoundInt4(ThreadPool& pool, const float* u, const float* importance, const PackedMatrix& form, float* w,
               float* errors, std::byte* out) {
  TACTUS_CHECK(form.code == PackedCode::kU4 && form.block == kInt4Group && form.has_zeros);
  const int64_t rows = form.rows, cols = form.cols;
  for (int64_t first = 0; first < cols; first += kInt4Group) {
    const int64_t n = std::min<int64_t>(kInt4Group, cols - first);
    pool.ParallelFor(form.panels(), [&](int64_t panel, int32_t) {
      for (int64_t i = panel * kPanelRows; i < std::min(rows, (panel + 1) * kPanelRows); ++i)
        std::memcpy(errors + i * cols + first, w + i * cols + first, static_cast<size_t>(n) * sizeof(float));
    });
    AddProduct(pool, {.a = {errors, cols, 1},
                      .b = {u + first, cols, 1},
                      .c = w + first,
                      .m = rows,
                      .k = first,
                      .n = n,
                      .c_stride = cols});
    float weights[kInt4Group] = {};
    std::copy(importance + first, importance + first + n, weights);
    pool.ParallelFor(form.panels(), [&](int64_t panel, int32_t) {
      Group g;
      uint8_t codes[kInt4Group];
      BlockScale scales[kPanelRows];
      const int64_t row = panel * kPanelRows, count = std::min(kPanelRows, rows - row);
      for (int64_t r = 0; r < kPanelRows; ++r) {
        float x[kInt4Group] = {};
        for (int64_t k = 0; k < n && r < count; ++k) {
          x[k] = g.values[k][r] = w[(row + r) * cols + first + k];
          g.errors[k][r] = errors[(row + r) * cols + first + k];
        }
        scales[r] = QuantizeInt4(x, weights, codes);
        g.scale[r] = F16ToF32(scales[r].scale);
        g.inverse[r] = g.scale[r] != 0.0f ? 1.0f / g.scale[r] : 0.0f;
        g.zero[r] = static_cast<float>(scales[r].zero);
      }
      RoundGroup(u + first * cols + first, cols, n, &g);
      for (int64_t r = 0; r < kPanelRows; ++r) {
        for (int64_t k = 0; k < kInt4Group; ++k) codes[k] = g.codes[k][r];
        StoreInt4Block(form, r, first / kInt4Group, scales[r], codes, out + panel * form.panel_bytes);
        for (int64_t k = 0; k < n && r < count; ++k) {
          w[(row + r) * cols + first + k] = g.values[k][r];
          errors[(row + r) * cols + first + k] = g.errors[k][r];
        }
      }
    });
  }
}

}  // namespace tactus::compute
