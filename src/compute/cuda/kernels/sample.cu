// A row's tokens are cut into segments of kSegment. Four launches: SegmentMaxima and SegmentSums work on all segments
// of all rows at once; SampleRows has a block for each row, which uses the segments' maxima to skip nearly all of the
// row, as compute/model/sampler.cc does; CountSampled changes what later steps read.
#include "compute/cuda/kernels/sample.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/sample_block.h"
#include "compute/cuda/kernels/sample_row.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kSegmentThreads = 256, kSegmentsPerWarp = 4;
constexpr int kSegmentsPerBlock = kSegmentThreads / 32 * kSegmentsPerWarp;
static_assert(kMostLogprobs <= kBins, "the best tokens are collected in the bins");

// As ItemStatus (base/step.h).
constexpr int32_t kOk = 0, kBadLogits = 1, kBadGrammar = 3;

// [rows, segments] each.
struct Scratch {
  Global<Sum> weights;        // of rows that are drawn from all tokens
  Global<uint32_t> keys;      // the largest, after bias, penalties, min_tokens and mask
  Global<uint32_t> raw_keys;  // the same of raw logits, of rows with logprobs, as is the next
  Global<float> sums;         // of e^(logit - the row's largest)
};
constexpr int64_t kScratchPerSegment = sizeof(Sum) + 2 * sizeof(uint32_t) + sizeof(float);

struct Results {
  Global<int32_t> tokens, statuses, logprob_tokens;
  Global<float> logprob_values;
};

TACTUS_DEVICE bool Samples(const SampleRow& row) {
  return row.prompt_next < 0;
}
TACTUS_DEVICE bool HasLogprobs(const SampleRow& row) {
  return row.logprobs >= 0 || row.prompt_next >= 0;
}
TACTUS_DEVICE bool HasTopK(const SampleRow& row, int64_t vocab) {
  return row.top_k > 0 && row.top_k < vocab;
}

TACTUS_DEVICE uint32_t WarpMax(uint32_t x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
// The largest of `keys` [n] at `first`, in every thread of a block of kBlock.
template <int kBlock>
TACTUS_DEVICE uint32_t BlockMax(const Global<uint32_t>& keys, int64_t first, int n, const Shared<uint32_t>& parts) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t best = 0;
  for (int i = thread; i < n; i += kBlock) {
    const uint32_t key = keys[first + i];
    best = max(best, key);
  }
  best = WarpMax(best);
  if (thread % 32 == 0) parts[thread / 32] = best;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kBlock / 32; ++w) {
    const uint32_t part = parts[w];
    best = max(best, part);
  }
  return best;
}

// Block (row, part): one warp has kSegmentsPerWarp neighbouring segments.
__global__ void __launch_bounds__(kSegmentThreads) SegmentMaxima(SampleView view, Scratch scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_segment = static_cast<int>(blockIdx.y) * kSegmentsPerBlock + warp * kSegmentsPerWarp;
  const int64_t r = blockIdx.x;
  const SampleRow row = view.rows[r];
  const RowLogits logits{view, row, r * view.vocab};
  Four raw[kSegmentsPerWarp];
#pragma unroll
  for (int u = 0; u < kSegmentsPerWarp; ++u) {
    raw[u] = logits.Raw(static_cast<int64_t>(first_segment + u) * kSegment + 4 * lane);
  }
#pragma unroll
  for (int u = 0; u < kSegmentsPerWarp; ++u) {
    const int segment = first_segment + u;
    if (segment >= view.segments) return;
    const int64_t begin = static_cast<int64_t>(segment) * kSegment, first = begin + 4 * lane;
    const Four x = Samples(row) ? logits.Adjusted(raw[u], begin, first) : raw[u];
    uint32_t key = 0, raw_key = 0;
    bool bad = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      bad = bad || (first + j < view.vocab && !IsFinite(raw[u].v[j]));
      key = max(key, KeyOf(x.v[j]));
      raw_key = max(raw_key, KeyOf(raw[u].v[j]));
    }
    key = WarpMax(bad ? kBadKey : key);
    if (lane == 0) scratch.keys[r * view.segments + segment] = key;
    if (!HasLogprobs(row)) continue;
    raw_key = WarpMax(bad ? kBadKey : raw_key);
    if (lane == 0) scratch.raw_keys[r * view.segments + segment] = raw_key;
  }
}

// Weights of the rows that are drawn without top_k, and sums for logprobs.
__global__ void __launch_bounds__(kSegmentThreads, 4) SegmentSums(SampleView view, Scratch scratch) {
  TACTUS_SHARED(uint32_t, parts, kSegmentThreads / 32);
  TACTUS_SHARED(uint32_t, raw_parts, kSegmentThreads / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_segment = static_cast<int>(blockIdx.y) * kSegmentsPerBlock + warp * kSegmentsPerWarp;
  const int64_t r = blockIdx.x, scratch_row = r * view.segments;
  const SampleRow row = view.rows[r];
  const RowLogits logits{view, row, r * view.vocab};
  const bool weighs = Samples(row) && row.temperature > 0.0f && !HasTopK(row, view.vocab);
  const bool has_logprobs = HasLogprobs(row);
  if (!weighs && !has_logprobs) return;
  uint32_t best = 0, raw_best = 0;
  if (weighs) best = BlockMax<kSegmentThreads>(scratch.keys, scratch_row, view.segments, parts);
  if (has_logprobs) raw_best = BlockMax<kSegmentThreads>(scratch.raw_keys, scratch_row, view.segments, raw_parts);
  if (best == kBadKey || raw_best == kBadKey) return;
  const Weights weights{ValueOf(best), row.temperature, row.min_p};
  const float raw_max = ValueOf(raw_best);
#pragma unroll 2
  for (int u = 0; u < kSegmentsPerWarp; ++u) {
    const int segment = first_segment + u;
    if (segment >= view.segments) return;
    const int64_t begin = static_cast<int64_t>(segment) * kSegment, first = begin + 4 * lane;
    const Four raw = logits.Raw(first);
    if (weighs) {
      const Four x = logits.Adjusted(raw, begin, first);
      Sum sum = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum += weights.Of(x.v[j]);
      sum = WarpSum(sum);
      if (lane == 0) scratch.weights[scratch_row + segment] = sum;
    }
    if (has_logprobs) {
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum = Add(sum, ExpOf(Add(raw.v[j], -raw_max)));
      sum = WarpSum(sum);
      if (lane == 0) scratch.sums[scratch_row + segment] = sum;
    }
  }
}

// The token of a row with temperature > 0. `all`, from `first`: the segments' weights of a row without top_k.
TACTUS_DEVICE int32_t DrawToken(const RowBlock& block, uint32_t hi, const Global<Sum>& all, int64_t first) {
  const SampleRow& row = block.logits.row;
  const int64_t vocab = block.logits.view.vocab;
  const Weights of{ValueOf(hi), row.temperature, row.min_p};
  Limit limit{0, vocab};
  Sum total;
  if (HasTopK(row, vocab)) {
    limit = block.KeepBest(row.top_k, hi);
    total = block.Weigh(limit, of);
  } else {
    for (int s = static_cast<int>(threadIdx.x); s < block.segments; s += kSampleThreads) {
      block.weights[s] = all[first + s];
    }
    total = block.Total();  // a thread adds those that it has loaded
  }
  if (row.top_p < 1.0f) {
    limit = block.KeepTopP(limit, of, row.top_p, total, hi);
    total = block.Weigh(limit, of);
  }
  const double u = UniformOf(row.seed, static_cast<uint64_t>(row.choice), static_cast<uint64_t>(row.position));
  return block.Draw(u, total, limit, of);
}

// The logprob of `chosen` and of the k best, best first. block.raw is set.
TACTUS_DEVICE void WriteLogprobs(const RowBlock& block, uint32_t hi, double sum, int32_t chosen,
                                 const Results& results) {
  const SampleRow& row = block.logits.row;
  const int64_t vocab = block.logits.view.vocab, out = row.first_logprob;
  const double log_sum = static_cast<double>(ValueOf(hi)) + log(sum);
  if (threadIdx.x == 0) {
    const float logit = block.logits.view.logits[block.logits.at + chosen];
    results.logprob_tokens[out] = chosen;
    results.logprob_values[out] = static_cast<float>(static_cast<double>(logit) - log_sum);
  }
  const int k = static_cast<int>(row.logprobs < vocab ? row.logprobs : vocab);
  for (int i = k + static_cast<int>(threadIdx.x); i < row.logprobs; i += kSampleThreads) {
    results.logprob_tokens[out + 1 + i] = -1;
    results.logprob_values[out + 1 + i] = 0.0f;
  }
  if (k <= 0) return;
  const Limit limit = block.KeepBest(k, hi);
  if (threadIdx.x == 0) block.found[0] = 0;
  __syncthreads();
  block.ForTokens(limit.key, [&](uint32_t key, int64_t token, float) {
    if (!limit.Keeps(key, token)) return;
    const Sum at = block.found.AtomicAdd(0, 1);
    block.bins[static_cast<int>(at)] = static_cast<Sum>(key) << 32 | ~static_cast<uint32_t>(token);
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < k; i += kSampleThreads) {
    const Sum mine = block.bins[i];
    int rank = 0;
    for (int other = 0; other < k; ++other) rank += block.bins[other] > mine ? 1 : 0;
    results.logprob_tokens[out + 1 + rank] = static_cast<int32_t>(~static_cast<uint32_t>(mine));
    const auto logit = static_cast<double>(ValueOf(static_cast<uint32_t>(mine >> 32)));
    results.logprob_values[out + 1 + rank] = static_cast<float>(logit - log_sum);
  }
}

// The sum of `sums` [n] at `first`, in an order that depends on n alone.
TACTUS_DEVICE double BlockTotal(const Global<float>& sums, int64_t first, int n, const Shared<double>& parts) {
  const int thread = static_cast<int>(threadIdx.x);
  double total = 0.0;
  for (int i = thread; i < n; i += kSampleThreads) {
    const float sum = sums[first + i];
    total += static_cast<double>(sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(kAllLanes, total, step);
  if (thread % 32 == 0) parts[thread / 32] = total;
  __syncthreads();
  total = 0.0;
#pragma unroll
  for (int w = 0; w < kSampleWarps; ++w) {
    const double part = parts[w];
    total += part;
  }
  return total;
}

constexpr int kPartsAt = kBins * static_cast<int>(sizeof(Sum)),
              kFoundAt = kPartsAt + kSampleWarps * static_cast<int>(sizeof(Sum));
constexpr int kDoublesAt = kFoundAt + 16, kMaximaAt = kDoublesAt + kSampleWarps * static_cast<int>(sizeof(double));
constexpr int kWeightsAt = kMaximaAt + 2 * kSampleWarps * static_cast<int>(sizeof(uint32_t));
int SharedBytes(int segments) {
  return kWeightsAt + (segments + 1) / 2 * 16 + segments * static_cast<int>(sizeof(uint32_t));
}

__global__ void __launch_bounds__(kSampleThreads) SampleRows(SampleView view, Scratch scratch, Results results) {
  const int64_t r = blockIdx.x, scratch_row = r * view.segments;
  const SampleRow row = view.rows[r];
  const Shared<uint32_t> maxima = DynamicShared<uint32_t>(kMaximaAt, kSampleWarps);
  const Shared<uint32_t> raw_maxima = DynamicShared<uint32_t>(kMaximaAt + kSampleWarps * 4, kSampleWarps);
  RowBlock block{RowLogits{view, row, r * view.vocab},
                 !Samples(row),
                 view.segments,
                 DynamicShared<Sum>(0, kBins),
                 DynamicShared<Sum>(kWeightsAt, view.segments),
                 DynamicShared<Sum>(kPartsAt, kSampleWarps),
                 DynamicShared<Sum>(kFoundAt, 2),
                 DynamicShared<uint32_t>(kWeightsAt + (view.segments + 1) / 2 * 16, view.segments)};
  block.LoadKeys(scratch.keys, scratch_row);
  uint32_t hi = BlockMax<kSampleThreads>(scratch.keys, scratch_row, view.segments, maxima);
  int32_t status = hi == kBadKey ? kBadLogits : kOk, token = -1;
  if (status == kOk && Samples(row)) {
    if (row.mask >= 0 && hi == KeyOf(kLowest)) {
      status = kBadGrammar;
    } else {
      token = row.temperature > 0.0f ? DrawToken(block, hi, scratch.weights, scratch_row) : block.Argmax(hi);
    }
  }
  if (threadIdx.x == 0) {
    results.tokens[r] = token;
    results.statuses[r] = status;
  }
  if (status != kOk || !HasLogprobs(row)) return;
  block.raw = true;
  __syncthreads();
  block.LoadKeys(scratch.raw_keys, scratch_row);
  hi = BlockMax<kSampleThreads>(scratch.raw_keys, scratch_row, view.segments, raw_maxima);
  const double sum =
      BlockTotal(scratch.sums, scratch_row, view.segments, DynamicShared<double>(kDoublesAt, kSampleWarps));
  WriteLogprobs(block, hi, sum, Samples(row) ? token : row.prompt_next, results);
}

// Whether the drafts before row r are the tokens that its item's rows before it sampled.
TACTUS_DEVICE bool DraftsAreRight(const SampleRow& row, int64_t r, const Global<const int32_t>& draft_tokens,
                                  const Global<const int32_t>& tokens) {
  for (int j = 0; j < row.num_drafts; ++j) {
    const int64_t at = r - row.num_drafts + j;
    if (at < 0 || draft_tokens[row.draft + j] != tokens[at]) return false;
  }
  return true;
}

// One thread per row.
__global__ void __launch_bounds__(kSegmentThreads)
    CountSampled(Global<const SampleRow> rows, int64_t num_rows, int64_t vocab, Global<const int32_t> tokens,
                 Global<const int32_t> draft_tokens, Global<uint32_t> counts, Global<int32_t> last_tokens) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kSegmentThreads + threadIdx.x;
  if (r >= num_rows) return;
  const SampleRow row = rows[r];
  const int32_t token = tokens[r];
  if (token < 0 || row.slot < 0 || !DraftsAreRight(row, r, draft_tokens, tokens)) return;
  if (row.counts >= 0) counts.AtomicAdd(row.counts * vocab + token, 1u);
  // The item's last right row is the one whose token the next row's draft is not.
  if (r + 1 < num_rows) {
    const SampleRow next = rows[r + 1];
    const bool same_item = next.slot == row.slot && next.prompt_next < 0 && next.num_drafts == row.num_drafts + 1;
    if (same_item && draft_tokens[next.draft + row.num_drafts] == token) return;
  }
  last_tokens[row.slot] = token;
}

// The scratch of `rows` rows at `memory`.
Scratch ScratchOf(void* memory, int64_t rows, int64_t segments) {
  auto* const weights = static_cast<Sum*>(memory);
  auto* const keys = reinterpret_cast<uint32_t*>(weights + rows * segments);
  auto* const raw_keys = keys + rows * segments;
  return {weights, keys, raw_keys, reinterpret_cast<float*>(raw_keys + rows * segments)};
}

int64_t SegmentsOf(int64_t vocab) {
  return (vocab + kSegment - 1) / kSegment;
}

}  // namespace

int64_t SampleScratchBytes(int64_t rows, int64_t vocab) {
  return rows * SegmentsOf(vocab) * kScratchPerSegment;
}

void Sample(Stream& s, const SampleCall& call) {
  const int64_t segments = SegmentsOf(call.vocab);
  const bool wide = call.vocab % 4 == 0 && IsAligned(call.logits) && IsAligned(call.counts);
  const SampleView view{call.logits,
                        call.row,
                        call.counts,
                        call.masks,
                        call.bias_tokens,
                        call.end_tokens,
                        call.draft_tokens,
                        call.bias_values,
                        call.vocab,
                        static_cast<int>(segments),
                        wide};
  const Scratch scratch = ScratchOf(call.scratch, call.rows, segments);
  const Results results{call.tokens, call.statuses, call.logprob_tokens, call.logprob_values};
  const auto blocks = static_cast<unsigned>(call.rows);
  const dim3 parts(blocks, static_cast<unsigned>((segments + kSegmentsPerBlock - 1) / kSegmentsPerBlock));
  Launch("SegmentMaxima", s, SegmentMaxima, parts, kSegmentThreads, 0, view, scratch);
  Launch("SegmentSums", s, SegmentSums, parts, kSegmentThreads, 0, view, scratch);
  Launch("SampleRows", s, SampleRows, dim3(blocks), kSampleThreads, SharedBytes(view.segments), view, scratch, results);
}

void KeepSampled(Stream& s, const SampleCall& call) {
  const auto blocks = static_cast<unsigned>((call.rows + kSegmentThreads - 1) / kSegmentThreads);
  Launch("CountSampled", s, CountSampled, dim3(blocks), kSegmentThreads, 0, call.row, call.rows, call.vocab,
         call.tokens, call.draft_tokens, call.counts, call.last_tokens);
}

}  // namespace tactus::compute::cuda
