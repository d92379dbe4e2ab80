#include "ceiling.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <sys/mman.h>

#include "base/clock.h"

namespace tactus::bench {
namespace {

using compute::ThreadPool;

volatile float sink;

CeilingLoops LoopsFor(std::string_view set) {
#if defined(__x86_64__)
  if (set == "amx") return AmxLoops();
  if (set == "avx512") return Avx512Loops();
  if (set == "avx2") return Avx2Loops();
  if (set == "avxvnni") return AvxVnniLoops();
#endif
  (void)set;
  return PortableLoops();
}

constexpr int kTries = 16;

// Best of many tries of about a millisecond each: a ceiling is the machine's capability, without other load.
template <class Fn>
double BestRate(double amount, Fn fn) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const TimeNs start = SystemClock().NowNs();
    fn(i);
    const double seconds = static_cast<double>(SystemClock().NowNs() - start) * 1e-9;
    best = amount / seconds > best ? amount / seconds : best;
  }
  return best;
}

double Rate(ThreadPool& pool, float (*loop)(int64_t), int64_t flops_per_round) {
  constexpr int64_t kRounds = 300'000;
  const double flops = static_cast<double>(kRounds * flops_per_round) * pool.threads();
  return BestRate(flops,
                  [&](int) { pool.ParallelFor(pool.threads(), [&](int64_t, int32_t) { sink = loop(kRounds); }); });
}

// Floats in huge pages where available, like weights and KV: in small pages one core read 33 GB/s, not 42. Lives as
// long as the process.
const float* ReadBuffer(int64_t floats) {
  constexpr size_t kHuge = 2 << 20;
  const size_t bytes = (static_cast<size_t>(floats) * sizeof(float) + kHuge - 1) / kHuge * kHuge;
  auto* const data = static_cast<float*>(std::aligned_alloc(kHuge, bytes));
  if (data == nullptr) std::abort();
#ifdef MADV_HUGEPAGE
  (void)madvise(data, bytes, MADV_HUGEPAGE);  // advice only: refusal is harmless
#endif
  std::fill_n(data, floats, 1.0f);
  return data;
}

Ceilings Measure(ThreadPool& pool, const CeilingLoops& loops) {
  Ceilings c;
  c.f32_flops = Rate(pool, loops.f32, loops.f32_flops_per_round);
  if (loops.bf16 != nullptr) c.bf16_flops = Rate(pool, loops.bf16, loops.bf16_flops_per_round);
  if (loops.int8 != nullptr) c.int8_ops = Rate(pool, loops.int8, loops.int8_ops_per_round);
  // Each try reads its own 64 MiB of 1 GiB, which no cache holds any more.
  constexpr int64_t kPiece = 64 << 10, kPieces = 256;  // floats
  static const float* const buffer = ReadBuffer(kPiece * kPieces * kTries);
  c.read_bytes = BestRate(static_cast<double>(kPiece * kPieces * 4), [&](int part) {
    const float* data = buffer + part * kPieces * kPiece;
    pool.ParallelFor(kPieces, [&](int64_t i, int32_t) { sink = loops.read(data + i * kPiece, kPiece); });
  });
  return c;
}

}  // namespace

Ceilings MeasureCeilings(ThreadPool& pool, const compute::Ops& ops) {
  return Measure(pool, LoopsFor(ops.name));
}

const Ceilings& MeasuredCeilings(ThreadPool& pool, const compute::Ops& ops) {
  static const Ceilings ceilings = MeasureCeilings(pool, ops);
  return ceilings;
}

}  // namespace tactus::bench
