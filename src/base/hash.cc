#include "base/hash.h"

#include <bit>
#include <cstring>

namespace tactus {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;
  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13);
    v1 ^= v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16);
    v3 ^= v2;
    v0 += v3;
    v3 = std::rotl(v3, 21);
    v3 ^= v0;
    v2 += v1;
    v1 = std::rotl(v1, 17);
    v1 ^= v2;
    v2 = std::rotl(v2, 32);
  }
  void Absorb(uint64_t m) {
    v3 ^= m;
    Round();
    Round();
    v0 ^= m;
  }
  uint64_t Finish() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

// The 128-bit variant: v1 is perturbed by 0xee at the start and v2 by 0xee at the end; a second output follows with
// v1 perturbed by 0xdd.
Hash128 SipHash128(const Hash128& key, const void* data, size_t size) {
  SipState s{key.low ^ 0x736f6d6570736575ULL, key.high ^ 0x646f72616e646f6dULL ^ 0xee, key.low ^ 0x6c7967656e657261ULL,
             key.high ^ 0x7465646279746573ULL};
  const auto* bytes = static_cast<const unsigned char*>(data);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t m;
    std::memcpy(&m, bytes + i, 8);
    s.Absorb(m);
  }
  uint64_t last = static_cast<uint64_t>(size) << 56;
  for (size_t shift = 0; i < size; ++i, shift += 8) last |= static_cast<uint64_t>(bytes[i]) << shift;
  s.Absorb(last);
  s.v2 ^= 0xee;
  Hash128 out;
  out.low = s.Finish();
  s.v1 ^= 0xdd;
  out.high = s.Finish();
  return out;
}

}  // namespace tactus
