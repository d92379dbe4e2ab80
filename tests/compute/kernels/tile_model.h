// A software model of Intel's matrix tiles, written from the Software Developer's Manual (volume 2, ldtilecfg,
// tileloadd, tilestored, tilezero, tdpbssd, tdpbf16ps; volume 1, chapter on AMX): palette 1, eight tiles of at most 16
// rows of 64 bytes. The processor's exceptions are counted in `faults` here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/amx/tile.h"
#include "compute/tensor/float16.h"

namespace tactus::compute::testing {

struct ModelTile {
  int64_t rows = 0, row_bytes = 0;
  uint8_t data[16][64] = {};
};

struct ModelTiles {
  using Tile = ModelTile;
  static inline thread_local Tile tiles[8];
  static inline thread_local bool configured = false;
  static inline int64_t faults = 0, products = 0;

  template <class Config>
  static void Configure(const Config& config) {
    static_assert(sizeof config == 64);
    uint8_t bytes[64];
    std::memcpy(bytes, &config, sizeof bytes);
    bool bad = bytes[0] != 1 || bytes[1] != 0;
    for (int i = 2; i < 16; ++i) bad = bad || bytes[i] != 0;
    for (int i = 0; i < 16; ++i) {
      uint16_t row_bytes;
      std::memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof row_bytes);
      const int rows = bytes[48 + i];
      bad = bad || row_bytes > 64 || rows > 16 || (row_bytes == 0) != (rows == 0) || (i >= 8 && rows != 0);
      if (i < 8) {
        tiles[i] = Tile{};
        tiles[i].rows = rows;
        tiles[i].row_bytes = row_bytes;
      }
    }
    configured = !bad;
    faults += bad;
  }
  static void Release() {
    for (Tile& t : tiles) t = Tile{};
    configured = false;
  }
  // False, and counts a fault, if the tile is not configured.
  static bool Valid(const Tile& t) {
    const bool valid = configured && t.rows > 0 && t.row_bytes > 0;
    faults += !valid;
    return valid;
  }
  template <int kTile>
  static void Zero() {
    if (Valid(tiles[kTile])) std::memset(tiles[kTile].data, 0, sizeof tiles[kTile].data);
  }
  template <int kTile>
  static void Load(const std::byte* p, int64_t stride) {
    Tile& t = tiles[kTile];
    if (!Valid(t)) return;
    std::memset(t.data, 0, sizeof t.data);  // rows and bytes beyond the configuration read as zero
    for (int64_t r = 0; r < t.rows; ++r) std::memcpy(t.data[r], p + r * stride, static_cast<size_t>(t.row_bytes));
  }
  template <int kTile>
  static void Store(std::byte* p, int64_t stride) {
    const Tile& t = tiles[kTile];
    if (!Valid(t)) return;
    for (int64_t r = 0; r < t.rows; ++r) std::memcpy(p + r * stride, t.data[r], static_cast<size_t>(t.row_bytes));
  }
  template <bool kInteger, int kSum, int kA, int kB>
  static void Dot() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    Tile& c = tiles[kSum];
    const Tile &a = tiles[kA], &b = tiles[kB];
    if (!Valid(c) || !Valid(a) || !Valid(b)) return;
    if (a.rows != c.rows || b.row_bytes != c.row_bytes || a.row_bytes / 4 != b.rows || a.row_bytes % 4 != 0 ||
        c.row_bytes % 4 != 0) {
      ++faults;
      return;
    }
    ++products;
    for (int64_t m = 0; m < c.rows; ++m) kInteger ? DotIntegers<int8_t>(c, a, b, m) : DotPairs(c, a, b, m);
  }

  template <int kSum, int kA, int kB>
  static void DotUnsigned() {
    Tile& c = tiles[kSum];
    const Tile &a = tiles[kA], &b = tiles[kB];
    if (!Valid(c) || !Valid(a) || !Valid(b) || a.rows != c.rows || b.row_bytes != c.row_bytes ||
        a.row_bytes / 4 != b.rows) {
      ++faults;
      return;
    }
    ++products;
    for (int64_t m = 0; m < c.rows; ++m) DotIntegers<uint8_t>(c, a, b, m);
  }

 private:
  template <class T>
  static T At(const Tile& t, int64_t row, int64_t index) {
    T value;
    std::memcpy(&value, t.data[row] + index * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  }
  template <class T>
  static void Set(Tile& t, int64_t row, int64_t index, T value) {
    std::memcpy(t.data[row] + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
  // tdpbssd and tdpbusd: signed or unsigned bytes by signed ones, into 32 bits without saturation
  template <class Byte>
  static void DotIntegers(Tile& c, const Tile& a, const Tile& b, int64_t m) {
    for (int64_t k = 0; k < a.row_bytes / 4; ++k) {
      for (int64_t n = 0; n < c.row_bytes / 4; ++n) {
        auto sum = static_cast<uint32_t>(At<int32_t>(c, m, n));
        for (int64_t i = 0; i < 4; ++i)
          sum += static_cast<uint32_t>(At<Byte>(a, m, 4 * k + i) * At<int8_t>(b, k, 4 * n + i));
        Set(c, m, n, static_cast<int32_t>(sum));
      }
    }
  }
  // Subnormals count as zero, in and out.
  static float Flush(float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v; }
  static float MulAdd(float a, float b, float c) { return Flush(std::fma(Flush(a), Flush(b), c)); }
  // tdpbf16ps: even and odd columns each form a chain of fused multiply-adds from zero; their total is added to the sum
  static void DotPairs(Tile& c, const Tile& a, const Tile& b, int64_t m) {
    for (int64_t n = 0; n < c.row_bytes / 4; ++n) {
      float even = 0, odd = 0;
      for (int64_t k = 0; k < a.row_bytes / 4; ++k) {
        even =
            MulAdd(compute::BF16ToF32(At<uint16_t>(a, m, 2 * k)), compute::BF16ToF32(At<uint16_t>(b, k, 2 * n)), even);
        odd = MulAdd(compute::BF16ToF32(At<uint16_t>(a, m, 2 * k + 1)),
                     compute::BF16ToF32(At<uint16_t>(b, k, 2 * n + 1)), odd);
      }
      Set(c, m, n, Flush(At<float>(c, m, n) + Flush(even + odd)));
    }
  }
};

// Sixteen lanes of 32 bits, as loops: the class Lanes of packed/amx/tiles.h.
struct ModelLanes {
  struct Bytes {
    uint8_t at[64];
  };
  struct F {
    float at[16];
  };
  struct I {
    int32_t at[16];
  };
  template <class V, class T, class Function>
  static V Each(T count, Function value) {
    V out;
    for (T i = 0; i < count; ++i) out.at[i] = value(i);
    return out;
  }
  template <class V, class P>
  static V Copy(const P* p) {
    V out;
    std::memcpy(out.at, p, sizeof out.at);
    return out;
  }
  static Bytes LoadBytes(const std::byte* p) { return Copy<Bytes>(p); }
  static void StoreBytes(std::byte* p, const Bytes& v) { std::memcpy(p, v.at, sizeof v.at); }
  static Bytes Spread(int8_t v) {
    return Each<Bytes>(64, [&](int) { return static_cast<uint8_t>(v); });
  }
  static Bytes FourTimes(const std::byte* p) {
    return Each<Bytes>(64, [&](int i) { return static_cast<uint8_t>(p[i / 4]); });
  }
  static Bytes LowNibbles(const Bytes& v) {
    return Each<Bytes>(64, [&](int i) { return static_cast<uint8_t>(v.at[i] & 15); });
  }
  static Bytes HighNibbles(const Bytes& v) {
    return Each<Bytes>(64, [&](int i) { return static_cast<uint8_t>(v.at[i] >> 4); });
  }
  static Bytes TimesFour(const Bytes& v) {
    return Each<Bytes>(64, [&](int i) { return static_cast<uint8_t>(v.at[i] * 4); });
  }
  static Bytes SubBytes(const Bytes& a, const Bytes& b) {
    return Each<Bytes>(64, [&](int i) { return static_cast<uint8_t>(a.at[i] - b.at[i]); });
  }
  static I LoadInt(const int32_t* p) { return Copy<I>(p); }
  static I AddInt(const I& a, const I& b) {
    return Each<I>(16, [&](int i) { return a.at[i] + b.at[i]; });
  }
  static I ShiftLeft8(const I& v) {
    return Each<I>(16, [&](int i) { return v.at[i] * 256; });
  }
  static F ToFloat(const I& v) {
    return Each<F>(16, [&](int i) { return static_cast<float>(v.at[i]); });
  }
  static F Set1(float v) {
    return Each<F>(16, [&](int) { return v; });
  }
  static F Load(const float* p) { return Copy<F>(p); }
  static void Store(float* p, const F& v) { std::memcpy(p, v.at, sizeof v.at); }
  static F Mul(const F& a, const F& b) {
    return Each<F>(16, [&](int i) { return a.at[i] * b.at[i]; });
  }
  static F MulAdd(const F& a, const F& b, const F& c) {
    return Each<F>(16, [&](int i) { return std::fma(a.at[i], b.at[i], c.at[i]); });
  }
};

}  // namespace tactus::compute::testing
