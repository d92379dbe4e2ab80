// Attention of a unit by tensor cores, for decodes and chunks alike: q rows fill the m dimension of mma.sync m16n8k16.
//
// For each tile of positions, a group of warps computes scores (the tile's positions are distributed over its warps),
// then their maximum, weights rounded to T, and for each warp's columns the weights times V. The sum of weights is one
// more product, with ones, so numerator and denominator have the same rounded weights.
#pragma once

#include "compute/cuda/kernels/attention_rows.h"

namespace tactus::compute::cuda {

template <int kTile>
TACTUS_DEVICE int WeightIndex(int row, int chunk) {
  return kTile == 64 ? row * 64 + (chunk ^ (row & 7)) * 8 : row * 32 + (chunk ^ ((row >> 1) & 3)) * 8;
}

template <class S>
class TileAttention {
 public:
  using T = typename S::T;
  using Memory = TileMemory<S>;
  using Loader = std::conditional_t<S::kBytes, ByteLoader<S>, CopyLoader<S>>;

  TACTUS_DEVICE TileAttention(const AttentionParameters& p, const AttentionUnit& unit)
      : p_(p),
        thread_(ThreadFor<S>(unit)),
        rows_(p, unit, thread_),
        ring_(DynamicShared<T>(Memory::kRing, S::kPieces * S::kPieceSize)),
        weights_(DynamicShared<T>(Memory::kWeights, Memory::kExchanges ? S::kRows * S::kTile : 0)),
        maxima_(DynamicShared<float>(Memory::kMaxima, Memory::kExchanges ? S::kScoreWarps * S::kRows : 0)) {}

  TACTUS_DEVICE void Run() {
    rows_.Find();
    rows_.LoadQ();
    const TileRange range = rows_.Range();
    Loader loader(p_, thread_, range, ring_);
    loader.Start();
    RowSums<kBlocks> sums, partition;
    sums.Clear();
    partition.Clear();
    constexpr int kTilesPerPartition = kPartition / S::kTile;
    for (int32_t tile = range.first; tile <= range.last; ++tile) {
      // The zeros end the registers' lives where the warp sees nothing of a tile.
      float scores[kKeyBlocks][4] = {};
      uint32_t weights[S::kTile / 16][4] = {};
      float shrink[2] = {};
      const int32_t begin = tile * S::kTile;
      const bool sees = rows_.AnySees(begin);
      const int k_at = loader.Next();
      if (sees && HasScores()) Scores(k_at, begin, scores);
      Weights(sees, scores, partition.maximum, shrink, weights);
      const int v_at = loader.Next();
      if (sees) Values(v_at, shrink, weights, partition);
      if ((tile + 1) % kTilesPerPartition == 0 || tile == range.last) {
        if (rows_.HasSlots()) {
          rows_.WritePartial(tile / kTilesPerPartition, partition);
        } else {
          sums.FoldIn(partition);
        }
        partition.Clear();
      }
    }
    if (!rows_.HasSlots()) rows_.WriteOutput(sums);
  }

 private:
  static constexpr int kKeyBlocks = S::kTile / 8 / S::kScoreWarps;  // of scores, per warp
  static constexpr int kBlocks = S::kColumnBlocks;
  TACTUS_DEVICE int Lane() const { return S::Lane(thread_); }
  TACTUS_DEVICE int RowBegin() const { return S::RowBegin(thread_); }
  TACTUS_DEVICE int ColumnWarp() const { return S::ColumnWarp(thread_); }
  TACTUS_DEVICE bool HasScores() const { return S::kScoreWarps == S::kColumnWarps || ColumnWarp() < S::kScoreWarps; }

  // scores[n]: of the warp's positions 8 n to 8 n + 7, -infinity where a row does not see one.
  TACTUS_DEVICE void Scores(int k_at, int32_t begin, float (&scores)[kKeyBlocks][4]) {
    const int lane = Lane(), key = ColumnWarp() * kKeyBlocks * 8;
    const ChunkIndices<S::kHead> q_at(0, RowBegin() + lane % 16, lane / 16);
    const ChunkIndices<S::kHead> key_at(k_at, key + lane % 8, lane / 8);
#pragma unroll
    for (int k = 0; k < S::kHead / 8; k += 4) {  // chunks of 8 dimensions
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        LdMatrixX4(a[i], rows_.q().At(q_at.At(0, k + 2 * i)));
      }
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
        uint32_t b[4];
        LdMatrixX4(b, ring_.At(key_at.At(n * 8, k)));
        Mma16816<T>(scores[n], a[0], b[0], b[1]);
        Mma16816<T>(scores[n], a[1], b[2], b[3]);
      }
    }
    if (p_.changes_scores) ChangeScores(begin + key, scores);
    if (!rows_.AllSeeAll(begin)) MaskScores(begin + key, scores);
  }

  // Scales, soft-caps, and adds ALiBi's term; the scores are in units of log2 then. softcap * tanh(s / softcap) is
  // softcap - 2 softcap / (1 + 2^(2 log2(e) s / softcap)).
  TACTUS_DEVICE void ChangeScores(int32_t begin, float (&scores)[kKeyBlocks][4]) {
    const Global<const float> slopes(p_.call.slopes);
    const float scale = Mul(p_.call.scale, kLog2E), cap = Mul(p_.call.softcap, kLog2E);
    const float cap_factor = p_.call.softcap > 0.0f ? Mul(2.0f * scale, Reciprocal(p_.call.softcap)) : 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = RowBegin() + Lane() / 4 + 8 * i;
      const float slope = p_.call.slopes != nullptr ? Mul(slopes[rows_.Head(row)], kLog2E) : 0.0f;
      const int32_t first = begin + Lane() % 4 * 2 - rows_.High(row);
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = scores[n][2 * i + j];
          if (p_.call.softcap > 0.0f) {
            s = Fma(-2.0f * cap, Reciprocal(Add(1.0f, Exp2(Mul(s, cap_factor)))), cap);
          } else {
            s = Mul(s, scale);
          }
          s = Fma(slope, static_cast<float>(first + n * 8 + j), s);
        }
      }
    }
  }

  TACTUS_DEVICE void MaskScores(int32_t begin, float (&scores)[kKeyBlocks][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = RowBegin() + Lane() / 4 + 8 * i;
      const int32_t low = rows_.Low(row), high = rows_.High(row), first = begin + Lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int32_t position = first + n * 8 + j;
          if (position < low || position > high) scores[n][2 * i + j] = -INFINITY;
        }
      }
    }
  }

  // Raises the maxima of the partition so far by the tile's, and sets the weights 2^(score - maximum) of the tile's
  // positions, as operand a of a product, and what earlier sums of the partition shrink by.
  TACTUS_DEVICE void Weights(bool sees, float (&scores)[kKeyBlocks][4], float (&maximum)[2], float (&shrink)[2],
                             uint32_t (&weights)[S::kTile / 16][4]) {
    float most[2] = {-INFINITY, -INFINITY};
    if (sees && HasScores()) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int n = 0; n < kKeyBlocks; ++n) most[i] = fmaxf(most[i], fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
        most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 2));
      }
    }
    if constexpr (S::kColumnWarps > 1) ShareMaxima(sees, most);
    if (!sees) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const FoldFactors f = FactorsOf(maximum[i], Mul(most[i], p_.factor));
      maximum[i] = f.maximum;
      shrink[i] = f.old;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          scores[n][2 * i + j] = Exp2(Fma(scores[n][2 * i + j], p_.factor, -f.reference));
        }
      }
    }
    if constexpr (S::kColumnWarps > 1) {
      if (HasScores()) StoreWeights(scores);
    } else {
#pragma unroll
      for (int k = 0; k < S::kTile / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weights[k][i] = PackPair<T>(scores[2 * k + i / 2][i % 2 * 2], scores[2 * k + i / 2][i % 2 * 2 + 1]);
        }
      }
    }
  }

  TACTUS_DEVICE void ShareMaxima(bool sees, float (&maximum)[2]) {
    const int row = RowBegin() + Lane() / 4;
    if (sees && HasScores() && Lane() % 4 == 0) {
      maxima_[ColumnWarp() * S::kRows + row] = maximum[0];
      maxima_[ColumnWarp() * S::kRows + row + 8] = maximum[1];
    }
    __syncthreads();
    if (!sees) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = maxima_[row + 8 * i];
#pragma unroll
      for (int w = 1; w < S::kScoreWarps; ++w) {
        maximum[i] = fmaxf(maximum[i], static_cast<float>(maxima_[w * S::kRows + row + 8 * i]));
      }
    }
  }

  // The other warps read them after the loader's next barrier.
  TACTUS_DEVICE void StoreWeights(const float (&scores)[kKeyBlocks][4]) {
    const int row = RowBegin() + Lane() / 4, chunk = ColumnWarp() * kKeyBlocks;
#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        weights_.template Store<uint32_t>(WeightIndex<S::kTile>(row + 8 * i, chunk + n) + Lane() % 4 * 2,
                                          PackPair<T>(scores[n][2 * i], scores[n][2 * i + 1]));
      }
    }
  }

  // Adds the tile to `partition`.
  TACTUS_DEVICE void Values(int v_at, const float (&shrink)[2], uint32_t (&weights)[S::kTile / 16][4],
                            RowSums<kBlocks>& partition) {
    const int lane = Lane();
    if constexpr (S::kColumnWarps > 1) {
#pragma unroll
      for (int k = 0; k < S::kTile / 16; ++k) {
        LdMatrixX4(weights[k], weights_.At(WeightIndex<S::kTile>(RowBegin() + lane % 16, 2 * k + lane / 16)));
      }
    }
    const uint32_t ones = PackPair<T>(1.0f, 1.0f);
    float sum[4] = {Mul(partition.weights[0], shrink[0]), 0.0f, Mul(partition.weights[1], shrink[1]), 0.0f};
#pragma unroll
    for (int k = 0; k < S::kTile / 16; ++k) Mma16816<T>(sum, weights[k], ones, ones);
    partition.weights[0] = sum[0];
    partition.weights[1] = sum[2];
    const ChunkIndices<S::kHead> value_at(v_at, lane % 16, ColumnWarp() * kBlocks + lane / 16);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) partition.values[n][i] = Mul(partition.values[n][i], shrink[i / 2]);
    }
#pragma unroll
    for (int k = 0; k < S::kTile / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kBlocks; n += 2) {
        uint32_t b[4];
        LdMatrixX4Trans(b, ring_.At(value_at.At(k * 16, n)));
        Mma16816<T>(partition.values[n], weights[k], b[0], b[1]);
        Mma16816<T>(partition.values[n + 1], weights[k], b[2], b[3]);
      }
    }
  }

  const AttentionParameters& p_;
  const int thread_;
  const TileRows<S> rows_;
  const Shared<T> ring_, weights_;
  const Shared<float> maxima_;
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    AttendTiles(AttentionParameters p, const AttentionUnit* units, int32_t count) {
  for (int32_t u = static_cast<int32_t>(blockIdx.x); u < count; u += static_cast<int32_t>(gridDim.x)) {
    const AttentionUnit unit = ReadEntry(units, u);
    if (unit.count > 0) TileAttention<S>(p, unit).Run();
    __syncthreads();  // all warps are done with the unit's rows in shared memory
  }
}

template <class S>
void LaunchTiles(const char* name, Stream& s, const AttentionParameters& p, const AttentionUnit* units, int64_t count) {
  LaunchList(name, s, p, AttendTiles<S>, count, S::kThreads, TileMemory<S>::kBytes, p, units, count);
}

template <class T, int kHead, bool kBytes>
void AttendHead(Stream& s, const AttentionParameters& p) {
  constexpr int kChunkRowWarps = kHead <= 128 ? 8 : 4;
  LaunchTiles<TileShape<T, kHead, 1, kHead <= 256 ? 4 : 8, kBytes>>("AttentionDecodes", s, p, p.call.decodes,
                                                                    p.call.num_decodes);
  if constexpr (ChunkRows(kHead) > kDecodeRows) {
    static_assert(ChunkRows(kHead) == 16 * kChunkRowWarps);
    LaunchTiles<TileShape<T, kHead, kChunkRowWarps, 8 / kChunkRowWarps, kBytes>>("AttentionChunks", s, p, p.call.chunks,
                                                                                 p.call.num_chunks);
  }
}

template <class T>
void AttendTensor(Stream& s, const AttentionParameters& p) {
  const bool bytes = SizeOf(p.kv.type) == 1;
  if (p.kv.head_dim <= 64) {
    bytes ? AttendHead<T, 64, true>(s, p) : AttendHead<T, 64, false>(s, p);
  } else if (p.kv.head_dim <= 128) {
    bytes ? AttendHead<T, 128, true>(s, p) : AttendHead<T, 128, false>(s, p);
  } else if (p.kv.head_dim <= 256) {
    bytes ? AttendHead<T, 256, true>(s, p) : AttendHead<T, 256, false>(s, p);
  } else {
    bytes ? AttendHead<T, 512, true>(s, p) : AttendHead<T, 512, false>(s, p);
  }
}

}  // namespace tactus::compute::cuda
