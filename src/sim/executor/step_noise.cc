#include "sim/executor/step_noise.h"

#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/format.h>

#include "base/printable.h"
#include "base/rng.h"

namespace tactus::sim {
namespace {

// Random streams, a pair per replica, apart from those of workloads and predictors.
constexpr uint64_t kNoiseStreams = uint64_t{0x57e9} << 32;

constexpr std::string_view kNone = "none", kOfProfile = "profile";  // values of --step-noise besides a number
constexpr double kMostPercent = 100 * cost::kMostSpread;

}  // namespace

StepNoise::StepNoise(const cost::StepSpread& spread, uint64_t seed, int32_t replica)
    : spread_(spread), seed_(seed), stream_(kNoiseStreams + 2 * static_cast<uint64_t>(replica)) {}

double StepNoise::FactorOf(StepId step, bool has_prompt) const {
  const double spread = has_prompt ? spread_.with_prompts : spread_.decodes_only;
  if (spread == 0) return 1;
  const auto index = static_cast<uint64_t>(step);
  const double radius = std::sqrt(-2 * std::log(1 - UniformAt(seed_, stream_, index)));
  return std::exp(spread * radius * std::cos(2 * std::numbers::pi * UniformAt(seed_, stream_ + 1, index)));
}

Result<cost::StepSpread> ParseStepNoise(const std::string& text, const cost::StepProfile* profile,
                                        const std::string& cost) {
  const auto bad = [](const std::string& what) { return InvalidArgument("--step-noise " + what, "step-noise"); };
  constexpr char kInstead[] = "or give a percentage such as 10";
  if (text == kNone) return cost::StepSpread();
  if (text == kOfProfile) {
    if (profile == nullptr) {
      return bad(
          fmt::format("profile: step times come from --cost {}, which is not a measured profile; give a file of "
                      "'tactus profile', {}",
                      cost, kInstead));
    }
    const auto noted = cost::NotedSpread(profile->remarks());
    if (!noted.ok()) {
      return bad(fmt::format("profile: {}: {}; measure again with 'tactus profile', {}", cost, noted.status().message(),
                             kInstead));
    }
    if (noted->has_value()) return **noted;
    return bad(
        fmt::format("profile: '{}' has no variation of single steps; measure again with 'tactus "
                    "profile', {}",
                    cost, kInstead));
  }
  std::string_view number = text;
  if (number.ends_with('%')) number.remove_suffix(1);
  double percent = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc() || stop != number.data() + number.size() || !(percent >= 0 && percent <= kMostPercent)) {
    return bad(fmt::format("is '{}'; it must be none, profile or a percentage between 0 and {:g}, such as 10",
                           Printable(text), kMostPercent));
  }
  return cost::StepSpread{percent / 100, percent / 100};
}

}  // namespace tactus::sim
