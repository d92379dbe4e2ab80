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
  const float* q[kAttentionTileRows];
  int32_t
      low[kAttentionTileRows];  // first and last position that the row attends to; both ascending over an item's rows
  int32_t high[kAttentionTileRows];

  // Rows [first, first + n).
  AttentionRows Part(int32_t first, int32_t n) const {
    AttentionRows part;
    part.count = n;
    for (int32_t r = 0; r < n; ++r) {
      part.q[r] = q[first + r];
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
  b.keys = p;
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

// `n` pairs of bf16 to two rows of f32.
inline void SplitPairs(const std::byte* from, int32_t n, float* first, float* second) {
  for (int32_t i = 0; i < n; ++i) {
    uint32_t pair;
    std::memcpy(&pair, from + 4 * i, sizeof pair);
    const uint32_t low = pair << 16, high = pair & 0xffff0000u;
    std::memcpy(first + i, &low, sizeof low);
    std::memcpy(second + i, &high, sizeof high);
  }
}

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
    if (kv.dtype == DType::kInt8) SpreadHead(to, kv.head_dim);  // SpreadHead is its own inverse
  }
  for (int64_t d = kv.head_dim; d < padded; ++d) to[d] = 0.0f;
}

// keys[d, c] for positions tile + [c0, c1), which are whole vectors. Positions outside [begin, end) get arbitrary
// values: no row attends to them, and lanes do not affect each other.
inline void LoadKeys(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t tile, int32_t c0,
                     int32_t c1, int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  constexpr int kW = Simd::kWidth;
  const bool direct = KvGrouped(kv) && kv.dtype == DType::kBF16 && kv.block_size % kW == 0;
  for (int32_t c = c0; c < c1; c += kW) {
    if (tile + c + kW <= begin || tile + c >= end) continue;
    if (direct) {
      const HeadCursor at(kv, kv.k, item, kv_head, tile + c);
      const std::byte* from = at.head() + int64_t{at.offset()} * 4;
      float* to = b.keys + c;
      for (int32_t d = 0; d < kv.head_dim; d += 2, from += int64_t{kv.block_size} * 4, to += 2 * kKeyTile) {
        SplitPairs(from, kW, to, to + kKeyTile);
      }
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

// values[p - base, d] for p in [begin, end), zero-padded.
inline void LoadValues(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base,
                       int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  const bool pairs = KvGrouped(kv) && kv.dtype == DType::kBF16;
  HeadCursor at(kv, kv.v, item, kv_head, begin);
  for (int32_t p = begin, n; p < end; p += n) {
    float* to = b.values + (p - base) * call.padded;
    n = pairs && p % 2 == 0 && p + 1 < end ? 2 : 1;
    if (n == 2) {
      SplitPairs(at.head() + int64_t{at.offset()} * kv.head_dim * 2, kv.head_dim, to, to + call.padded);
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
