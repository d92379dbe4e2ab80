// How K and V come into shared memory: piece by piece, a piece being K or V of one tile of positions, K first.
// Positions that no row of the unit sees, and columns beyond head_dim, become 0.
//
// A tile's rows are kHead values of T. The 16-byte chunks of row r are permuted by r % 8, so that ldmatrix meets no
// bank twice.
#pragma once

#include "compute/cuda/kernels/attention_parts.h"

namespace tactus::compute::cuda {

template <class T_, int kHead_, int kRowWarps_, int kColumnWarps_, bool kBytes_>
struct TileShape {
  using T = T_;
  static constexpr bool kBytes = kBytes_;  // K and V are stored in 8 bits
  static constexpr int kHead = kHead_;     // head_dim is at most this
  // Warps: each has 16 q rows. The warps of one group of rows share the tile's positions for scores, at least 8 each,
  // and its columns for values.
  static constexpr int kRowWarps = kRowWarps_, kColumnWarps = kColumnWarps_;
  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kTile = kHead > 128 ? 32 : 64;  // positions; depends on kHead alone, as results do
  static constexpr int kPieces = kBytes || kHead > 256 ? 2 : kHead > 128 && kRowWarps > 1 ? 3 : 4;  // in shared memory
  // Blocks per multiprocessor that registers must allow.
  static constexpr int kBlocks = kRowWarps > 1 || kHead > 256 ? 1 : kHead > 128 ? 2 : 4;
  static constexpr int kScoreWarps = kColumnWarps < kTile / 8 ? kColumnWarps : kTile / 8;  // the others have no scores
  static constexpr int kPieceSize = kTile * kHead;
  static constexpr int kColumnBlocks = kHead / 8 / kColumnWarps;  // of 8 columns of values, per warp
  static_assert(kPartition % kTile == 0 && kHead % 64 == 0 && kTile / 8 % kScoreWarps == 0);

  TACTUS_DEVICE static int Lane(int thread) { return thread % 32; }
  TACTUS_DEVICE static int RowBegin(int thread) { return thread / 32 / kColumnWarps * 16; }
  TACTUS_DEVICE static int ColumnWarp(int thread) { return thread / 32 % kColumnWarps; }
};

// threadIdx.x, by a sum with 0 that the compiler does not see through. It computes what follows from the thread once
// per unit then. Ahead of the loop over units it would keep more of it in registers than there are.
template <class S>
TACTUS_DEVICE int ThreadFor(const AttentionUnit& unit) {
  static_assert((S::kThreads & (S::kThreads - 1)) == 0);
  return (static_cast<int>(threadIdx.x) + (unit.kv_head >> 31)) & (S::kThreads - 1);
}

// The positions of a unit that any of its rows sees, by whole tiles.
struct TileRange {
  int32_t table = 0, kv_head = 0;
  int32_t low = 0, high = 0;    // positions
  int32_t first = 0, last = 0;  // tiles
  // Piece i is of tile i / 2: K where i is even.
  TACTUS_DEVICE int32_t first_piece() const { return 2 * first; }
  TACTUS_DEVICE int32_t end_piece() const { return 2 * (last + 1); }
};

template <int kHead>
TACTUS_DEVICE int ChunkIndex(int row, int chunk) {
  return row * kHead + (chunk ^ (row & 7)) * 8;
}
// `at` + ChunkIndex(row + rows, chunk + chunks) for constants `rows`, a multiple of 8, and `chunks`, which has no bit
// of `chunk`. `at` is a multiple of 64, so that one register is enough for all of them.
template <int kHead>
class ChunkIndices {
 public:
  TACTUS_DEVICE ChunkIndices(int at, int row, int chunk)
      : begin_(at + row * kHead + (chunk & ~7) * 8 + ((chunk ^ row) & 7) * 8) {}
  TACTUS_DEVICE int At(int rows, int chunks) const {
    return (begin_ ^ (chunks & 7) * 8) + rows * kHead + (chunks & ~7) * 8;
  }

 private:
  int begin_;
};

// The part of a piece that one thread loads: chunks of 16 bytes, in the same column of several rows.
template <class S>
struct ThreadChunks {
  static constexpr int kValues = S::kBytes ? 16 : 8;  // per chunk
  static constexpr int kChunks = S::kHead / kValues;  // per row
  static constexpr int kRowStep = S::kThreads / kChunks;
  static constexpr int kCount = S::kTile / kRowStep;
  static_assert(S::kThreads % kChunks == 0 && S::kTile % kRowStep == 0);
  TACTUS_DEVICE static int Column(int thread) { return thread % kChunks; }
  TACTUS_DEVICE static int Row(int thread, int i) { return thread / kChunks + i * kRowStep; }
};

// Pieces of T by asynchronous copies into a ring.
template <class S>
class CopyLoader {
 public:
  using T = typename S::T;
  TACTUS_DEVICE CopyLoader(const AttentionParameters& p, int thread, const TileRange& range, const Shared<T>& ring)
      : p_(p),
        thread_(thread),
        range_(range),
        ring_(ring),
        tables_(p.call.tables),
        k_(static_cast<const T*>(p.kv.k)),
        v_(static_cast<const T*>(p.kv.v)),
        issue_(range.first_piece()) {}
  // The first group of copies includes those that the thread has made before.
  TACTUS_DEVICE void Start() {
    for (int i = 0; i < S::kPieces - 1; ++i) Issue();
  }
  // Waits until the next piece is complete, and returns where it begins. All threads have finished the piece before.
  TACTUS_DEVICE int Next() {
    CpAsyncWait<S::kPieces - 2>();
    __syncthreads();
    Issue();
    const int at = slot_ * S::kPieceSize;
    slot_ = slot_ + 1 == S::kPieces ? 0 : slot_ + 1;
    return at;
  }

 private:
  using Chunks = ThreadChunks<S>;
  TACTUS_DEVICE void Issue() {
    if (issue_ < range_.end_piece()) {
      const Global<const T>& from = issue_ % 2 == 0 ? k_ : v_;
      const int32_t begin = issue_ / 2 * S::kTile;
      const int column = Chunks::Column(thread_);
      const bool in_head = column * 8 < p_.kv.head_dim;
#pragma unroll
      for (int i = 0; i < Chunks::kCount; ++i) {
        const int row = Chunks::Row(thread_, i);
        const int32_t position = begin + row;
        const bool copies = in_head && position >= range_.low && position <= range_.high;
        int64_t at = 0;
        if (copies) at = KvRow(p_, tables_, range_.table, range_.kv_head, position) * p_.kv.head_dim + column * 8;
        CpAsync16(ring_.At(free_ * S::kPieceSize + ChunkIndex<S::kHead>(row, column)), from, at, copies);
      }
      free_ = free_ + 1 == S::kPieces ? 0 : free_ + 1;
    }
    ++issue_;
    CpAsyncCommit();
  }

  const AttentionParameters& p_;
  const int thread_;
  const TileRange& range_;
  const Shared<T>& ring_;
  const Global<const int32_t> tables_;
  const Global<const T> k_, v_;
  int32_t issue_;            // the next piece to copy
  int slot_ = 0, free_ = 0;  // next piece to use, next place to fill
};

// Four codes of 8 bits as values of T: pairs (0, 1) and (2, 3).
template <class T>
TACTUS_DEVICE uint2 FromInt8(uint32_t codes, float scale) {
  // A byte b + 128 as the low byte of 2^23's mantissa: subtracting 2^23 + 128 is exact.
  const uint32_t moved = codes ^ 0x80808080u;
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = 0x4b000000u | ((moved >> (8 * i)) & 0xffu);
    v[i] = Mul(Add(__uint_as_float(bits), -8388736.0f), scale);
  }
  return make_uint2(PackPair<T>(v[0], v[1]), PackPair<T>(v[2], v[3]));
}
// The bits of e4m3, moved to the exponent and mantissa of T, are the value times a power of 2.
template <class T>
TACTUS_DEVICE uint32_t FromE4m3Pair(uint32_t halves) {
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  const uint32_t bits = (halves & 0x80008000u) | ((halves & 0x7f007f00u) >> (kBf16 ? 4 : 1));
  return MulPair<T>(bits, kBf16 ? 0x7b807b80u : 0x5c005c00u);  // 2^120, 2^8
}
template <class T>
TACTUS_DEVICE uint2 FromE4m3(uint32_t codes) {
  return make_uint2(FromE4m3Pair<T>(((codes & 0xffu) << 8) | ((codes & 0xff00u) << 16)),
                    FromE4m3Pair<T>(((codes & 0xff0000u) >> 8) | (codes & 0xff000000u)));
}

// Pieces of 8-bit codes through registers: the codes of the piece after the next are under way while the next one's are
// written as values of T.
template <class S>
class ByteLoader {
 public:
  using T = typename S::T;
  TACTUS_DEVICE ByteLoader(const AttentionParameters& p, int thread, const TileRange& range, const Shared<T>& ring)
      : p_(p),
        thread_(thread),
        range_(range),
        ring_(ring),
        tables_(p.call.tables),
        k_(static_cast<const int8_t*>(p.kv.k)),
        v_(static_cast<const int8_t*>(p.kv.v)),
        k_scales_(p.kv.k_scales),
        v_scales_(p.kv.v_scales),
        piece_(range.first_piece()) {}
  TACTUS_DEVICE void Start() {
    CpAsyncCommit();
    Fetch(piece_);
    Write(piece_);
    Fetch(piece_ + 1);
    CpAsyncWait<0>();
  }
  TACTUS_DEVICE int Next() {
    __syncthreads();
    const int32_t piece = piece_++;
    Write(piece + 1);
    Fetch(piece + 2);
    return piece % 2 * S::kPieceSize;
  }

 private:
  using Chunks = ThreadChunks<S>;
  TACTUS_DEVICE void Fetch(int32_t piece) {
    if (piece >= range_.end_piece()) return;
    const bool is_k = piece % 2 == 0;
    const Global<const int8_t>& from = is_k ? k_ : v_;
    const Global<const float>& scales = is_k ? k_scales_ : v_scales_;
    const int32_t begin = piece / 2 * S::kTile;
    const int column = Chunks::Column(thread_);
    const bool in_head = column * 16 < p_.kv.head_dim;
#pragma unroll
    for (int i = 0; i < Chunks::kCount; ++i) {
      const int32_t position = begin + Chunks::Row(thread_, i);
      codes_[i] = make_uint4(0, 0, 0, 0);
      scales_[i] = 0.0f;
      if (!in_head || position < range_.low || position > range_.high) continue;
      const int64_t row = KvRow(p_, tables_, range_.table, range_.kv_head, position);
      codes_[i] = from.template Load<uint4>(row * p_.kv.head_dim + column * 16);
      if (p_.kv.type == KvType::kInt8) scales_[i] = scales[row];
    }
  }
  TACTUS_DEVICE void Write(int32_t piece) {
    if (piece >= range_.end_piece()) return;
    const int base = piece % 2 * S::kPieceSize, column = Chunks::Column(thread_);
    const int odd = column / 4 % 2;  // these begin with their second half: no bank is met twice
#pragma unroll
    for (int i = 0; i < Chunks::kCount; ++i) {
      const uint4 low = Values(codes_[i].x, codes_[i].y, scales_[i]);
      const uint4 high = Values(codes_[i].z, codes_[i].w, scales_[i]);
      const int row = Chunks::Row(thread_, i);
      ring_.template Store<uint4>(base + ChunkIndex<S::kHead>(row, 2 * column + odd), odd != 0 ? high : low);
      ring_.template Store<uint4>(base + ChunkIndex<S::kHead>(row, 2 * column + 1 - odd), odd != 0 ? low : high);
    }
  }
  TACTUS_DEVICE uint4 Values(uint32_t a, uint32_t b, float scale) const {
    const bool int8 = p_.kv.type == KvType::kInt8;
    const uint2 x = int8 ? FromInt8<T>(a, scale) : FromE4m3<T>(a);
    const uint2 y = int8 ? FromInt8<T>(b, scale) : FromE4m3<T>(b);
    return make_uint4(x.x, x.y, y.x, y.y);
  }

  const AttentionParameters& p_;
  const int thread_;
  const TileRange& range_;
  const Shared<T>& ring_;
  const Global<const int32_t> tables_;
  const Global<const int8_t> k_, v_;
  const Global<const float> k_scales_, v_scales_;
  int32_t piece_;  // the next piece to use
  uint4 codes_[Chunks::kCount];
  float scales_[Chunks::kCount];
};

}  // namespace tactus::compute::cuda
