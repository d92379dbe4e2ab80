#include "base/rng.h"

#include <cmath>

namespace tactus {
namespace {

__extension__ typedef unsigned __int128 Uint128;

constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

uint64_t First64(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = Philox4x32({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                            {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
  return (static_cast<uint64_t>(r[1]) << 32) | r[0];
}

double ToUnit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMul0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMul1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double UniformAt(uint64_t seed, uint64_t stream, uint64_t index) {
  return ToUnit(First64(seed, stream, index));
}

uint64_t Rng::Next64() {
  return First64(seed_, stream_, index_++);
}

double Rng::Uniform() {
  return ToUnit(Next64());
}

int64_t Rng::UniformInt(int64_t low, int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  if (range == 0) return static_cast<int64_t>(Next64());  // the whole 64-bit range
  // Lemire's multiply-shift; the bias is below range / 2^64.
  const Uint128 product = static_cast<Uint128>(Next64()) * range;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64));
}

double Rng::Normal() {
  const double u = 1.0 - Uniform();  // (0, 1]
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * Uniform());
}

double Rng::Exponential(double mean) {
  return -mean * std::log(1.0 - Uniform());
}

}  // namespace tactus
