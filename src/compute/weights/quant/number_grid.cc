#include "compute/weights/quant/number_grid.h"

#include "compute/tensor/float8.h"
#include "compute/tensor/load.h"

namespace tactus::compute {

Numbers::Numbers(const TensorEntry& tensor)
    : data_(reinterpret_cast<const uint8_t*>(tensor.data)),
      dtype_(tensor.dtype),
      e4m3_(tensor.codes == CodeType::kF8E4M3) {}

float Numbers::At(int64_t i) const {
  if (e4m3_) return E4M3ToF32(data_[i]);
  if (dtype_ == DType::kF32) return FloatOf(Load32(data_ + 4 * i));
  return dtype_ == DType::kF16 ? F16ToF32(HalfAt(i)) : BF16ToF32(HalfAt(i));
}

uint16_t Numbers::HalfAt(int64_t i) const {
  return Load16(data_ + 2 * i);
}

Result<NumberGrid> GridOf(ModuleTensors& tensors, std::string_view suffix, int64_t rows, int64_t cols,
                          BlockSize block) {
  const TensorEntry* t = tensors.Find(suffix);
  if (t == nullptr) return tensors.Get(suffix, {"f32", "f16", "bf16"}, {rows, -1}).status();
  if (t->codes != CodeType::kNone || t->bytes == 0) return tensors.Wrong(suffix, *t, "f32, f16 or bf16");
  const std::vector<int64_t>& shape = t->shape;
  const int64_t count = CheckedElements(shape), wide = shape.size() == 2 ? shape[1] : 1;
  NumberGrid grid;
  grid.numbers = Numbers(*t);
  const auto covered = [&grid](int64_t rows_each, int64_t cols_each, int64_t per_row) {
    grid.rows_each = rows_each;
    grid.cols_each = cols_each;
    grid.per_row = per_row;
    return grid;
  };
  if (block.rows > 0) {
    const std::vector<int64_t> blocks = {(rows + block.rows - 1) / block.rows, (cols + block.cols - 1) / block.cols};
    if (shape == blocks) return covered(block.rows, block.cols, blocks[1]);
    return tensors.Wrong(suffix, *t,
                         ShapeText(blocks) + ", a scale for each block of " + std::to_string(block.rows) + " x " +
                             std::to_string(block.cols) + " of " + ShapeText(std::vector<int64_t>{rows, cols}));
  }
  if (count == 1) return covered(rows, cols, 1);
  const bool by_row = (shape.size() == 1 || shape.size() == 2) && shape[0] == rows;
  if (by_row && wide > 0 && cols % wide == 0) return covered(1, cols / wide, wide);
  return tensors.Wrong(suffix, *t,
                       "one scale, [" + std::to_string(rows) + ", 1], or [" + std::to_string(rows) +
                           ", groups] with groups that divide " + std::to_string(cols) + " columns");
}

}  // namespace tactus::compute
