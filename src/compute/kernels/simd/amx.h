// The instructions of Intel AMX's matrix tiles (simd/tiles.h).
#pragma once

#include "compute/kernels/simd/tiles.h"

namespace tactus::compute {
namespace {

// GCC's intrinsics paste the tile's number as text, which fails for a template parameter, so the instructions are
// written out. Volatile and with memory as an operand, they keep their order.
struct AmxTiles {
  static void Configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { __asm__ volatile("tilerelease"); }
  template <int kTile>
  static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Load(const std::byte* p, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Store(std::byte* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <bool kInteger, int kSum, int kA, int kB>
  static void Dot() {
    if constexpr (kInteger) {
      __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
    } else {
      __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
    }
  }
  // Unsigned bytes of kA by signed ones of kB.
  template <int kSum, int kA, int kB>
  static void DotUnsigned() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace tactus::compute
