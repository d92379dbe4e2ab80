// Cost of a step-time query and of building a model.
#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

Deployment Of(const char* model, const char* device, int32_t tp) {
  Deployment d;
  d.model = model;
  d.device = device;
  d.tp = tp;
  return d;
}

// Steps of a server: some chunks within a budget of 512 tokens and a number of decodes.
void StepTime(benchmark::State& state) {
  const auto model = std::move(CostModel::Create(Of("codellama-34b", "a100", 2))).value();
  const int64_t chunks = state.range(0), decodes = state.range(1);
  Rng rng(1);
  struct Asked {
    std::vector<ChunkShape> chunks;
    StepShape shape;
  };
  std::vector<Asked> asked(1024);
  for (Asked& a : asked) {
    for (int64_t i = 0; i < chunks; ++i) {
      a.chunks.push_back({static_cast<int32_t>(rng.UniformInt(0, 3000)),
                          static_cast<int32_t>(rng.UniformInt(1, (512 - decodes) / chunks))});
    }
    a.shape.decodes = decodes;
    a.shape.decode_context_tokens = decodes * rng.UniformInt(100, 4000);
    a.shape.logit_rows = decodes + chunks;
  }
  for (Asked& a : asked) a.shape.chunks = a.chunks;
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(model->StepTimeNs(asked[i++ & 1023].shape));
}
BENCHMARK(StepTime)->ArgNames({"chunks", "decodes"})->Args({1, 37})->Args({4, 37})->Args({1, 0})->Args({0, 256});

void Create(benchmark::State& state, const char* source) {
  Deployment d = Of("llama-2-70b", "h100", 4);
  d.source = source;
  for (auto _ : state) benchmark::DoNotOptimize(CostModel::Create(d).ok());
}
BENCHMARK_CAPTURE(Create, roofline, "roofline")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Create, fitted, "auto")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tactus::cost
