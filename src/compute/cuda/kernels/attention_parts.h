// Device code that all forms of attention share: the parameters, the q rows of a unit, the addresses of K and V, and
// the fold that every sum over positions uses.
//
// Scores are in units of log2: weights are powers of 2.
#pragma once

#include <algorithm>
#include <utility>

#include "compute/cuda/kernels/attention.h"
#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

// n / d for n < 2^31 by one product: factor = ceil(2^shift / d) with shift = 31 + ceil(log2(d)) (Granlund and
// Montgomery, "Division by Invariant Integers using Multiplication", 1994).
struct Divisor {
  uint32_t factor = 0;
  int32_t shift = 0;
  TACTUS_DEVICE int32_t Quotient(int32_t n) const {
    return static_cast<int32_t>((static_cast<uint64_t>(static_cast<uint32_t>(n)) * factor) >> shift);
  }
};
inline Divisor DivisorOf(int32_t d) {
  Divisor divisor{0, 31};
  while ((int64_t{1} << (divisor.shift - 31)) < d) ++divisor.shift;
  divisor.factor = static_cast<uint32_t>(((uint64_t{1} << divisor.shift) + d - 1) / d);
  return divisor;
}

struct AttentionParameters {
  AttentionCall call;
  KvPages kv;
  int32_t group = 1;
  Divisor by_group, by_block;  // the group, the block size
  // A score as it is compared, q k^T or what ChangeScores makes of it, times this is in units of log2.
  float factor = 1.0f;
  bool changes_scores = false;
};

// Launches a kernel over the `count` entries of a list, which its blocks take in strides of the grid. There is a block
// per entry, or fewer if the call has a cap.
template <class... P, class... A>
void LaunchList(const char* name, Stream& s, const AttentionParameters& p, void (*kernel)(P...), int64_t count,
                int threads, int shared_bytes, A&&... arguments) {
  if (count == 0) return;
  int64_t blocks = count;
  if (p.call.max_multiprocessors > 0) {
    const int64_t most = BlocksPerMultiprocessor(name, kernel, threads, shared_bytes);
    blocks = std::min(blocks, most * p.call.max_multiprocessors);
  }
  Launch(name, s, kernel, dim3(static_cast<unsigned>(blocks)), threads, shared_bytes, std::forward<A>(arguments)...);
}

// These two launch the units by tensor cores; attention_bf16.cu and attention_f16.cu.
void AttendBf16(Stream& s, const AttentionParameters& p);
void AttendF16(Stream& s, const AttentionParameters& p);

// A list's entry, read through the read-only cache whatever its alignment.
template <class E>
TACTUS_DEVICE E ReadEntry(const E* list, int64_t index) {
  static_assert(sizeof(E) % 4 == 0);
  constexpr int kWords = static_cast<int>(sizeof(E) / 4);
  const Global<const int32_t> words(reinterpret_cast<const int32_t*>(list + index));
  E entry;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int32_t word = words[i];
    __builtin_memcpy(reinterpret_cast<unsigned char*>(&entry) + 4 * i, &word, 4);
  }
  return entry;
}

TACTUS_DEVICE int32_t FirstVisible(const AttentionCall& call, int32_t position) {
  if (call.chunk > 0) return position - position % call.chunk;
  return call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
}

struct QRow {
  int32_t token = 0, head = 0;
  int32_t position = 0;
  int32_t slot = -1;  // of the unit's first partition
};
// Row `index` of a unit.
TACTUS_DEVICE QRow RowOf(const AttentionParameters& p, const AttentionUnit& unit, int32_t index) {
  const int32_t place = unit.members >= 0 ? index : unit.first + index;
  const int32_t query = p.by_group.Quotient(place), head = place - query * p.group;
  QRow row;
  row.head = unit.kv_head * p.group + head;
  if (unit.members >= 0) {
    const AttentionMember member = ReadEntry(p.call.members, unit.members + query);
    const AttentionRow item = ReadEntry(p.call.rows, member.item);
    row.token = item.first_token;
    row.position = item.first_position;
    row.slot = member.slot + (unit.kv_head * member.partitions + unit.partition) * p.group + head;
  } else {
    const AttentionRow item = ReadEntry(p.call.rows, unit.item);
    row.token = item.first_token + query;
    row.position = item.first_position + query;
    row.slot = unit.slot < 0 ? -1 : unit.slot + index;
  }
  return row;
}

// Where a position's K and V of a KV head are: the number of rows of head_dim values, or of scales, before them.
TACTUS_DEVICE int64_t KvRow(const AttentionParameters& p, const Global<const int32_t>& tables, int32_t table,
                            int32_t kv_head, int32_t position) {
  const int32_t index = p.by_block.Quotient(position);
  const int64_t block = tables[table + index];
  return (block * p.kv.kv_heads + kv_head) * p.kv.block_size + (position - index * p.kv.block_size);
}

// The fold: a sum of weights and values relative to one maximum, and another one relative to its own, become a sum
// relative to the larger maximum. Each is (maximum, sum of weights, values); the empty sum is (-infinity, 0, 0), and
// folding it changes nothing.
struct FoldFactors {
  float maximum, old, added;
  float reference;  // the maximum, or 0 for an empty sum
};
TACTUS_DEVICE FoldFactors FactorsOf(float old_maximum, float added_maximum) {
  FoldFactors f;
  f.maximum = fmaxf(old_maximum, added_maximum);
  f.reference = f.maximum == -INFINITY ? 0.0f : f.maximum;
  f.old = Exp2(old_maximum - f.reference);
  f.added = Exp2(added_maximum - f.reference);
  return f;
}
TACTUS_DEVICE float Fold(const FoldFactors& f, float old, float added) {
  return Fma(old, f.old, Mul(added, f.added));
}

// What a row's values are multiplied with in the end: 1 / the sum of all weights, the sink's included.
TACTUS_DEVICE float FinalFactor(const AttentionCall& call, int32_t head, float maximum, float sum) {
  float old = 1.0f;
  if (call.sinks != nullptr) {
    const Global<const float> sinks(call.sinks);
    const FoldFactors f = FactorsOf(maximum, Mul(sinks[head], kLog2E));
    sum = Fold(f, sum, 1.0f);
    old = f.old;
  }
  return sum > 0.0f || sum != sum ? Mul(old, Reciprocal(sum)) : 0.0f;
}
// The sum turns -0 into 0: where a masked tile is folded a value's sign may differ from where it is skipped.
TACTUS_DEVICE float FinalValue(float value, float factor) {
  return Add(Mul(value, factor), 0.0f);
}

}  // namespace tactus::compute::cuda
