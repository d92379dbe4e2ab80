// The paged cache in chunks, 16 positions of one head, as tiles.h iterates over it; and the prefetches issued while
// chunks are used.
#pragma once

#include <cstdint>

#include "compute/kernels/attention/avx512/rows.h"
#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

// Whether vectors can read K and V of 16 positions of a head (a chunk) in place.
inline bool InChunks(const KvLayer& kv) {
  return KvGrouped(kv) && kv.block_size % 16 == 0 && kv.head_dim % 16 == 0;
}

// The address of a chunk (16 positions) of a head: bytes from kv.k or kv.v to its block's head, and its first position
// there.
struct ChunkPlace {
  int64_t head;
  int32_t offset;

  const std::byte* Head(const void* base) const { return static_cast<const std::byte*>(base) + head; }
  // The chunk itself, in groups.
  const uint32_t* Keys(const KvLayer& kv) const { return reinterpret_cast<const uint32_t*>(Head(kv.k)) + offset; }
  const uint32_t* Values(const KvLayer& kv) const {
    return reinterpret_cast<const uint32_t*>(Head(kv.v)) + offset / KvGroup(kv) * kv.head_dim;
  }
  // int8: the chunk's scales, of K or of V.
  const float* Scales(const KvLayer& kv, const void* base) const {
    return reinterpret_cast<const float*>(Head(base) + KvScaleOffset(kv, offset));
  }
};

// Iterates over the chunks of an item without divisions.
class ChunkWalk {
 public:
  ChunkWalk(const KvLayer& kv, const AttentionItem& item, int32_t kv_head, int32_t position)
      : head_bytes_(KvHeadBytes(kv)),
        kv_heads_(kv.kv_heads),
        block_size_(kv.block_size),
        kv_head_(kv_head),
        block_(item.block_table + position / kv.block_size),
        offset_(position % kv.block_size / 16 * 16) {}
  ChunkPlace Place() const { return {(int64_t{*block_} * kv_heads_ + kv_head_) * head_bytes_, offset_}; }
  void Next() {
    offset_ += 16;
    if (offset_ < block_size_) return;
    offset_ = 0;
    ++block_;
  }

 private:
  const int64_t head_bytes_;
  const int32_t kv_heads_, block_size_, kv_head_;
  const int32_t* block_;
  int32_t offset_;
};

// Addresses of the chunks of positions [begin, end).
inline void PlaceChunks(const KvLayer& kv, const AttentionItem& item, int32_t kv_head, int32_t begin, int32_t end,
                        ChunkPlace* chunks) {
  ChunkWalk walk(kv, item, kv_head, begin);
  for (int32_t c = begin / 16; c < (end + 15) / 16; ++c, ++chunks) {
    *chunks = walk.Place();
    if (16 * (c + 1) < end) walk.Next();
  }
}

// Chunks of a head that a narrow tile reads before the next head's: 4 KiB for heads of 64 dimensions.
constexpr int32_t kMostChunksAtOnce = 4;
inline int32_t ChunksAtOnce(const KvLayer& kv) {
  return KvGroup(kv);
}

// The coming reads in order, in pieces of 16 positions (a chunk) of one head, of K or of V. While a piece is used, one
// about 16 KiB later is prefetched. Decodes read the cache once, from memory, in runs too short for the hardware
// prefetcher.
class FetchStream {
 public:
  static constexpr int32_t kMostAhead = 20;  // and the most that one call reads beyond
  explicit FetchStream(const KvLayer& kv) : piece_bytes_(16 * kv.head_dim * KvElementBytes(kv.dtype)) {
    while (ahead_ > 2 && ahead_ * piece_bytes_ > int64_t{16} << 10) ahead_ /= 2;
  }

  // Adds the pieces of a tile's KV heads, at most `most`, at positions [begin, end): K, then V, ChunksAtOnce, head by
  // head. `chunks`: receives their addresses too; null: not written.
  void Add(const KvLayer& kv, const AttentionTile& tile, int32_t begin, int32_t end, int32_t most, ChunkPlace* chunks) {
    const int32_t upto = count_ + most < kMax ? count_ + most : kMax;
    AddKeys(kv, tile, begin, end, upto - count_, chunks);
    AddValues(kv, tile, begin, end, upto - count_, chunks);
  }
  void AddKeys(const KvLayer& kv, const AttentionTile& tile, int32_t begin, int32_t end, int32_t most,
               ChunkPlace* chunks) {
    AddOne(kv, kv.k, KvGroup(kv) * KvElementBytes(kv.dtype), tile, begin, end, most, chunks);
  }
  void AddValues(const KvLayer& kv, const AttentionTile& tile, int32_t begin, int32_t end, int32_t most,
                 ChunkPlace* chunks) {
    AddOne(kv, kv.v, kv.head_dim * KvElementBytes(kv.dtype), tile, begin, end, most, chunks);
  }
  // Ends the stream: repeats the last piece where later ones would be read.
  void Close() {
    const int32_t upto = count_ + kMostAhead < kMax ? count_ + kMostAhead : kMax;
    while (count_ < upto) {
      pieces_[count_] = pieces_[count_ - 1];
      ++count_;
    }
  }
  // The pieces to prefetch while piece `piece` and those after it are used.
  const std::byte* const* Ahead(int32_t piece) const { return pieces_ + piece + ahead_; }
  // Prefetches the line behind a piece: its scales, where a block is a chunk.
  void FetchScales(int32_t piece) const {
    if (active()) __builtin_prefetch(*Ahead(piece) + piece_bytes_);
  }
  bool active() const { return count_ > 0; }

 private:
  // K and V of a narrow tile, or either for the members of a tile.
  static constexpr int32_t kMostMembers = kAttentionTileRows;
  static constexpr int32_t kMax =
      kKeyVectors * (kMostMembers > 2 * kMostKvHeads ? kMostMembers : 2 * kMostKvHeads) + 2 * kMostAhead;
  // `in_block`: bytes from one position of a block to the next.
  void AddOne(const KvLayer& kv, const void* base, int64_t in_block, const AttentionTile& tile, int32_t begin,
              int32_t end, int32_t most, ChunkPlace* chunks) {
    const int64_t head_bytes = KvHeadBytes(kv);
    const int32_t upto = count_ + most < kMax ? count_ + most : kMax, count = (end + 15) / 16 - begin / 16;
    const int32_t at_once = ChunksAtOnce(kv);
    ChunkWalk walk(kv, *tile.item, tile.kv_head, begin);
    for (int32_t c = 0; c < count && count_ < upto; c += at_once) {
      const int32_t n = count - c < at_once ? count - c : at_once;
      ChunkPlace places[kMostChunksAtOnce];
      for (int32_t i = 0; i < n; ++i) {
        places[i] = walk.Place();
        if (chunks != nullptr) chunks[c + i] = places[i];
        if (c + i + 1 < count) walk.Next();
      }
      for (int32_t h = 0; h < tile.kv_heads && count_ < upto; ++h) {
        for (int32_t i = 0; i < n; ++i) Append(places[i].Head(base) + h * head_bytes + places[i].offset * in_block);
      }
    }
  }
  void Append(const std::byte* piece) {
    if (count_ < kMax) pieces_[count_++] = piece;
  }
  const int64_t piece_bytes_;
  int32_t ahead_ = 16;
  const std::byte* pieces_[kMax];
  int32_t count_ = 0;
};

}  // namespace
}  // namespace tactus::compute
