// Encoders of the K formats. Each sub-block tries a few scales around the one that covers its range and keeps the one
// with the smallest squared error, where the best scale (and minimum) of given integers is a least-squares fit. The
// scales themselves are integers times a factor per block, which is fitted last, with all integers known.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/tensor/encode.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

constexpr int kBlock = 256;

int Rounded(double value, int low, int high) {
  return static_cast<int>(std::clamp(std::nearbyint(value), static_cast<double>(low), static_cast<double>(high)));
}

// x[i] is about scale * q[i] - minimum.
struct Line {
  double scale = 0, minimum = 0;
};

int NumberAt(const Line& line, double x, int highest) {
  return line.scale > 0 ? Rounded((x + line.minimum) / line.scale, 0, highest) : 0;
}

double ErrorOf(const Line& line, const float* x, int count, int highest) {
  double error = 0;
  for (int i = 0; i < count; ++i) {
    const double d = line.scale * NumberAt(line, x[i], highest) - line.minimum - x[i];
    error += d * d;
  }
  return error;
}

// The least-squares line through the integers that `line` gives, with a minimum of at least 0.
Line Fitted(const Line& line, const float* x, int count, int highest) {
  double sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0;
  for (int i = 0; i < count; ++i) {
    const double q = NumberAt(line, x[i], highest);
    sum_q += q, sum_qq += q * q, sum_x += x[i], sum_qx += q * x[i];
  }
  const double determinant = sum_qq * count - sum_q * sum_q;
  if (determinant <= 0) return line;
  Line fit{(sum_qx * count - sum_x * sum_q) / determinant, (sum_qx * sum_q - sum_x * sum_qq) / determinant};
  if (fit.minimum < 0) fit = {sum_qx / sum_qq, 0};
  return fit.scale > 0 ? fit : line;
}

Line BestLine(const float* x, int count, int highest) {
  const auto [low, high] = std::minmax_element(x, x + count);
  const double bottom = std::min(static_cast<double>(*low), 0.0);
  if (*high <= bottom) return {0, -bottom};
  Line best{(*high - bottom) / highest, -bottom};
  double least = ErrorOf(best, x, count, highest);
  for (int step = -4; step <= 12; ++step) {
    Line line = Fitted({(*high - bottom) / (highest + 0.1 * step), -bottom}, x, count, highest);
    line = Fitted(line, x, count, highest);
    const double error = ErrorOf(line, x, count, highest);
    if (error < least) least = error, best = line;
  }
  return best;
}

// A block of 8 sub-blocks whose scales and minima have 6 bits.
struct MinimumBlock {
  float d = 0, dmin = 0;  // as stored
  int scales[8] = {}, minima[8] = {};
  int q[kBlock] = {};
};

// The two factors that fit best, with all integers known.
void FitFactors(const float* x, MinimumBlock* b) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int j = i / 32;
    const double a = b->scales[j] * b->q[i], m = -b->minima[j];
    aa += a * a, ab += a * m, bb += m * m, ax += a * x[i], bx += m * x[i];
  }
  const double determinant = aa * bb - ab * ab;
  double d = aa > 0 ? ax / aa : 0, dmin = 0;
  if (determinant > 1e-9 * aa * bb && bb > 0)
    d = (ax * bb - bx * ab) / determinant, dmin = (aa * bx - ab * ax) / determinant;
  if (d <= 0 || dmin < 0) return;
  b->d = F16ToF32(F32ToF16(static_cast<float>(d)));
  b->dmin = bb > 0 ? F16ToF32(F32ToF16(static_cast<float>(dmin))) : 0.0f;
}

void ChooseIntegers(const float* x, int highest, MinimumBlock* b) {
  for (int i = 0; i < kBlock; ++i) {
    const int j = i / 32;
    const Line line{static_cast<double>(b->d) * b->scales[j], static_cast<double>(b->dmin) * b->minima[j]};
    b->q[i] = NumberAt(line, x[i], highest);
  }
}

double ErrorOf(const float* x, const MinimumBlock& b) {
  double error = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int j = i / 32;
    const double value = static_cast<double>(b.d) * b.scales[j] * b.q[i] - static_cast<double>(b.dmin) * b.minima[j];
    error += (value - x[i]) * (value - x[i]);
  }
  return error;
}

MinimumBlock EncodeWithMinima(const float* x, int highest) {
  Line lines[8];
  double largest = 0, largest_minimum = 0;
  for (int64_t j = 0; j < 8; ++j) {
    lines[j] = BestLine(x + 32 * j, 32, highest);
    largest = std::max(largest, lines[j].scale);
    largest_minimum = std::max(largest_minimum, lines[j].minimum);
  }
  MinimumBlock b;
  b.d = F16ToF32(F32ToF16(static_cast<float>(largest / 63)));
  b.dmin = F16ToF32(F32ToF16(static_cast<float>(largest_minimum / 63)));
  for (int j = 0; j < 8; ++j) {
    b.scales[j] = b.d > 0 ? Rounded(lines[j].scale / static_cast<double>(b.d), 0, 63) : 0;
    b.minima[j] = b.dmin > 0 ? Rounded(lines[j].minimum / static_cast<double>(b.dmin), 0, 63) : 0;
  }
  ChooseIntegers(x, highest, &b);
  MinimumBlock fitted = b;
  FitFactors(x, &fitted);
  ChooseIntegers(x, highest, &fitted);
  return ErrorOf(x, fitted) < ErrorOf(x, b) ? fitted : b;
}

// The 12 bytes that hold eight scales and minima of 6 bits (dequantize.cc reads them).
void StoreScales(const MinimumBlock& b, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    const int scale = b.scales[j + 4], minimum = b.minima[j + 4];
    out[j] = static_cast<uint8_t>(b.scales[j] | (scale >> 4) << 6);
    out[j + 4] = static_cast<uint8_t>(b.minima[j] | (minimum >> 4) << 6);
    out[j + 8] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
  }
}

void StoreHead(const MinimumBlock& b, uint8_t* out) {
  Store16(F32ToF16(b.d), out);
  Store16(F32ToF16(b.dmin), out + 2);
  StoreScales(b, out + 4);
}

void StoreNibbles(const MinimumBlock& b, uint8_t* out) {
  for (int i = 0; i < 128; ++i) {
    const int at = i / 32 * 64 + i % 32;
    out[i] = static_cast<uint8_t>((b.q[at] & 15) | (b.q[at + 32] & 15) << 4);
  }
}

int SignedAt(double scale, double x) {
  return scale != 0 ? Rounded(x / scale, -32, 31) : 0;
}

// The scale of 16 values under integers from -32 to 31, whose largest magnitude may take either end.
double BestScale(const float* x) {
  const float extreme = *std::max_element(x, x + 16, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  double best = 0, least = INFINITY;
  for (int step = -4; step <= 8 && extreme != 0; ++step) {
    const double scale = static_cast<double>(extreme) / -(32 + 0.25 * step);
    double qq = 0, qx = 0;
    for (int i = 0; i < 16; ++i) {
      const double q = SignedAt(scale, x[i]);
      qq += q * q, qx += q * x[i];
    }
    const double fit = qq > 0 ? qx / qq : scale;
    double error = 0;
    for (int i = 0; i < 16; ++i) error += std::pow(fit * SignedAt(fit, x[i]) - x[i], 2);
    if (error < least) least = error, best = fit;
  }
  return best;
}

}  // namespace

void EncodeQ4K(const float* x, uint8_t* out) {
  const MinimumBlock b = EncodeWithMinima(x, 15);
  StoreHead(b, out);
  StoreNibbles(b, out + 16);
}

void EncodeQ5K(const float* x, uint8_t* out) {
  const MinimumBlock b = EncodeWithMinima(x, 31);
  StoreHead(b, out);
  std::memset(out + 16, 0, 32);
  for (int i = 0; i < kBlock; ++i) out[16 + i % 32] |= static_cast<uint8_t>((b.q[i] >> 4) << (i / 32));
  StoreNibbles(b, out + 48);
}

void EncodeQ6K(const float* x, uint8_t* out) {
  double scales[16], largest = 0;
  for (int64_t j = 0; j < 16; ++j) {
    scales[j] = BestScale(x + 16 * j);
    if (std::fabs(scales[j]) > std::fabs(largest)) largest = scales[j];
  }
  const float d = F16ToF32(F32ToF16(static_cast<float>(largest / -128)));
  int factors[16], q[kBlock];
  double aa = 0, ax = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int j = i / 16;
    if (i % 16 == 0) factors[j] = d != 0 ? Rounded(scales[j] / static_cast<double>(d), -128, 127) : 0;
    q[i] = SignedAt(static_cast<double>(d) * factors[j], x[i]);
    aa += std::pow(factors[j] * q[i], 2), ax += static_cast<double>(factors[j]) * q[i] * x[i];
  }
  std::memset(out, 0, 192);
  for (int i = 0; i < kBlock; ++i) {  // a half of 128 has 64 bytes of nibbles and 32 of bit pairs
    const int half = i / 128, g = i % 128 / 32, l = i % 32, number = q[i] + 32;
    out[half * 64 + g % 2 * 32 + l] |= static_cast<uint8_t>((number & 15) << (g / 2 * 4));
    out[128 + half * 32 + l] |= static_cast<uint8_t>((number >> 4) << (2 * g));
  }
  for (int j = 0; j < 16; ++j) out[192 + j] = static_cast<uint8_t>(static_cast<int8_t>(factors[j]));
  Store16(F32ToF16(aa > 0 ? static_cast<float>(ax / aa) : d), out + 208);
}

}  // namespace tactus::compute
