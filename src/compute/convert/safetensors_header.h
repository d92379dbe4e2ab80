// Heads of safetensors files to be written, and how tensors are divided among files. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compute/tensor/dtype.h"

namespace tactus::compute {

struct SafetensorsEntry {
  std::string name;
  const char* type = "F32";  // as such files name it
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// The type of elements of kF32, kF16 or kBF16.
const char* SafetensorsType(DType dtype);

// One file; tensors follow one another behind the head.
struct SafetensorsFile {
  std::string name;  // "model.safetensors", "model-00001-of-00003.safetensors"
  std::string head;
  std::vector<size_t> tensors;  // indices of the entries
};

// Files of at most `most_bytes` of data, or with a single tensor.
std::vector<SafetensorsFile> DivideIntoFiles(std::span<const SafetensorsEntry> entries, int64_t most_bytes);
// model.safetensors.index.json of several files.
std::string IndexText(std::span<const SafetensorsEntry> entries, std::span<const SafetensorsFile> files);

}  // namespace tactus::compute
