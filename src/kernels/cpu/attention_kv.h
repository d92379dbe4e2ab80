// What attention works on: a call's shape, a thread's buffers, and K and V of one head read from the paged cache as
// f32. After simd_*.h; attention_kernel.h says how the pieces fit.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/row_kernel.h"
#include "kernels/kernel_set.h"

namespace tactus::kernels {
namespace {

struct AttentionRows {
  int32_t count = 0;
  const float* q[kAttentionTileRows];
  int32_t low[kAttentionTileRows];  // first and last position that the row sees; both ascending over rows
  int32_t high[kAttentionTileRows];
};

// Where one thread works. Row strides: `padded` for head vectors, kPartition for weights.
struct AttentionBuffers {
  float* keys;     // [head_dim, kKeyTile]: transposed
  float* gather;   // [kMaxWidth, padded]
  float* values;   // [kPartition, padded]
  float* weights;  // [rows, kPartition]: scores, then softmax weights
  float* part;     // [rows, padded]: a partition's result
  float* state;    // [rows, padded]: merged so far
};

struct AttentionCall {
  const float* q;
  const AttentionItem* items;
  int64_t num_items;
  int32_t heads, group;  // group: heads per KV head
  int32_t tile_heads;    // heads of a group per tile
  int32_t tile_queries;
  const KvLayer* kv;
  int64_t padded;  // head_dim rounded up to kMaxWidth
  float scale;
  int32_t window;
  float* out;
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

// Walks the positions of one head of K or V in ascending order: one division at the start, none per position.
class HeadCursor {
 public:
  HeadCursor(const KvLayer& kv, const void* base, const AttentionItem& item, int32_t kv_head, int32_t position)
      : kv_(kv),
        base_(base),
        table_(item.block_table + position / kv.block_size),
        offset_(position % kv.block_size),
        kv_head_(kv_head) {
    EnterBlock();
  }
  // Index of the current position's first element.
  int64_t element() const { return block_element_ + static_cast<int64_t>(offset_) * kv_.head_dim; }
  // Moves on; `more`: another position will be read (the table may end here).
  void Next(bool more) {
    if (++offset_ < kv_.block_size) return;
    offset_ = 0;
    ++table_;
    if (more) EnterBlock();
  }
  const uint16_t* BF16() const { return static_cast<const uint16_t*>(base_) + element(); }
  const float* F32() const { return static_cast<const float*>(base_) + element(); }

 private:
  void EnterBlock() {
    block_element_ = (static_cast<int64_t>(*table_) * kv_.kv_heads + kv_head_) * kv_.block_size * kv_.head_dim;
  }
  const KvLayer& kv_;
  const void* base_;
  const int32_t* table_;
  int32_t offset_;
  int32_t kv_head_;
  int64_t block_element_ = 0;
};

// The cursor's position as f32, zero-padded.
inline void LoadHead(const KvLayer& kv, const HeadCursor& at, int64_t padded, float* to) {
  int32_t d = 0;
  if (kv.dtype == DType::kF32) {
    const float* p = at.F32();
    for (; d + Simd::kWidth <= kv.head_dim; d += Simd::kWidth) Simd::Store(to + d, Simd::Load(p + d));
    for (; d < kv.head_dim; ++d) to[d] = p[d];
  } else {
    const uint16_t* p = at.BF16();
    for (; d + Simd::kWidth <= kv.head_dim; d += Simd::kWidth) Simd::Store(to + d, Simd::LoadBF16(p + d));
    for (; d < kv.head_dim; ++d) to[d] = BF16ToF32(p[d]);
  }
  for (; d < padded; ++d) to[d] = 0.0f;
}

// keys[d, c] for positions tile + [c0, c1), which are whole vectors; positions outside [begin, end) become zeros.
inline void LoadKeys(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t tile, int32_t c0,
                     int32_t c1, int32_t begin, int32_t end, const AttentionBuffers& b) {
  const KvLayer& kv = *call.kv;
  constexpr int kW = Simd::kWidth;
  const bool in_pairs = Simd::kTransposesPairs && kv.dtype == DType::kBF16 && kv.head_dim % (2 * kW) == 0;
  const int32_t first = tile + c0 > begin ? tile + c0 : begin;
  HeadCursor cursor(kv, kv.k, item, kv_head, first);
  for (int32_t c = c0; c < c1; c += kW) {
    const bool whole = tile + c >= begin && tile + c + kW <= end;
    const uint16_t* rows[kW] = {};
    for (int32_t r = 0; r < kW; ++r) {
      const int32_t position = tile + c + r;
      float* to = b.gather + r * call.padded;
      if (position < begin || position >= end) {
        std::memset(to, 0, static_cast<size_t>(call.padded) * sizeof(float));
        continue;
      }
      if (in_pairs && whole) {
        rows[r] = cursor.BF16();
      } else {
        LoadHead(kv, cursor, call.padded, to);
      }
      cursor.Next(position + 1 < end);
    }
    if (in_pairs && whole) {
      for (int32_t d = 0; d < kv.head_dim; d += 2 * kW) {
        Simd::TransposePairs(rows, d, b.keys + static_cast<int64_t>(d) * kKeyTile + c, kKeyTile);
      }
      continue;
    }
    for (int64_t d = 0; d < call.padded; d += kW) {
      Simd::Transpose(b.gather + d, call.padded, b.keys + d * kKeyTile + c, kKeyTile);
    }
  }
}
}  // namespace
}  // namespace tactus::kernels
