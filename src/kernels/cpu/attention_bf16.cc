// Attention by vdpbf16ps: q and the softmax weights rounded to bf16, K and V as stored (int8 codes are exact in bf16),
// sums in f32. Each lane of the instruction adds two products to its sum, the odd one first, each step rounded to
// nearest even, subnormals taken as zero.
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one chain over the pairs of head_dim, ascending; int8: then times the position's scale of K;
// - within a partition of kPartition absolute positions: the maximum, the weights 2^(scale log2(e) (score - maximum))
//   rounded to bf16 (int8: times the position's scale of V first), their sum (lanes by absolute position, then a fixed
//   tree), and one chain of weighted values over pairs of positions, ascending;
// - partitions are merged in ascending order by MergeRows.
// Positions that a row does not see are skipped or have a weight of exact zero. So block size, chunking, neighbours,
// threads and the splitting of long tiles change no bit.
#include "kernels/cpu/attention_bf16.h"

#include "kernels/cpu/attention_bf16_place.h"

namespace tactus::kernels {
namespace {

constexpr float kLog2E = 1.44269504f;

struct Rows {
  Rows(const AttentionCall& call, const AttentionTile& tile) : count(tile.rows()) {
    for (int32_t query = 0, r = 0; query < tile.queries; ++query) {
      const VisibleRange seen = VisibleFrom(call, tile.item->first_position + tile.first_query + query);
      for (int32_t h = 0; h < tile.heads; ++h, ++r) {
        low[r] = seen.low;
        high[r] = seen.high;
      }
    }
  }
  // Columns of the partition at `base` that row r sees; empty: from >= to.
  ColumnRange In(int32_t r, int32_t base) const {
    const int32_t from = low[r] > base ? low[r] - base : 0, to = high[r] + 1 - base;
    return {from, to < kPartition ? to : kPartition};
  }
  int32_t count;
  int32_t low[kAttentionTileRows], high[kAttentionTileRows];  // both ascending
};

// Few rows take more vectors at a time: about 16 sums are in flight either way.
constexpr int VecsFor(int rows) {
  return rows <= 4 ? 4 : 2;
}

using ScoreFn = void (*)(const uint32_t*, int64_t, const uint32_t* const*, int64_t, int32_t, const float*,
                         const std::byte* const*, int32_t, float*);
using WeighFn = void (*)(const uint16_t*, const uint32_t* const*, int32_t, int32_t, int64_t, const std::byte* const*,
                         int32_t, float*, int64_t);

template <bool kFetch>
constexpr ScoreFn kScore[kGroupRows + 1] = {nullptr,
                                            ScoreRows<1, VecsFor(1), kFetch>,
                                            ScoreRows<2, VecsFor(2), kFetch>,
                                            ScoreRows<3, VecsFor(3), kFetch>,
                                            ScoreRows<4, VecsFor(4), kFetch>,
                                            ScoreRows<5, VecsFor(5), kFetch>,
                                            ScoreRows<6, VecsFor(6), kFetch>,
                                            ScoreRows<7, VecsFor(7), kFetch>,
                                            ScoreRows<8, VecsFor(8), kFetch>};
template <int kVecs, bool kFetch>
constexpr WeighFn kWeigh[kGroupRows + 1] = {nullptr,
                                            WeighRows<1, kVecs, kFetch>,
                                            WeighRows<2, kVecs, kFetch>,
                                            WeighRows<3, kVecs, kFetch>,
                                            WeighRows<4, kVecs, kFetch>,
                                            WeighRows<5, kVecs, kFetch>,
                                            WeighRows<6, kVecs, kFetch>,
                                            WeighRows<7, kVecs, kFetch>,
                                            WeighRows<8, kVecs, kFetch>};

struct Sums {
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];  // sum -1: the row sees nothing here
};

// b.scores of `n` rows to b.weights. Lanes are reduced for all rows together: one row alone would wait for each step.
void SoftmaxGroup(const PartitionKv& p, const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale,
                  const Buffers& b, float* maximum, float* sum) {
  __m512 lanes[kGroupRows];
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) lanes[r] = RowMaximum(b.scores + r * kPartition, own[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) maximum[r] = MaxLane(lanes[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    const float* scores = b.scores + r * kPartition;
    uint16_t* weights = b.weights + r * kPartition;
    if (own[r].from >= own[r].to) {
      std::memset(weights, 0, kPartition * sizeof(uint16_t));
    } else if (p.value_scales != nullptr) {
      lanes[r] = SoftmaxRow<true>(scores, own[r], group, log2_scale, maximum[r], p.value_scales, weights);
    } else {
      lanes[r] = SoftmaxRow<false>(scores, own[r], group, log2_scale, maximum[r], nullptr, weights);
    }
  }
  for (int32_t r = 0; r < n; ++r) sum[r] = own[r].from < own[r].to ? SumLanes(lanes[r]) : -1.0f;
}

// Rows [first, first + n) over the partition, into b.part.
void RunGroup(const AttentionCall& call, const AttentionTile& tile, const Rows& rows, PartitionKv& p, int32_t first,
              int32_t n, const FetchStream& stream, const Buffers& b, Sums* sums) {
  ColumnRange own[kGroupRows], group = {kPartition, 0};
  for (int32_t r = 0; r < n; ++r) {
    own[r] = rows.In(first + r, p.base);
    sums->sum[first + r] = -1.0f;  // until it is known
    if (own[r].from >= own[r].to) continue;
    group.from = own[r].from < group.from ? own[r].from : group.from;
    group.to = own[r].to > group.to ? own[r].to : group.to;
  }
  if (group.from >= group.to) return;
  const int64_t q_stride = call.padded / 2;
  const int32_t dim_pairs = (call.kv->head_dim + 1) / 2, vecs = VecsFor(n);
  const bool fetch = first == 0 && stream.active();
  const int32_t step = p.widens ? 32 : 64;  // a vector of codes is half as long
  const ScoreFn score = fetch ? kScore<true>[n] : kScore<false>[n];
  const int32_t first_vector = group.from / 16 / vecs * vecs;
  for (int32_t v = first_vector; v * 16 < group.to; v += vecs) {
    if (p.widens) WidenKeys(call, tile, b, stream, v + vecs, &p);
    score(b.q + first * q_stride, q_stride, p.keys + v, p.key_stride, dim_pairs,
          p.key_scales != nullptr ? p.key_scales + 16 * v : nullptr, stream.Ahead(v - first_vector), step,
          b.scores + 16 * v);
  }
  if (p.widens) CopyValueScales(call, tile, b, p);
  SoftmaxGroup(p, own, group, n, call.scale * kLog2E, b, sums->maximum + first, sums->sum + first);
  if (p.widens) WidenValues(call, tile, b, stream, (group.to + 15) / 16, &p);
  const int32_t from = group.from / 2, to = (group.to + 1) / 2;
  float* out = b.part + first * call.padded;
  const std::byte* const* ahead = stream.Ahead((group.to + 15) / 16 - first_vector) - from / 8;
  const WeighFn weigh = vecs == 4 ? (fetch ? kWeigh<4, true>[n] : kWeigh<4, false>[n])
                                  : (fetch ? kWeigh<2, true>[n] : kWeigh<2, false>[n]);
  int64_t d = 0;
  for (; d + 16 * vecs <= call.padded; d += 16 * vecs)
    weigh(b.weights, p.values, from, to, d, ahead, step, out, call.padded);
  for (; d < call.padded; d += 16) kWeigh<1, false>[n](b.weights, p.values, from, to, d, ahead, step, out, call.padded);
}

// `next`: the tile that this thread is likely to take after this one; null: none.
void RunPartition(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, const Rows& rows,
                  int32_t index, const Buffers& b, Sums* sums) {
  PartitionKv p;
  p.base = index * kPartition;
  p.begin = rows.low[0] > p.base ? rows.low[0] : p.base;
  const int32_t last = rows.high[rows.count - 1] + 1;
  p.end = last < p.base + kPartition ? last : p.base + kPartition;
  const KvLayer& kv = *call.kv;
  const bool chunks = KvPaired(kv) && kv.block_size % 16 == 0 && kv.head_dim % 16 == 0;
  p.widens = chunks && kv.dtype == DType::kInt8;
  p.keys_ready = p.values_ready = p.first_chunk();
  PlaceKeys(call, tile, b, &p);
  PlaceValues(call, tile, b, &p);
  PlaceScales(call, tile, b, &p);
  FetchStream stream(kv);
  if (chunks) {
    stream.Add(kv, *tile.item, tile.kv_head, p.begin, p.end);
    if (p.end < last) {
      stream.Add(kv, *tile.item, tile.kv_head, p.end, last);
    } else if (next != nullptr) {
      const int32_t position = next->item->first_position + next->first_query;
      stream.Add(kv, *next->item, next->kv_head, VisibleFrom(call, position).low, position + 1);
    }
    stream.Close();
  }
  for (int32_t r = 0; r < rows.count; r += kGroupRows) {
    RunGroup(call, tile, rows, p, r, rows.count - r < kGroupRows ? rows.count - r : kGroupRows, stream, b, sums);
  }
}

// Adds a partition's `n` rows, stride apart, to what came before them. A row's first partition finds maximum -infinity,
// sum and values 0.
inline void MergeRows(float log2_scale, int32_t n, const float* maximum, const float* sum, const float* part,
                      int64_t padded, float* state_maximum, float* state_sum, float* state) {
  for (int32_t r = 0; r < n; r += 16) {
    const __mmask16 rows = Within(r, 0, n);
    const __m512 s1 = _mm512_maskz_loadu_ps(rows, sum + r), s0 = _mm512_maskz_loadu_ps(rows, state_sum + r);
    const __mmask16 sees = _mm512_mask_cmp_ps_mask(rows, s1, _mm512_setzero_ps(), _CMP_NLT_UQ);
    if (sees == 0) continue;
    const __m512 m1 = _mm512_maskz_loadu_ps(rows, maximum + r), m0 = _mm512_maskz_loadu_ps(rows, state_maximum + r);
    const __m512 top = _mm512_max_ps(m0, m1), scale = _mm512_set1_ps(log2_scale);
    // The first partition meets a state of zeros: what Exp2 makes of its -infinity, 2^-126, does not matter.
    const __m512 f0 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m0, top), scale));
    const __m512 f1 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m1, top), scale));
    _mm512_mask_storeu_ps(state_maximum + r, sees, top);
    _mm512_mask_storeu_ps(state_sum + r, sees, _mm512_fmadd_ps(s1, f1, _mm512_mul_ps(s0, f0)));
    alignas(64) float old_factor[16], new_factor[16];
    _mm512_store_ps(old_factor, f0);
    _mm512_store_ps(new_factor, f1);
    for (int32_t i = 0; i < 16; ++i) {
      if ((sees >> i & 1) == 0) continue;
      const __m512 a = _mm512_set1_ps(old_factor[i]), c = _mm512_set1_ps(new_factor[i]);
      float* to = state + (r + i) * padded;
      const float* from = part + (r + i) * padded;
      for (int64_t d = 0; d < padded; d += 16) {
        const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(to + d), a);
        _mm512_storeu_ps(to + d, _mm512_fmadd_ps(_mm512_loadu_ps(from + d), c, kept));
      }
    }
  }
}

inline void WriteRow(const float* state, float sum, int32_t head_dim, float* out) {
  const __m512 inverse = _mm512_set1_ps(1.0f / sum);
  for (int32_t d = 0; d < head_dim; d += 16) {
    const __mmask16 lanes = Within(d, 0, head_dim);
    _mm512_mask_storeu_ps(out + d, lanes, _mm512_mul_ps(_mm512_loadu_ps(state + d), inverse));
  }
}

// f(row, index of its first element in a buffer whose tokens are `stride` apart), rows ascending.
template <class F>
inline void ForRowsOf(const AttentionCall& call, const AttentionTile& tile, int64_t stride, F f) {
  const int32_t head_dim = call.kv->head_dim;
  int64_t token = AttentionRowOffset(call, tile, 0, stride);
  for (int32_t query = 0, r = 0; query < tile.queries; ++query, token += stride) {
    for (int32_t h = 0; h < tile.heads; ++h, ++r) f(r, token + static_cast<int64_t>(h) * head_dim);
  }
}

void RoundQueries(const AttentionCall& call, const AttentionTile& tile, uint32_t* rounded) {
  const int32_t head_dim = call.kv->head_dim;
  ForRowsOf(call, tile, call.q_stride, [&](int32_t r, int64_t at) {
    const float* from = call.q + at;
    alignas(64) float turned[kMaxHeadDim];
    if (call.kv->dtype == DType::kInt8) {
      const int32_t run = head_dim & -head_dim, vectors = head_dim / 16;
      std::memcpy(turned, from, static_cast<size_t>(head_dim) * sizeof(float));
      if (run >= 16) {
        SpreadVectors(reinterpret_cast<__m512*>(turned), vectors, run);
      } else {
        SpreadHead(turned, head_dim);
      }
      from = turned;
    }
    uint32_t* to = rounded + r * call.padded / 2;
    int32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + d + 16), _mm512_loadu_ps(from + d));
      _mm512_storeu_si512(to + d / 2, reinterpret_cast<__m512i>(pair));
    }
    for (; d < call.padded; d += 16) {
      const __m512 x = _mm512_maskz_loadu_ps(Within(d, 0, head_dim), from + d);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
  });
}

void RunTile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, std::byte* scratch) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries(call, tile, b.q);
  Sums sums;
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];
  for (int32_t r = 0; r < rows.count; ++r) {
    maximum[r] = -__builtin_inff();
    sum[r] = 0.0f;
  }
  std::memset(b.state, 0, static_cast<size_t>(rows.count * call.padded) * sizeof(float));
  for (int32_t index = rows.low[0] / kPartition; index <= rows.high[rows.count - 1] / kPartition; ++index) {
    RunPartition(call, tile, next, rows, index, b, &sums);
    MergeRows(call.scale * kLog2E, rows.count, sums.maximum, sums.sum, b.part, call.padded, maximum, sum, b.state);
  }
  ForRowsOf(call, tile, call.out_stride, [&](int32_t r, int64_t at) {
    WriteRow(b.state + r * call.padded, sum[r], call.kv->head_dim, call.out + at);
  });
}

void RunTilePartition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                      float* results, int64_t stride) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries(call, tile, b.q);
  Sums sums;
  RunPartition(call, tile, nullptr, rows, index, b, &sums);
  for (int32_t r = 0; r < rows.count; ++r) {
    float* to = results + r * stride;
    std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
    to[call.padded] = sums.maximum[r];
    to[call.padded + 1] = sums.sum[r];
  }
}

void MergeResults(const AttentionCall& call, float* state, const float* results, int64_t stride, int32_t count,
                  float* out) {
  for (int32_t i = 0; i < count; ++i) {
    const float* part = results + i * stride;
    MergeRows(call.scale * kLog2E, 1, part + call.padded, part + call.padded + 1, part, call.padded,
              state + call.padded, state + call.padded + 1, state);
  }
  if (out != nullptr) WriteRow(state, state[call.padded + 1], call.kv->head_dim, out);
}

}  // namespace

void AttentionAvx512Bf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, float scale, int32_t window, float* out, int64_t out_stride,
                         Workspace scratch) {
  static constexpr AttentionKernel kKernel = {RunTile, RunTilePartition, MergeResults};
  AttentionCall call = {};
  call.q = q;
  call.q_stride = q_stride;
  call.kv = &kv;
  call.scale = scale;
  call.window = window;
  call.out = out;
  call.out_stride = out_stride;
  RunAttention(pool, kKernel, items, heads, call, scratch);
}

}  // namespace tactus::kernels
