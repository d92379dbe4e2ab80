#include "results/report/seed_interval.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/json.h"

namespace tactus::results {
namespace {

constexpr double kConfidence = 0.95;

struct Moments {
  double mean = 0, variance_of_mean = 0, degrees = 0;
};

Moments MomentsOf(std::span<const double> values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) m.mean += v / n;
  m.degrees = n - 1;
  if (m.degrees == 0) return m;
  for (const double v : values) m.variance_of_mean += (v - m.mean) * (v - m.mean) / m.degrees / n;
  return m;
}

SeedInterval Around(double mean, double variance_of_mean, double degrees) {
  SeedInterval out{mean, std::nullopt};
  if (degrees <= 0) return out;
  const double t = boost::math::quantile(boost::math::students_t(degrees), 0.5 + kConfidence / 2);
  const double half = t * std::sqrt(variance_of_mean);
  out.interval = {mean - half, mean + half};
  return out;
}

std::vector<double> Logs(std::span<const double> values) {
  std::vector<double> logs;
  for (const double v : values) logs.push_back(std::log(v));
  return logs;
}

}  // namespace

SeedInterval MeanOver(std::span<const double> values) {
  TACTUS_CHECK_MSG(!values.empty(), "a mean of no values");
  const Moments m = MomentsOf(values);
  return Around(m.mean, m.variance_of_mean, m.degrees);
}

std::optional<SeedInterval> RatioOver(std::span<const double> a, std::span<const double> b, bool paired) {
  const auto positive = [](double v) { return v > 0; };
  if (a.empty() || b.empty() || !std::all_of(a.begin(), a.end(), positive) ||
      !std::all_of(b.begin(), b.end(), positive))
    return std::nullopt;
  const std::vector<double> log_a = Logs(a), log_b = Logs(b);
  SeedInterval log_ratio;
  if (paired) {
    TACTUS_CHECK_MSG(a.size() == b.size(), "pairs of values");
    std::vector<double> differences;
    for (size_t i = 0; i < log_a.size(); ++i) differences.push_back(log_a[i] - log_b[i]);
    log_ratio = MeanOver(differences);
  } else {
    const Moments m = MomentsOf(log_a), n = MomentsOf(log_b);
    const double variance = m.variance_of_mean + n.variance_of_mean;
    double degrees = 0;  // Welch and Satterthwaite's
    if (m.degrees > 0 && n.degrees > 0) {
      const double spread =
          m.variance_of_mean * m.variance_of_mean / m.degrees + n.variance_of_mean * n.variance_of_mean / n.degrees;
      degrees = spread > 0 ? variance * variance / spread : m.degrees + n.degrees;
    }
    log_ratio = Around(m.mean - n.mean, variance, degrees);
  }
  SeedInterval ratio{std::exp(log_ratio.mean), std::nullopt};
  if (log_ratio.interval) ratio.interval = {std::exp(log_ratio.interval->low), std::exp(log_ratio.interval->high)};
  return ratio;
}

Json IntervalJson(const SeedInterval& value) {
  Json j = {{"mean", value.mean}, {"low", nullptr}, {"high", nullptr}};
  if (value.interval) {
    j["low"] = value.interval->low;
    j["high"] = value.interval->high;
  }
  return j;
}

}  // namespace tactus::results
