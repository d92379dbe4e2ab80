// The tensors of a set of weight files, in any format: name, dtype, shape and bytes in the mapping. Both readers
// (gguf.h, safetensors.h) produce this; all of it has been checked against the files' sizes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/tensor/dtype.h"
#include "compute/weights/mapped_file.h"

namespace tactus::compute {

// Elements that are weights only together with other tensors (compute/weights/quant/quantization.h).
enum class CodeType : uint8_t { kNone, kF8E4M3, kF8E8M0, kI8, kU8, kI32, kI64 };

// A row of codes in e4m3 with one scale: value = scale * code. Null codes: the row is stored in another form.
struct E4M3Row {
  const uint8_t* codes = nullptr;
  float scale = 0.0f;
};

// The rows of a weight that several tensors of a file make up. Any thread.
class WeightRows {
 public:
  virtual ~WeightRows() = default;
  // Row `row` of the weight, counted over all its leading dimensions, in f32.
  virtual void Numbers(int64_t row, float* out) const = 0;
  // The same row in the entry's dtype.
  virtual void Stored(int64_t row, std::byte* out) const = 0;
  // Bytes of the file for a row, where rows follow one another from the entry's data on; 0: they do not.
  virtual int64_t file_row_bytes() const { return 0; }
  // Columns of a row that share a scale, where they are more than the entry's blocks have; 0: a block.
  virtual int64_t scale_columns() const { return 0; }
  // The same row as the file's codes in e4m3. All rows of a weight have such a form, or none.
  virtual E4M3Row E4M3(int64_t /*row*/) const { return {}; }
};

struct TensorEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // outermost first: [out_features, in_features]
  const std::byte* data = nullptr;  // into the mapping; may be unaligned
  int64_t bytes = 0;
  std::string file;                        // for messages
  CodeType codes = CodeType::kNone;        // else `dtype` has no meaning
  std::shared_ptr<const WeightRows> rows;  // of a weight made of several tensors; null: `data` are its rows
};

struct TensorSet {
  std::vector<std::shared_ptr<const MappedFile>> files;  // keep the entries' data alive
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::string quantization;  // QuantizationText of the weights; empty: none

  const TensorEntry* Find(std::string_view name) const;
  // For a model that also reads pictures: keeps the tensors of its text, under the names of a model of text.
  void KeepText();
};

const char* ElementName(const TensorEntry& tensor);  // "bf16", "i32"

// Elements of a shape, or -1 where the product (or a dimension) is not in [0, 2^62].
int64_t CheckedElements(std::span<const int64_t> shape);
// Bytes of a tensor whose rows run along its last dimension; -1: that dimension is not a whole number of blocks, or
// overflow.
int64_t CheckedTensorBytes(DType dtype, std::span<const int64_t> shape);
int64_t CheckedTensorBytes(CodeType codes, std::span<const int64_t> shape);
std::string ShapeText(std::span<const int64_t> shape);  // "[576, 1536]"
// Refuses overlapping byte ranges of one file and names both. `ranges` = (begin, end, name), any order.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  std::string_view name;
};
Status CheckNoOverlap(std::vector<ByteRange> ranges, const std::string& file);

}  // namespace tactus::compute
