// Matrices in every format for tests of products: random codes, what they stand for in f64, and the product in f64.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "compute/cuda/kernels/quantized.h"
#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {

// Numbers in [-1, 1), the same in every run.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed * 2654435761u + 12345u) {}
  uint32_t Bits() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  float Next() { return static_cast<float>(Bits()) * 0x1p-23f - 1.0f; }
  std::vector<float> Take(int64_t n, float factor = 1.0f) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = factor * Next();
    return v;
  }

 private:
  uint32_t state_;
};

inline float RoundTo(Real type, float v) {
  if (type == Real::kF32) return v;
  return type == Real::kBF16 ? FromBf16Bits(Bf16Bits(v)) : FromF16Bits(F16Bits(v));
}
inline std::vector<uint8_t> BytesOf(Real type, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * static_cast<size_t>(SizeOf(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = type == Real::kBF16 ? Bf16Bits(values[i]) : F16Bits(values[i]);
    type == Real::kF32 ? std::memcpy(&bytes[4 * i], &values[i], 4) : std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}
inline std::vector<float> ValuesOf(Real type, const std::vector<uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(SizeOf(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    type == Real::kF32 ? std::memcpy(&values[i], &bytes[4 * i], 4) : std::memcpy(&half, &bytes[2 * i], 2);
    if (type != Real::kF32) values[i] = type == Real::kBF16 ? FromBf16Bits(half) : FromF16Bits(half);
  }
  return values;
}
// The largest relative error of rounding to `type`.
inline double RoundingOf(Real type) {
  return type == Real::kF32 ? 0x1p-24 : type == Real::kBF16 ? 0x1p-8 : 0x1p-11;
}

struct MatrixCase {
  MatrixFormat format = MatrixFormat::kReal;
  int64_t rows = 0, cols = 0;
  int32_t group = 0;
  bool offsets = false;
};
inline std::string NameOf(const MatrixCase& c) {
  const char* const names[] = {"real", "int8", "int4", "fp8"};
  return std::string(names[static_cast<int>(c.format)]) + " " + std::to_string(c.rows) + "x" + std::to_string(c.cols) +
         " group " + std::to_string(c.group) + (c.offsets ? " with offsets" : "");
}

// A matrix on the device as products read it.
class TestMatrix {
 public:
  TestMatrix(Stream& s, const MatrixCase& c, Real type, uint32_t seed) : case_(c) {
    Numbers numbers(seed);
    MatrixDataOf(type, numbers);
    device_.format = c.format;
    device_.real = type;
    device_.rows = c.rows;
    device_.cols = c.cols;
    device_.group = c.group;
    device_.data = Keep(codes_);
    if (!scales_.empty()) device_.scales = Keep(BytesOf(IsInteger() ? type : Real::kF32, scales_));
    if (c.offsets) device_.offsets = Keep(BytesOf(type, offsets_));
    const int64_t bytes = RepackedBytes(device_);
    if (bytes == 0) return;
    memory_.push_back(std::make_unique<Buffer<uint8_t>>(bytes));
    device_ = Repack(s, device_, memory_.back()->data());
  }

  const DeviceMatrix& device() const { return device_; }
  double Value(int64_t row, int64_t col) const { return Scaled(row, col) + Offset(row, col); }
  // The sum of |x| |scale * code| + |x| |offset| bounds the error of a sum in f32.
  double Size(int64_t row, int64_t col) const { return std::abs(Scaled(row, col)) + std::abs(Offset(row, col)); }

 private:
  bool IsInteger() const { return case_.format == MatrixFormat::kInt4 || case_.format == MatrixFormat::kInt8; }
  int64_t Groups() const { return case_.group == 0 ? 0 : (case_.cols + case_.group - 1) / case_.group; }

  void MatrixDataOf(Real type, Numbers& numbers) {
    const int64_t n = case_.rows * case_.cols;
    if (case_.format == MatrixFormat::kReal) {
      for (int64_t i = 0; i < n; ++i) values_.push_back(RoundTo(type, numbers.Next()));
      codes_ = BytesOf(type, values_);
    } else if (case_.format == MatrixFormat::kInt4) {
      codes_.resize(static_cast<size_t>(n / 2));
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t code = numbers.Bits() & 15u;
        codes_[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(code << (i % 2 * 4));
        values_.push_back(static_cast<float>(code) - (case_.offsets ? 0.0f : 8.0f));
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        uint8_t code = static_cast<uint8_t>(numbers.Bits());
        if (case_.format == MatrixFormat::kFp8 && (code & 0x7fu) == 0x7fu) code = 0;  // NaN
        codes_.push_back(code);
        values_.push_back(case_.format == MatrixFormat::kFp8 ? FromE4m3Bits(code)
                                                             : static_cast<float>(static_cast<int8_t>(code)));
      }
    }
    if (case_.format == MatrixFormat::kReal) return;
    const int64_t scales = case_.group == 0 ? 1 : case_.rows * Groups();
    for (int64_t i = 0; i < scales; ++i) {
      scales_.push_back(RoundTo(IsInteger() ? type : Real::kF32, 0.02f + 0.01f * numbers.Next()));
      if (case_.offsets) offsets_.push_back(RoundTo(type, 0.1f * numbers.Next()));
    }
  }
  size_t FactorAt(int64_t row, int64_t col) const {
    return case_.group == 0 ? 0 : static_cast<size_t>(row * Groups() + col / case_.group);
  }
  double Scaled(int64_t row, int64_t col) const {
    const double code = values_[static_cast<size_t>(row * case_.cols + col)];
    return scales_.empty() ? code : code * scales_[FactorAt(row, col)];
  }
  double Offset(int64_t row, int64_t col) const { return case_.offsets ? offsets_[FactorAt(row, col)] : 0.0; }
  const void* Keep(const std::vector<uint8_t>& bytes) {
    memory_.push_back(std::make_unique<Buffer<uint8_t>>(bytes));
    return memory_.back()->data();
  }

  MatrixCase case_;
  DeviceMatrix device_;
  std::vector<uint8_t> codes_;
  std::vector<float> values_, scales_, offsets_;
  std::vector<std::unique_ptr<Buffer<uint8_t>>> memory_;
};

// A sum in f64, and the error that one in f32 may have.
struct Expected {
  double value = 0, error = 0;
};
inline Expected Dot(const TestMatrix& w, const float* x, int64_t row, int64_t cols) {
  Expected sum;
  for (int64_t c = 0; c < cols; ++c) {
    sum.value += x[c] * w.Value(row, c);
    sum.error += std::abs(x[c]) * w.Size(row, c) * 0x1p-20;
  }
  return sum;
}

}  // namespace tactus::compute::cuda
