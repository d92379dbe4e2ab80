// Sums of a warp over kStep columns, by mma.sync m16n8k16 with w as the first operand.
//
// An instruction adds 16 products whose places are free, as long as both operands agree. So a lane holds kRun
// successive columns of a line (a row of w or of x), which it reads with few loads and no shuffle: of 64 columns it has
// those of ColumnOf. The lines of lane l are l / 4 (and l / 4 + 8 of w), its share of columns is l % 4.
#pragma once

#include <cstddef>

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/product.h"

namespace tactus::compute::cuda {

// The column, within a step, of a lane's value i of 16.
template <int kRun>
TACTUS_DEVICE int ColumnOf(int share, int i) {
  return i / kRun * (4 * kRun) + share * kRun + i % kRun;
}

template <class T>
constexpr bool kIsBf16 = std::is_same_v<T, bf16>;

// A register with 16 bits in both halves.
template <uint32_t kHalf>
constexpr uint32_t kBoth = kHalf | kHalf << 16;
template <class T>
constexpr uint32_t kOnes = kBoth < kIsBf16<T> ? 0x3f80 : 0x3c00 > ;

// The formats. kLoads: 16-byte loads per lane for the 16 rows and 64 columns of a step, the first half of them (of
// kInt4: of the words) for the lane's first row. kRun: see above. kUnit: columns that are added before a scale is
// applied; 0: no scales within a row. Pair: values 2 j and 2 j + 1 of the lane's first (half 0) or second row.
TACTUS_DEVICE uint32_t WordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <class T>
struct RealCodes {
  static constexpr int kLoads = 4, kRun = 8, kUnit = 0;
  static constexpr bool kPacked = false;
  static constexpr int kBytes = 2;  // of a code
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], bool /*offsets*/, int half, int j) {
    return WordOf(in[2 * half + j / 4], j % 4);
  }
};

// A byte's sign and 7 other bits are those of a small bf16 or f16 number with too low an exponent.
template <class T>
struct Fp8Codes {
  static constexpr int kLoads = 2, kRun = 16, kUnit = 0;
  static constexpr bool kPacked = false;
  static constexpr int kBytes = 1;
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], bool /*offsets*/, int half, int j) {
    constexpr uint32_t kUp = kIsBf16<T> ? kBoth<0x7b80> : kBoth<0x5c00>;  // 2^120, 2^8
    const uint32_t high = __byte_perm(WordOf(in[half], j / 2), 0, j % 2 == 0 ? 0x1404 : 0x3424);
    const uint32_t digits = (high & kBoth<0x7f00>) >> (kIsBf16<T> ? 4 : 1);
    return FmaPair<T>(digits | (high & kBoth<0x8000>), kUp, kBoth<0x8000>);
  }
};

// Bytes are code + 128. A word's bytes are values 0, 2, 1, 3, so that a mask takes a pair out.
template <class T, int kColumns>
struct Int8Codes {
  static constexpr int kLoads = 2, kRun = kColumns == 16 ? 4 : 8, kUnit = kColumns;
  static constexpr bool kPacked = true;
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], bool /*offsets*/, int half, int j) {
    const uint32_t bytes = WordOf(in[half], j / 2) >> (j % 2 * 8);
    if constexpr (kIsBf16<T>) {
      // 128 + the low 7 bits, minus 128 where bit 7 is set, else minus 256: each of them is exact in bf16.
      return FmaPair<T>((bytes & kBoth<0x007f>) | kBoth<0x4300>, kOnes<T>, (bytes & kBoth<0x0080>)^kBoth<0xc380>);
    } else {
      return FmaPair<T>((bytes & kBoth<0x00ff>) | kBoth<0x6400>, kOnes<T>, kBoth<0xe480>);  // 1024 + byte - 1152
    }
  }
};

// Of a word's 8 codes, p and p + 4 are values 2 p and 2 p + 1.
template <class T, int kColumns>
struct Int4Codes {
  static constexpr int kLoads = 1, kRun = kColumns == 16 ? 4 : 8, kUnit = kColumns;
  static constexpr bool kPacked = true;
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], bool offsets, int half, int j) {
    // 128 + code or 1024 + code, minus as much, and minus 8 where no offset is added: exact.
    constexpr uint32_t kHigh = kIsBf16<T> ? kBoth<0x4300> : kBoth<0x6400>;
    constexpr uint32_t kWith = kIsBf16<T> ? kBoth<0xc300> : kBoth<0xe400>, kWithout = kWith | kBoth<0x0008>;
    const uint32_t codes = (WordOf(in[0], 2 * half + j / 4) >> (j % 4 * 4)) & kBoth<0x000f>;
    return FmaPair<T>(codes | kHigh, kOnes<T>, offsets ? kWith : kWithout);
  }
};

// A step has a part for each of its scales.
template <class C>
constexpr bool kScaled = C::kUnit > 0;
template <class C>
constexpr int kParts = kScaled<C> ? kStep / C::kUnit : 1;
template <class C>
constexpr int kProducts = 4 / kParts<C>;  // instructions of a part
template <class C>
constexpr int kFactorBytes = kScaled<C> ? kParts<C> * kTileRows * 2 : 0;  // of a row tile's scales of a step

// Reads a part's scales or offsets of a row tile, of rows l / 4 and l / 4 + 8, from shared memory.
template <class T>
TACTUS_DEVICE void ReadFactors(const Shared<uint8_t>& shared, int at, float (&out)[2]) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 4;
  out[0] = ToFloat(shared.template Load<T>(at + 2 * row));
  out[1] = ToFloat(shared.template Load<T>(at + 2 * (row + 8)));
}

// sums[r] += offset * the sum of x over a part. Products with ones give the sums of x.
template <class T, class C, int R>
TACTUS_DEVICE void AddOffsets(const Shared<uint8_t>& shared, int at, const uint32_t (&x)[2 * kProducts<C>],
                              float (&sums)[R][4]) {
  const uint32_t ones[4] = {kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
  float part[4] = {};
#pragma unroll
  for (int i = 0; i < kProducts<C>; ++i) Mma16816<T>(part, ones, x[2 * i], x[2 * i + 1]);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    float offset[2];
    ReadFactors<T>(shared, at + r * kFactorBytes<C>, offset);
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[r][c] = Fma(offset[c / 2], part[c], sums[r][c]);
  }
}

// sums[n][r] += a step's products of row tile r of R with 8 tokens, for n below N. A lane's sums: rows l / 4, tokens
// 2 (l % 4) and the next; then the same of row l / 4 + 8. In shared memory: at byte `codes` what CopyCodes wrote, at
// `factors` what CopyFactors wrote, scales then offsets. x(n, part, to) sets a lane's values of 8 tokens of a part.
template <class T, class C, int R, int N, class X>
TACTUS_DEVICE void AddStep(const Shared<uint8_t>& shared, int codes, int scales, int offsets, bool has_offsets,
                           const X& x, float (&sums)[N][R][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint4 words[R][C::kLoads];
#pragma unroll
  for (int i = 0; i < R * C::kLoads; ++i) {
    words[i / C::kLoads][i % C::kLoads] = shared.template Load<uint4>(codes + i * 512 + lane * 16);
  }
#pragma unroll
  for (int p = 0; p < kParts<C>; ++p) {
    uint32_t w[R][kProducts<C>][4];
    float scale[R][2];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int i = 0; i < kProducts<C>; ++i) {
        const int j = 2 * (p * kProducts<C> + i);
        w[r][i][0] = C::Pair(words[r], has_offsets, 0, j);
        w[r][i][1] = C::Pair(words[r], has_offsets, 1, j);
        w[r][i][2] = C::Pair(words[r], has_offsets, 0, j + 1);
        w[r][i][3] = C::Pair(words[r], has_offsets, 1, j + 1);
      }
      if constexpr (kScaled<C>) ReadFactors<T>(shared, scales + (r * kParts<C> + p) * kTileRows * 2, scale[r]);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      uint32_t v[2 * kProducts<C>];
      x(n, p, v);
      float part[R][4] = {};
#pragma unroll
      for (int i = 0; i < kProducts<C>; ++i) {
#pragma unroll
        for (int r = 0; r < R; ++r) Mma16816<T>(kScaled<C> ? part[r] : sums[n][r], w[r][i], v[2 * i], v[2 * i + 1]);
      }
      if constexpr (kScaled<C>) {
#pragma unroll
        for (int i = 0; i < R * 4; ++i) {
          sums[n][i / 4][i % 4] = Fma(scale[i / 4][i % 4 / 2], part[i / 4][i % 4], sums[n][i / 4][i % 4]);
        }
        if (has_offsets) AddOffsets<T, C, R>(shared, offsets + p * kTileRows * 2, v, sums[n]);
      }
    }
  }
}

// The tokens of a block: rows [row, row + count) of y, all with one matrix. count 0: none.
struct TokenTile {
  int expert, row, count;
};
// Tile blockIdx.y of the tiles of kTokens rows into which each expert's rows are cut. The same in all threads.
template <int kTokens>
TACTUS_DEVICE TokenTile FindTile(const ProductArgs& a) {
  const int index = static_cast<int>(blockIdx.y);
  if (a.first == nullptr) return {0, index * kTokens, min(kTokens, a.tokens - index * kTokens)};
  const Global<const int32_t> first(a.first);
  const int lane = static_cast<int>(threadIdx.x) % 32, per_lane = (a.experts + 31) / 32;
  const auto tiles = [&](int e) { return (first[e + 1] - first[e] + kTokens - 1) / kTokens; };
  int own = 0;
  for (int e = lane * per_lane; e < min(a.experts, (lane + 1) * per_lane); ++e) own += tiles(e);
  int end = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, end, d);
    if (lane >= d) end += other;
  }
  const unsigned beyond = __ballot_sync(0xffffffffu, end > index);
  if (beyond == 0) return {0, 0, 0};
  const int owner = __ffs(beyond) - 1;
  int before = __shfl_sync(0xffffffffu, end - own, owner);
  int expert = owner * per_lane;
  while (before + tiles(expert) <= index) before += tiles(expert++);
  const int row = first[expert] + (index - before) * kTokens;
  return {expert, row, min(kTokens, first[expert + 1] - row)};
}

// The row of x for a row of y.
TACTUS_DEVICE int InputRow(const ProductArgs& a, int row) {
  return a.token == nullptr ? row : Global<const int32_t>(a.token)[row];
}

// The matrix of an expert.
struct MatrixData {
  Global<const uint8_t> codes, scales, offsets;
};
TACTUS_DEVICE Global<const uint8_t> MemoryAt(const Global<const uint64_t>& matrices, int64_t byte) {
  return Global<const uint8_t>(reinterpret_cast<const uint8_t*>(matrices[byte / 8]));
}
TACTUS_DEVICE MatrixData MatrixOf(const ProductArgs& a, int expert) {
  if (a.matrices == nullptr) {
    return {Global<const uint8_t>(static_cast<const uint8_t*>(a.codes)),
            Global<const uint8_t>(static_cast<const uint8_t*>(a.scales)),
            Global<const uint8_t>(static_cast<const uint8_t*>(a.offsets))};
  }
  const Global<const uint64_t> matrices(reinterpret_cast<const uint64_t*>(a.matrices));
  const int64_t at = expert * static_cast<int64_t>(sizeof(DeviceMatrix));
  return {MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, data))),
          MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, scales))),
          MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, offsets)))};
}

// Starts a copy of a lane's 16 bytes of codes to shared memory: load `load` of row tile `tile`.
template <class C>
TACTUS_DEVICE void CopyCodes(const ProductArgs& a, const Global<const uint8_t>& from, int tile, int step, int load,
                             int lane, uint8_t* to) {
  if constexpr (C::kPacked) {
    const int64_t piece = (static_cast<int64_t>(tile) * a.steps + step) * C::kLoads + load;
    const bool exists = tile * kTileRows < a.rows;
    CpAsync16(to, from, exists ? piece * 512 + lane * 16 : 0, exists);
  } else {
    constexpr int kPerRow = C::kLoads / 2;
    const int row = tile * kTileRows + lane / 4 + load / kPerRow * 8;
    const int column = step * kStep + ColumnOf<C::kRun>(lane % 4, load % kPerRow * (16 / kPerRow));
    const bool exists = row < a.rows && column < a.cols;
    CpAsync16(to, from, exists ? (static_cast<int64_t>(row) * a.cols + column) * C::kBytes : 0, exists);
  }
}
// Starts a copy of 8 scales or offsets: `part` counts halves of parts of row tiles.
template <class C>
TACTUS_DEVICE void CopyFactors(const ProductArgs& a, const Global<const uint8_t>& from, int first_tile, int step,
                               int part, uint8_t* to) {
  const int tile = first_tile + part / (2 * kParts<C>), unit = part / 2 % kParts<C>;
  // Units behind the last column have products with 0 only.
  const int group = min((step * kStep + unit * C::kUnit) >> a.group_shift, a.groups - 1);
  const bool exists = tile * kTileRows < a.rows;
  const int64_t at = (static_cast<int64_t>(tile) * a.groups + group) * kTileRows + part % 2 * 8;
  CpAsync16(to, from, exists ? 2 * at : 0, exists);
}
// y[row of y, row of w] = the sum with its factors.
template <class T>
TACTUS_DEVICE void WriteProduct(const ProductArgs& a, const MatrixData& matrix, int expert, int y_row, int row,
                                float sum) {
  if (a.row_scales || a.one_scale) {
    const Global<const float> scales(reinterpret_cast<const float*>(matrix.scales.p));
    sum = Mul(sum, scales[a.row_scales ? row : 0]);
  }
  if (a.row_weights != nullptr) sum = Mul(sum, Global<const float>(a.row_weights)[y_row]);
  if (a.bias != nullptr) sum = Add(sum, Global<const float>(a.bias)[static_cast<int64_t>(expert) * a.rows + row]);
  const int64_t at = y_row * a.y_stride + row;
  if (!a.y_float) {
    Global<T>(static_cast<T*>(a.y))[at] = FromFloat<T>(sum);
    return;
  }
  const Global<float> y(static_cast<float*>(a.y));
  if (a.adds) {
    const float before = y[at];
    sum = Add(before, sum);
  }
  y[at] = sum;
}

}  // namespace tactus::compute::cuda
