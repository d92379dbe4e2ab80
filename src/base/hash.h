// Keyed 128-bit hash (SipHash-2-4-128, Aumasson and Bernstein 2012). It gives blocks their identities, so that a client
// without the key cannot craft two prompts that share a KV block.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace tactus {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 SipHash128(const Hash128& key, const void* data, size_t size);

// FNV-style accumulation for plan hashes: cheap, order-sensitive, integers only.
inline uint64_t MixHash(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 33);
}

}  // namespace tactus
