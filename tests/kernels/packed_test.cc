// Packed weights and tokens: what is in them, and the operators over them: every kernel set against ref (bit for bit where codes
// are integers), and the same bits whatever else is in the batch and however many threads work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/dequantize.h"
#include "kernels/kernel_testing.h"
#include "kernels/packed.h"

namespace tactus::kernels {
namespace {

using testing::kAllDTypes;
using testing::OwnedMatrix;
using testing::OwnedWorkspace;
using testing::RandomFloats;
using testing::RandomMatrix;
using testing::SameBits;

struct Aligned {
  explicit Aligned(int64_t bytes, std::byte fill = std::byte{0xa5}) : memory(static_cast<size_t>(bytes) + 64, fill) {}
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - at % 64) % 64;
  }
  std::vector<std::byte> memory;
};

struct OwnedPacked {
  OwnedPacked(const MatrixView& w, PackedMatrix f) : form(f), bytes(f.bytes()) {
    PackPanels(w, form, 0, form.panels(), bytes.data());
    form.data = bytes.data();
  }
  PackedMatrix form;
  Aligned bytes;
};

struct OwnedTokens {
  OwnedTokens(const TokenFormat& format, int64_t tokens, int64_t cols)
      : bytes(PackedTokenBytes(tokens, cols)), view(PlaceTokens(bytes.data(), format, tokens, cols)) {}
  Aligned bytes;
  PackedTokens view;
};

PackedMatrix FormOf(DType dtype, int64_t rows, int64_t cols) {
  PackedMatrix form;
  EXPECT_TRUE(PackedFormOf(dtype, rows, cols, &form));
  return form;
}

// Plain formats may have any width.
std::vector<int64_t> WidthsOf(DType dtype) {
  const int64_t block = InfoOf(dtype).block_elements;
  if (block == 1) return {1, 2, 7, 64, 129, 576};
  if (block == 32) return {32, 96, 160, 576};
  return {256, 1536};
}

TEST(PackedWeights, HoldEveryFormatExactly) {
  for (DType dtype : kAllDTypes) {
    for (int64_t cols : WidthsOf(dtype)) {
      for (int64_t rows : {1, 63, 64, 65, 130}) {
        const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 5);
        const OwnedPacked packed(w.view, FormOf(dtype, rows, cols));
        std::vector<float> want(static_cast<size_t>(cols)), got(static_cast<size_t>(cols));
        for (int64_t r = 0; r < rows; ++r) {
          const auto* from = static_cast<const std::byte*>(w.view.data) + r * w.view.row_bytes;
          Dequantize(dtype, from, cols, want.data());
          if (InfoOf(dtype).block_elements == 1) {
            for (float& v : want) v = BF16ToF32(F32ToBF16(v));
          }
          UnpackRow(packed.form, r, got.data());
          ASSERT_TRUE(SameBits(want.data(), got.data(), cols)) << InfoOf(dtype).name << " " << rows << " x " << cols << " row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
