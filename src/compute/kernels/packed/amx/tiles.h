// What the products of a panel by matrix tiles (integers.h, bf16.h) share: sizes and prefetch. They are written over a
// class Tiles of the instructions (simd/tiles.h) and a class Lanes of 16 lanes of 32 bits: the real one in packed.cc, a
// software model in tests/compute/kernels/tile_model.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx512/packed.h"
#include "compute/kernels/simd/tiles.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kAmxSlice = 2 * kAmxRows;         // weight rows of one product
inline constexpr int64_t kAmxGroupBytes = kPanelRows * 4;  // a panel's codes of one group
inline constexpr int64_t kAmxChunkColumns = 2 * kTokenBlock;

inline int64_t AmxLeast(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Prefetches the memory that is read next, a share of it per step.
struct AmxAhead {
  uintptr_t at = 0;             // an address, not a pointer: it may be beyond the weights
  int64_t left = 0, lines = 0;  // in all, and per step

  // `offset`: of the panel's next chunk; last: the next one is in the panel that is probably read next.
  AmxAhead(const PanelRun& run, bool last, int64_t offset, int64_t bytes, int64_t steps) {
    const std::byte* next = last ? run.next : run.w->data + run.panel * run.w->panel_bytes + offset;
    if (next == nullptr) return;
    at = reinterpret_cast<uintptr_t>(next);
    left = (bytes + kAmxRowBytes - 1) / kAmxRowBytes;
    lines = (left + steps - 1) / steps;
  }
  __attribute__((always_inline)) void Step() {
    for (int64_t i = AmxLeast(lines, left); i > 0; --i, --left, at += kAmxRowBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
    }
  }
};

}  // namespace
}  // namespace tactus::compute
