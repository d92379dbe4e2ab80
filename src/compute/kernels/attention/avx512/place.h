// K and V of a partition for tiles.h: in the cache itself where vectors can read them there, else copied to buffers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/chunks.h"
#include "compute/kernels/attention/avx512/rows.h"
#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

// The buffers of one thread.
struct Buffers {
  Buffers(std::byte* scratch, int64_t padded) {
    auto* p = reinterpret_cast<float*>(scratch);
    auto take = [&p](int64_t words) {
      float* at = p;
      p += words;
      return at;
    };
    q = reinterpret_cast<uint32_t*>(take(kMostTileRows * padded / 2));
    scores = take(kAttentionTileRows * kPartition);
    weights = reinterpret_cast<uint16_t*>(take(kAttentionTileRows * kPartition / 2));
    part = take(kMostTileRows * padded);
    state = take(kMostTileRows * padded);
    keys = reinterpret_cast<uint32_t*>(take(kPartition * padded / 2));
    values = reinterpret_cast<uint32_t*>(take(kPartition * padded / 2));
    key_scales = take(kPartition);
    value_scales = take(kPartition);
    q_scale = take(kMostTileRows);
    q_offset = reinterpret_cast<int32_t*>(take(kMostTileRows));
  }
  // The buffers from row `row` on.
  Buffers FromRow(int32_t row, int64_t padded) const {
    Buffers b = *this;
    b.q += row * padded / 2;
    b.scores += row * kPartition;
    b.weights += row * kPartition;
    b.part += row * padded;
    b.state += row * padded;
    b.q_scale += row;
    b.q_offset += row;
    return b;
  }
  uint32_t* q;        // [rows, padded / 2] words
  float* scores;      // [kAttentionTileRows, kPartition]
  uint16_t* weights;  // [kAttentionTileRows, kPartition]
  float* part;        // [rows, padded]: a partition's result
  float* state;       // [rows, padded]: merged so far
  uint32_t* keys;     // [words, kPartition], where K cannot be read in place
  uint32_t* values;   // [words, padded], where V cannot, and chunks with a word that is read in part
  // int8: scales of K that are not contiguous, and of V; scales of q's rows, and the start values of their scores.
  float *key_scales, *value_scales;  // [kPartition]
  float* q_scale;                    // [rows]
  int32_t* q_offset;                 // [rows]
};

// K and V of one head in one partition: the address of each chunk.
struct PartitionKv {
  int32_t base, begin, end;                  // positions read: [begin, end)
  ChunkPlace chunks[kKeyVectors];            // where K and V are in chunks
  const uint32_t* keys[kKeyVectors + 3];     // entries without a position to read point at one with
  const float* key_scales[kKeyVectors + 3];  // int8
  int64_t key_stride;                        // from one word to the next
  const uint32_t* values[kKeyVectors];       // chunks of words
  int64_t value_stride;                      // from one word to the next
  bool resumes = false;                      // sums of values continue from the stored ones

  int32_t first_chunk() const { return (begin - base) / 16; }
  int32_t last_chunk() const { return (end - 1 - base) / 16; }
};

inline const std::byte* HeadAt(const KvLayer& kv, const void* base, const AttentionItem& item, int32_t kv_head,
                               int32_t position) {
  return static_cast<const std::byte*>(base) + KvHeadOffset(kv, item.block_table[position / kv.block_size], kv_head);
}

// Bits of an element; int8: of its code.
inline uint32_t ElementBits(const KvLayer& kv, const std::byte* head, int64_t index) {
  if (kv.dtype == DType::kInt8) return static_cast<uint8_t>(head[index]);
  return reinterpret_cast<const uint16_t*>(head)[index];
}

// int8: scales of the positions read, of K or of V.
inline void CopyScales(const KvLayer& kv, const void* base, const AttentionTile& tile, const PartitionKv& p,
                       float* scales) {
  for (int32_t s = p.begin; s < p.end; ++s) {
    scales[s - p.base] = KvScale(kv, HeadAt(kv, base, *tile.item, tile.kv_head, s), s % kv.block_size);
  }
}

// Copies element by element, for layouts without groups or with blocks that vectors do not fit.
inline void CopyKeys(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, int32_t chunk,
                     uint32_t* to) {
  const KvLayer& kv = *call.kv;
  const int32_t group = KvGroup(kv), bits = 32 / group;
  for (int32_t lane = 0; lane < 16; ++lane) {
    const int32_t s = p.base + 16 * chunk + lane;
    if (s < p.begin || s >= p.end) continue;  // this lane's scores are never used
    const std::byte* head = HeadAt(kv, kv.k, *tile.item, tile.kv_head, s);
    for (int32_t d = 0; d < kv.head_dim; d += group) {
      uint32_t word = 0;
      for (int32_t i = 0; i < group && d + i < kv.head_dim; ++i) {
        word |= ElementBits(kv, head, KeyIndex(kv, s % kv.block_size, d + i)) << i * bits;
      }
      to[d / group * 16 + lane] = word;
    }
  }
}

// int8: with the scales; an unwritten scale only affects unused lanes.
inline void PlaceKeys(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const bool in_place = InChunks(kv);
  p->key_stride = in_place ? kv.block_size : 16;
  const int32_t first = p->first_chunk(), last = p->last_chunk();
  for (int32_t v = first; v <= last; ++v) {
    uint32_t* to = b.keys + v * 8 * call.padded;
    p->keys[v] = in_place ? p->chunks[v].Keys(kv) : to;
    p->key_scales[v] = in_place && kv.dtype == DType::kInt8 ? p->chunks[v].Scales(kv, kv.k) : b.key_scales + 16 * v;
    if (!in_place) CopyKeys(call, tile, *p, v, to);
  }
  if (!in_place && kv.dtype == DType::kInt8) CopyScales(kv, kv.k, tile, *p, b.key_scales);
  for (int32_t v = 0; v < first; ++v) p->keys[v] = p->keys[first], p->key_scales[v] = p->key_scales[first];
  for (int32_t v = last + 1; v < kKeyVectors + 3; ++v) {
    p->keys[v] = p->keys[last];
    p->key_scales[v] = p->key_scales[last];
  }
}

// A chunk of V up to pair `pairs`, without the positions outside [from, to), counted from its first: they may be
// unwritten, and zero times their content could be NaN.
inline void CopyWrittenValues(const uint32_t* from_chunk, int64_t stride, int32_t from, int32_t to, uint32_t* out) {
  for (int32_t i = from / 2; 2 * i < to; ++i) {
    const uint32_t even = 2 * i >= from ? 0xffffu : 0, odd = 2 * i + 1 < to ? 0xffff0000u : 0;
    const __m512i keep = _mm512_set1_epi32(static_cast<int>(even | odd));
    for (int64_t d = i * stride; d < (i + 1) * stride; d += 16) {
      _mm512_storeu_si512(out + d, _mm512_and_si512(_mm512_loadu_si512(from_chunk + d), keep));
    }
  }
}

inline void CopyValues(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, int32_t word,
                       uint32_t* to) {
  const KvLayer& kv = *call.kv;
  const int32_t group = KvGroup(kv), bits = 32 / group;
  std::memset(to, 0, static_cast<size_t>(call.padded) * sizeof(uint32_t));
  for (int32_t i = 0; i < group; ++i) {
    const int32_t s = p.base + group * word + i;
    if (s < p.begin || s >= p.end) continue;
    const std::byte* head = HeadAt(kv, kv.v, *tile.item, tile.kv_head, s);
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      to[d] |= ElementBits(kv, head, ValueIndex(kv, s % kv.block_size, d)) << i * bits;
    }
  }
}

// How a Format's loops read V: words of positions that are read; all of a chunk; all of four chunks, which are
// adjacent.
enum class ValueUse { kWords, kChunks, kTiles };

// Chunk c of V, in place at `from`; copied to b.values where it is read in part, with zeros elsewhere.
template <ValueUse kUse>
const uint32_t* ValuesInPlace(const AttentionCall& call, const PartitionKv& p, int32_t c, const uint32_t* from,
                              const Buffers& b) {
  if (call.kv->dtype == DType::kInt8) return from;  // any code is a number; its weight is zero
  const int32_t position = p.base + 16 * c;
  const bool part_first = p.begin > position && (kUse == ValueUse::kChunks || p.begin % 2 != 0);
  const bool part_last = p.end < position + 16 && (kUse == ValueUse::kChunks || p.end % 2 != 0);
  if (!part_first && !part_last) return from;
  uint32_t* to = b.values + 8 * c * call.padded;
  if (kUse == ValueUse::kChunks) std::memset(to, 0, static_cast<size_t>(8 * call.padded) * sizeof(uint32_t));
  CopyWrittenValues(from, call.kv->head_dim, p.begin > position ? p.begin - position : 0,
                    p.end < position + 16 ? p.end - position : 16, to);
  return to;
}

// Copies chunks [first / 4 * 4, last / 4 * 4 + 4) of V to b.values, with zeros where none is read.
inline void CopyTiles(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const bool in_place = InChunks(kv);
  const int32_t words = 16 / KvGroup(kv), first = p->first_chunk(), last = p->last_chunk();
  const size_t row_bytes = static_cast<size_t>(kv.head_dim) * sizeof(uint32_t);
  p->value_stride = call.padded;
  for (int32_t c = first / 4 * 4; c < last / 4 * 4 + 4; ++c) {
    uint32_t* to = b.values + words * c * call.padded;
    p->values[c] = to;
    const uint32_t* from = in_place && c >= first && c <= last ? p->chunks[c].Values(kv) : nullptr;
    for (int32_t i = 0; i < words; ++i, to += call.padded) {
      if (from != nullptr) {
        std::memcpy(to, from + int64_t{i} * kv.head_dim, row_bytes);
      } else {
        CopyValues(call, tile, *p, words * c + i, to);
      }
    }
  }
}

template <ValueUse kUse>
void PlaceValues(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  if constexpr (kUse == ValueUse::kTiles) {
    CopyTiles(call, tile, b, p);
    return;
  }
  const KvLayer& kv = *call.kv;
  const bool in_place = InChunks(kv);
  p->value_stride = in_place ? kv.head_dim : call.padded;
  const int32_t group = KvGroup(kv);
  for (int32_t c = p->first_chunk(); c <= p->last_chunk(); ++c) {
    p->values[c] = in_place ? ValuesInPlace<kUse>(call, *p, c, p->chunks[c].Values(kv), b)
                            : b.values + 16 / group * c * call.padded;
  }
  if (in_place) return;
  const int32_t words = kUse == ValueUse::kChunks ? 16 / group : 1;  // copied together
  const int32_t first = (p->begin - p->base) / group / words * words, last = (p->end - 1 - p->base) / group;
  for (int32_t i = first; i < (last + words) / words * words; ++i) {
    CopyValues(call, tile, *p, i, b.values + i * call.padded);
  }
}

// int8: copies the scales of V of the tile's KV head `h` to b.value_scales.
inline void PlaceValueScales(const AttentionCall& call, const AttentionTile& tile, int32_t h, const PartitionKv& p,
                             const Buffers& b) {
  const KvLayer& kv = *call.kv;
  if (!InChunks(kv)) return CopyScales(kv, kv.v, tile, p, b.value_scales);
  const int64_t head_bytes = KvHeadBytes(kv);
  for (int32_t c = p.first_chunk(); c <= p.last_chunk(); ++c) {
    std::memcpy(b.value_scales + 16 * c, p.chunks[c].Scales(kv, kv.v) + h * head_bytes / 4, 64);
  }
}

}  // namespace
}  // namespace tactus::compute
