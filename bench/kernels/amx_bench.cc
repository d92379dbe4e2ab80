// What bounds products by matrix tiles (Intel AMX): the time of tile instructions alone and together, and bf16 products
// of 32 token rows with a panel of weights that lies in the first cache, the second, or memory. One thread; each figure
// is the best of many turns.
//
//   amx_bench
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "compute/kernels/ops.h"
#include "measure.h"

namespace tactus::bench {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

template <int kTile>
void Load(const std::byte* p, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
void Store(std::byte* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kSum, int kA, int kB>
void Dot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

constexpr int64_t kTileBytes = 1024, kRowBytes = 64;

void FourDots() {
  Dot<0, 4, 6>();
  Dot<1, 4, 7>();
  Dot<2, 5, 6>();
  Dot<3, 5, 7>();
}
void FourStores(std::byte* to) {
  Store<0>(to, kRowBytes);
  Store<1>(to + kTileBytes, kRowBytes);
  Store<2>(to + 2 * kTileBytes, kRowBytes);
  Store<3>(to + 3 * kTileBytes, kRowBytes);
}
// Tokens: tiles one after the other; weights: rows 256 bytes apart, as in a panel.
void LoadsAndDots(const std::byte* x, const std::byte* w) {
  Load<6>(w, 256);
  Load<4>(x, kRowBytes);
  Dot<0, 4, 6>();
  Load<7>(w + kRowBytes, 256);
  Dot<1, 4, 7>();
  Load<5>(x + kTileBytes, kRowBytes);
  Dot<2, 5, 6>();
  Dot<3, 5, 7>();
}

// LoadsAndDots, and kLines lines from `ahead` on are prefetched, a quarter between every two products.
template <int kLines>
void LoadsDotsAndLines(const std::byte* x, const std::byte* w, const std::byte* ahead) {
  const auto fetch = [&ahead] {
#pragma GCC unroll 16
    for (int i = 0; i < kLines / 4; ++i, ahead += kRowBytes) __builtin_prefetch(ahead);
  };
  Load<6>(w, kRowBytes);
  fetch();
  Load<4>(x, kRowBytes);
  Dot<0, 4, 6>();
  fetch();
  Load<7>(w + kTileBytes, kRowBytes);
  Dot<1, 4, 7>();
  fetch();
  Load<5>(x + kTileBytes, kRowBytes);
  Dot<2, 5, 6>();
  fetch();
  Dot<3, 5, 7>();
}

// The products of 256 tokens with a panel of 64 rows, 2,048 columns, in chunks of `each` steps of 32 columns. Sums of a
// chunk pass through memory. Tokens: 4,160 bytes apart.
void MultiplyPanel(const std::byte* x, const std::byte* w, std::byte* sums, int64_t each) {
  constexpr int64_t kTokens = 256, kSteps = 64, kStride = kSteps * kRowBytes + kRowBytes, kSumBytes = 256;
  for (int64_t begin = 0; begin < kSteps; begin += each) {
    for (int64_t token = 0; token < kTokens; token += 32) {
      for (int64_t slice = 0; slice < 2; ++slice) {
        std::byte* y = sums + token * kSumBytes + slice * 2 * kRowBytes;
        Load<0>(y, kSumBytes);
        Load<1>(y + kRowBytes, kSumBytes);
        Load<2>(y + 16 * kSumBytes, kSumBytes);
        Load<3>(y + 16 * kSumBytes + kRowBytes, kSumBytes);
        for (int64_t step = begin; step < begin + each; ++step) {
          const std::byte *rows = x + token * kStride + step * kRowBytes, *panel = w + step * 16 * 256;
          Load<6>(panel + slice * 2 * kRowBytes, 256);
          Load<4>(rows, kStride);
          Dot<0, 4, 6>();
          Load<7>(panel + slice * 2 * kRowBytes + kRowBytes, 256);
          Dot<1, 4, 7>();
          Load<5>(rows + 16 * kStride, kStride);
          Dot<2, 5, 6>();
          Dot<3, 5, 7>();
        }
        Store<0>(y, kSumBytes);
        Store<1>(y + kRowBytes, kSumBytes);
        Store<2>(y + 16 * kSumBytes, kSumBytes);
        Store<3>(y + 16 * kSumBytes + kRowBytes, kSumBytes);
      }
    }
  }
}

// Nanoseconds of one call of `turn`, which is repeated `count` times per sample.
template <class Turn>
double Best(int64_t count, Turn turn) {
  double best = 1e9;
  for (int sample = 0; sample < 20; ++sample) {
    const double start = Now(true);
    for (int64_t i = 0; i < count; ++i) turn(i);
    best = std::min(best, (Now(true) - start) * 1e9 / static_cast<double>(count));
  }
  return best;
}

int Main() {
  const compute::Ops* ops = compute::SelectOps();
  if (ops == nullptr || std::strcmp(ops->name, "amx") != 0) {
    std::fprintf(stderr, "amx_bench: the kernel set here is '%s'; this needs AMX\n",
                 ops == nullptr ? "none" : ops->name);
    return 2;
  }
  const TileConfig config;
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  Mapping near(1 << 16, 1);
  std::byte *x = near.data, *w = x + 4 * kTileBytes, *to = x + 32 * kTileBytes;
  const double dots = Best(200'000, [](int64_t) { FourDots(); });
  const auto print = [dots](const char* what, double ns) {
    std::printf("%-64s %7.2f ns, %3.0f %% of the tiles' rate\n", what, ns, 100 * dots / ns);
  };
  print("4 products", dots);
  print("4 products with 4 loads from the first cache", Best(200'000, [&](int64_t) { LoadsAndDots(x, w); }));
  std::printf("%-64s %7.2f ns\n", "4 stores", Best(200'000, [&](int64_t) { FourStores(to); }));
  print("4 products with 4 loads, and 4 stores", Best(200'000, [&](int64_t) {
          LoadsAndDots(x, w);
          FourStores(to);
        }));
  // Lines that come from the second cache while operands are in the first: the cost of a step in any order of loops
  // that brings that number of lines.
  Mapping second(1 << 19, 1);
  const auto lines = [&](int64_t i, int64_t count) { return second.data + i % 64 * count * kRowBytes; };
  print("a step from the first cache while 16 lines arrive from the second",
        Best(8192, [&](int64_t i) { LoadsDotsAndLines<16>(x, w, lines(i, 16)); }));
  print("while 32 do", Best(8192, [&](int64_t i) { LoadsDotsAndLines<32>(x, w, lines(i, 32)); }));
  print("while 48 do", Best(8192, [&](int64_t i) { LoadsDotsAndLines<48>(x, w, lines(i, 48)); }));
  print("while 64 do: all of its operands", Best(8192, [&](int64_t i) { LoadsDotsAndLines<64>(x, w, lines(i, 64)); }));
  // 2,048 columns of bf16: 64 steps of 4 products. Tokens 128 KiB, 32 of a panel's 64 rows, that is half of its lines.
  constexpr int64_t kSteps = 64, kPanel = kSteps * 16 * 256;
  Mapping tokens(kSteps * 2 * kTileBytes, 1), weights(int64_t{256} << 20, 1);
  const auto steps = [&](int64_t panel, int64_t step) {
    LoadsAndDots(tokens.data + step * 2 * kTileBytes, weights.data + panel * kPanel + step * 16 * 256);
  };
  print("a step, tokens and weights in the first cache", Best(10'000, [&](int64_t i) { steps(0, i % 4); }));
  print("a step, tokens and weights in the second cache", Best(64 * 64, [&](int64_t i) { steps(0, i % kSteps); }));
  const int64_t panels = static_cast<int64_t>(weights.bytes) / kPanel;
  print("a step, tokens in the second cache and weights in memory",
        Best(64 * 64, [&, at = int64_t{0}](int64_t i) mutable {
          if (i % kSteps == 0) at = (at + 1) % panels;
          steps(at, i % kSteps);
        }));
  Mapping many(256 * (64 * kRowBytes + kRowBytes), 1), sums(256 * 256, 1);
  for (const int64_t each : {4, 8, 16, 64}) {
    const double panel = Best(16, [&](int64_t) { MultiplyPanel(many.data, weights.data, sums.data, each); });
    char what[96];
    std::snprintf(what, sizeof what, "a step of 256 tokens in the second cache, chunks of %d columns",
                  static_cast<int>(32 * each));
    print(what, panel / (64 * 8 * 2));
  }
  __asm__ volatile("tilerelease");
  return 0;
}

}  // namespace
}  // namespace tactus::bench

int main() {
  return tactus::bench::Main();
}
