#include "compute/model/rope.h"

#include <algorithm>
#include <cmath>

namespace tactus::compute {
namespace {

constexpr float kTwoPi = 6.283185307179586f;

float PowF32(float base, float exponent) {
  // Rounded once from double: the best f32, whatever the C library's powf does.
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

// base * ((factor * n / original) - (factor - 1)) ^ (d / (d - 2)), for n tokens beyond the original length.
float DynamicBase(const RopeConfig& config, int32_t dim, int64_t max_model_len) {
  const int64_t original = config.original_max_position;
  if (original <= 0 || max_model_len <= original || dim <= 2) return config.theta;
  const float stretch =
      config.factor * static_cast<float>(max_model_len) / static_cast<float>(original) - (config.factor - 1.0f);
  return config.theta * PowF32(stretch, static_cast<float>(dim) / static_cast<float>(dim - 2));
}

// Long wavelengths are divided by `factor`, short ones kept, those between interpolated.
float Llama3Frequency(const RopeConfig& config, float inv_freq) {
  const auto original = static_cast<float>(config.original_max_position);
  const float wavelength = kTwoPi / inv_freq;
  if (wavelength < original / config.high_freq_factor) return inv_freq;
  if (wavelength > original / config.low_freq_factor) return inv_freq / config.factor;
  if (config.low_freq_factor == config.high_freq_factor) return inv_freq;  // nothing lies between (Llama 4 Scout)
  const float smooth =
      (original / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1.0f - smooth) * inv_freq / config.factor + smooth * inv_freq;
}

// The dimension that turns `turns` times within the original length (YaRN, section 3.2).
double DimensionOfTurns(const RopeConfig& config, int32_t dim, double turns) {
  const double length = static_cast<double>(config.original_max_position);
  return dim * std::log(length / (turns * 2.0 * 3.14159265358979323846)) / (2.0 * std::log(config.theta));
}

// Fast dimensions are kept, slow ones divided by `factor`, those between interpolated.
float YarnFrequency(const RopeConfig& config, int32_t dim, size_t i, float inv_freq) {
  double low = DimensionOfTurns(config, dim, config.beta_fast), high = DimensionOfTurns(config, dim, config.beta_slow);
  if (config.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const auto slow = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return inv_freq / config.factor * slow + inv_freq * (1.0f - slow);
}

}  // namespace

Rope::Rope(const RopeConfig& config, int32_t rotary_dim, int64_t max_model_len)
    : attention_scale_(config.attention_factor), interleaved_(config.interleaved) {
  const float base =
      config.scaling == RopeScaling::kDynamic ? DynamicBase(config, rotary_dim, max_model_len) : config.theta;
  inv_freq_.resize(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    float f = 1.0f / PowF32(base, static_cast<float>(2 * i) / static_cast<float>(rotary_dim));
    if (config.scaling == RopeScaling::kLinear) f /= config.factor;
    if (config.scaling == RopeScaling::kProportional) {
      const auto turning = static_cast<size_t>(config.proportion * static_cast<float>(rotary_dim)) / 2;
      f = i < turning ? f / config.factor : 0.0f;
    }
    if (config.scaling == RopeScaling::kLlama3) f = Llama3Frequency(config, f);
    if (config.scaling == RopeScaling::kYarn) f = YarnFrequency(config, rotary_dim, i, f);
    if (config.scaling == RopeScaling::kLongRope) {
      f /= (max_model_len > config.original_max_position ? config.long_factors : config.short_factors)[i];
    }
    if (i < config.frequency_factors.size()) f /= config.frequency_factors[i];
    inv_freq_[i] = f;
  }
}

RopeTable Rope::table() const {
  RopeTable table;
  table.inv_freq = inv_freq_.data();
  table.rotary_dim = static_cast<int32_t>(inv_freq_.size() * 2);
  table.attention_scale = attention_scale_;
  table.interleaved = interleaved_;
  return table;
}

}  // namespace tactus::compute
