// Would decode attention, which is memory-bound, and products over a prompt chunk, which are compute-bound, gain from
// sharing one queue? The same tasks on the same threads, one kind after the other with a barrier between, or mixed: the
// upper bound of an executor's gain, since the two kinds are independent here and no weight is read twice.
//
//   overlap_bench [THREADS]
//
// A task is one sequence of attention, or 128 rows of weights by all tokens of the chunk. Orders alternate; a turn
// takes about 2 ms; medians over 2 s per row. KV and weights rotate over copies that exceed the caches.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/kernels/ops.h"
#include "measure.h"

namespace tactus::bench {
namespace {

using compute::PackedMatrix;
using compute::PackedTokens;
using compute::ThreadPool;

constexpr int32_t kHeads = 32, kKvHeads = 4, kHeadDim = 64, kBlock = 16, kDecodes = 16;  // TinyLlama's
constexpr int64_t kRows = 5632, kCols = 2048, kSliceRows = 128;
constexpr int64_t kColdBytes = int64_t{192} << 20;
constexpr double kProductsSeconds = 1.5e-3, kRowSeconds = 2.0;

// Attention of kDecodes sequences at one context, one task each.
class Decodes {
 public:
  Decodes(const compute::Ops& ops, ThreadPool& pool, int32_t context)
      : ops_(ops), context_(context), blocks_each_((context + kBlock - 1) / kBlock) {
    kv_ = {nullptr, nullptr, compute::DType::kBF16, kBlock, kKvHeads, kHeadDim};
    const int64_t block_bytes = compute::KvBlockBytes(kv_);
    sets_ = std::max<int64_t>(1, kColdBytes / (2 * block_bytes * blocks_each_ * kDecodes));
    const int64_t blocks = sets_ * kDecodes * blocks_each_;
    k_ = std::make_unique<Mapping>(blocks * block_bytes);
    v_ = std::make_unique<Mapping>(blocks * block_bytes);
    kv_.k = k_->data;
    kv_.v = v_->data;
    std::vector<float> row(size_t{kBlock} * kKvHeads * kHeadDim, 0.25f);
    std::vector<int64_t> slots(kBlock);
    Rng rng(1);
    for (int64_t b = 0; b < blocks; ++b) {
      table_.push_back(static_cast<int32_t>(b));
      std::swap(table_.back(), table_[static_cast<size_t>(rng.UniformInt(0, b))]);
      for (int32_t i = 0; i < kBlock; ++i) slots[static_cast<size_t>(i)] = b * kBlock + i;
      ops.store_kv(pool, row.data(), row.data(), slots.data(), kBlock, kv_);
    }
    q_.assign(size_t{kHeads} * kHeadDim, 0.5f);
    for (int32_t t = 0; t < pool.threads(); ++t) {
      out_.emplace_back(q_.size());
      scratch_.emplace_back(static_cast<size_t>(compute::WorkspaceBytes(1, 64, kHeads, kHeadDim, 1)));
    }
  }
  int64_t tasks() const { return kDecodes; }
  void Run(int64_t turn, int64_t task, ThreadPool& alone, int32_t thread) {
    const auto t = static_cast<size_t>(thread);
    const compute::AttentionItem item{0, context_ - 1, 1,
                                      table_.data() + (turn % sets_ * kDecodes + task) * blocks_each_};
    ops_.attention(alone, q_.data(), int64_t{kHeads} * kHeadDim, {&item, 1}, kHeads, kv_, {.scale = 0.125f},
                   out_[t].data(), int64_t{kHeads} * kHeadDim,
                   {scratch_[t].data(), static_cast<int64_t>(scratch_[t].size())});
  }

 private:
  const compute::Ops& ops_;
  const int32_t context_, blocks_each_;
  compute::KvLayer kv_;
  int64_t sets_ = 1;
  std::unique_ptr<Mapping> k_, v_;
  std::vector<int32_t> table_;
  std::vector<float> q_;
  std::vector<std::vector<float>> out_;
  std::vector<std::vector<std::byte>> scratch_;
};

// Products of a chunk's tokens with slices of a matrix, one task each; the slices take about kProductsSeconds in total.
class Products {
 public:
  Products(const compute::Ops& ops, ThreadPool& pool, bool int8, int64_t tokens)
      : ops_(ops), cold_(kColdBytes), token_memory_(compute::PackedTokenBytes(tokens, kCols)), y_(tokens * kRows * 4) {
    if (!(int8 ? compute::QuantizedFormOf(compute::Quantization::kInt8, kSliceRows, kCols, &slice_)
               : compute::PackedFormOf(compute::DType::kBF16, kSliceRows, kCols, &slice_))) {
      std::abort();
    }
    std::memset(cold_.data, 0x11, cold_.bytes);  // normal numbers in every format
    x_ = compute::PlaceTokens(token_memory_.data, compute::TokensFor(slice_, compute::Rounding::kInt8), tokens, kCols);
    const std::vector<float> ones(static_cast<size_t>(tokens * kCols), 1.0f);
    ops.pack(pool, ones.data(), nullptr, 0.0f, x_);
    const double slice_seconds =
        2.0 * kSliceRows * kCols * static_cast<double>(tokens) / ((int8 ? 0.8e12 : 0.45e12) * pool.threads());
    tasks_ = std::clamp<int64_t>(static_cast<int64_t>(kProductsSeconds / slice_seconds), 2 * pool.threads(),
                                 kRows / kSliceRows);
    for (int32_t t = 0; t < pool.threads(); ++t) {
      scratch_.emplace_back(static_cast<size_t>(compute::WorkspaceBytes(tokens, kCols, 1, 64, 1)));
    }
  }
  int64_t tasks() const { return tasks_; }
  void Run(int64_t turn, int64_t task, ThreadPool& alone, int32_t thread) {
    PackedMatrix m = slice_;
    m.data = cold_.data + (turn * tasks_ + task) % (kColdBytes / slice_.bytes()) * slice_.bytes();
    auto& scratch = scratch_[static_cast<size_t>(thread)];
    const compute::LinearOutput out{&m, nullptr, reinterpret_cast<float*>(y_.data) + task * kSliceRows, kRows, false};
    ops_.linear_packed(alone, x_, {&out, 1}, {scratch.data(), static_cast<int64_t>(scratch.size())});
  }

 private:
  const compute::Ops& ops_;
  const Mapping cold_, token_memory_, y_;
  PackedMatrix slice_;
  PackedTokens x_;
  int64_t tasks_ = 0;
  std::vector<std::vector<std::byte>> scratch_;
};

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

void Row(ThreadPool& pool, std::vector<std::unique_ptr<ThreadPool>>& alone, bool int8, int64_t tokens,
         int32_t context) {
  const compute::Ops& ops = *compute::SelectOps();
  Decodes decodes(ops, pool, context);
  Products products(ops, pool, int8, tokens);
  const int64_t a = decodes.tasks(), p = products.tasks();
  const auto attention = [&](int64_t turn, int64_t i, int32_t thread) {
    decodes.Run(turn, i, *alone[static_cast<size_t>(thread)], thread);
  };
  const auto product = [&](int64_t turn, int64_t i, int32_t thread) {
    products.Run(turn, i, *alone[static_cast<size_t>(thread)], thread);
  };
  std::vector<double> attention_s, products_s, mixed_s;
  const double end = Now(false) + kRowSeconds;
  for (int64_t turn = 0; Now(false) < end; ++turn) {
    const double t0 = Now(false);
    pool.ParallelFor(a, [&](int64_t i, int32_t thread) { attention(2 * turn, i, thread); });
    const double t1 = Now(false);
    pool.ParallelFor(p, [&](int64_t i, int32_t thread) { product(2 * turn, i, thread); });
    const double t2 = Now(false);
    // Task i is attention where the running count of attention tasks increases: spread as evenly as possible.
    pool.ParallelFor(a + p, [&](int64_t i, int32_t thread) {
      const int64_t before = i * a / (a + p), after = (i + 1) * a / (a + p);
      if (after > before)
        attention(2 * turn + 1, before, thread);
      else
        product(2 * turn + 1, i - before, thread);
    });
    const double t3 = Now(false);
    attention_s.push_back(t1 - t0);
    products_s.push_back(t2 - t1);
    mixed_s.push_back(t3 - t2);
  }
  const double at = Median(attention_s), pt = Median(products_s), mt = Median(mixed_s);
  std::printf("| %s, %ld tokens | %d | %.0f | %.0f | %.0f | %.2f | %.0f %% |\n", int8 ? "int8" : "bf16",
              static_cast<long>(tokens), context, at * 1e6, pt * 1e6, mt * 1e6, mt / (at + pt),
              100 * (at + pt - mt) / at);
  std::fflush(stdout);
}

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  using namespace tactus;
  const int threads = std::max(1, argc > 1 ? std::atoi(argv[1]) : 2);
  compute::ThreadPool pool(threads, SystemClock());
  std::vector<std::unique_ptr<compute::ThreadPool>> alone;
  for (int t = 0; t < threads; ++t) alone.push_back(std::make_unique<compute::ThreadPool>(1, SystemClock()));
  std::printf(
      "| products | 16 decodes at | attention, us | products, us | mixed, us | mixed / sum | of attention's time "
      "hidden |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const bool int8 : {true, false}) {
    for (const int64_t tokens : {64, 512}) {
      for (const int32_t context : {128, 1024}) bench::Row(pool, alone, int8, tokens, context);
    }
  }
  return 0;
}
