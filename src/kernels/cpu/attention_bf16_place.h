// Where attention_bf16.cc finds K and V of a partition: in the cache itself where vectors can be read there, else in
// buffers that they are brought to; and what is fetched from memory meanwhile.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/attention_schedule.h"
#include "kernels/cpu/attention_bf16_tile.h"
#include "kernels/kv_layout.h"

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
    scores = take(kGroupRows * kPartition);
    weights = reinterpret_cast<uint16_t*>(take(kGroupRows * kPartition / 2));
    part = take(kAttentionTileRows * padded);
    state = take(kAttentionTileRows * padded);
    keys = reinterpret_cast<uint32_t*>(take(kPartition * padded / 2));
    values = reinterpret_cast<uint32_t*>(take(kPairs * padded));
    key_scales = take(kPartition);
    value_scales = take(kPartition);
  }
  uint32_t* q;        // [rows, padded / 2] pairs
  float* scores;      // [kGroupRows, kPartition]
  uint16_t* weights;  // [kGroupRows, kPartition]
  float* part;        // [rows, padded]: a partition's result
  float* state;       // [rows, padded]: merged so far
  uint32_t* keys;     // [dim pairs, kPartition], where K cannot be read in place
  uint32_t* values;   // [kPairs, padded], where V cannot; else two rows for pairs at the ends
  float *key_scales, *value_scales;
};

// K and V of one head in one partition: where each vector of 16 positions and each pair of positions lies. int8 is
// widened to bf16 in buffers, 16 positions (a chunk) at a time, just before they are first used.
struct PartitionKv {
  int32_t base, begin, end;               // positions read: [begin, end)
  const uint32_t* keys[kKeyVectors + 3];  // those that hold no position read point at one that does
  int64_t key_stride;                     // from one pair of dimensions to the next
  const uint32_t* values[kPairs];
  const float *key_scales, *value_scales;  // [kPartition]; null: none
  bool widens = false;
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
  const bool in_place = KvPaired(kv) && kv.dtype == DType::kBF16 && kv.block_size % 16 == 0;
  p->key_stride = in_place ? kv.block_size : 16;
  const int32_t first = p->first_chunk(), last = p->last_chunk();
  for (int32_t v = first; v <= last; ++v) {
    uint32_t* to = b.keys + v * 8 * call.padded;
    p->keys[v] = to;
    if (in_place) {
      const int32_t position = p->base + 16 * v;
      p->keys[v] = reinterpret_cast<const uint32_t*>(HeadAt(kv, kv.k, *tile.item, tile.kv_head, position)) +
                   position % kv.block_size;
    } else if (!p->widens) {
      CopyKeys(call, tile, *p, v, to);
    }
  }
  for (int32_t v = 0; v < first; ++v) p->keys[v] = p->keys[first];
  for (int32_t v = last + 1; v < kKeyVectors + 3; ++v) p->keys[v] = p->keys[last];
}

// A pair of positions of which one is not read: it may never have been written, and zero times that could be NaN.
inline void CopyHalfPair(const uint32_t* from, int32_t head_dim, bool even, uint32_t* to) {
  const __m512i keep = _mm512_set1_epi32(static_cast<int>(even ? 0xffffu : 0xffff0000u));
  for (int32_t d = 0; d < head_dim; d += 16) {
    _mm512_storeu_si512(to + d, _mm512_and_si512(_mm512_loadu_si512(from + d), keep));
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

inline void PlaceValues(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const bool in_place = KvPaired(kv) && kv.dtype == DType::kBF16 && kv.head_dim % 16 == 0;
  const int32_t first = (p->begin - p->base) / 2, last = (p->end - 1 - p->base) / 2;
  if (!in_place) {
    for (int32_t i = first; i <= last; ++i) {
      p->values[i] = b.values + i * call.padded;
      if (!p->widens) CopyValues(call, tile, *p, i, b.values + i * call.padded);
    }
    return;
  }
  for (int32_t i = first, n; i <= last; i += n) {  // block by block
    const int32_t position = p->base + 2 * i, in_block = position % kv.block_size / 2;
    n = kv.block_size / 2 - in_block < last + 1 - i ? kv.block_size / 2 - in_block : last + 1 - i;
    const std::byte* head = HeadAt(kv, kv.v, *tile.item, tile.kv_head, position);
    const uint32_t* from = reinterpret_cast<const uint32_t*>(head) + in_block * kv.head_dim;
    for (int32_t j = 0; j < n; ++j, from += kv.head_dim) p->values[i + j] = from;
  }
  if (p->begin % 2 != 0) {
    CopyHalfPair(p->values[first], kv.head_dim, false, b.values);
    p->values[first] = b.values;
  }
  if (p->end % 2 != 0) {
    CopyHalfPair(p->values[last], kv.head_dim, true, b.values + call.padded);
    p->values[last] = b.values + call.padded;
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

// What will be read, in the order of reading, in chunks of 16 positions of K or of V: while one is used, one some 16
// KiB further on is fetched. Decodes read the cache once, from memory, in pieces too short for the processor to
// foresee.
class FetchStream {
 public:
  explicit FetchStream(const KvLayer& kv) : chunk_bytes_(16 * kv.head_dim * KvElementBytes(kv.dtype)) {
    while (ahead_ > 2 && ahead_ * chunk_bytes_ > int64_t{16} << 10) ahead_ /= 2;
  }

  // The chunks of positions [begin, end), K then V.
  void Add(const KvLayer& kv, const AttentionItem& item, int32_t kv_head, int32_t begin, int32_t end) {
    for (const void* base : {kv.k, kv.v}) {
      for (int32_t s = begin / 16 * 16; s < end && count_ < kMax; s += 16) {
        chunks_[count_++] = HeadAt(kv, base, item, kv_head, s) + s % kv.block_size / 16 * chunk_bytes_;
      }
    }
  }
  // Nothing more to come: the last chunk stands for it.
  void Close() {
    while (count_ < kMax) {
      chunks_[count_] = chunks_[count_ - 1];
      ++count_;
    }
  }
  // What to fetch while chunk `chunk` and those after it are used.
  const std::byte* const* Ahead(int32_t chunk) const { return chunks_ + chunk + ahead_; }
  // The line behind a chunk: its scales, where a block is a chunk.
  void FetchScales(int32_t chunk) const {
    if (active()) __builtin_prefetch(*Ahead(chunk) + chunk_bytes_);
  }
  bool active() const { return count_ > 0; }

 private:
  static constexpr int32_t kMostAhead = 16, kMax = 2 * kKeyVectors + kMostAhead + 4;
  const int64_t chunk_bytes_;
  int32_t ahead_ = kMostAhead;
  const std::byte* chunks_[kMax];
  int32_t count_ = 0;
};

// Widens chunks of K below `upto`, with their scales (one not yet written meets a lane that nobody looks at).
inline void WidenKeys(const AttentionCall& call, const AttentionTile& tile, const Buffers& b, const FetchStream& stream,
                      int32_t upto, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  upto = upto <= p->last_chunk() ? upto : p->last_chunk() + 1;
  for (; p->keys_ready < upto; ++p->keys_ready) {
    const int32_t c = p->keys_ready, position = p->base + 16 * c, offset = position % kv.block_size;
    stream.FetchScales(c - p->first_chunk());
    const std::byte* head = HeadAt(kv, kv.k, *tile.item, tile.kv_head, position);
    std::memcpy(b.key_scales + 16 * c, head + KvScaleOffset(kv, offset), 64);
    const std::byte* from = head + 2 * offset;
    uint32_t* to = b.keys + c * 8 * call.padded;
    for (int32_t d = 0; d < kv.head_dim; d += 2, from += 2 * kv.block_size, to += 16) {
      _mm512_storeu_si512(to, Widen(from));
    }
  }
}

// The scales of V that softmax asks for, when those of K are ready: fetched since.
inline void CopyValueScales(const AttentionCall& call, const AttentionTile& tile, const Buffers& b,
                            const PartitionKv& p) {
  const KvLayer& kv = *call.kv;
  for (int32_t c = p.values_ready; c < p.keys_ready; ++c) {
    const int32_t position = p.base + 16 * c;
    const std::byte* head = HeadAt(kv, kv.v, *tile.item, tile.kv_head, position);
    std::memcpy(b.value_scales + 16 * c, head + KvScaleOffset(kv, position % kv.block_size), 64);
  }
}

// Chunks of V. What was never written is a number too, and its weight zero.
inline void WidenValues(const AttentionCall& call, const AttentionTile& tile, const Buffers& b,
                        const FetchStream& stream, int32_t upto, PartitionKv* p) {
  const KvLayer& kv = *call.kv;
  const int32_t chunks = p->last_chunk() + 1 - p->first_chunk();
  upto = upto <= p->last_chunk() ? upto : p->last_chunk() + 1;
  for (; p->values_ready < upto; ++p->values_ready) {
    const int32_t c = p->values_ready, position = p->base + 16 * c;
    stream.FetchScales(chunks + c - p->first_chunk());
    const std::byte* from = HeadAt(kv, kv.v, *tile.item, tile.kv_head, position) +
                            static_cast<int64_t>(position % kv.block_size) * kv.head_dim;
    uint32_t* to = b.values + 8 * c * call.padded;
    for (int32_t d = 0; d < 8 * kv.head_dim; d += 16, from += 32) _mm512_storeu_si512(to + d, Widen(from));
  }
}

}  // namespace
}  // namespace tactus::kernels
