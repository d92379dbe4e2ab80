// Runs Attention on a batch of random data.
#pragma once

#include <vector>

#include "compute/cuda/attention_plan.h"
#include "cuda/kernels/attention_data.h"

namespace tactus::compute::cuda {

struct BatchResult {
  std::vector<float> values;  // [tokens, heads * head_dim]
  std::vector<uint32_t> bits;
  int64_t width = 0;

  std::vector<uint32_t> BitsOf(int64_t token) const {
    return {bits.begin() + token * width, bits.begin() + (token + 1) * width};
  }
};

class Batch {
 public:
  Batch(const BatchShape& shape, const std::vector<BatchItem>& items) : data_(shape, items), shape_(data_.shape) {}

  const AttentionPlan& plan() const { return plan_; }
  void set_max_multiprocessors(int32_t most) { max_multiprocessors_ = most; }

  // `padded` > 0: as many items in the plan's padded lists.
  BatchResult Run(int32_t multiprocessors, int64_t max_slots = 1 << 20, int64_t padded = 0) {
    const AttentionShape shape{shape_.heads,  shape_.kv_heads, shape_.head_dim,
                               shape_.window, shape_.chunk,    multiprocessors};
    PlanAttention(data_.rows, shape, max_slots, &plan_);
    if (padded > 0) PadPlan(shape, padded, &plan_);
    if (shape_.type == Real::kF32) return Run<float>();
    return shape_.type == Real::kBF16 ? Run<bf16>() : Run<f16>();
  }

  // The greatest difference from the reference.
  double Error(const BatchResult& result) const {
    const std::vector<double> expected = data_.Reference();
    double error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(result.values[i] - expected[i]);
      error = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(error, difference);
    }
    return error;
  }

 private:
  template <class T>
  BatchResult Run() {
    switch (shape_.kv_type) {
      case KvType::kF32:
        return Run<T, float>();
      case KvType::kBF16:
        return Run<T, bf16>();
      case KvType::kF16:
        return Run<T, f16>();
      case KvType::kInt8:
        return Run<T, int8_t>();
      case KvType::kFp8:
        return Run<T, e4m3>();
    }
    return {};
  }

  template <class T, class Kv>
  BatchResult Run() {
    const int64_t out_stride = data_.QWidth() + shape_.out_gap;
    const Buffer<T> q(Rounded<T>(data_.q)), out(data_.tokens * out_stride);
    const Buffer<Kv> k(Rounded<Kv>(data_.k)), v(Rounded<Kv>(data_.v));
    const Buffer<float> k_scales(data_.k_scales), v_scales(data_.v_scales), slopes(data_.slopes), sinks(data_.sinks);
    const Buffer<float> partials(plan_.slots * (shape_.head_dim + kPartialStats) + 1);
    const Buffer<AttentionRow> rows(data_.rows);
    const Buffer<int32_t> tables(data_.tables);
    const Buffer<AttentionUnit> decodes(OrOne(plan_.decodes)), chunks(OrOne(plan_.chunks));
    const Buffer<AttentionMember> members(OrOne(plan_.members));
    const Buffer<AttentionMerge> merges(OrOne(plan_.merges));
    AttentionCall call;
    call.q = q.data();
    call.out = out.data();
    call.q_stride = data_.QWidth() + shape_.q_gap;
    call.out_stride = out_stride;
    call.type = shape_.type;
    call.heads = shape_.heads;
    call.rows = rows.data();
    call.tables = tables.data();
    call.decodes = decodes.data();
    call.num_decodes = static_cast<int64_t>(plan_.decodes.size());
    call.chunks = chunks.data();
    call.num_chunks = static_cast<int64_t>(plan_.chunks.size());
    call.members = members.data();
    call.merges = merges.data();
    call.num_merges = static_cast<int64_t>(plan_.merges.size());
    call.partials = partials.data();
    call.scale = data_.Scale();
    call.window = shape_.window;
    call.chunk = shape_.chunk;
    call.softcap = shape_.softcap;
    call.slopes = shape_.slopes ? slopes.data() : nullptr;
    call.sinks = shape_.sinks ? sinks.data() : nullptr;
    call.max_multiprocessors = max_multiprocessors_;
    KvPages kv;
    kv.k = k.data();
    kv.v = v.data();
    kv.k_scales = shape_.kv_type == KvType::kInt8 ? k_scales.data() : nullptr;
    kv.v_scales = shape_.kv_type == KvType::kInt8 ? v_scales.data() : nullptr;
    kv.type = shape_.kv_type;
    kv.blocks = data_.blocks;
    kv.block_size = shape_.block_size;
    kv.kv_heads = shape_.kv_heads;
    kv.head_dim = shape_.head_dim;
    Attention(TestStream(), call, kv);
    return ResultOf(out.Read(), out_stride);
  }
  template <class E>
  static std::vector<E> OrOne(const std::vector<E>& list) {
    return list.empty() ? std::vector<E>(1) : list;
  }

  // Values between rows must be as before: never written.
  template <class T>
  BatchResult ResultOf(const std::vector<T>& out, int64_t stride) const {
    BatchResult result;
    result.width = data_.QWidth();
    for (int64_t i = 0; i < data_.tokens * stride; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &out[static_cast<size_t>(i)], sizeof(T));
      if (i % stride >= data_.QWidth()) {
        EXPECT_EQ(bits, sizeof(T) == 4 ? 0xffffffffu : 0xffffu) << "value " << i % stride << " of a row was written";
        continue;
      }
      result.bits.push_back(bits);
      result.values.push_back(ToFloat(out[static_cast<size_t>(i)]));
    }
    return result;
  }

  const BatchData data_;
  const BatchShape& shape_;
  AttentionPlan plan_;
  int32_t max_multiprocessors_ = 0;
};

}  // namespace tactus::compute::cuda
