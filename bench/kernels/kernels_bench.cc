// Operators at the shapes of a 1.1B Llama (hidden 2048, FFN 5632, 32 heads, 4 KV heads, vocabulary 32000), each with
// its share of the machine's measured arithmetic and read bandwidth.
//
//   TACTUS_KERNELS=avx2 TACTUS_BENCH_THREADS=1 kernels_bench --benchmark_filter=bf16
//
// Weights rotate over copies that together exceed the caches, like the layers of a model.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ceiling.h"
#include "compute/kernels/ops.h"
#include "compute/tensor/quantize.h"

namespace tactus::bench {
namespace {

compute::ThreadPool& Pool() {
  const char* threads = std::getenv("TACTUS_BENCH_THREADS");
  static compute::ThreadPool pool(threads != nullptr ? std::atoi(threads) : compute::UsableCores(), SystemClock());
  return pool;
}

const compute::Ops& Set() {
  static const compute::Ops* ops = compute::SelectOps();
  if (ops == nullptr) {
    std::fprintf(stderr, "TACTUS_KERNELS names a set that this machine cannot run\n");
    std::exit(2);
  }
  return *ops;
}

std::vector<float> RandomFloats(int64_t n) {
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.5);
  return x;
}

void Report(benchmark::State& state, double flops, double bytes) {
  const Ceilings& c = MeasuredCeilings(Pool(), Set());
  using benchmark::Counter;
  const double peak = c.f32_flops;
  const auto rate = Counter::kIsIterationInvariantRate;
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, rate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, rate);
  state.counters["%arith"] = Counter(100 * flops / peak, rate);
  state.counters["%bw"] = Counter(100 * bytes / c.read_bytes, rate);
}

void Linear(benchmark::State& state, compute::DType dtype, int64_t rows, int64_t cols) {
  const int64_t tokens = state.range(0), row_bytes = compute::RowBytes(dtype, cols);
  const int64_t copies = std::max<int64_t>(1, (int64_t{192} << 20) / (rows * row_bytes));
  // Aligned to 32 bytes, like a GGUF file's tensors.
  std::vector<std::byte> storage(static_cast<size_t>(copies * rows * row_bytes + 128));
  std::byte* weights = storage.data() + 64 - reinterpret_cast<uintptr_t>(storage.data()) % 64;
  if (std::getenv("TACTUS_BENCH_MISALIGN") != nullptr) weights += 32;
  const std::vector<float> row = RandomFloats(cols), x = RandomFloats(tokens * cols);
  compute::Quantize(dtype, row.data(), cols, weights);
  for (int64_t r = 1; r < copies * rows; ++r) std::memcpy(weights + r * row_bytes, weights, row_bytes);
  std::vector<float> y(static_cast<size_t>(tokens * rows));
  std::vector<std::byte> scratch(static_cast<size_t>(compute::WorkspaceBytes(tokens, cols, 1, 8, Pool().threads())));
  int64_t copy = 0;
  for (auto _ : state) {
    const compute::MatrixView w = {weights + copy * rows * row_bytes, dtype, rows, cols, row_bytes};
    Set().linear(Pool(), x.data(), tokens, w, nullptr, y.data(),
                 {scratch.data(), static_cast<int64_t>(scratch.size())});
    benchmark::ClobberMemory();
    copy = (copy + 1) % copies;
  }
  Report(state, 2.0 * static_cast<double>(tokens * rows * cols), static_cast<double>(rows * row_bytes));
}

// `items` sequences; each has `count` queries at the end of `context` positions.
void Attention(benchmark::State& state, int32_t items, int32_t context, int32_t count, compute::DType kv_dtype) {
  constexpr int32_t kHeads = 32, kKvHeads = 4, kHeadDim = 64, kBlock = 16;
  const int32_t blocks_each = (context + kBlock - 1) / kBlock;
  const int64_t elements = int64_t{items} * blocks_each * kKvHeads * kBlock * kHeadDim;
  std::vector<float> k = RandomFloats(elements), v = k;
  if (kv_dtype == compute::DType::kBF16) {
    const std::vector<float> from = k;
    compute::Quantize(compute::DType::kBF16, from.data(), elements, reinterpret_cast<std::byte*>(k.data()));
    compute::Quantize(compute::DType::kBF16, from.data(), elements, reinterpret_cast<std::byte*>(v.data()));
  }
  const compute::KvLayer kv = {k.data(), v.data(), kv_dtype, kBlock, kKvHeads, kHeadDim};
  std::vector<int32_t> table(static_cast<size_t>(items) * blocks_each);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>((i * 7919) % table.size());
  std::vector<compute::AttentionItem> work;
  for (int32_t i = 0; i < items; ++i)
    work.push_back({i * count, context - count, count, table.data() + i * blocks_each});
  const int64_t tokens = int64_t{items} * count;
  const std::vector<float> q = RandomFloats(tokens * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  std::vector<std::byte> scratch(
      static_cast<size_t>(compute::WorkspaceBytes(tokens, 64, kHeads, kHeadDim, Pool().threads())));
  for (auto _ : state) {
    Set().attention(Pool(), q.data(), kHeads * kHeadDim, work, kHeads, kv, {.scale = 0.125f}, out.data(),
                    kHeads * kHeadDim, {scratch.data(), static_cast<int64_t>(scratch.size())});
    benchmark::ClobberMemory();
  }
  double pairs = 0;  // (query, visible position)
  for (int32_t i = 0; i < count; ++i) pairs += static_cast<double>(items) * (context - count + i + 1);
  const double kv_bytes = static_cast<double>(elements) * 2 * static_cast<double>(compute::RowBytes(kv_dtype, 1));
  Report(state, pairs * 4 * kHeads * kHeadDim, kv_bytes);
}

void RmsNorm(benchmark::State& state) {
  const int64_t tokens = state.range(0), dim = 2048;
  const std::vector<float> x = RandomFloats(tokens * dim), weight = RandomFloats(dim);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    Set().rms_norm(Pool(), x.data(), tokens, dim, weight.data(), 1e-5f, out.data());
    benchmark::ClobberMemory();
  }
  Report(state, 4.0 * static_cast<double>(tokens * dim), 8.0 * static_cast<double>(tokens * dim));
}

void SiluMul(benchmark::State& state) {
  const int64_t n = state.range(0) * 5632;
  const std::vector<float> gate = RandomFloats(n), up = gate;
  std::vector<float> out(gate.size());
  for (auto _ : state) {
    Set().activate(Pool(), compute::Activation::kSilu, gate.data(), up.data(), n, out.data());
    benchmark::ClobberMemory();
  }
  Report(state, 20.0 * static_cast<double>(n), 12.0 * static_cast<double>(n));
}

void RegisterAll() {
  const int64_t shapes[][2] = {{2048, 2048}, {5632, 2048}, {2048, 5632}, {32000, 2048}};
  for (const compute::DType dtype : {compute::DType::kBF16, compute::DType::kQ8_0, compute::DType::kQ4_1,
                                     compute::DType::kQ4_0, compute::DType::kF32}) {
    for (const auto& shape : shapes) {
      const std::string name = std::string("linear/") + compute::InfoOf(dtype).name + "_f32/" +
                               std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
      auto* b = benchmark::RegisterBenchmark(name.c_str(), Linear, dtype, shape[0], shape[1]);
      b->Arg(1)->Arg(8)->Arg(32)->Arg(512)->UseRealTime()->Unit(benchmark::kMicrosecond);
    }
  }
  for (compute::DType dtype : {compute::DType::kBF16, compute::DType::kF32}) {
    const std::string kv = compute::InfoOf(dtype).name;
    auto add = [&](const std::string& name, int32_t items, int32_t context, int32_t count) {
      benchmark::RegisterBenchmark((name + "/" + kv).c_str(), Attention, items, context, count, dtype)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("attention/decode_16x1024", 16, 1024, 1);
    add("attention/decode_1x8192", 1, 8192, 1);
    add("attention/prefill_512", 1, 512, 512);
    add("attention/chunk_256_at_4096", 1, 4096, 256);
  }
  benchmark::RegisterBenchmark("rms_norm", RmsNorm)->Arg(1)->Arg(512)->UseRealTime()->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("silu_mul", SiluMul)->Arg(1)->Arg(512)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  using namespace tactus::bench;
  RegisterAll();
  benchmark::Initialize(&argc, argv);
  const Ceilings& c = MeasuredCeilings(Pool(), Set());
  benchmark::AddCustomContext("kernels", Set().name);
  benchmark::AddCustomContext("threads", std::to_string(Pool().threads()));
  benchmark::AddCustomContext("ceiling f32 GFLOP/s", std::to_string(c.f32_flops * 1e-9));
  benchmark::AddCustomContext("ceiling bf16 GFLOP/s", std::to_string(c.bf16_flops * 1e-9));
  benchmark::AddCustomContext("ceiling read GB/s", std::to_string(c.read_bytes * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
