#include "compute/convert/gguf_header.h"

#include <cstring>

namespace tactus::compute {
namespace {

constexpr int64_t kAlignment = 32;  // what readers assume where a file states none
constexpr uint32_t kMagic = 0x46554747, kVersion = 3;

template <class T>
void AppendValue(std::string* out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out->append(raw, sizeof(T));
}

void AppendText(std::string* out, std::string_view text) {
  AppendValue<uint64_t>(out, text.size());
  *out += text;
}

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void GgufHeader::Key(std::string_view key, GgufType type) {
  keys_.emplace(key);
  AppendText(&metadata_, key);
  AppendValue(&metadata_, static_cast<uint32_t>(type));
}

void GgufHeader::Array(std::string_view key, GgufType type, size_t count) {
  Key(key, GgufType::kArray);
  AppendValue(&metadata_, static_cast<uint32_t>(type));
  AppendValue<uint64_t>(&metadata_, count);
}

void GgufHeader::Text(std::string_view key, std::string_view value) {
  Key(key, GgufType::kString);
  AppendText(&metadata_, value);
}

void GgufHeader::Uint32(std::string_view key, int64_t value) {
  Key(key, GgufType::kUint32);
  AppendValue(&metadata_, static_cast<uint32_t>(value));
}

void GgufHeader::Int32(std::string_view key, int64_t value) {
  Key(key, GgufType::kInt32);
  AppendValue(&metadata_, static_cast<int32_t>(value));
}

void GgufHeader::Float32(std::string_view key, double value) {
  Key(key, GgufType::kFloat32);
  AppendValue(&metadata_, static_cast<float>(value));
}

void GgufHeader::Bool(std::string_view key, bool value) {
  Key(key, GgufType::kBool);
  AppendValue<uint8_t>(&metadata_, value ? 1 : 0);
}

void GgufHeader::Texts(std::string_view key, std::span<const std::string> values) {
  Array(key, GgufType::kString, values.size());
  for (const std::string& value : values) AppendText(&metadata_, value);
}

void GgufHeader::Numbers(std::string_view key, std::span<const float> values) {
  Array(key, GgufType::kFloat32, values.size());
  for (const float value : values) AppendValue(&metadata_, value);
}

void GgufHeader::Numbers(std::string_view key, std::span<const int32_t> values) {
  Array(key, GgufType::kInt32, values.size());
  for (const int32_t value : values) AppendValue(&metadata_, value);
}

void GgufHeader::Flags(std::string_view key, const std::vector<bool>& values) {
  Array(key, GgufType::kBool, values.size());
  for (const bool value : values) AppendValue<uint8_t>(&metadata_, value ? 1 : 0);
}

void GgufHeader::ByteList(std::string_view key, std::string_view bytes) {
  Array(key, GgufType::kUint8, bytes.size());
  metadata_ += bytes;
}

void GgufHeader::Copy(std::string_view key, const GgufValue& value) {
  const std::string_view payload(reinterpret_cast<const char*>(value.payload.data()), value.payload.size());
  if (value.type == GgufType::kString) return Text(key, payload);
  if (value.type == GgufType::kArray) {
    Array(key, value.element_type, value.count);
  } else {
    Key(key, value.type);
  }
  metadata_ += payload;
}

void GgufHeader::Tensor(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  AppendText(&tensors_, name);
  AppendValue(&tensors_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i-- > 0;) AppendValue<uint64_t>(&tensors_, static_cast<uint64_t>(shape[i]));
  AppendValue(&tensors_, GgmlTypeId(dtype));
  AppendValue(&tensors_, static_cast<uint64_t>(data_bytes_));
  offsets_.push_back(data_bytes_);
  data_bytes_ += Aligned(CheckedTensorBytes(dtype, shape));
}

std::string GgufHeader::Bytes() const {
  std::string out;
  AppendValue(&out, kMagic);
  AppendValue(&out, kVersion);
  AppendValue<uint64_t>(&out, offsets_.size());
  AppendValue<uint64_t>(&out, keys_.size());
  out += metadata_;
  out += tensors_;
  out.resize(static_cast<size_t>(Aligned(static_cast<int64_t>(out.size()))));
  return out;
}

std::vector<int64_t> GgufHeader::Offsets() const {
  const auto begin = static_cast<int64_t>(Bytes().size());
  std::vector<int64_t> offsets = offsets_;
  for (int64_t& offset : offsets) offset += begin;
  return offsets;
}

int64_t GgufHeader::FileBytes() const {
  return static_cast<int64_t>(Bytes().size()) + data_bytes_;
}

}  // namespace tactus::compute
