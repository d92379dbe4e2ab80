// The functions of feed-forward blocks.
#pragma once

#include <cstdint>

namespace tactus::compute {

// Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016); Shazeer, "GLU Variants" (2020).
enum class Activation : uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGeluErf,   // x Phi(x)
  kGeluTanh,  // its approximation by tanh
  kRelu,
  kRelu2,  // relu(x)^2
  // gpt-oss, gated only: g = min(gate, 7), u = clamp(up, -7, 7), g / (1 + e^(-1.702 g)) (u + 1)
  kClampedSwiglu,
};

}  // namespace tactus::compute
