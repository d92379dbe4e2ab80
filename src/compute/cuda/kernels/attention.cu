// Attention: the choice of the form, the form in plain loops, and the merge of partial results.
#include "compute/cuda/kernels/attention_parts.h"

namespace tactus::compute::cuda {
namespace {

// Values of any type as f32.
class AnyValues {
 public:
  TACTUS_DEVICE AnyValues(const void* at, KvType type)
      : f32_(type == KvType::kF32 ? static_cast<const float*>(at) : nullptr),
        bf16_(type == KvType::kBF16 ? static_cast<const bf16*>(at) : nullptr),
        f16_(type == KvType::kF16 ? static_cast<const f16*>(at) : nullptr),
        int8_(type == KvType::kInt8 ? static_cast<const int8_t*>(at) : nullptr),
        e4m3_(type == KvType::kFp8 ? static_cast<const e4m3*>(at) : nullptr),
        type_(type) {}
  TACTUS_DEVICE float operator[](int64_t i) const {
    if (type_ == KvType::kF32) return f32_[i];
    if (type_ == KvType::kBF16) return ToFloat(bf16_[i]);
    if (type_ == KvType::kF16) return ToFloat(f16_[i]);
    if (type_ == KvType::kInt8) return ToFloat(int8_[i]);
    return ToFloat(e4m3_.Load<e4m3>(i));
  }

 private:
  const Global<const float> f32_;
  const Global<const bf16> bf16_;
  const Global<const f16> f16_;
  const Global<const int8_t> int8_;
  const Global<const e4m3> e4m3_;
  const KvType type_;
};
TACTUS_DEVICE KvType AsKvType(Real type) {
  return type == Real::kF32 ? KvType::kF32 : type == Real::kBF16 ? KvType::kBF16 : KvType::kF16;
}

template <class T>
TACTUS_DEVICE void WriteOutput(const AttentionParameters& p, int32_t token, int32_t head, int32_t column, float v) {
  const Global<T> out(static_cast<T*>(p.call.out));
  out[token * p.call.out_stride + static_cast<int64_t>(head) * p.kv.head_dim + column] = FromFloat<T>(v);
}
TACTUS_DEVICE void WriteOutput(const AttentionParameters& p, int32_t token, int32_t head, int32_t column, float v) {
  if (p.call.type == Real::kF32) {
    WriteOutput<float>(p, token, head, column, v);
  } else if (p.call.type == Real::kBF16) {
    WriteOutput<bf16>(p, token, head, column, v);
  } else {
    WriteOutput<f16>(p, token, head, column, v);
  }
}

inline constexpr int kPlainWarps = 4, kPlainThreads = 32 * kPlainWarps;
inline constexpr int kMaxHead = 512;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// A row's sum over positions; the lane's values are those at lane + 32 i.
struct PlainSums {
  float maximum = -INFINITY, weights = 0.0f;
  float values[kMaxHead / 32] = {};
};

// One warp per q row, in tiles of 32 positions, each lane a position for scores and columns for values.
class PlainAttention {
 public:
  TACTUS_DEVICE PlainAttention(const AttentionParameters& p, const AttentionUnit& unit)
      : p_(p),
        unit_(unit),
        tables_(p.call.tables),
        q_(p.call.q, AsKvType(p.call.type)),
        k_(p.kv.k, p.kv.type),
        v_(p.kv.v, p.kv.type),
        k_scales_(p.kv.k_scales),
        v_scales_(p.kv.v_scales) {
    const AttentionRow item = ReadEntry(p.call.rows, unit.item);
    table_ = item.table;
    slot_step_ = item.count * p.group;
  }

  TACTUS_DEVICE void Run(int32_t index) {
    row_ = RowOf(p_, unit_, index);
    const int32_t low = FirstVisible(p_.call, row_.position);
    const int32_t end = unit_.partition + unit_.partitions;
    PlainSums sums;
    for (int32_t partition = max(unit_.partition, low / kPartition);
         partition < end && partition * kPartition <= row_.position; ++partition) {
      PlainSums part;
      for (int32_t begin = partition * kPartition; begin < (partition + 1) * kPartition; begin += 32) {
        const int32_t first = max(low, begin), last = min(row_.position, begin + 31);
        if (first <= last) AddTile(begin, first, last, part);
      }
      if (row_.slot >= 0) {
        WritePartial(partition, part);
      } else {
        FoldIn(part, sums);
      }
    }
    if (row_.slot < 0) Finish(sums);
  }

 private:
  TACTUS_DEVICE static int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  template <class F>
  TACTUS_DEVICE void ForColumns(F f) const {
#pragma unroll
    for (int i = 0; i < kMaxHead / 32; ++i) {
      if (Lane() + 32 * i < p_.kv.head_dim) f(i, Lane() + 32 * i);
    }
  }

  TACTUS_DEVICE float Score(int64_t kv_row, int32_t position) const {
    const int64_t q_at = row_.token * p_.call.q_stride + static_cast<int64_t>(row_.head) * p_.kv.head_dim;
    float score = 0.0f;
    for (int32_t d = 0; d < p_.kv.head_dim; ++d) score = Fma(q_[q_at + d], k_[kv_row * p_.kv.head_dim + d], score);
    if (p_.kv.type == KvType::kInt8) score = Mul(score, k_scales_[kv_row]);
    score = Mul(score, p_.call.scale);
    if (p_.call.softcap > 0.0f) score = Mul(p_.call.softcap, tanhf(Div(score, p_.call.softcap)));
    if (p_.call.slopes != nullptr) {
      const Global<const float> slopes(p_.call.slopes);
      score = Fma(slopes[row_.head], static_cast<float>(position - row_.position), score);
    }
    return Mul(score, kLog2E);
  }

  // Positions [first, last] of the tile at `begin`.
  TACTUS_DEVICE void AddTile(int32_t begin, int32_t first, int32_t last, PlainSums& sums) const {
    const int32_t position = begin + Lane();
    const bool sees = position >= first && position <= last;
    const int64_t kv_row = sees ? KvRow(p_, tables_, table_, unit_.kv_head, position) : 0;
    const float score = sees ? Score(kv_row, position) : -INFINITY;
    float most = score;
    for (int i = 16; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, i));
    const FoldFactors f = FactorsOf(sums.maximum, most);
    float weight = Exp2(score - f.reference), sum = weight;
    for (int i = 16; i > 0; i /= 2) sum = Add(sum, __shfl_xor_sync(kAllLanes, sum, i));
    sums.maximum = f.maximum;
    sums.weights = Fma(sums.weights, f.old, sum);
    if (sees && p_.kv.type == KvType::kInt8) weight = Mul(weight, v_scales_[kv_row]);
    ForColumns([&](int i, int) { sums.values[i] = Mul(sums.values[i], f.old); });
    for (int32_t lane = first - begin; lane <= last - begin; ++lane) {
      const float w = __shfl_sync(kAllLanes, weight, lane);
      const int64_t v_at = __shfl_sync(kAllLanes, kv_row, lane) * p_.kv.head_dim;
      ForColumns([&](int i, int column) { sums.values[i] = Fma(w, v_[v_at + column], sums.values[i]); });
    }
  }

  TACTUS_DEVICE void FoldIn(const PlainSums& part, PlainSums& sums) const {
    const FoldFactors f = FactorsOf(sums.maximum, part.maximum);
    sums.maximum = f.maximum;
    sums.weights = Fold(f, sums.weights, part.weights);
    ForColumns([&](int i, int) { sums.values[i] = Fold(f, sums.values[i], part.values[i]); });
  }

  TACTUS_DEVICE void WritePartial(int32_t partition, const PlainSums& part) const {
    const Global<float> partials(p_.call.partials);
    const int64_t slot = row_.slot + static_cast<int64_t>(partition - unit_.partition) * slot_step_;
    const int64_t at = slot * (p_.kv.head_dim + kPartialStats);
    ForColumns([&](int i, int column) { partials[at + column] = part.values[i]; });
    if (Lane() == 0) {
      partials[at + p_.kv.head_dim] = part.maximum;
      partials[at + p_.kv.head_dim + 1] = part.weights;
    }
  }

  TACTUS_DEVICE void Finish(const PlainSums& sums) const {
    const float factor = FinalFactor(p_.call, row_.head, sums.maximum, sums.weights);
    ForColumns(
        [&](int i, int column) { WriteOutput(p_, row_.token, row_.head, column, FinalValue(sums.values[i], factor)); });
  }

  const AttentionParameters& p_;
  const AttentionUnit& unit_;
  const Global<const int32_t> tables_;
  const AnyValues q_, k_, v_;
  const Global<const float> k_scales_, v_scales_;
  int32_t table_ = 0, slot_step_ = 0;
  QRow row_;
};

__global__ void __launch_bounds__(kPlainThreads, 1)
    AttendPlainly(AttentionParameters p, const AttentionUnit* units, int32_t count) {
  for (int32_t u = static_cast<int32_t>(blockIdx.x); u < count; u += static_cast<int32_t>(gridDim.x)) {
    const AttentionUnit unit = ReadEntry(units, u);
    if (unit.count == 0) continue;
    PlainAttention attention(p, unit);
    for (int32_t index = static_cast<int32_t>(threadIdx.x) / 32; index < unit.count; index += kPlainWarps) {
      attention.Run(index);
    }
  }
}

inline constexpr int kMergeThreads = 128;

// One head of one query; a thread has its columns.
TACTUS_DEVICE void MergeHead(const AttentionParameters& p, const AttentionMerge& merge, int32_t head) {
  const AttentionRow item = ReadEntry(p.call.rows, merge.item);
  const int32_t head_dim = p.kv.head_dim;
  const int32_t kv_head = p.by_group.Quotient(head);
  const int32_t position = item.first_position + merge.query;
  const int32_t first = FirstVisible(p.call, position) / kPartition, last = position / kPartition;
  const int64_t slot = merge.slot + head - kv_head * p.group +
                       static_cast<int64_t>(kv_head * merge.partitions + first - merge.partition) * merge.stride;
  const int64_t begin = slot * (head_dim + kPartialStats);
  const int64_t step = static_cast<int64_t>(merge.stride) * (head_dim + kPartialStats);
  const Global<const float> partials(p.call.partials);
  for (int32_t column = static_cast<int32_t>(threadIdx.x); column < head_dim; column += kMergeThreads) {
    float maximum = -INFINITY, weights = 0.0f, value = 0.0f;
#pragma unroll 8
    for (int32_t i = 0; i <= last - first; ++i) {
      const int64_t at = begin + i * step;
      const FoldFactors f = FactorsOf(maximum, partials[at + head_dim]);
      maximum = f.maximum;
      weights = Fold(f, weights, partials[at + head_dim + 1]);
      value = Fold(f, value, partials[at + column]);
    }
    const float factor = FinalFactor(p.call, head, maximum, weights);
    WriteOutput(p, item.first_token + merge.query, head, column, FinalValue(value, factor));
  }
}

// The list has all heads of the first merge, then those of the next.
__global__ void __launch_bounds__(kMergeThreads, 7) MergePartials(AttentionParameters p, int32_t count) {
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < count; i += static_cast<int32_t>(gridDim.x)) {
    const int32_t entry = i / p.call.heads;
    const AttentionMerge merge = ReadEntry(p.call.merges, entry);
    if (merge.partitions > 0) MergeHead(p, merge, i - entry * p.call.heads);
  }
}

bool HasTensorForm(const AttentionCall& call, const KvPages& kv) {
  if (call.type == Real::kF32 || kv.head_dim % 16 != 0 || kv.head_dim > kMaxHead) return false;
  if (SizeOf(kv.type) == 1) return true;
  return kv.type == (call.type == Real::kBF16 ? KvType::kBF16 : KvType::kF16);
}

void AttendPlain(Stream& s, const AttentionParameters& p) {
  const AttentionCall& c = p.call;
  LaunchList("PlainAttention", s, p, AttendPlainly, c.num_decodes, kPlainThreads, 0, p, c.decodes, c.num_decodes);
  LaunchList("PlainAttention", s, p, AttendPlainly, c.num_chunks, kPlainThreads, 0, p, c.chunks, c.num_chunks);
}

}  // namespace

void Attention(Stream& s, const AttentionCall& call, const KvPages& kv) {
  AttentionParameters p;
  p.call = call;
  p.kv = kv;
  p.group = call.heads / kv.kv_heads;
  p.by_group = DivisorOf(p.group);
  p.by_block = DivisorOf(kv.block_size);
  p.changes_scores = call.softcap > 0.0f || call.slopes != nullptr;
  p.factor = p.changes_scores ? 1.0f : call.scale * kLog2E;
  if (!HasTensorForm(call, kv)) {
    AttendPlain(s, p);
  } else if (call.type == Real::kBF16) {
    AttendBf16(s, p);
  } else {
    AttendF16(s, p);
  }
  const int64_t merges = call.num_merges * call.heads;
  LaunchList("MergeAttention", s, p, MergePartials, merges, kMergeThreads, 0, p, merges);
}

}  // namespace tactus::compute::cuda
