// Numbers at any address, little endian as in the files.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/tensor/float16.h"

namespace tactus::compute {

[[maybe_unused]] static inline uint16_t Load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

[[maybe_unused]] static inline uint32_t Load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

[[maybe_unused]] static inline void Store16(uint16_t value, uint8_t* p) {
  std::memcpy(p, &value, sizeof value);
}

[[maybe_unused]] static inline float LoadHalf(const uint8_t* p) {
  return F16ToF32(Load16(p));
}

}  // namespace tactus::compute
