// bfdot: each f32 lane adds two neighbouring products per instruction, the pair that a lane of a packed panel holds. It
// rounds to odd internally and flushes subnormals to zero, so the chain of an output is the same for every tile.
#include "compute/kernels/packed/operators.h"

#include <arm_neon.h>

#include <cstring>

namespace tactus::compute {
namespace {

constexpr int64_t kGroupBytes = kPanelRows * 4;
constexpr int64_t kChunkPairs = 64;  // 16 KiB of weights
constexpr int kVectors = 4, kMostTokens = 4;

bfloat16x8_t LoadPairs(const std::byte* p) {
  return vreinterpretq_bf16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)));
}

bfloat16x8_t SpreadPair(const std::byte* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
}

template <int kTokens>
void RunTile(const std::byte* w, int64_t pairs, const std::byte* x, int64_t x_stride, float* y) {
  for (int64_t r = 0; r < kPanelRows; r += kVectors * 4) {
    float32x4_t sum[kTokens][kVectors];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[t][v] = vld1q_f32(y + t * kPanelRows + r + 4 * v);
    }
    for (int64_t p = 0; p < pairs; ++p) {
      bfloat16x8_t values[kTokens];
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) values[t] = SpreadPair(x + t * x_stride + 4 * p);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const bfloat16x8_t weights = LoadPairs(w + p * kGroupBytes + (r + 4 * v) * 4);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sum[t][v] = vbfdotq_f32(sum[t][v], weights, values[t]);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) vst1q_f32(y + t * kPanelRows + r + 4 * v, sum[t][v]);
    }
  }
}

void RunTileOf(int64_t tokens, const std::byte* w, int64_t pairs, const std::byte* x, int64_t x_stride, float* y) {
  switch (tokens) {
    case 1:
      return RunTile<1>(w, pairs, x, x_stride, y);
    case 2:
      return RunTile<2>(w, pairs, x, x_stride, y);
    case 3:
      return RunTile<3>(w, pairs, x, x_stride, y);
    default:
      return RunTile<4>(w, pairs, x, x_stride, y);
  }
}

}  // namespace

void SumPanelNeonBf16(const PanelSums& run) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t pairs = (w.cols + 1) / 2, tiles = (run.rows + kMostTokens - 1) / kMostTokens;
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  for (int64_t p = 0; p < pairs; p += kChunkPairs) {
    const std::byte* at = w.data + run.panel * w.panel_bytes + p * kGroupBytes;
    const int64_t count = kChunkPairs < pairs - p ? kChunkPairs : pairs - p;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * run.rows / tiles, rows = (tile + 1) * run.rows / tiles - first;
      const std::byte* values = x.values + (run.first + first) * x.stride + p * 4;
      RunTileOf(rows, at, count, values, x.stride, run.sums + first * kPanelRows);
    }
  }
}

}  // namespace tactus::compute
