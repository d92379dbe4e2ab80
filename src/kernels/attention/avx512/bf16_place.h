// Where bf16.cc finds K and V of a partition: in the cache itself where vectors can be read there, else in
// buffers that they are brought to.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/attention/avx512/bf16_chunks.h"
#include "kernels/attention/avx512/bf16_tile.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/attention/schedule.h"

namespace tactus::kernels {
namespace {

// Where one thread works.
struct Buffers {
  Buffers(std::byte* scratch, int64_t padded) {
    auto* p = reinterpret_cast<float*>(scratch);
    auto take = [&p](int64_t words) {
      float* at = p;
      p += words;
      return at;
    };
    q = reinterpret_cast<uint32_t*>(take(kAttentionTileRows * padded / 2));
    scores = take(kAttentionTileRows * kPartition);
    weights = reinterpret_cast<uint16_t*>(take(kAttentionTileRows * kPartition / 2));
    part = take(kAttentionTileRows * padded);
    state = take(kAttentionTileRows * padded);
    keys = reinterpret_cast<uint32_t*>(take(kPartition * padded / 2));
    values = reinterpret_cast<uint32_t*>(take(kPairs * padded));
    key_scales = take(kPartition);
    value_scales = take(kPartition);
  }
  // Row `row` as the first.
  Buffers FromRow(int32_t row, int64_t padded) const {
    Buffers b = *this;
    b.q += row * padded / 2;
    b.scores += row * kPartition;
    b.weights += row * kPartition;
    b.part += row * padded;
    b.state += row * padded;
    return b;
  }
  uint32_t* q;        // [rows, padded / 2] pairs
  float* scores;      // [rows, kPartition]
  uint16_t* weights;  // [rows, kPartition]
  float* part;        // [rows, padded]: a partition's result
  float* state;       // [rows, padded]: merged so far
  uint32_t* keys;     // [dim pairs, kPartition], where K cannot be read in place
  uint32_t* values;   // [kPairs, padded], where V cannot, and chunks with a pair of which half is not read
  float *key_scales, *value_scales;
};

// K and V of one head in one partition: where each chunk lies. int8 is widened to bf16 in buffers, a chunk at a time,
// just before it is first used.
struct PartitionKv {
  int32_t base, begin, end;                // positions read: [begin, end)
  ChunkPlace chunks[kKeyVectors];          // where K and V lie in chunks
  const uint32_t* keys[kKeyVectors + 3];   // those that hold no position read point at one that does
  int64_t key_stride;                      // from one pair of dimensions to the next
  const uint32_t* values[kKeyVectors];     // chunks of 8 pairs
  int64_t value_stride;                    // from one pair to the next
  const float *key_scales, *value_scales;  // [kPartition]; null: none
  bool widens = false;
  bool resumes = false;                      // sums of values go on from what is there
  int32_t keys_ready = 0, values_ready = 0;  // widens: chunks below these are widened

  int32_t first_chunk() const { return (begin - base) / 16; }
  int32_t last_chunk() const { return (end - 1 - base) / 16; }
};

inline const std::byte* HeadAt(const KvLayer& kv, const void* base, const AttentionItem& item, int32_t kv_head,
                               int32_t position) {
  return static_cast<const std::byte*>(base) + KvHeadOffset(kv, item.block_table[position / kv.block_size], kv_head);
}

// 32 codes to bf16: exact.
inline __m512i Widen(const std::byte* codes) {
  auto load = [](const std::byte* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  };
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load(codes + 16), load(codes)));
}

// An element's bits in bf16 (int8: of the code).
inline uint16_t ElementBits(const KvLayer& kv, const std::byte* head, int64_t index) {
  return F32ToBF16(KvElement(kv, head, index));
}

// Element by element, for layouts without pairs or with blocks that vectors do not fit.
inline void CopyKeys(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, int32_t chunk,
                     uint32_t* to) {
  const KvLayer& kv = *call.kv;
  for (int32_t lane = 0; lane < 16; ++lane) {
    const int32_t s = p.base + 16 * chunk + lane;
    if (s < p.begin || s >= p.end) continue;  // that lane's scores are never looked at
    const std::byte* head = HeadAt(kv, kv.k, *tile.item, tile.kv_head, s);
    for (int32_t d = 0; d < kv.head_dim; d += 2) {
      const uint32_t even = ElementBits(kv, head, KeyIndex(kv, s % kv.block_size, d));
      const uint32_t odd = d + 1 < kv.head_dim ? ElementBits(kv, head, KeyIndex(kv, s % kv.block_size, d + 1)) : 0;
      to[d / 2 * 16 + lane] = even | odd << 16;
    }
  }
}

inline void PlaceKeys(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const bool in_place = InChunks(kv) && kv.dtype == DType::kBF16;
  p->key_stride = in_place ? kv.block_size : 16;
  const int32_t first = p->first_chunk(), last = p->last_chunk();
  for (int32_t v = first; v <= last; ++v) {
    uint32_t* to = b.keys + v * 8 * call.padded;
    p->keys[v] = to;
    if (in_place) {
      p->keys[v] = p->chunks[v].Keys(kv);
    } else if (!p->widens) {
      CopyKeys(call, tile, *p, v, to);
    }
  }
  for (int32_t v = 0; v < first; ++v) p->keys[v] = p->keys[first];
  for (int32_t v = last + 1; v < kKeyVectors + 3; ++v) p->keys[v] = p->keys[last];
}

// A chunk of V up to pair `pairs`, without the positions outside [from, to), counted from its first: they may never
// have been written, and zero times that could be NaN.
inline void CopyWrittenValues(const uint32_t* from_chunk, int64_t stride, int32_t from, int32_t to, uint32_t* out) {
  for (int32_t i = from / 2; 2 * i < to; ++i) {
    const uint32_t even = 2 * i >= from ? 0xffffu : 0, odd = 2 * i + 1 < to ? 0xffff0000u : 0;
    const __m512i keep = _mm512_set1_epi32(static_cast<int>(even | odd));
    for (int64_t d = i * stride; d < (i + 1) * stride; d += 16) {
      _mm512_storeu_si512(out + d, _mm512_and_si512(_mm512_loadu_si512(from_chunk + d), keep));
    }
  }
}

inline void CopyValues(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, int32_t pair,
                       uint32_t* to) {
  const KvLayer& kv = *call.kv;
  std::memset(to, 0, static_cast<size_t>(call.padded) * sizeof(uint32_t));
  for (int32_t half = 0; half < 2; ++half) {
    const int32_t s = p.base + 2 * pair + half;
    if (s < p.begin || s >= p.end) continue;
    const std::byte* head = HeadAt(kv, kv.v, *tile.item, tile.kv_head, s);
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      to[d] |= static_cast<uint32_t>(ElementBits(kv, head, ValueIndex(kv, s % kv.block_size, d))) << 16 * half;
    }
  }
}

// Chunk c of V, `from` where it lies; where a pair is half read, copied to b.values.
inline const uint32_t* ValuesInPlace(const AttentionCall& call, const PartitionKv& p, int32_t c, const uint32_t* from,
                                     const Buffers& b) {
  const int32_t position = p.base + 16 * c;
  const bool half_first = p.begin > position && p.begin % 2 != 0;
  const bool half_last = p.end < position + 16 && p.end % 2 != 0;
  if (!half_first && !half_last) return from;
  uint32_t* to = b.values + 8 * c * call.padded;
  CopyWrittenValues(from, call.kv->head_dim, p.begin > position ? p.begin - position : 0,
                    p.end < position + 16 ? p.end - position : 16, to);
  return to;
}

inline void PlaceValues(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const bool in_place = InChunks(kv) && kv.dtype == DType::kBF16;
  p->value_stride = in_place ? kv.head_dim : call.padded;
  for (int32_t c = p->first_chunk(); c <= p->last_chunk(); ++c) {
    p->values[c] = in_place ? ValuesInPlace(call, *p, c, p->chunks[c].Values(kv), b) : b.values + 8 * c * call.padded;
  }
  if (in_place || p->widens) return;
  for (int32_t i = (p->begin - p->base) / 2; i <= (p->end - 1 - p->base) / 2; ++i) {
    CopyValues(call, tile, *p, i, b.values + i * call.padded);
  }
}

inline void PlaceScales(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  p->key_scales = p->value_scales = nullptr;
  if (kv.dtype != DType::kInt8) return;
  p->key_scales = b.key_scales;
  p->value_scales = b.value_scales;
  if (p->widens) return;
  std::memset(b.key_scales, 0, kPartition * sizeof(float));
  std::memset(b.value_scales, 0, kPartition * sizeof(float));
  for (int32_t s = p->begin, n; s < p->end; s += n) {
    const int32_t offset = s % kv.block_size, left = p->end - s;
    n = kv.block_size - offset < left ? kv.block_size - offset : left;
    const int64_t at = KvScaleOffset(kv, offset);
    std::memcpy(b.key_scales + (s - p->base), HeadAt(kv, kv.k, *tile.item, tile.kv_head, s) + at,
                4 * static_cast<size_t>(n));
    std::memcpy(b.value_scales + (s - p->base), HeadAt(kv, kv.v, *tile.item, tile.kv_head, s) + at,
                4 * static_cast<size_t>(n));
  }
}

// A chunk of K at `offset` of its block's head, to place `index` of b.keys, with its scales (one not yet written meets
// a lane that nobody looks at). `piece`: its place in the stream.
inline void WidenKeyChunk(const AttentionCall& call, const std::byte* head, int32_t offset, const FetchStream& stream,
                          int32_t piece, int32_t index, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  stream.FetchScales(piece);
  std::memcpy(b.key_scales + 16 * index, head + KvScaleOffset(kv, offset), 64);
  const std::byte* from = head + 2 * offset;
  uint32_t* to = b.keys + index * 8 * call.padded;
  for (int32_t d = 0; d < kv.head_dim; d += 2, from += 2 * kv.block_size, to += 16) {
    _mm512_storeu_si512(to, Widen(from));
  }
}

// As WidenKeyChunk, of V, to place `index` of b.values. What was never written is a number too, and its weight zero.
inline const uint32_t* WidenValueChunk(const AttentionCall& call, const std::byte* head, int32_t offset,
                                       const FetchStream& stream, int32_t piece, int32_t index, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  stream.FetchScales(piece);
  const std::byte* from = head + static_cast<int64_t>(offset) * kv.head_dim;
  uint32_t* to = b.values + 8 * index * call.padded;
  for (int32_t d = 0; d < 8 * kv.head_dim; d += 16, from += 32) _mm512_storeu_si512(to + d, Widen(from));
  return to;
}

// Widens chunks of K below `upto`.
inline void WidenKeys(const AttentionCall& call, const Buffers& b, const FetchStream& stream, int32_t upto,
                      PartitionKv* p) {
  upto = upto <= p->last_chunk() ? upto : p->last_chunk() + 1;
  for (; p->keys_ready < upto; ++p->keys_ready) {
    const int32_t c = p->keys_ready;
    WidenKeyChunk(call, p->chunks[c].Head(call.kv->k), p->chunks[c].offset, stream, c - p->first_chunk(), c, b);
  }
}

// The scales of V, of the tile's KV head `h`, that softmax asks for.
inline void CopyValueScales(const AttentionCall& call, int32_t h, const PartitionKv& p, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  const int64_t head_bytes = KvHeadBytes(kv);
  for (int32_t c = p.first_chunk(); c <= p.last_chunk(); ++c) {
    const std::byte* head = p.chunks[c].Head(kv.v) + h * head_bytes;
    std::memcpy(b.value_scales + 16 * c, head + KvScaleOffset(kv, p.chunks[c].offset), 64);
  }
}

// Widens chunks of V below `upto`. `piece`: the first chunk's place in the stream.
inline void WidenValues(const AttentionCall& call, const Buffers& b, const FetchStream& stream, int32_t piece,
                        int32_t upto, PartitionKv* p) {
  upto = upto <= p->last_chunk() ? upto : p->last_chunk() + 1;
  for (; p->values_ready < upto; ++p->values_ready) {
    const int32_t c = p->values_ready;
    WidenValueChunk(call, p->chunks[c].Head(call.kv->v), p->chunks[c].offset, stream, piece + c - p->first_chunk(), c,
                    b);
  }
}

}  // namespace
}  // namespace tactus::kernels
