// Every layout of integer codes that compute/kernels/packed/packed.h allows, with random bytes.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "compute/kernels/packed_testing.h"

namespace tactus::compute::testing {

// A layout of integer codes, whether or not any packer uses it.
struct Layout {
  PackedCode code = PackedCode::kU8;
  int32_t zero = 0, block = 32;
  bool minimum = false, zeros = false, nested = false, bf16 = false;
  float unit = 1;

  std::string name() const {
    return std::string(code == PackedCode::kU4 ? "4 bits" : "8 bits") + (minimum ? " with minima" : "") +
           (zeros ? " with zero points" : "") + (nested ? ", nested" : "") + (bf16 ? ", bf16 scales" : "") + ", unit " +
           std::to_string(unit) + ", zero " + std::to_string(zero) + ", block " + std::to_string(block);
  }
  // For layouts of whole token blocks, cols is rounded up to them.
  PackedMatrix at(int64_t rows, int64_t cols) const {
    if (nested) cols = PackedTokens::PaddedCols(cols);
    PackedMatrix m = {.code = code,
                      .has_minimum = minimum,
                      .has_zeros = zeros,
                      .nested_scales = nested,
                      .bf16_scales = bf16,
                      .zero = zero,
                      .block = block,
                      .scale_unit = unit,
                      .rows = rows,
                      .cols = cols};
    m.panel_bytes = block > 0 ? m.blocks() * m.block_bytes() : (PackedTokens::PaddedCols(cols) + 4) * kPanelRows;
    return m;
  }
};

// All layouts that compute/kernels/packed/packed.h allows.
inline std::vector<Layout> AllLayouts() {
  std::vector<Layout> layouts = {{PackedCode::kU8, 128, 0}};
  for (const int32_t block : {16, 32, 64, 128}) {
    for (const bool nested : {false, true}) {
      if (nested && block > 32) continue;
      for (const int32_t zero : {16, 32, 128}) layouts.push_back({PackedCode::kU8, zero, block, false, false, nested});
      layouts.push_back({PackedCode::kU8, 0, block, true, false, nested});
      layouts.push_back({PackedCode::kU4, 8, block, false, false, nested});
      layouts.push_back({PackedCode::kU4, 0, block, true, false, nested});
    }
    layouts.push_back({PackedCode::kU4, 0, block, false, true, false});
    layouts.push_back({PackedCode::kU4, 0, block, false, true, false, block >= 64, 0.25f});
  }
  for (const int32_t zero : {16, 128}) {
    const int32_t block = zero == 16 ? 32 : 16;
    layouts.push_back({.zero = zero, .block = block, .nested = true, .unit = 0.125f});
    layouts.push_back({.zero = zero, .block = block, .bf16 = true});
  }
  layouts.push_back({.code = PackedCode::kU4, .zero = 8, .block = 32, .bf16 = true});
  return layouts;
}

enum class Fill : uint8_t {
  kRandom,
  kExtreme,  // rows of the lowest codes, of the highest, alternating, random; zero points alternating between 60 and 0
};

// A matrix in a layout. Codes beyond its columns are random: they must have no effect.
struct LaidOut {
  LaidOut(const Layout& layout, int64_t rows, int64_t cols, Fill fill, uint64_t seed)
      : form(layout.at(rows, cols)), bytes(form.bytes()), rng(seed) {
    const int64_t blocks = form.block > 0 ? form.blocks() : 1;
    const int64_t codes = form.block > 0 ? form.code_bytes() : form.panel_bytes - kPanelRows * 4;
    for (int64_t i = 0; i < form.panels() * blocks; ++i) {
      std::byte* at = bytes.data() + i * (form.panel_bytes / blocks);
      FillCodes(fill, codes, at);
      FillTail(fill, i / blocks * kPanelRows, at + codes);
    }
    form.data = bytes.data();
  }
  LaidOut(const LaidOut&) = delete;
  LaidOut& operator=(const LaidOut&) = delete;

  int32_t most_code() const { return form.code == PackedCode::kU4 ? 15 : form.has_minimum ? 31 : 2 * form.zero - 1; }

  void FillCodes(Fill fill, int64_t count, std::byte* to) {
    const bool nibbles = form.code == PackedCode::kU4;
    for (int64_t i = 0; i < count; ++i) {
      int32_t code[2];
      for (int32_t& c : code) {
        const auto any = static_cast<int32_t>(rng.Next64() % static_cast<uint64_t>(most_code() + 1));
        const int32_t choices[] = {0, most_code(), i % 2 == 0 ? most_code() : 0, any};
        c = fill == Fill::kRandom ? any : choices[i / 4 % 4];
      }
      to[i] = static_cast<std::byte>(nibbles ? code[0] | code[1] << 4 : code[0]);
    }
  }

  void FillTail(Fill fill, int64_t first_row, std::byte* to) {
    const int64_t parts = form.has_minimum ? 2 : 1;
    if (form.nested_scales) {
      for (int64_t i = 0; i < parts * kPanelRows; ++i) {
        const auto any = static_cast<int32_t>(rng.Next64() % 256) - 128;
        to[i] = static_cast<std::byte>(first_row + i % kPanelRows < form.rows ? any : 0);
      }
      to += parts * kPanelRows;
    }
    for (int64_t i = 0; i < (form.nested_scales ? kPanelRows / 2 : parts * kPanelRows); ++i) {
      const int64_t numerator = static_cast<int64_t>(rng.Next64() % 2001) - 1000;
      const bool row = form.nested_scales || first_row + i % kPanelRows < form.rows;
      const float value = row ? static_cast<float>(numerator) / 1024 : 0.0f;
      const uint16_t half = form.bf16_scales ? compute::F32ToBF16(value) : compute::F32ToF16(value);
      if (form.block == 0) {
        std::memcpy(to, &value, sizeof value);
      } else {
        std::memcpy(to, &half, sizeof half);
      }
      to += form.block == 0 ? 4 : 2;
    }
    for (int64_t i = 0; i < (form.has_zeros ? kPanelRows : 0); ++i) {
      const int64_t any = static_cast<int64_t>(rng.Next64() % 61);
      to[i] = static_cast<std::byte>(fill == Fill::kRandom ? any : i % 2 == 0 ? 60 : 0);
    }
  }

  PackedMatrix form;
  Aligned bytes;
  Rng rng;
};

}  // namespace tactus::compute::testing
