#include "compute/weights/quant/small_floats.h"

#include <cmath>

#include "compute/tensor/float8.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

const uint8_t* BytesOf(const TensorEntry& tensor) {
  return reinterpret_cast<const uint8_t*>(tensor.data);
}

// Rows that the kernels get in bf16.
class RoundedRows : public WeightRows {
 public:
  explicit RoundedRows(int64_t cols) : cols_(cols) {}
  void Stored(int64_t row, std::byte* out) const final {
    std::vector<float> values(static_cast<size_t>(cols_));
    Numbers(row, values.data());
    Quantize(DType::kBF16, values.data(), cols_, out);
  }

 protected:
  const int64_t cols_;
};

class Fp8Rows final : public RoundedRows {
 public:
  Fp8Rows(const TensorEntry& codes, const NumberGrid& scales)
      : RoundedRows(codes.shape[1]), codes_(BytesOf(codes)), scales_(scales) {}
  void Numbers(int64_t row, float* out) const override {
    for (int64_t c = 0; c < cols_; ++c) out[c] = E4M3ToF32(codes_[row * cols_ + c]) * scales_.At(row, c);
  }
  int64_t file_row_bytes() const override { return cols_; }
  E4M3Row E4M3(int64_t row) const override {
    if (scales_.cols_each < cols_) return {};
    return {codes_ + row * cols_, scales_.At(row, 0)};
  }

 private:
  const uint8_t* codes_;
  const NumberGrid scales_;
};

// Columns 2i and 2i + 1 of a row of e2m1.
float E2M1At(const uint8_t* row, int64_t col) {
  return E2M1ToF32(static_cast<uint32_t>(row[col / 2] >> (col % 2 * 4)) & 0xfu);
}

class Nvfp4Rows final : public RoundedRows {
 public:
  static constexpr int64_t kGroup = 16;
  Nvfp4Rows(const TensorEntry& codes, const TensorEntry& scales, float factor, bool divides)
      : RoundedRows(codes.shape[1] * 2),
        codes_(BytesOf(codes)),
        scales_(BytesOf(scales)),
        factor_(factor),
        divides_(divides) {}
  void Numbers(int64_t row, float* out) const override {
    const uint8_t* const codes = codes_ + row * cols_ / 2;
    for (int64_t c = 0; c < cols_; ++c) {
      const float stored = E4M3ToF32(scales_[(row * cols_ + c) / kGroup]);
      out[c] = E2M1At(codes, c) * (divides_ ? stored / factor_ : stored * factor_);
    }
  }
  int64_t file_row_bytes() const override { return cols_ / 2; }

 private:
  const uint8_t* const codes_;
  const uint8_t* const scales_;
  const float factor_;
  const bool divides_;
};

class Mxfp4Rows final : public WeightRows {
 public:
  static constexpr int64_t kGroup = 32, kBytes = kGroup / 2;
  Mxfp4Rows(const TensorEntry& codes, const TensorEntry& scales, int64_t cols)
      : codes_(BytesOf(codes)), scales_(BytesOf(scales)), cols_(cols) {}
  void Numbers(int64_t row, float* out) const override {
    const uint8_t* const codes = codes_ + row * cols_ / 2;
    for (int64_t c = 0; c < cols_; ++c) {
      out[c] = std::ldexp(E2M1At(codes, c), scales_[(row * cols_ + c) / kGroup] - 127);
    }
  }
  // GGUF puts the first half of 32 columns into the lower bits of its 16 bytes.
  void Stored(int64_t row, std::byte* out) const override {
    auto* to = reinterpret_cast<uint8_t*>(out);
    for (int64_t g = row * cols_ / kGroup; g < (row + 1) * cols_ / kGroup; ++g) {
      const uint8_t* const from = codes_ + g * kBytes;
      *to++ = scales_[g];
      for (int64_t i = 0; i < kBytes; ++i, ++to) {
        const int shift = i % 2 * 4;
        *to = static_cast<uint8_t>(((from[i / 2] >> shift) & 0xf) | ((from[kBytes / 2 + i / 2] >> shift) & 0xf) << 4);
      }
    }
  }
  int64_t file_row_bytes() const override { return cols_ / 2; }

 private:
  const uint8_t* const codes_;
  const uint8_t* const scales_;
  const int64_t cols_;
};

}  // namespace

MadeWeight MakeFp8(const TensorEntry& codes, const NumberGrid& scales) {
  return {codes.shape, DType::kBF16, &codes, std::make_shared<Fp8Rows>(codes, scales)};
}

Result<MadeWeight> MakeFp8Module(ModuleTensors& tensors, std::string_view scale_suffix, BlockSize block) {
  TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(".weight", {"f8_e4m3"}, {-1, -1}));
  TACTUS_ASSIGN_OR_RETURN(const NumberGrid scales,
                          GridOf(tensors, scale_suffix, codes->shape[0], codes->shape[1], block));
  return MakeFp8(*codes, scales);
}

Result<MadeWeight> MakeNvfp4(ModuleTensors& tensors, const Nvfp4& names) {
  TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const codes, tensors.Get(names.codes, {"u8"}, {-1, -1}));
  const int64_t rows = codes->shape[0], cols = codes->shape[1] * 2;
  if (cols % Nvfp4Rows::kGroup != 0) return tensors.Wrong(names.codes, *codes, "8 bytes for each group of 16 columns");
  TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const scales,
                          tensors.Get(names.scales, {"f8_e4m3"}, {rows, cols / Nvfp4Rows::kGroup}));
  TACTUS_ASSIGN_OR_RETURN(const NumberGrid factor, GridOf(tensors, names.factor, 1, 1, {}));
  return MadeWeight{
      {rows, cols}, DType::kBF16, codes, std::make_shared<Nvfp4Rows>(*codes, *scales, factor.At(0, 0), names.divides)};
}

Result<MadeWeight> MakeMxfp4(ModuleTensors& tensors, std::string_view codes_suffix, std::string_view scales_suffix) {
  const TensorEntry* const scales = tensors.Find(scales_suffix);
  if (scales == nullptr) return tensors.Get(scales_suffix, {"u8", "f8_e8m0"}, {-1, -1}).status();
  const bool bytes = scales->codes == CodeType::kU8 || scales->codes == CodeType::kF8E8M0;
  if (!bytes || scales->shape.size() < 2) {
    return tensors.Wrong(scales_suffix, *scales, "u8 or f8_e8m0, a power of two for each 32 columns of a row");
  }
  std::vector<int64_t> shape = scales->shape, blocks = scales->shape;
  blocks.push_back(Mxfp4Rows::kBytes);
  std::vector<int64_t> flat = scales->shape;
  flat.back() *= Mxfp4Rows::kBytes;
  shape.back() *= Mxfp4Rows::kGroup;
  const TensorEntry* const codes = tensors.Find(codes_suffix);
  if (codes == nullptr || codes->codes != CodeType::kU8 || (codes->shape != blocks && codes->shape != flat)) {
    return tensors.Get(codes_suffix, {"u8"}, blocks).status();
  }
  return MadeWeight{shape, DType::kMXFP4, codes, std::make_shared<Mxfp4Rows>(*codes, *scales, shape.back())};
}

}  // namespace tactus::compute
