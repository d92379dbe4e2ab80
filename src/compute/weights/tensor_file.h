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

struct TensorEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // outermost first: [out_features, in_features]
  const std::byte* data = nullptr;  // into the mapping; may be unaligned
  int64_t bytes = 0;
  std::string file;  // for messages
};

struct TensorSet {
  std::vector<std::shared_ptr<const MappedFile>> files;  // keep the entries' data alive
  std::map<std::string, TensorEntry, std::less<>> tensors;

  const TensorEntry* Find(std::string_view name) const;
  // For a model that also reads pictures: keeps the tensors of its text, under the names of a model of text.
  void KeepText();
};

// Elements of a shape, or -1 where the product (or a dimension) is not in [0, 2^62].
int64_t CheckedElements(std::span<const int64_t> shape);
// Bytes of a tensor whose rows run along its last dimension; -1: that dimension is not a whole number of blocks, or
// overflow.
int64_t CheckedTensorBytes(DType dtype, std::span<const int64_t> shape);
std::string ShapeText(std::span<const int64_t> shape);  // "[576, 1536]"
// Refuses overlapping byte ranges of one file and names both. `ranges` = (begin, end, name), any order.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  std::string_view name;
};
Status CheckNoOverlap(std::vector<ByteRange> ranges, const std::string& file);

}  // namespace tactus::compute
