// What tests of kernels use: a device that is new for each test, buffers on it, and values of 16 bits.
//
//   class NormTest : public DeviceTest {};
//   TACTUS_DEVICE_TESTS(NormTest);
//   TEST_P(NormTest, ...) {
//     Buffer<float> x({1, 2, 3}), y(3);
//     SomeFunction(stream(), x.data(), 3, y.data());
//     EXPECT_EQ(y.Read(), ...);
//   }
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "compute/cuda/runtime.h"
#include "cuda/emulator/emulator.h"
#include "cuda/emulator/values.h"

namespace tactus::compute::cuda {

using emulator::LaneOrder;

// The stream of all tests and buffers of this program.
inline Stream& TestStream() {
  static const std::unique_ptr<Stream> stream = std::move(Stream::Create()).value();
  return *stream;
}

// Fails the test for everything that the emulator found, and for an error of the device.
inline void ExpectNoFindings() {
  for (const std::string& finding : emulator::TakeFindings()) ADD_FAILURE() << finding;
  const Status status = DeviceStatus();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

class DeviceTest : public ::testing::TestWithParam<LaneOrder> {
 protected:
  void SetUp() override {
    emulator::ResetDevice();
    emulator::TakeFindings();
    emulator::SetLaneOrder(GetParam());
  }
  void TearDown() override { ExpectNoFindings(); }
  Stream& stream() { return TestStream(); }
};

#define TACTUS_DEVICE_TESTS(Suite)                                                                                  \
  INSTANTIATE_TEST_SUITE_P(                                                                                         \
      Lanes, Suite,                                                                                                 \
      ::testing::Values(::tactus::compute::cuda::LaneOrder::kForward, ::tactus::compute::cuda::LaneOrder::kReverse, \
                        ::tactus::compute::cuda::LaneOrder::kShuffled),                                             \
      [](const ::testing::TestParamInfo<::tactus::compute::cuda::LaneOrder>& order) {                               \
        return std::string(order.index == 0 ? "Forward" : order.index == 1 ? "Reverse" : "Shuffled");               \
      })

// `n` values on the device.
template <class T>
class Buffer {
 public:
  // Not initialised: a read of it before a write is a finding.
  explicit Buffer(int64_t n) : n_(n) {
    memory_ = std::move(DeviceMemory::Allocate(n * static_cast<int64_t>(sizeof(T)), "Buffer")).value();
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(static_cast<int64_t>(values.size())) { Write(values); }

  T* data() const { return memory_.as<T>(); }
  int64_t size() const { return n_; }
  void Write(const std::vector<T>& values) {
    TestStream().CopyToDevice(data(), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    TestStream().Synchronize();
  }
  // After all work of the test's stream. What was never written has all bits 1.
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(n_));
    TestStream().CopyToHost(values.data(), data(), n_ * static_cast<int64_t>(sizeof(T)));
    return values;
  }

 private:
  int64_t n_;
  DeviceMemory memory_;
};

// Values of 16 and 8 bits.
inline uint16_t Bf16Bits(float v) {
  return emulator::Bf16Of(v);
}
inline uint16_t F16Bits(float v) {
  return emulator::F16Of(v);
}
inline uint8_t E4m3Bits(float v) {
  return emulator::E4m3Of(v);
}
inline float FromBf16Bits(uint16_t bits) {
  return ToFloat(bf16{bits});
}
inline float FromF16Bits(uint16_t bits) {
  return emulator::OfF16(bits);
}
inline float FromE4m3Bits(uint8_t bits) {
  return emulator::OfE4m3(bits);
}
// T is float, bf16, f16, int8_t or e4m3: rounded, and back.
template <class T>
std::vector<T> Rounded(const std::vector<float>& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const float v : values) out.push_back(FromFloat<T>(v));
  return out;
}
template <class T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (const T& v : values) out.push_back(ToFloat(v));
  return out;
}

}  // namespace tactus::compute::cuda
