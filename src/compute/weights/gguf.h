// Reads the header of a GGUF file, versions 2 and 3 (format: ggml's docs/gguf.md). Hostile input: every count, length,
// offset and product is checked against the file before use, and no number in the file sizes an allocation.
//
// Values stay in the mapping and are decoded on access. Immutable after parsing: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/weights/tensor_file.h"

namespace tactus::compute {

enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
const char* GgufTypeName(GgufType type);

// The number of a tensor's type in files. Precondition: not kInt8.
uint32_t GgmlTypeId(DType dtype);

struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // of an array
  uint64_t count = 1;                        // elements of an array
  std::span<const std::byte> payload;        // scalar bytes, a string's characters, or the array's elements as in the
                                             // file
};

struct GgufFile {
  std::string path;
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, TensorEntry, std::less<>> tensors;  // data points into the parsed bytes

  const GgufValue* Find(std::string_view key) const;
};

// `bytes` must outlive the result. `path` is used in messages.
Result<GgufFile> ParseGguf(std::span<const std::byte> bytes, const std::string& path);

// Reads metadata with the type that the reader expects. The first wrong type or missing key is kept in status(); later
// reads return their defaults, so callers need not check each read. Integers of any width convert; floats read as
// double.
class GgufFields {
 public:
  explicit GgufFields(const GgufFile& file) : file_(file) {}

  bool Has(std::string_view key) const { return file_.Find(key) != nullptr; }
  std::optional<int64_t> Int(std::string_view key);
  std::optional<double> Float(std::string_view key);
  std::optional<bool> Bool(std::string_view key);
  std::optional<std::string> String(std::string_view key);
  std::vector<std::string> Strings(std::string_view key);
  std::vector<double> Numbers(std::string_view key);  // array of any numeric type
  int64_t RequiredInt(std::string_view key);
  std::string RequiredString(std::string_view key);

  const Status& status() const { return status_; }
  void Fail(std::string_view key, const std::string& what);

 private:
  const GgufFile& file_;
  Status status_;
};

}  // namespace tactus::compute
