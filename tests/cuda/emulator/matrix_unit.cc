#include "matrix_unit.h"

#include <algorithm>
#include <cmath>

#include "cuda/conformance/sum_model.h"

namespace tactus::compute::cuda::emulator {
namespace {

constexpr int kM = 16, kN = 8, kK = 16;

// One product's matrices: values, exponents (kNone for 0) and whether the fast path may take them.
constexpr int16_t kNone = -8192;

struct Format16 {
  int exponent_bits, mantissa_bits;
  conformance::Format format;
};
constexpr Format16 kOfBf16{8, 7, {8, 7}}, kOfF16{5, 10, {5, 10}};

struct Operand {
  float value;
  int16_t exponent;  // of the leading place; subnormal values have that of the least normal value
  bool finite;
};
Operand Decode(uint32_t bits, const Format16& f) {
  const uint32_t all = (1u << f.exponent_bits) - 1, field = (bits >> f.mantissa_bits) & all;
  const bool zero = (bits & 0x7fffu) == 0;
  const int exponent = static_cast<int>(std::max(field, 1u)) - static_cast<int>(all >> 1);
  return {f.mantissa_bits == 7 ? ToFloat(bf16{static_cast<uint16_t>(bits)}) : ToFloat(f16{static_cast<uint16_t>(bits)}),
          zero ? kNone : static_cast<int16_t>(exponent), field != all};
}

struct Tile {
  uint32_t a_bits[kM][kK], b_bits[kK][kN], c_bits[kM][kN];
  float a[kM][kK], b[kK][kN];
  int16_t a_exponent[kM][kK], b_exponent[kK][kN];
  bool plain = true;  // every value is finite
};

void Gather(const Warp& w, const Format16& f, Tile* t) {
  for (int lane = 0; lane < 32; ++lane) {
    const auto in = w.Brought<Fragments>(lane);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int part = 0; part < 2; ++part) {
      for (int r = 0; r < 4; ++r) {
        const int m = group + 8 * (r % 2), k = pair + part + 8 * (r / 2);
        const uint32_t bits = (in.a[r] >> (16 * part)) & 0xffffu;
        const Operand o = Decode(bits, f);
        t->a_bits[m][k] = bits;
        t->a[m][k] = o.value;
        t->a_exponent[m][k] = o.exponent;
        t->plain = t->plain && o.finite;
      }
      for (int r = 0; r < 2; ++r) {
        const int k = pair + part + 8 * r;
        const uint32_t bits = (in.b[r] >> (16 * part)) & 0xffffu;
        const Operand o = Decode(bits, f);
        t->b_bits[k][group] = bits;
        t->b[k][group] = o.value;
        t->b_exponent[k][group] = o.exponent;
        t->plain = t->plain && o.finite;
      }
    }
    for (int r = 0; r < 4; ++r) t->c_bits[group + 8 * (r / 2)][pair + r % 2] = in.c[r];
  }
}

uint32_t SlowSum(const Tile& t, const Format16& f, int m, int n) {
  const conformance::SumRule rule{f.format, f.format, conformance::kF32};
  uint32_t column[kK];
  for (int k = 0; k < kK; ++k) column[k] = t.b_bits[k][n];
  return conformance::SumOf(rule, t.a_bits[m], column, kK, t.c_bits[m][n]);
}

// A row of sums, exactly as SumOf: terms are cut 25 places below the leading place of the largest, added exactly, and
// the sum is cut to f32. Products of factors of 8 or 11 digits are exact in f32, and so is their scaling by a power of
// 2 unless the result is too small to matter. Cut terms are below 2^27, so eight of them fit int32.
void FastRow(const Tile& t, const Format16& f, int m, uint32_t* sums) {
  int16_t greatest[kN];
  float c[kN];
  for (int n = 0; n < kN; ++n) {
    const uint32_t field = (t.c_bits[m][n] >> 23) & 255u;
    const bool zero = (t.c_bits[m][n] & 0x7fffffffu) == 0;
    greatest[n] =
        zero ? static_cast<int16_t>(2 * kNone) : static_cast<int16_t>(std::max(static_cast<int>(field), 1) - 127);
    c[n] = std::bit_cast<float>(t.c_bits[m][n]);
  }
  for (int k = 0; k < kK; ++k) {
    const int16_t a = t.a_exponent[m][k];
    for (int n = 0; n < kN; ++n) {
      const int16_t sum = static_cast<int16_t>(a + t.b_exponent[k][n]);
      greatest[n] = std::max(greatest[n], sum);
    }
  }
  float scale[kN], unit[kN];
  bool slow = false;
  for (int n = 0; n < kN; ++n) {
    // No term may overflow, and one that is subnormal must be too small to matter.
    const bool zero = greatest[n] < kNone / 2;  // all terms are
    slow = slow || (!zero && (greatest[n] > 100 || greatest[n] < -60 || ((t.c_bits[m][n] >> 23) & 255u) == 255u));
    const int exponent = zero ? 0 : 25 - std::clamp<int>(greatest[n], -60, 100);
    scale[n] = std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
    unit[n] = std::bit_cast<float>(static_cast<uint32_t>(127 - exponent) << 23);
  }
  if (slow) {
    for (int n = 0; n < kN; ++n) sums[n] = SlowSum(t, f, m, n);
    return;
  }
  int64_t total[kN];
  for (int n = 0; n < kN; ++n) total[n] = static_cast<int32_t>(c[n] * scale[n]);
  for (int half = 0; half < 2; ++half) {
    int32_t part[kN] = {};
    for (int k = 8 * half; k < 8 * half + 8; ++k) {
      const float a = t.a[m][k];
      for (int n = 0; n < kN; ++n) {
        const float term = a * t.b[k][n] * scale[n];
        part[n] += static_cast<int32_t>(term);
      }
    }
    for (int n = 0; n < kN; ++n) total[n] += part[n];
  }
  for (int n = 0; n < kN; ++n) {
    // The sum has fewer than 53 digits. Its f32 is normal or 0: a sum that is not 0 is at least 2^(greatest - 25).
    const uint64_t digits = std::bit_cast<uint64_t>(static_cast<double>(total[n])) & ~((uint64_t{1} << 29) - 1);
    const double cut = std::bit_cast<double>(digits);
    sums[n] = std::bit_cast<uint32_t>(static_cast<float>(cut * static_cast<double>(unit[n])));
  }
}

void Multiply(Warp& w, const Format16& f) {
  Tile t;
  Gather(w, f, &t);
  uint32_t sums[kM][kN];
  for (int m = 0; m < kM; ++m) {
    if (t.plain) {
      FastRow(t, f, m, sums[m]);
    } else {
      for (int n = 0; n < kN; ++n) sums[m][n] = SlowSum(t, f, m, n);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    w.Give(lane,
           Accumulator{{sums[group][pair], sums[group][pair + 1], sums[group + 8][pair], sums[group + 8][pair + 1]}});
  }
}

}  // namespace

Row16 ReadRow(const void* row, const Where& where) {
  Block& b = *current->block;
  const int64_t offset = static_cast<const char*>(row) - b.shared();
  if (offset < 0 || offset + 16 > b.shared_used()) {
    ReportSharedBounds(false, offset, b.shared_used(), where);
    return Row16{};
  }
  if (offset % 16 != 0) ReportAlignment(16, where);
  b.shadow().Read<16>(offset, current->moment, 0, where, "shared memory");
  Row16 read;
  std::memcpy(read.bytes, row, sizeof read.bytes);
  return read;
}

void LoadMatrices(Warp& w, int matrices, bool transposed) {
  uint16_t values[4][8][8];  // [matrix][row][column]
  for (int lane = 0; lane < 8 * matrices; ++lane) {
    const auto row = w.Brought<Row16>(lane);
    std::memcpy(values[lane / 8][lane % 8], row.bytes, sizeof row.bytes);
  }
  for (int lane = 0; lane < 32; ++lane) {
    Registers out{};
    const int a = lane / 4, b = lane % 4 * 2;
    for (int m = 0; m < matrices; ++m) {
      const uint32_t low = transposed ? values[m][b][a] : values[m][a][b];
      const uint32_t high = transposed ? values[m][b + 1][a] : values[m][a][b + 1];
      out.r[m] = low | high << 16;
    }
    w.Give(lane, out);
  }
}

void MultiplyBf16(Warp& w) {
  Multiply(w, kOfBf16);
}
void MultiplyF16(Warp& w) {
  Multiply(w, kOfF16);
}

void MultiplyInt8(Warp& w) {
  constexpr int kDepth = 32;
  int8_t a[kM][kDepth], b[kN][kDepth];
  for (int lane = 0; lane < 32; ++lane) {
    const auto in = w.Brought<Fragments>(lane);
    const int group = lane / 4, first = lane % 4 * 4;
    for (int r = 0; r < 4; ++r) std::memcpy(&a[group + 8 * (r % 2)][first + 16 * (r / 2)], &in.a[r], 4);
    for (int r = 0; r < 2; ++r) std::memcpy(&b[group][first + 16 * r], &in.b[r], 4);
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    Accumulator out{};
    const auto in = w.Brought<Fragments>(lane);
    for (int r = 0; r < 4; ++r) {
      int32_t sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += a[group + 8 * (r / 2)][k] * b[pair + r % 2][k];
      out.c[r] = in.c[r] + static_cast<uint32_t>(sum);  // wraps
    }
    w.Give(lane, out);
  }
}

void IssueCopy(void* to, const char* from, const Where& where) {
  Thread& t = *current;
  Block& b = *t.block;
  const int64_t offset = static_cast<char*>(to) - b.shared();
  if (offset < 0 || offset + 16 > b.shared_used()) return ReportSharedBounds(true, offset, b.shared_used(), where);
  if (offset % 16 != 0) return ReportAlignment(16, where);
  b.shadow().Issue(offset, t.moment, where);
  std::memset(to, 0xff, 16);
  t.copies.push_back({static_cast<char*>(to), from, t.group, where});
}

void WaitForCopies(int groups_left) {
  Thread& t = *current;
  size_t landed = 0;
  for (; landed < t.copies.size() && t.copies[landed].group < t.group - groups_left; ++landed) {
    const AsyncCopy& copy = t.copies[landed];
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, 16);
    } else {
      std::memcpy(copy.to, copy.from, 16);
    }
    t.block->shadow().Land(copy.to - t.block->shared(), t.moment);
  }
  t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

}  // namespace tactus::compute::cuda::emulator
