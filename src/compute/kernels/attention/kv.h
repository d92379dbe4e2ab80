// Data of attention in f32: a thread's buffers, and K and V of one head read from the paged cache as f32. kernel.h
// describes how the parts fit together.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/attention/schedule.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/rows/row_kernel.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

struct AttentionRows {
  int32_t count = 0;
  const float* q[kAttentionTileRows];  // rounded to integers: those, two per element
  float q_scale[kAttentionTileRows];   // of rounded ones, with AttentionSpec::scale
  int32_t
      low[kAttentionTileRows];  // first and last position that the row attends to; both ascending over an item's rows
  int32_t high[kAttentionTileRows];

  // Rows [first, first + n).
  AttentionRows Part(int32_t first, int32_t n) const {
    AttentionRows part;
    part.count = n;
    for (int32_t r = 0; r < n; ++r) {
      part.q[r] = q[first + r];
      part.q_scale[r] = q_scale[first + r];
      part.low[r] = low[first + r];
      part.high[r] = high[first + r];
    }
    return part;
  }
  int32_t last() const {
    int32_t most = high[0];
    for (int32_t r = 1; r < count; ++r) most = high[r] > most ? high[r] : most;
    return most;
  }
};

// The buffers of one thread. Row strides: `padded` for head vectors, kPartition for weights.
struct AttentionBuffers {
  float* queries;  // [rows, padded]: rotated as K of int8 is
  float* keys;     // [head_dim, kKeyTile]: transposed
  float* gather;   // [kMaxWidth, padded]
  float* values;   // [kPartition, padded]
  float* weights;  // [rows, kPartition]: scores, then softmax weights
  float* part;     // [rows, padded]: a partition's result
  float* state;    // [rows, padded]: merged so far
};

struct PartitionSums {
  float maximum[kAttentionTileRows];
  float sum[kAttentionTileRows];
};

inline AttentionBuffers CarveBuffers(std::byte* scratch, int64_t padded) {
  auto* p = reinterpret_cast<float*>(scratch);
  AttentionBuffers b;
  b.queries = p;
  b.keys = b.queries + kAttentionTileRows * padded;
  b.gather = b.keys + padded * kKeyTile;
  b.values = b.gather + padded * kMaxWidth;
  b.weights = b.values + padded * kPartition;
  b.part = b.weights + kAttentionTileRows * kPartition;
  b.state = b.part + kAttentionTileRows * padded;
  return b;
}

// Iterates over the positions of one head of K or V in ascending order: one division at the start, none per position.
class HeadCursor {
 public:
  HeadCursor(const KvLayer& kv, const void* base, const AttentionItem& item, int32_t kv_head, int32_t position)
      : kv_(kv),
        base_(static_cast<const std::byte*>(base)),
        table_(item.block_table + position / kv.block_size),
        offset_(position % kv.block_size),
        kv_head_(kv_head) {
    EnterBlock();
  }
  const std::byte* head() const { return head_; }  // of the current block
  int32_t offset() const { return offset_; }       // of the position in the block
  // Advances; `more`: another position will be read (the table may end here).
  void Next(bool more, int32_t positions = 1) {
    offset_ += positions;
    if (offset_ < kv_.block_size) return;
    offset_ -= kv_.block_size;
    ++table_;
    if (more) EnterBlock();
  }

 private:
  void EnterBlock() { head_ = base_ + KvHeadOffset(kv_, *table_, kv_head_); }
  const KvLayer& kv_;
  const std::byte* base_;
  const int32_t* table_;
  int32_t offset_;
  int32_t kv_head_;
  const std::byte* head_ = nullptr;
};

// 32-bit lanes of grouped K or V, each kPer elements of one position or dimension, as kPer vectors of f32: pairs of
// bf16, or four codes of int8.
template <int kPer>
inline void OpenLanes(const std::byte* from, Simd::F* to) {
  typedef int32_t Lanes __attribute__((vector_size(4 * Simd::kWidth)));
  typedef float Floats __attribute__((vector_size(4 * Simd::kWidth)));
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  if constexpr (kPer == 2) {
    const Lanes first = lanes << 16, second = lanes & static_cast<int32_t>(0xffff0000u);
    std::memcpy(&to[0], &first, sizeof first);
    std::memcpy(&to[1], &second, sizeof second);
  } else {
    for (int i = 0; i < 4; ++i) {
      const Floats codes = __builtin_convertvector((lanes << (24 - 8 * i)) >> 24, Floats);
      std::memcpy(&to[i], &codes, sizeof codes);
    }
  }
}

// Positions [begin, end) of one head of K or V. base null: none.
struct KvRange {
  const void* base = nullptr;
  const AttentionItem* item = nullptr;
  int32_t kv_head = 0, begin = 0, end = 0;
};

// Prefetches a range while other positions are multiplied: an equal share of its lines per step, because a burst of
// prefetches waits for memory as loads do.
class LinesAhead {
 public:
  LinesAhead(const KvLayer& kv, const KvRange& range, int64_t steps)
      : table_(range.base != nullptr ? range.item->block_table + range.begin / kv.block_size : nullptr),
        blocks_left_(range.base != nullptr && range.begin < range.end
                         ? (range.end - 1) / kv.block_size - range.begin / kv.block_size + 1
                         : 0),
        head_bytes_(KvHeadBytes(kv)),
        block_bytes_(KvHeadOffset(kv, 1, 0)),
        first_(static_cast<const std::byte*>(range.base) + KvHeadOffset(kv, 0, range.kv_head)) {
    const int64_t lines = blocks_left_ * CeilDiv(head_bytes_, kLine);
    each_ = static_cast<int32_t>(CeilDiv(lines, steps > 0 ? steps : 1));
  }
  __attribute__((always_inline)) void Step() {
    for (int32_t i = 0; i < each_; ++i, at_ += kLine, left_ -= kLine) {
      if (left_ <= 0 && !EnterBlock()) return;
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  bool EnterBlock() {
    if (blocks_left_ == 0) {
      each_ = 0;
      return false;
    }
    at_ = first_ + *table_++ * block_bytes_;
    left_ = head_bytes_;
    --blocks_left_;
    return true;
  }

  const int32_t* table_;
  int64_t blocks_left_, head_bytes_, block_bytes_, left_ = 0;
  const std::byte *first_, *at_ = nullptr;
  int32_t each_ = 0;
};

// One position as f32, with element d at index(d) of its head.
template <class Index>
inline void LoadElements(const KvLayer& kv, const HeadCursor& at, Index index, float* to) {
  const float scale = kv.dtype == DType::kInt8 ? KvScale(kv, at.head(), at.offset()) : 1.0f;
  for (int32_t d = 0; d < kv.head_dim; ++d) to[d] = KvElement(kv, at.head(), index(d)) * scale;
}

inline void LoadKey(const KvLayer& kv, const HeadCursor& at, int64_t padded, float* to) {
  if (kv.dtype == DType::kF32) {
    std::memcpy(to, at.head() + int64_t{at.offset()} * kv.head_dim * 4, static_cast<size_t>(kv.head_dim) * 4);
  } else {
    LoadElements(kv, at, [&](int32_t d) { return KeyIndex(kv, at.offset(), d); }, to);
  }
  for (int64_t d = kv.head_dim; d < padded; ++d) to[d] = 0.0f;
}

// K of the vector of positions at the cursor, which are in one block of a grouped cache: keys[d, 0...).
template <int kPer>
void OpenKeys(const KvLayer& kv, const HeadCursor& at, float* keys) {
  const std::byte* from = at.head() + int64_t{at.offset()} * 4;
  Simd::F scale = {};
  if constexpr (kPer == 4)
    scale = Simd::Load(reinterpret_cast<const float*>(at.head() + KvScaleOffset(kv, at.offset())));
  for (int32_t d = 0; d < kv.head_dim; d += kPer, from += int64_t{kv.block_size} * 4, keys += kPer * kKeyTile) {
    Simd::F k[kPer];
    OpenLanes<kPer>(from, k);
    for (int i = 0; i < kPer; ++i) Simd::Store(keys + i * kKeyTile, kPer == 4 ? Simd::Mul(k[i], scale) : k[i]);
  }
}

// keys[d, c] for positions tile + [c0, c1), which are whole vectors. Positions outside [begin, end) get arbitrary
// values: no row attends to them, and lanes do not affect each other. K of int8 stays rotated.
inline void LoadKeys(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t tile, int32_t c0,
                     int32_t c1, int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  constexpr int kW = Simd::kWidth;
  const bool direct = KvGrouped(kv) && kv.block_size % kW == 0;
  for (int32_t c = c0; c < c1; c += kW) {
    if (tile + c + kW <= begin || tile + c >= end) continue;
    if (direct) {
      const HeadCursor at(kv, kv.k, item, kv_head, tile + c);
      kv.dtype == DType::kInt8 ? OpenKeys<4>(kv, at, b.keys + c) : OpenKeys<2>(kv, at, b.keys + c);
      continue;
    }
    const int32_t first = tile + c > begin ? tile + c : begin;
    HeadCursor at(kv, kv.k, item, kv_head, first);
    for (int32_t r = 0; r < kW; ++r) {
      const int32_t position = tile + c + r;
      float* to = b.gather + r * call.padded;
      if (position < begin || position >= end) {
        std::memset(to, 0, static_cast<size_t>(call.padded) * sizeof(float));
        continue;
      }
      LoadKey(kv, at, call.padded, to);
      at.Next(position + 1 < end);
    }
    for (int64_t d = 0; d < call.padded; d += kW) {
      Simd::Transpose(b.gather + d, call.padded, b.keys + d * kKeyTile + c, kKeyTile);
    }
  }
}

// V of the kPer positions of the group at the cursor, as rows `padded` apart.
template <int kPer>
void OpenValues(const KvLayer& kv, const HeadCursor& at, int64_t padded, float* to) {
  constexpr int kW = Simd::kWidth;
  const std::byte* from = at.head() + int64_t{at.offset()} * kv.head_dim * (4 / kPer);
  Simd::F scale[kPer];
  for (int i = 0; i < kPer; ++i) scale[i] = Simd::Set1(kPer == 4 ? KvScale(kv, at.head(), at.offset() + i) : 1.0f);
  int32_t d = 0;
  for (; d + kW <= kv.head_dim; d += kW) {
    Simd::F v[kPer];
    OpenLanes<kPer>(from + int64_t{d} * 4, v);
    for (int i = 0; i < kPer; ++i) Simd::Store(to + i * padded + d, kPer == 4 ? Simd::Mul(v[i], scale[i]) : v[i]);
  }
  for (; d < kv.head_dim; ++d) {
    for (int i = 0; i < kPer; ++i) {
      const float value = KvElement(kv, at.head(), ValueIndex(kv, at.offset() + i, d));
      to[i * padded + d] = kPer == 4 ? value * KvScale(kv, at.head(), at.offset() + i) : value;
    }
  }
}

// values[p - base, d] for p in [begin, end), zero-padded.
inline void LoadValues(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base,
                       int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  const int32_t group = KvGrouped(kv) ? KvGroup(kv) : 1;
  HeadCursor at(kv, kv.v, item, kv_head, begin);
  for (int32_t p = begin, n; p < end; p += n) {
    float* to = b.values + (p - base) * call.padded;
    n = p % group == 0 && p + group <= end ? group : 1;
    if (n == 4) {
      OpenValues<4>(kv, at, call.padded, to);
    } else if (n == 2) {
      OpenValues<2>(kv, at, call.padded, to);
    } else if (kv.dtype == DType::kF32) {
      std::memcpy(to, at.head() + int64_t{at.offset()} * kv.head_dim * 4, static_cast<size_t>(kv.head_dim) * 4);
    } else {
      LoadElements(kv, at, [&](int32_t d) { return ValueIndex(kv, at.offset(), d); }, to);
    }
    for (int32_t r = 0; r < n; ++r) {
      for (int64_t d = kv.head_dim; d < call.padded; ++d) to[r * call.padded + d] = 0.0f;
    }
    at.Next(p + n < end, n);
  }
}

}  // namespace
}  // namespace tactus::compute
