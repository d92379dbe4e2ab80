// Random attention for tests: q, K and V in pages, block tables, and the results in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "compute/cuda/kernels/attention.h"
#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {

struct BatchShape {
  int32_t heads = 4, kv_heads = 2, head_dim = 16, block_size = 16;
  Real type = Real::kBF16;
  KvType kv_type = KvType::kBF16;
  float scale = 0.0f;  // 0: 1 / sqrt(head_dim)
  int32_t window = 0, chunk = 0;
  float softcap = 0.0f;
  bool slopes = false, sinks = false;
  int32_t q_gap = 0, out_gap = 0;  // values between a token's last head and the next token
};

// Queries [first, first + count) of a sequence. Items of one sequence have the same q, K and V at the same positions;
// items of one prefix have the same K and V, in the same blocks, at the first prefix_tokens positions.
struct BatchItem {
  int32_t first = 0, count = 1;
  int32_t sequence = 0;
  int32_t prefix = -1, prefix_tokens = 0;
  bool groups = true;  // Attention may read the prefix together with others
};

class BatchData {
 public:
  BatchData(const BatchShape& shape_of_all, const std::vector<BatchItem>& items) : shape(shape_of_all), items_(items) {
    for (const BatchItem& item : items_) {
      AttentionRow row;
      row.first_token = static_cast<int32_t>(tokens);
      row.first_position = item.first;
      row.count = item.count;
      row.prefix_group = item.groups ? item.prefix : -1;
      row.prefix_tokens = item.prefix_tokens;
      rows.push_back(row);
      tokens += item.count;
    }
    PlaceBlocks();
    for (const BatchItem& item : items_) {
      for (int32_t i = 0; i < item.count; ++i) {
        const Normal random(kQ, item.sequence, item.first + i);
        for (int32_t d = 0; d < QWidth(); ++d) q.push_back(RoundedTo(shape.type, random(d) * 1.5f));
        q.resize(q.size() + static_cast<size_t>(shape.q_gap), NaN());
      }
    }
    for (int32_t h = 0; h < shape.heads; ++h) {
      slopes.push_back(0.01f * static_cast<float>(h + 1));
      sinks.push_back(Normal(kSinks, 0, h)(0));
    }
    FillPages();
  }

  int64_t QWidth() const { return int64_t{shape.heads} * shape.head_dim; }
  float Scale() const { return shape.scale > 0 ? shape.scale : 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

  // As compute/kernels/attention/ref, from the stored values.
  std::vector<double> Reference() const {
    std::vector<double> out;
    for (const AttentionRow& row : rows) {
      for (int32_t i = 0; i < row.count; ++i) {
        for (int32_t h = 0; h < shape.heads; ++h) ReferenceRow(row, i, h, &out);
      }
    }
    return out;
  }

  const BatchShape shape;
  int64_t tokens = 0;
  int32_t blocks = 0;
  std::vector<AttentionRow> rows;
  std::vector<int32_t> tables;
  std::vector<float> q;     // [tokens, heads * head_dim + q_gap]
  std::vector<float> k, v;  // pages, in codes where they are int8
  std::vector<float> k_scales, v_scales, slopes, sinks;

 private:
  static float NaN() { return std::numeric_limits<float>::quiet_NaN(); }
  // About normal numbers, each by its indices.
  enum Kind { kQ, kK, kV, kKScale, kVScale, kSinks };
  class Normal {
   public:
    Normal(Kind kind, int32_t sequence, int32_t position)
        : key_(Mixed(static_cast<uint64_t>(kind) * 1000003u + static_cast<uint64_t>(sequence) * 7919u) +
               static_cast<uint64_t>(position)) {}
    float operator()(int32_t i) const {
      uint64_t seed = Mixed(key_ ^ (static_cast<uint64_t>(i) << 32));
      float sum = -3.0f;
      for (int k = 0; k < 6; ++k) sum += static_cast<float>((seed = Mixed(seed)) >> 40) * 0x1p-24f;
      return sum;
    }
    static uint64_t Mixed(uint64_t v) {  // splitmix64
      v += 0x9e3779b97f4a7c15u;
      v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
      v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
      return v ^ (v >> 31);
    }

   private:
    uint64_t key_;
  };
  static float RoundedTo(Real type, float v) {
    if (type == Real::kF32) return v;
    return type == Real::kBF16 ? FromBf16Bits(Bf16Bits(v)) : FromF16Bits(F16Bits(v));
  }
  int32_t FirstVisible(int32_t position) const {
    if (shape.chunk > 0) return position / shape.chunk * shape.chunk;
    return shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
  }

  // Block ids in no order; those that no query needs are -1.
  void PlaceBlocks() {
    const int32_t size = shape.block_size;
    std::vector<int32_t> ids;
    for (const BatchItem& item : items_) blocks += (item.first + item.count + size - 1) / size;
    blocks += 3;
    ids.resize(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = ids.size() - 1; i > 0; --i) std::swap(ids[i], ids[Normal::Mixed(i) % (i + 1)]);
    size_t next = 0;
    for (size_t n = 0; n < items_.size(); ++n) {
      const BatchItem& item = items_[n];
      rows[n].table = static_cast<int32_t>(tables.size());
      const auto leader = static_cast<size_t>(
          std::find_if(items_.begin(), items_.end(), [&](const BatchItem& x) { return x.prefix == item.prefix; }) -
          items_.begin());
      for (int32_t b = 0; b < (item.first + item.count + size - 1) / size; ++b) {
        int32_t id = ids[next++];
        if (item.prefix >= 0 && leader < n && (b + 1) * size <= item.prefix_tokens) {
          id = tables[static_cast<size_t>(rows[leader].table + b)];
        }
        tables.push_back((b + 1) * size <= FirstVisible(item.first) ? -1 : id);
      }
    }
  }

  int64_t PageRow(const AttentionRow& row, int32_t position, int32_t kv_head) const {
    const int32_t size = shape.block_size;
    const int64_t block = tables[static_cast<size_t>(row.table + position / size)];
    return (block * shape.kv_heads + kv_head) * size + position % size;
  }
  double KvValue(const std::vector<float>& values, const std::vector<float>& scales, int64_t page_row,
                 int32_t d) const {
    const double value = values[static_cast<size_t>(page_row * shape.head_dim + d)];
    return shape.kv_type == KvType::kInt8 ? value * scales[static_cast<size_t>(page_row)] : value;
  }

  // What no query sees is NaN where the format has it, else large.
  void FillPages() {
    const auto page_rows = static_cast<size_t>(blocks * shape.kv_heads * shape.block_size);
    const float hole = shape.kv_type == KvType::kInt8 ? 127.0f : shape.kv_type == KvType::kFp8 ? 448.0f : NaN();
    for (std::vector<float>* values : {&k, &v}) values->assign(page_rows * static_cast<size_t>(shape.head_dim), hole);
    for (std::vector<float>* scales : {&k_scales, &v_scales}) scales->assign(page_rows, NaN());
    for (size_t i = 0; i < rows.size(); ++i) {
      const AttentionRow& row = rows[i];
      for (int32_t p = FirstVisible(row.first_position); p < row.first_position + row.count; ++p) {
        const int32_t sequence = p < row.prefix_tokens ? 1000 + items_[i].prefix : items_[i].sequence;
        for (int32_t h = 0; h < shape.kv_heads; ++h) FillRow(sequence, p, h, static_cast<size_t>(PageRow(row, p, h)));
      }
    }
  }
  void FillRow(int32_t sequence, int32_t position, int32_t kv_head, size_t at) {
    const Normal new_k(kK, sequence, position), new_v(kV, sequence, position);
    k_scales[at] = (2.0f + Normal(kKScale, sequence, position)(kv_head) * 0.25f) / 127.0f;
    v_scales[at] = (2.0f + Normal(kVScale, sequence, position)(kv_head) * 0.25f) / 127.0f;
    for (int32_t d = 0; d < shape.head_dim; ++d) {
      const size_t to = at * static_cast<size_t>(shape.head_dim) + static_cast<size_t>(d);
      k[to] = Stored(new_k(kv_head * shape.head_dim + d), k_scales[at]);
      v[to] = Stored(new_v(kv_head * shape.head_dim + d), v_scales[at]);
    }
  }
  float Stored(float value, float scale) const {
    switch (shape.kv_type) {
      case KvType::kF32:
        return value;
      case KvType::kBF16:
        return FromBf16Bits(Bf16Bits(value));
      case KvType::kF16:
        return FromF16Bits(F16Bits(value));
      case KvType::kFp8:
        return FromE4m3Bits(E4m3Bits(value));
      case KvType::kInt8:
        return std::clamp(std::nearbyint(value / scale), -127.0f, 127.0f);
    }
    return 0;
  }

  void ReferenceRow(const AttentionRow& row, int32_t query, int32_t head, std::vector<double>* out) const {
    const int32_t position = row.first_position + query, kv_head = head / (shape.heads / shape.kv_heads);
    const float* at =
        &q[static_cast<size_t>((row.first_token + query) * (QWidth() + shape.q_gap) + int64_t{head} * shape.head_dim)];
    std::vector<double> scores;
    double maximum = shape.sinks ? sinks[static_cast<size_t>(head)] : -1e300;
    for (int32_t p = FirstVisible(position); p <= position; ++p) {
      double dot = 0;
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        dot += static_cast<double>(at[d]) * KvValue(k, k_scales, PageRow(row, p, kv_head), d);
      }
      double score = dot * Scale();
      if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
      if (shape.slopes) score += static_cast<double>(slopes[static_cast<size_t>(head)]) * (p - position);
      scores.push_back(score);
      maximum = std::max(maximum, score);
    }
    double sum = shape.sinks ? std::exp(sinks[static_cast<size_t>(head)] - maximum) : 0;
    std::vector<double> values(static_cast<size_t>(shape.head_dim));
    for (size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - maximum);
      const int32_t p = FirstVisible(position) + static_cast<int32_t>(i);
      sum += weight;
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        values[static_cast<size_t>(d)] += weight * KvValue(v, v_scales, PageRow(row, p, kv_head), d);
      }
    }
    for (const double value : values) out->push_back(value / sum);
  }

  const std::vector<BatchItem> items_;
};

}  // namespace tactus::compute::cuda
