// FlashInfer's part of the emulated device: attention over the lists of compute/cuda/kernels/flashinfer.h in plain
// loops, one thread a q row. It reads the lists as FlashInfer 0.7.2's kernels do (BatchPrefillWithPagedKVCacheDevice,
// BatchDecodeWithPagedKVCacheDevice, VariableLengthMergeStates), with their places of partial results, which have the
// type of q. Its sums are not theirs.
#include "compute/cuda/kernels/flashinfer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kFlashInferThreads = 32;
constexpr float kNothing = -5e4f;  // FlashInfer's logarithm of the weights of no position

// The lists, each with its bounds.
class FlashInferLists {
 public:
  explicit FlashInferLists(const FlashInferCall& call)
      : first_token(call.first_token, call.items + 1),
        first_page(call.first_page, call.items + 1),
        last_page_tokens(call.last_page_tokens, call.items),
        kv_chunk(call.kv_chunk, 1) {}
  int32_t Positions(int32_t item, int32_t block_size) const {
    const int32_t pages = first_page[item + 1] - first_page[item];
    return pages == 0 ? 0 : (pages - 1) * block_size + last_page_tokens[item];
  }

  const Global<const int32_t> first_token, first_page, last_page_tokens, kv_chunk;
};

struct FlashInferRow {
  int32_t item = 0, head = 0, kv_head = 0;
  int64_t q_row = 0, out_row = 0;  // of tokens, or of partial results
  int32_t begin = 0, end = 0;      // positions
};

template <class T>
void AttendRow(const FlashInferCall& call, const KvPages& kv, const FlashInferLists& lists, const FlashInferRow& row,
               bool split) {
  const int64_t head_dim = kv.head_dim;
  const Global<const T> q(static_cast<const T*>(call.q)), k(static_cast<const T*>(kv.k)),
      v(static_cast<const T*>(kv.v));
  const Global<const int32_t> pages(call.pages, lists.first_page[call.items]);
  const int64_t first_page = lists.first_page[row.item], q_at = row.q_row * call.q_stride + row.head * head_dim;
  const auto at = [&](int32_t position) {
    const int64_t page = pages[first_page + position / kv.block_size];
    return ((page * kv.kv_heads + row.kv_head) * kv.block_size + position % kv.block_size) * head_dim;
  };
  std::vector<float> scores;
  float maximum = kNothing;
  for (int32_t position = row.begin; position < row.end; ++position) {
    const int64_t from = at(position);
    float score = 0.0f;
    for (int64_t d = 0; d < head_dim; ++d) score += ToFloat(q[q_at + d]) * ToFloat(k[from + d]);
    scores.push_back(score * call.scale);
    maximum = std::max(maximum, scores.back());
  }
  float weights = 0.0f;
  std::vector<float> values(static_cast<size_t>(head_dim));
  for (int32_t position = row.begin; position < row.end; ++position) {
    const int64_t from = at(position);
    const float weight = std::exp(scores[static_cast<size_t>(position - row.begin)] - maximum);
    weights += weight;
    for (int64_t d = 0; d < head_dim; ++d) values[static_cast<size_t>(d)] += weight * ToFloat(v[from + d]);
  }
  const int64_t to = row.out_row * call.heads + row.head;
  T* const first = static_cast<T*>(split ? call.partials : call.out);
  const Global<T> out(first, (split ? call.max_partials : call.tokens) * call.heads * head_dim);
  for (int64_t d = 0; d < head_dim; ++d) {
    out[to * head_dim + d] = FromFloat<T>(weights > 0.0f ? values[static_cast<size_t>(d)] / weights : 0.0f);
  }
  if (!split) return;
  const int64_t partial_heads = call.max_partials * call.heads;
  const Global<float> logarithms(reinterpret_cast<float*>(first + partial_heads * head_dim), partial_heads);
  logarithms[to] = weights > 0.0f ? maximum + std::log(weights) : kNothing;
}

// A block has a unit of one KV head.
template <class T>
void EmulatedFlashInfer(FlashInferCall call, KvPages kv, FlashInferUnits units) {
  const int64_t unit = blockIdx.x;
  if (!Global<const uint8_t>(reinterpret_cast<const uint8_t*>(units.valid), units.count)[unit]) return;
  const FlashInferLists lists(call);
  FlashInferRow row;
  row.item = Global<const int32_t>(units.items, units.count)[unit];
  row.kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t kv_tile = Global<const int32_t>(units.kv_tiles, units.count)[unit];
  const int32_t group = call.heads / kv.kv_heads, positions = lists.Positions(row.item, kv.block_size);
  const int32_t kv_chunk = lists.kv_chunk[0];
  const int32_t begin = units.split ? std::min(kv_tile * kv_chunk, positions) : 0;
  const int32_t end = units.split ? std::min(begin + kv_chunk, positions) : positions;
  const bool decode = units.tile_rows == 0;
  const int32_t rows = decode ? group : units.tile_rows;
  const int32_t q_tile = decode ? 0 : int32_t{Global<const int32_t>(units.q_tiles, units.count)[unit]};
  const int32_t first_token = decode ? 0 : int32_t{lists.first_token[row.item]};
  const int32_t queries = decode ? 1 : lists.first_token[row.item + 1] - first_token;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < rows; i += kFlashInferThreads) {
    const int32_t place = q_tile * rows + i, query = place / group;
    if (query >= queries) continue;
    row.head = row.kv_head * group + place % group;
    row.begin = begin;
    row.end = std::min(end, positions - queries + query + 1);
    if (decode) {
      row.q_row = row.item;
      row.out_row = unit;
    } else {
      row.q_row = first_token + query;
      row.out_row = row.q_row;
      if (units.split) {
        const int32_t chunks = (positions + kv_chunk - 1) / kv_chunk;
        const int32_t first = Global<const int32_t>(call.first_partial, call.items + 1)[row.item];
        row.out_row = first + query * chunks + kv_tile;
      }
    }
    AttendRow<T>(call, kv, lists, row, units.split);
  }
}

// A block has one head of a row of `out`, a thread its columns.
template <class T>
void MergeEmulatedFlashInfer(FlashInferCall call, KvPages kv, Global<const int32_t> first) {
  const int64_t row = blockIdx.x, head = blockIdx.y, head_dim = kv.head_dim;
  const int64_t begin = first[row], end = first[row + 1], partial_heads = call.max_partials * call.heads;
  const T* const at = static_cast<const T*>(call.partials);
  const Global<const T> values(at, partial_heads * head_dim);
  const Global<const float> logarithms(reinterpret_cast<const float*>(at + partial_heads * head_dim), partial_heads);
  const Global<T> out(static_cast<T*>(call.out), call.tokens * call.heads * head_dim);
  for (int64_t d = threadIdx.x; d < head_dim; d += kFlashInferThreads) {
    float maximum = kNothing, weights = 0.0f, sum = 0.0f;
    for (int64_t i = begin; i < end; ++i) maximum = std::max<float>(maximum, logarithms[i * call.heads + head]);
    for (int64_t i = begin; i < end; ++i) {
      const float weight = std::exp(logarithms[i * call.heads + head] - maximum);
      weights += weight;
      sum += weight * ToFloat(values[(i * call.heads + head) * head_dim + d]);
    }
    out[(row * call.heads + head) * head_dim + d] = FromFloat<T>(begin < end ? sum / weights : 0.0f);
  }
}

template <class T>
void RunEmulatedFlashInfer(Stream& s, const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  const auto blocks = static_cast<unsigned>(units.count), kv_heads = static_cast<unsigned>(kv.kv_heads);
  Launch("FlashInfer", s, EmulatedFlashInfer<T>, dim3(blocks, kv_heads), kFlashInferThreads, 0, call, kv, units);
  if (!units.split) return;
  const bool by_item = units.tile_rows == 0;
  const int64_t rows = by_item ? call.items : call.tokens;
  const Global<const int32_t> first(by_item ? call.first_partial : call.first_of_token, rows + 1);
  const dim3 merges(static_cast<unsigned>(rows), static_cast<unsigned>(call.heads));
  Launch("MergeFlashInfer", s, MergeEmulatedFlashInfer<T>, merges, kFlashInferThreads, 0, call, kv, first);
}

}  // namespace

bool HasFlashInfer() {
  return true;
}

void AttendByFlashInfer(Stream& s, const FlashInferCall& call, const KvPages& kv) {
  for (const FlashInferUnits* const units : {&call.decodes, &call.chunks}) {
    if (units->count == 0) continue;
    call.type == Real::kBF16 ? RunEmulatedFlashInfer<bf16>(s, call, kv, *units)
                             : RunEmulatedFlashInfer<f16>(s, call, kv, *units);
  }
}

}  // namespace tactus::compute::cuda
