// The q rows of a unit for tensor cores: where they are, what they see, and where their results go.
#pragma once

#include "compute/cuda/kernels/attention_load.h"

namespace tactus::compute::cuda {

// Offsets in dynamic shared memory.
template <class S>
struct TileMemory {
  static constexpr bool kExchanges = S::kColumnWarps > 1;
  static constexpr int kQ = 0;
  static constexpr int kRing = kQ + S::kRows * S::kHead * 2;
  static constexpr int kWeights = kRing + S::kPieces * S::kPieceSize * 2;
  static constexpr int kMaxima = kWeights + (kExchanges ? S::kRows * S::kTile * 2 : 0);
  static constexpr int kLows = kMaxima + (kExchanges ? S::kScoreWarps * S::kRows * 4 : 0);
  static constexpr int kHighs = kLows + S::kRows * 4;
  static constexpr int kTokens = kHighs + S::kRows * 4;
  static constexpr int kHeads = kTokens + S::kRows * 4;
  static constexpr int kSlots = kHeads + S::kRows * 4;
  static constexpr int kBytes = kSlots + S::kRows * 4;
  static_assert(kBytes <= 99 * 1024, "every supported card has this much");
};

// What a thread holds of a sum over positions: two rows (lane / 4, and 8 further), of its warp's columns those at
// 8 n + 2 (lane % 4) and the next.
template <int kBlocks>
struct RowSums {
  float maximum[2], weights[2];
  float values[kBlocks][4];
  TACTUS_DEVICE void Clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = -INFINITY;
      weights[i] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = 0.0f;
    }
  }
  TACTUS_DEVICE void FoldIn(const RowSums& added) {
    const FoldFactors f[2] = {FactorsOf(maximum[0], added.maximum[0]), FactorsOf(maximum[1], added.maximum[1])};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = f[i].maximum;
      weights[i] = Fold(f[i], weights[i], added.weights[i]);
    }
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = Fold(f[i / 2], values[n][i], added.values[n][i]);
    }
  }
};

// Rows beyond the unit's see nothing.
template <class S>
class TileRows {
 public:
  using T = typename S::T;
  using Memory = TileMemory<S>;
  static constexpr int kBlocks = S::kColumnBlocks;

  TACTUS_DEVICE TileRows(const AttentionParameters& p, const AttentionUnit& unit, int thread)
      : p_(p),
        unit_(unit),
        thread_(thread),
        q_(DynamicShared<T>(Memory::kQ, S::kRows * S::kHead)),
        lows_(DynamicShared<int32_t>(Memory::kLows, S::kRows)),
        highs_(DynamicShared<int32_t>(Memory::kHighs, S::kRows)),
        tokens_(DynamicShared<int32_t>(Memory::kTokens, S::kRows)),
        heads_(DynamicShared<int32_t>(Memory::kHeads, S::kRows)),
        slots_(DynamicShared<int32_t>(Memory::kSlots, S::kRows)) {}

  TACTUS_DEVICE const Shared<T>& q() const { return q_; }
  TACTUS_DEVICE int32_t Low(int row) const { return lows_[row]; }
  TACTUS_DEVICE int32_t High(int row) const { return highs_[row]; }
  TACTUS_DEVICE int32_t Head(int row) const { return heads_[row]; }
  TACTUS_DEVICE bool HasSlots() const { return slots_[0] >= 0; }  // all rows have, or none

  TACTUS_DEVICE void Find() const {
    for (int r = thread_; r < S::kRows; r += S::kThreads) {
      int32_t low = INT32_MAX, high = -1, token = 0, head = 0, slot = -1;
      if (r < unit_.count) {
        const QRow row = RowOf(p_, unit_, r);
        low = FirstVisible(p_.call, row.position);
        high = row.position;
        token = row.token;
        head = row.head;
        slot = row.slot;
      }
      lows_[r] = low;
      highs_[r] = high;
      tokens_[r] = token;
      heads_[r] = head;
      slots_[r] = slot;
    }
    __syncthreads();
  }
  // The warp's rows. They ascend in position, or see all positions of the unit.
  TACTUS_DEVICE int LastRow() const { return min(S::RowBegin(thread_) + 16, unit_.count) - 1; }
  TACTUS_DEVICE bool AnySees(int32_t begin) const {
    const int first = S::RowBegin(thread_), last = LastRow();
    return first <= last && begin <= highs_[last] && begin + S::kTile > lows_[first];
  }
  TACTUS_DEVICE bool AllSeeAll(int32_t begin) const {
    return begin >= lows_[LastRow()] && begin + S::kTile - 1 <= highs_[S::RowBegin(thread_)];
  }

  TACTUS_DEVICE void LoadQ() const {
    constexpr int kChunks = S::kHead / 8;
    const Global<const T> q(static_cast<const T*>(p_.call.q));
    const int column = thread_ % kChunks;
    for (int r = thread_ / kChunks; r < S::kRows; r += S::kThreads / kChunks) {
      const bool copies = r < unit_.count && column * 8 < p_.kv.head_dim;
      int64_t at = 0;
      if (copies) at = tokens_[r] * p_.call.q_stride + heads_[r] * p_.kv.head_dim + column * 8;
      CpAsync16(q_.At(ChunkIndex<S::kHead>(r, column)), q, at, copies);
    }
  }

  TACTUS_DEVICE TileRange Range() const {
    TileRange range;
    const Global<const int32_t> tables(&p_.call.rows[unit_.item].table);
    range.table = tables[0];
    range.kv_head = unit_.kv_head;
    const int32_t begin = unit_.partition * kPartition, end = begin + unit_.partitions * kPartition;
    range.low = max(begin, static_cast<int32_t>(lows_[0]));
    range.high = min(end - 1, static_cast<int32_t>(highs_[unit_.count - 1]));
    range.first = range.low / S::kTile;
    range.last = range.high / S::kTile;
    return range;
  }

  TACTUS_DEVICE void WritePartial(int32_t partition, const RowSums<kBlocks>& sums) const {
    const Global<const int32_t> counts(&p_.call.rows[unit_.item].count);
    const int64_t moved = static_cast<int64_t>(partition - unit_.partition) * counts[0] * p_.group;
    const int32_t head_dim = p_.kv.head_dim, blocks = HeadBlocks();
    const Global<float> partials(p_.call.partials);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = ThreadRow() + 8 * i;
      const int32_t slot = slots_[row];
      if (slot < 0) continue;
      const int64_t at = (slot + moved) * (head_dim + kPartialStats);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        if (n >= blocks) continue;
        partials.template Store<float2>(at + FirstColumn() + n * 8,
                                        make_float2(sums.values[n][2 * i], sums.values[n][2 * i + 1]));
      }
      if (S::ColumnWarp(thread_) == 0 && S::Lane(thread_) % 4 == 0) {
        partials.template Store<float2>(at + head_dim, make_float2(sums.maximum[i], sums.weights[i]));
      }
    }
  }

  TACTUS_DEVICE void WriteOutput(const RowSums<kBlocks>& sums) const {
    const Global<T> out(static_cast<T*>(p_.call.out));
    const int32_t blocks = HeadBlocks();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = ThreadRow() + 8 * i;
      if (row >= unit_.count) continue;
      const int32_t head = heads_[row];
      const float factor = FinalFactor(p_.call, head, sums.maximum[i], sums.weights[i]);
      const int64_t at = tokens_[row] * p_.call.out_stride + head * p_.kv.head_dim + FirstColumn();
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        if (n >= blocks) continue;
        out.template Store<uint32_t>(at + n * 8, PackPair<T>(FinalValue(sums.values[n][2 * i], factor),
                                                             FinalValue(sums.values[n][2 * i + 1], factor)));
      }
    }
  }

 private:
  // The warp's blocks of 8 columns that are in the head.
  TACTUS_DEVICE int HeadBlocks() const { return min(kBlocks, p_.kv.head_dim / 8 - S::ColumnWarp(thread_) * kBlocks); }
  TACTUS_DEVICE int FirstColumn() const { return S::ColumnWarp(thread_) * kBlocks * 8 + S::Lane(thread_) % 4 * 2; }
  // The first of the thread's two rows; the other is 8 further.
  TACTUS_DEVICE int ThreadRow() const { return S::RowBegin(thread_) + S::Lane(thread_) / 4; }

  const AttentionParameters& p_;
  const AttentionUnit& unit_;
  const int thread_;
  const Shared<T> q_;
  const Shared<int32_t> lows_, highs_, tokens_, heads_, slots_;
};

}  // namespace tactus::compute::cuda
