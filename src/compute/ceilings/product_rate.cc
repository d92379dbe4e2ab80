#include "compute/ceilings/product_rate.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/huge_pages.h"
#include "compute/kernels/packed/packed.h"

namespace tactus::compute {
namespace {

constexpr int64_t kRows = 1024, kCols = 2048, kTokens = 128;
constexpr int kLeastTries = 3, kMostTries = 24;
constexpr DurationNs kEnough = 60 * kMillisecond;

std::byte* AlignedBytes(std::vector<std::byte>* memory, int64_t bytes) {
  constexpr size_t kLine = 64;
  memory->resize(static_cast<size_t>(bytes) + kLine);
  void* at = memory->data();
  size_t space = memory->size();
  return static_cast<std::byte*>(std::align(kLine, static_cast<size_t>(bytes), at, space));
}

}  // namespace

double MeasureProductRate(ThreadPool& pool, const Ops& ops, Clock& clock) {
  const std::vector<float> values(static_cast<size_t>(kRows * kCols), 0.25f);
  PackedMatrix weights;
  QuantizedFormOf(Quantization::kInt8, kRows, kCols, &weights);
  HugePageArray<std::byte> panels(static_cast<size_t>(weights.bytes()));
  PackPanels({values.data(), DType::kF32, kRows, kCols, kCols * int64_t{sizeof(float)}}, weights, 0, weights.panels(),
             panels.data());
  weights.data = panels.data();
  std::vector<std::byte> token_memory, scratch_memory;
  const PackedTokens tokens = PlaceTokens(AlignedBytes(&token_memory, PackedTokenBytes(kTokens, kCols)),
                                          TokensFor(weights, Rounding::kInt8), kTokens, kCols);
  ops.pack(pool, values.data(), nullptr, 0.0f, tokens);
  const int64_t scratch_bytes = WorkspaceBytes(kTokens, kCols, 1, 64, pool.threads());
  const Workspace scratch{AlignedBytes(&scratch_memory, scratch_bytes), scratch_bytes};
  std::vector<float> y(static_cast<size_t>(kTokens * kRows));
  const LinearOutput output{&weights, nullptr, y.data(), kRows, false};
  ops.linear_packed(pool, tokens, {&output, 1}, scratch);  // the first is cold
  const TimeNs begin = clock.NowNs();
  DurationNs least = 0;
  for (int i = 0; i < kMostTries && (i < kLeastTries || clock.NowNs() - begin < kEnough); ++i) {
    const TimeNs start = clock.NowNs();
    ops.linear_packed(pool, tokens, {&output, 1}, scratch);
    const DurationNs took = std::max<DurationNs>(1, clock.NowNs() - start);
    least = least == 0 ? took : std::min(least, took);
  }
  return 2.0 * static_cast<double>(kTokens * kRows * kCols) / (static_cast<double>(least) * 1e-9);
}

}  // namespace tactus::compute
