#include "base/checksum.h"

#include <cstring>

#include "base/hash.h"

namespace tactus {

uint64_t Checksum(const std::byte* data, size_t size) {
  constexpr size_t kLanes = 8;
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15ULL;
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  size_t at = 0;
  for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
    uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof(words));
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] = (lanes[l] ^ words[l]) * kFactor;
      lanes[l] ^= lanes[l] >> 29;
    }
  }
  uint64_t rest[kLanes] = {};
  if (at < size) std::memcpy(rest, data + at, size - at);
  uint64_t sum = size;
  for (size_t l = 0; l < kLanes; ++l) sum = MixHash(MixHash(sum, lanes[l]), rest[l]);
  return sum;
}

}  // namespace tactus
