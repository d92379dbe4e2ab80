#include "compute/weights/quant/grouped_integers.h"

#include <cstring>

#include "base/printable.h"
#include "compute/tensor/load.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

constexpr int64_t kBlock = 32;  // columns of the block formats of rows

int64_t GroupAt(const GroupedIntegers& w, int64_t col) {
  return w.group_of != nullptr ? static_cast<int64_t>(Load32(w.group_of + 4 * col)) : col / w.group;
}

int64_t ScaleIndex(const GroupedIntegers& w, int64_t row, int64_t g) {
  if (w.one_scale) return 0;
  return w.transposed ? g * w.rows + row : row * w.groups() + g;
}

int32_t CodeAt(const GroupedIntegers& w, int64_t row, int64_t col) {
  return w.transposed ? w.codes.At(col, row) : w.codes.At(row, col);
}

class IntegerRows final : public WeightRows {
 public:
  IntegerRows(const GroupedIntegers& weight, DType dtype) : w_(weight), dtype_(dtype) {}

  void Numbers(int64_t row, float* out) const override {
    for (int64_t c = 0; c < w_.cols; ++c) {
      const int64_t g = GroupAt(w_, c);
      const auto steps = static_cast<float>(CodeAt(w_, row, c) - w_.ZeroAt(row, g));
      out[c] = steps * w_.scales.At(ScaleIndex(w_, row, g));
    }
  }

  void Stored(int64_t row, std::byte* out) const override {
    if (dtype_ == DType::kBF16) {
      std::vector<float> values(static_cast<size_t>(w_.cols));
      Numbers(row, values.data());
      return Quantize(dtype_, values.data(), w_.cols, out);
    }
    const int32_t bytes = InfoOf(dtype_).block_bytes;
    auto* to = reinterpret_cast<uint8_t*>(out);
    for (int64_t c = 0; c < w_.cols; c += kBlock, to += bytes) StoreBlock(row, c, to);
  }

  int64_t file_row_bytes() const override { return w_.transposed ? 0 : w_.codes.line_bytes; }
  int64_t scale_columns() const override { return dtype_ == DType::kBF16 ? 0 : w_.group; }

 private:
  // Columns [first, first + 32) as a block of the row's format.
  void StoreBlock(int64_t row, int64_t first, uint8_t* to) const {
    const int64_t g = first / w_.group, scale = ScaleIndex(w_, row, g);
    if (dtype_ == DType::kI8_ROW) {
      const float value = w_.scales.At(scale);
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    } else {
      const uint16_t half = w_.scales.HalfAt(scale);
      std::memcpy(to, &half, sizeof half);
      to += sizeof half;
    }
    if (dtype_ == DType::kU4_F16 || dtype_ == DType::kU4_BF16) *to++ = static_cast<uint8_t>(w_.ZeroAt(row, g));
    if (w_.bits == 8) {
      for (int64_t i = 0; i < kBlock; ++i) to[i] = static_cast<uint8_t>(CodeAt(w_, row, first + i) ^ 0x80);
      return;
    }
    for (int64_t i = 0; i < kBlock / 2; ++i) {
      const int32_t low = CodeAt(w_, row, first + i), high = CodeAt(w_, row, first + kBlock / 2 + i);
      to[i] = static_cast<uint8_t>(low | high << 4);
    }
  }

  const GroupedIntegers w_;
  const DType dtype_;
};

Status CheckZeros(const ModuleTensors& tensors, std::string_view suffix, GroupedIntegers* w) {
  const int32_t most = (1 << w->bits) - 1, middle = 1 << (w->bits - 1);
  bool all_middle = true;
  for (int64_t row = 0; row < w->rows; ++row) {
    for (int64_t g = 0; g < w->groups(); ++g) {
      const int32_t zero = w->ZeroAt(row, g);
      if (zero > most) {
        return DataLoss(tensors.file() + ": tensor '" + Printable(tensors.module()) + std::string(suffix) +
                        "' has the zero point " + std::to_string(zero) + " (row " + std::to_string(row) + ", group " +
                        std::to_string(g) + "); codes of " + std::to_string(w->bits) +
                        " bits have zero points from 0 to " + std::to_string(most));
      }
      all_middle = all_middle && zero == middle;
    }
  }
  if (!all_middle) return Status();
  w->zeros.reset();
  w->zero = middle;
  return Status();
}

}  // namespace

int32_t PackedIntegers::At(int64_t row, int64_t col) const {
  constexpr uint8_t kAwqOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
  const int64_t each = per_word();
  int64_t lane = order == kDown ? row % each : col % each;
  if (order == kAwq) lane = kAwqOrder[lane];
  const uint8_t* const word =
      order == kDown ? data + row / each * line_bytes + col * 4 : data + row * line_bytes + col / each * 4;
  const int64_t bit = lane * bits;
  return ((word[bit / 8] >> (bit % 8)) & ((1 << bits) - 1)) ^ flip;
}

PackedIntegers PackedOf(const TensorEntry& tensor, int32_t bits, PackedIntegers::Order order) {
  PackedIntegers packed;
  packed.data = reinterpret_cast<const uint8_t*>(tensor.data);
  packed.line_bytes = tensor.shape.back() * (tensor.codes == CodeType::kI32 ? 4 : 1);
  packed.bits = bits;
  packed.order = order;
  packed.flip = tensor.codes == CodeType::kI8 ? 0x80 : 0;
  return packed;
}

int32_t GroupedIntegers::ZeroAt(int64_t row, int64_t g) const {
  if (!zeros) return zero;
  return zero + (transposed ? zeros->At(g, row) : zeros->At(row, g));
}

int64_t GroupColumns(int64_t cols, int64_t count) {
  return count > 0 && cols > 0 && cols % count == 0 ? cols / count : 0;
}

Status CheckIntegers(const ModuleTensors& tensors, std::string_view zeros_suffix, std::string_view order_suffix,
                     GroupedIntegers* w) {
  if (w->zeros) TACTUS_RETURN_IF_ERROR(CheckZeros(tensors, zeros_suffix, w));
  if (w->group_of == nullptr) return Status();
  bool plain = true;
  for (int64_t c = 0; c < w->cols; ++c) {
    const auto g = static_cast<int32_t>(Load32(w->group_of + 4 * c));
    if (g < 0 || g >= w->groups()) {
      return DataLoss(tensors.file() + ": tensor '" + Printable(tensors.module()) + std::string(order_suffix) +
                      "' has the group " + std::to_string(g) + " for column " + std::to_string(c) +
                      "; the weight has " + std::to_string(w->groups()) + " groups");
    }
    plain = plain && g == c / w->group;
  }
  if (plain) w->group_of = nullptr;
  return Status();
}

DType RowFormat(const GroupedIntegers& w) {
  if (w.cols % kBlock != 0 || w.group % kBlock != 0 || w.group_of != nullptr) return DType::kBF16;
  if (w.bits == 8) {
    if (w.zeros || w.zero != 128) return DType::kBF16;
    if (w.one_scale || w.groups() == 1) return DType::kI8_ROW;
  }
  const DType scale = w.scales.dtype();
  if (scale == DType::kF32) return DType::kBF16;
  if (w.bits == 8) return scale == DType::kF16 ? DType::kQ8_0 : DType::kI8_BF16;
  if (w.zeros || w.zero != 8) return scale == DType::kF16 ? DType::kU4_F16 : DType::kU4_BF16;
  return scale == DType::kF16 ? DType::kQ4_0 : DType::kI4_BF16;
}

MadeWeight MakeIntegers(const TensorEntry& codes, const GroupedIntegers& weight) {
  const DType dtype = RowFormat(weight);
  return {{weight.rows, weight.cols}, dtype, &codes, std::make_shared<IntegerRows>(weight, dtype)};
}

}  // namespace tactus::compute
