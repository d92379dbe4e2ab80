// Iteration shared by vnni.cc and bf16.cc: chunks of a panel, tiles of tokens, and prefetches. Included once per file;
// everything here has internal linkage (see kernel_set.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/packed/avx512/packed.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kAheadBytes =
    8192;  // measured: less waits for memory, more repeats the hardware prefetcher's work

inline int64_t LeastOf(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// The lines that a tile prefetches: `lines` per step.
struct Ahead {
  uintptr_t at = 0;  // an address, not a pointer: it may be beyond the weights
  int64_t lines = 0;

  __attribute__((always_inline)) void Step() {
    for (int64_t i = 0; i < lines; ++i, at += kLineBytes) _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
  }
};

// Prefetches the caller's output lines for rows [begin, end).
inline void FetchOutput(const PanelRun& run, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < LeastOf(end, run.out_tokens); ++token) {
    for (int64_t i = 0; i < kPanelRows; i += 16) __builtin_prefetch(run.out + token * run.out_stride + i, 1);
  }
}

// Calls chunk(first byte, units) and then tile(first row, rows, chunk's first unit, units, ahead) for every tile of it.
// A panel is `units` units of unit_bytes, a chunk at most `per_chunk` of them; a tile has at most tokens_max tokens and
// `steps` steps per unit.
struct Walk {
  int64_t units = 0, unit_bytes = 0, per_chunk = 0, steps = 0, tokens_max = 1;
  int64_t lead_bytes = 0;  // with several tiles: offset of the first prefetch from the next chunk's start

  // Byte `offset` of the panel, or of the memory read after it.
  static uintptr_t AddressOf(const PanelRun& run, const std::byte* panel, int64_t bytes, int64_t offset) {
    const bool beyond = offset >= bytes && run.next != nullptr;
    return reinterpret_cast<uintptr_t>(beyond ? run.next : panel) +
           static_cast<uintptr_t>(beyond ? offset - bytes : offset);
  }

  template <class Chunk, class Tile>
  void Run(const PanelRun& run, Chunk chunk, Tile tile) const {
    const std::byte* panel = run.w->data + run.panel * run.w->panel_bytes;
    const int64_t tiles = (run.rows + tokens_max - 1) / tokens_max;
    const int64_t least_tokens = run.rows / tiles, taller = run.rows % tiles;
    // Lines of one step's weights, divided among the tiles.
    const int64_t step_lines = (unit_bytes + steps * kLineBytes - 1) / (steps * kLineBytes);
    const int64_t lines = (step_lines + tiles - 1) / tiles;
    for (int64_t u = 0; u < units; u += per_chunk) {
      const int64_t count = LeastOf(per_chunk, units - u);
      const std::byte* at = panel + u * unit_bytes;
      const bool last = u + count == units;
      // Prefetches lead reads by one tile, or with several tiles by a chunk, and continue in the next panel.
      const int64_t past = tiles == 1 ? 0 : count;
      int64_t want = (u + past) * unit_bytes + (tiles == 1 ? kAheadBytes : lead_bytes);
      const int64_t want_end = want + (last ? per_chunk : LeastOf(per_chunk, units - u - past)) * unit_bytes;
      chunk(at, count);
      int64_t begin = 0;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t end = begin + least_tokens + (t < taller ? 1 : 0);
        if (last && run.out != nullptr) FetchOutput(run, begin, end);
        Ahead ahead;
        if (want < want_end) ahead = {AddressOf(run, panel, units * unit_bytes, want), lines};
        tile(begin, end - begin, u, count, ahead);
        begin = end;
        want += lines * steps * count * kLineBytes;
      }
    }
  }
};

}  // namespace
}  // namespace tactus::compute
