// The head of a GGUF file to be written: metadata and the places of tensors. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/weights/gguf.h"

namespace tactus::compute {

class GgufHeader {
 public:
  void Text(std::string_view key, std::string_view value);
  void Uint32(std::string_view key, int64_t value);
  void Int32(std::string_view key, int64_t value);
  void Float32(std::string_view key, double value);
  void Bool(std::string_view key, bool value);
  void Texts(std::string_view key, std::span<const std::string> values);
  void Numbers(std::string_view key, std::span<const float> values);
  void Numbers(std::string_view key, std::span<const int32_t> values);
  void Flags(std::string_view key, const std::vector<bool>& values);
  void ByteList(std::string_view key, std::string_view bytes);
  void Copy(std::string_view key, const GgufValue& value);
  bool Has(std::string_view key) const { return keys_.contains(key); }

  // `shape` outermost first. Data follow one another in the order of the calls.
  void Tensor(std::string_view name, DType dtype, std::span<const int64_t> shape);

  // After all of these: the bytes before the data, and where each tensor's data begin in the file.
  std::string Bytes() const;
  std::vector<int64_t> Offsets() const;
  int64_t FileBytes() const;

 private:
  void Key(std::string_view key, GgufType type);
  void Array(std::string_view key, GgufType type, size_t count);

  std::set<std::string, std::less<>> keys_;
  std::string metadata_, tensors_;
  std::vector<int64_t> offsets_;  // in the data section
  int64_t data_bytes_ = 0;
};

}  // namespace tactus::compute
