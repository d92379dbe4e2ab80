#include "sim/workload/named_workloads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace tactus::sim {
namespace {

#define TACTUS_LIST(...) __VA_ARGS__
#define TACTUS_WORKLOAD(...)
#include "sim/workload/named_workloads.def"
#undef TACTUS_WORKLOAD
constexpr double kKnots[] = {TACTUS_WORKLOAD_KNOTS};
constexpr size_t kNumKnots = std::size(kKnots);

struct Table {
  const char* name;
  const char* help;
  std::array<int32_t, kNumKnots> prompt, output;
  double correlation;
};
#define TACTUS_WORKLOAD(name, help, prompt, output, correlation) \
  {name, help, {TACTUS_LIST prompt}, {TACTUS_LIST output}, correlation},
constexpr Table kTables[] = {
#include "sim/workload/named_workloads.def"
};
#undef TACTUS_WORKLOAD

// The quantile of a uniform `u`: interpolates the logarithm between knots.
int64_t QuantileAt(std::span<const int32_t> table, double u) {
  const size_t above =
      std::min<size_t>(static_cast<size_t>(std::upper_bound(kKnots, kKnots + kNumKnots, u) - kKnots), kNumKnots - 1);
  const double low = std::log(table[above - 1]), high = std::log(table[above]);
  const double share = (u - kKnots[above - 1]) / (kKnots[above] - kKnots[above - 1]);
  return std::llround(std::exp(low + share * (high - low)));
}

double NormalToUniform(double z) {
  return std::clamp(0.5 * std::erfc(-z / std::sqrt(2.0)), 0.0, 1.0);
}

}  // namespace

std::span<const NamedWorkload> NamedWorkloads() {
  static const auto all = [] {
    std::array<NamedWorkload, std::size(kTables)> out{};
    for (size_t i = 0; i < out.size(); ++i) {
      const Table& t = kTables[i];
      out[i] = {t.name, t.help, t.prompt, t.output, t.correlation};
    }
    return out;
  }();
  return all;
}

Lengths DrawLengths(const NamedWorkload& w, Rng& rng) {
  const double a = rng.Normal();
  const double b = w.correlation * a + std::sqrt(1 - w.correlation * w.correlation) * rng.Normal();
  return {QuantileAt(w.prompt, NormalToUniform(a)), QuantileAt(w.output, NormalToUniform(b))};
}

}  // namespace tactus::sim
