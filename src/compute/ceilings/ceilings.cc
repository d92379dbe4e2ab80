#include "compute/ceilings/ceilings.h"

#include <algorithm>

namespace tactus::compute {
namespace {

volatile float sink;  // keeps the loops from being removed

constexpr int kTries = 16;
constexpr int64_t kPiece = 64 << 10;  // floats that a thread reads at a time

}  // namespace

CeilingLoops LoopsOf(std::string_view set) {
#if defined(__x86_64__)
  if (set == "amx") return AmxLoops();
  if (set == "avx512") return Avx512Loops();
  if (set == "avx2") return Avx2Loops();
  if (set == "avxvnni") return AvxVnniLoops();
#endif
  (void)set;
  return PortableLoops();
}

CeilingMeter::CeilingMeter(Clock& clock, int64_t read_bytes)
    : clock_(clock), pieces_(read_bytes / (kTries * kPiece * static_cast<int64_t>(sizeof(float)))) {
  if (pieces_ == 0) return;
  const int64_t floats = kTries * pieces_ * kPiece;
  buffer_.emplace(static_cast<size_t>(floats));
  std::fill_n(buffer_->data(), floats, 1.0f);
}

// Best of many tries of about a millisecond each.
template <class Fn>
double CeilingMeter::BestRate(double amount, Fn fn) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const TimeNs start = clock_.NowNs();
    fn(i);
    const auto took_ns = std::max<DurationNs>(1, clock_.NowNs() - start);
    best = std::max(best, amount / (static_cast<double>(took_ns) * 1e-9));
  }
  return best;
}

double CeilingMeter::Rate(ThreadPool& pool, float (*loop)(int64_t), int64_t ops_per_round) {
  constexpr int64_t kRounds = 300'000;
  const double ops = static_cast<double>(kRounds * ops_per_round) * pool.threads();
  return BestRate(ops, [&](int) { pool.ParallelFor(pool.threads(), [&](int64_t, int32_t) { sink = loop(kRounds); }); });
}

Ceilings CeilingMeter::Measure(ThreadPool& pool, const CeilingLoops& loops) {
  Ceilings c;
  c.f32_flops = Rate(pool, loops.f32, loops.f32_flops_per_round);
  if (loops.bf16 != nullptr) c.bf16_flops = Rate(pool, loops.bf16, loops.bf16_flops_per_round);
  if (loops.int8 != nullptr) c.int8_ops = Rate(pool, loops.int8, loops.int8_ops_per_round);
  if (!buffer_) return c;
  // Each try reads its own part of the buffer, which no cache holds any more.
  c.read_bytes = BestRate(static_cast<double>(pieces_ * kPiece) * sizeof(float), [&](int part) {
    const float* data = buffer_->data() + part * pieces_ * kPiece;
    pool.ParallelFor(pieces_, [&](int64_t i, int32_t) { sink = loops.read(data + i * kPiece, kPiece); });
  });
  return c;
}

}  // namespace tactus::compute
