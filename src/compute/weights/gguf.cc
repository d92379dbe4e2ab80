#include "compute/weights/gguf.h"

#include "base/check.h"
#include "base/printable.h"

#include <cmath>
#include <cstring>

namespace tactus::compute {
namespace {

constexpr uint64_t kMaxEntries = 1 << 20;  // metadata keys, tensors: far above any model, far below memory exhaustion
constexpr uint64_t kMaxKeyBytes = 65535;   // gguf.md
constexpr uint64_t kMaxTensorNameBytes = 1024;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;

size_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// ggml's type numbers. A type without a DType has only a name, for error messages.
struct GgmlType {
  uint32_t id;
  std::optional<DType> dtype;
  const char* other = nullptr;

  const char* name() const { return dtype ? InfoOf(*dtype).name : other; }
};
constexpr GgmlType kGgmlTypes[] = {
    {0, DType::kF32},    {1, DType::kF16},      {30, DType::kBF16},  {8, DType::kQ8_0},    {2, DType::kQ4_0},
    {3, DType::kQ4_1},   {6, DType::kQ5_0},     {7, DType::kQ5_1},   {10, DType::kQ2_K},   {11, DType::kQ3_K},
    {12, DType::kQ4_K},  {13, DType::kQ5_K},    {14, DType::kQ6_K},  {20, DType::kIQ4_NL}, {23, DType::kIQ4_XS},
    {21, DType::kIQ3_S}, {18, DType::kIQ3_XXS}, {22, DType::kIQ2_S}, {17, DType::kIQ2_XS}, {16, DType::kIQ2_XXS},
    {29, DType::kIQ1_M}, {19, DType::kIQ1_S},   {39, DType::kMXFP4}, {40, DType::kNVFP4},  {34, DType::kTQ1_0},
    {35, DType::kTQ2_0}, {41, DType::kQ1_0},    {9, {}, "q8_1"},     {15, {}, "q8_k"},     {24, {}, "i8"},
    {25, {}, "i16"},     {26, {}, "i32"},       {27, {}, "i64"},     {28, {}, "f64"},
};

GgmlType GgmlTypeOf(uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return type;
  }
  return {id, {}};
}

std::string SupportedTypes() {
  std::string names;
  for (const GgmlType& type : kGgmlTypes) {
    if (type.dtype) names += (names.empty() ? "" : ", ") + std::string(type.name());
  }
  return names;
}

// A cursor that cannot leave its bytes. A read beyond them returns an error with the expected item and its place.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint64_t offset() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  Status Error(const std::string& what) const {
    return DataLoss(path_ + ": " + what + " (at byte " + std::to_string(at_) + " of " + std::to_string(bytes_.size()) +
                    ")");
  }

  template <class T>
  Status Read(T* value, const char* what) {
    if (left() < sizeof(T)) return Error(std::string("the file ends inside ") + what);
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return Status();
  }

  Status Take(uint64_t size, const char* what, std::span<const std::byte>* out) {
    if (size > left()) {
      return Error(std::string(what) + " claims " + std::to_string(size) + " bytes, " + std::to_string(left()) +
                   " are left");
    }
    *out = bytes_.subspan(at_, size);
    at_ += size;
    return Status();
  }

  Status String(uint64_t limit, const char* what, std::string_view* out) {
    uint64_t length = 0;
    TACTUS_RETURN_IF_ERROR(Read(&length, what));
    if (length > limit) {
      return Error(std::string(what) + " claims " + std::to_string(length) + " bytes; the limit is " +
                   std::to_string(limit));
    }
    std::span<const std::byte> text;
    TACTUS_RETURN_IF_ERROR(Take(length, what, &text));
    *out = {reinterpret_cast<const char*>(text.data()), text.size()};
    return Status();
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t at_ = 0;
};

Status ReadType(Cursor& in, const char* what, GgufType* type) {
  uint32_t id = 0;
  TACTUS_RETURN_IF_ERROR(in.Read(&id, what));
  if (id > static_cast<uint32_t>(GgufType::kFloat64)) {
    return in.Error(std::string(what) + " " + std::to_string(id) + " is not a GGUF type (0 to 12)");
  }
  *type = static_cast<GgufType>(id);
  return Status();
}

Status CheckBools(Cursor& in, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) {
    if (b > std::byte{1}) return in.Error("a bool is " + std::to_string(static_cast<int>(b)) + ", not 0 or 1");
  }
  return Status();
}

// Walks an array's elements, so that stored arrays have been checked to the last byte.
Status SkipArray(Cursor& in, GgufType element_type, uint64_t count, int depth) {
  const size_t scalar = ScalarBytes(element_type);
  std::span<const std::byte> bytes;
  if (scalar > 0) {
    if (count > in.left() / scalar) {
      return in.Error("an array claims " + std::to_string(count) + " elements of " + std::to_string(scalar) +
                      " bytes, " + std::to_string(in.left()) + " bytes are left");
    }
    TACTUS_RETURN_IF_ERROR(in.Take(count * scalar, "an array", &bytes));
    return element_type == GgufType::kBool ? CheckBools(in, bytes) : Status();
  }
  constexpr uint64_t kMinElement = 8;  // a string's length, an array's type and count
  if (count > in.left() / kMinElement) {
    return in.Error("an array claims " + std::to_string(count) + " elements, only " + std::to_string(in.left()) +
                    " bytes are left");
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (element_type == GgufType::kString) {
      std::string_view text;
      TACTUS_RETURN_IF_ERROR(in.String(in.left(), "a string in an array", &text));
      continue;
    }
    if (depth >= kMaxArrayDepth) return in.Error("arrays nest deeper than " + std::to_string(kMaxArrayDepth));
    GgufType inner;
    uint64_t inner_count = 0;
    TACTUS_RETURN_IF_ERROR(ReadType(in, "the element type of an array", &inner));
    TACTUS_RETURN_IF_ERROR(in.Read(&inner_count, "the length of an array"));
    TACTUS_RETURN_IF_ERROR(SkipArray(in, inner, inner_count, depth + 1));
  }
  return Status();
}

Status ReadValue(Cursor& in, std::span<const std::byte> file, GgufValue* value) {
  TACTUS_RETURN_IF_ERROR(ReadType(in, "a metadata type", &value->type));
  if (value->type == GgufType::kString) {
    std::string_view text;
    TACTUS_RETURN_IF_ERROR(in.String(in.left(), "a metadata string", &text));
    value->payload = std::as_bytes(std::span(text.data(), text.size()));
    return Status();
  }
  if (value->type == GgufType::kArray) {
    TACTUS_RETURN_IF_ERROR(ReadType(in, "the element type of an array", &value->element_type));
    TACTUS_RETURN_IF_ERROR(in.Read(&value->count, "the length of an array"));
    const uint64_t begin = in.offset();
    TACTUS_RETURN_IF_ERROR(SkipArray(in, value->element_type, value->count, 1));
    value->payload = file.subspan(begin, in.offset() - begin);
    return Status();
  }
  TACTUS_RETURN_IF_ERROR(in.Take(ScalarBytes(value->type), "a metadata value", &value->payload));
  return value->type == GgufType::kBool ? CheckBools(in, value->payload) : Status();
}

Status ReadMetadata(Cursor& in, std::span<const std::byte> bytes, uint64_t count, GgufFile* file) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    TACTUS_RETURN_IF_ERROR(in.String(kMaxKeyBytes, "a metadata key", &key));
    GgufValue value;
    TACTUS_RETURN_IF_ERROR(ReadValue(in, bytes, &value));
    if (!file->metadata.emplace(std::string(key), value).second) {
      return in.Error("metadata key '" + Printable(key) + "' occurs twice");
    }
  }
  return Status();
}

struct PendingTensor {
  std::string_view name;
  TensorEntry entry;
  uint64_t offset = 0;
};

Status ReadTensorInfo(Cursor& in, PendingTensor* tensor) {
  TACTUS_RETURN_IF_ERROR(in.String(kMaxTensorNameBytes, "a tensor name", &tensor->name));
  const std::string quoted = "tensor '" + Printable(tensor->name) + "'";
  uint32_t dims = 0;
  TACTUS_RETURN_IF_ERROR(in.Read(&dims, "a tensor's number of dimensions"));
  if (dims < 1 || dims > 4)
    return in.Error(quoted + " has " + std::to_string(dims) + " dimensions; 1 to 4 are possible");
  tensor->entry.shape.resize(dims);
  for (uint32_t i = 0; i < dims; ++i) {  // the file lists the contiguous dimension first
    uint64_t dim = 0;
    TACTUS_RETURN_IF_ERROR(in.Read(&dim, "a tensor's dimensions"));
    if (dim == 0 || dim > (uint64_t{1} << 40)) {
      return in.Error(quoted + " has a dimension of " + std::to_string(dim) + "; 1 to 2^40 are possible");
    }
    tensor->entry.shape[dims - 1 - i] = static_cast<int64_t>(dim);
  }
  uint32_t type_id = 0;
  TACTUS_RETURN_IF_ERROR(in.Read(&type_id, "a tensor's type"));
  TACTUS_RETURN_IF_ERROR(in.Read(&tensor->offset, "a tensor's offset"));
  const GgmlType type = GgmlTypeOf(type_id);
  if (!type.dtype) {
    const std::string name = type.other != nullptr ? type.other : "number " + std::to_string(type_id);
    return Unimplemented(in.Error(quoted + " has type " + name + "; supported are " + SupportedTypes()).message());
  }
  tensor->entry.dtype = *type.dtype;
  tensor->entry.bytes = CheckedTensorBytes(*type.dtype, tensor->entry.shape);
  if (tensor->entry.bytes < 0) {
    return in.Error(quoted + " of type " + type.name() + " has shape " + ShapeText(tensor->entry.shape) +
                    ": too large, or its rows are not a multiple of " +
                    std::to_string(InfoOf(*type.dtype).block_elements));
  }
  return Status();
}

// Places the tensors in the data section: aligned, inside the file, disjoint.
Status PlaceTensors(std::span<const std::byte> bytes, uint64_t data_begin, uint64_t alignment,
                    std::vector<PendingTensor>& pending, GgufFile* file) {
  const uint64_t data_bytes = bytes.size() - data_begin;
  std::vector<ByteRange> ranges;
  ranges.reserve(pending.size());
  for (PendingTensor& t : pending) {
    const std::string where = file->path + ": tensor '" + Printable(t.name) + "' ";
    const auto size = static_cast<uint64_t>(t.entry.bytes);
    if (t.offset % alignment != 0) {
      return DataLoss(where + "starts at offset " + std::to_string(t.offset) + ", not a multiple of the alignment " +
                      std::to_string(alignment));
    }
    if (t.offset > data_bytes || size > data_bytes - t.offset) {
      return DataLoss(where + "needs " + std::to_string(size) + " bytes at offset " + std::to_string(t.offset) +
                      " of the data section, which has " + std::to_string(data_bytes) + ": the file is cut short");
    }
    t.entry.data = bytes.data() + data_begin + t.offset;
    t.entry.file = file->path;
    ranges.push_back({t.offset, t.offset + size, t.name});
  }
  TACTUS_RETURN_IF_ERROR(CheckNoOverlap(std::move(ranges), file->path));
  for (PendingTensor& t : pending) {
    if (!file->tensors.emplace(std::string(t.name), std::move(t.entry)).second) {
      return DataLoss(file->path + ": tensor '" + Printable(t.name) + "' occurs twice");
    }
  }
  return Status();
}

Result<uint64_t> ReadAlignment(const GgufFile& file) {
  GgufFields fields(file);
  const int64_t alignment = fields.Int("general.alignment").value_or(kDefaultAlignment);
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (alignment < 8 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
    return DataLoss(file.path + ": general.alignment is " + std::to_string(alignment) +
                    "; a power of two from 8 to 1048576 is possible");
  }
  return static_cast<uint64_t>(alignment);
}

double NumberAt(GgufType type, const std::byte* at) {
  const auto as = [at](auto zero) {
    std::memcpy(&zero, at, sizeof(zero));
    return static_cast<double>(zero);
  };
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return as(uint8_t{});
    case GgufType::kInt8:
      return as(int8_t{});
    case GgufType::kUint16:
      return as(uint16_t{});
    case GgufType::kInt16:
      return as(int16_t{});
    case GgufType::kUint32:
      return as(uint32_t{});
    case GgufType::kInt32:
      return as(int32_t{});
    case GgufType::kUint64:
      return as(uint64_t{});
    case GgufType::kInt64:
      return as(int64_t{});
    case GgufType::kFloat32:
      return as(float{});
    case GgufType::kFloat64:
      return as(double{});
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return std::nan("");
}

bool IsInteger(GgufType type) {
  return ScalarBytes(type) > 0 && type != GgufType::kBool && type != GgufType::kFloat32 && type != GgufType::kFloat64;
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

uint32_t GgmlTypeId(DType dtype) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.dtype == dtype) return type.id;
  }
  TACTUS_CHECK_MSG(false, InfoOf(dtype).name);
  return 0;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = metadata.find(key);
  return it == metadata.end() ? nullptr : &it->second;
}

Result<GgufFile> ParseGguf(std::span<const std::byte> bytes, const std::string& path) {
  GgufFile file;
  file.path = path;
  Cursor in(bytes, path);
  uint32_t magic = 0;
  TACTUS_RETURN_IF_ERROR(in.Read(&magic, "the magic number"));
  if (magic != 0x46554747) return DataLoss(path + " is not a GGUF file (its first four bytes are not \"GGUF\")");
  TACTUS_RETURN_IF_ERROR(in.Read(&file.version, "the version"));
  if (file.version != 2 && file.version != 3) {
    const bool swapped = file.version == 0x02000000 || file.version == 0x03000000;
    return Unimplemented(path + (swapped
                                     ? ": a big-endian GGUF file, which is not supported; gguf-convert-endian of the "
                                       "gguf package makes a little-endian one"
                                     : ": GGUF version " + std::to_string(file.version) + "; supported are 2 and 3"));
  }
  uint64_t tensor_count = 0, metadata_count = 0;
  TACTUS_RETURN_IF_ERROR(in.Read(&tensor_count, "the number of tensors"));
  TACTUS_RETURN_IF_ERROR(in.Read(&metadata_count, "the number of metadata keys"));
  if (tensor_count > kMaxEntries || metadata_count > kMaxEntries) {
    return in.Error("the header claims " + std::to_string(tensor_count) + " tensors and " +
                    std::to_string(metadata_count) + " metadata keys; the limit is " + std::to_string(kMaxEntries));
  }
  TACTUS_RETURN_IF_ERROR(ReadMetadata(in, bytes, metadata_count, &file));
  TACTUS_ASSIGN_OR_RETURN(const uint64_t alignment, ReadAlignment(file));

  std::vector<PendingTensor> pending;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    PendingTensor tensor;
    TACTUS_RETURN_IF_ERROR(ReadTensorInfo(in, &tensor));
    pending.push_back(std::move(tensor));
  }
  uint64_t data_begin = (in.offset() + alignment - 1) / alignment * alignment;
  if (data_begin > bytes.size()) {
    if (tensor_count > 0) return in.Error("the file ends before its data section");
    data_begin = bytes.size();
  }
  TACTUS_RETURN_IF_ERROR(PlaceTensors(bytes, data_begin, alignment, pending, &file));
  return file;
}

void GgufFields::Fail(std::string_view key, const std::string& what) {
  if (status_.ok()) status_ = DataLoss(file_.path + ": metadata '" + Printable(key) + "' " + what);
}

std::optional<int64_t> GgufFields::Int(std::string_view key) {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return std::nullopt;
  if (!IsInteger(value->type)) {
    Fail(key, std::string("has type ") + GgufTypeName(value->type) + ", not an integer");
    return std::nullopt;
  }
  if (value->type == GgufType::kUint64 || value->type == GgufType::kInt64) {
    int64_t n = 0;
    std::memcpy(&n, value->payload.data(), sizeof(n));
    if (value->type == GgufType::kUint64 && n < 0) {
      Fail(key, "is beyond 2^63");
      return std::nullopt;
    }
    return n;
  }
  return static_cast<int64_t>(NumberAt(value->type, value->payload.data()));
}

std::optional<double> GgufFields::Float(std::string_view key) {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return std::nullopt;
  const bool numeric = IsInteger(value->type) || value->type == GgufType::kFloat32 || value->type == GgufType::kFloat64;
  const double number = numeric ? NumberAt(value->type, value->payload.data()) : 0.0;
  if (!numeric || !std::isfinite(number)) {
    Fail(key, numeric ? "is not finite" : std::string("has type ") + GgufTypeName(value->type) + ", not a number");
    return std::nullopt;
  }
  return number;
}

std::optional<bool> GgufFields::Bool(std::string_view key) {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) {
    Fail(key, std::string("has type ") + GgufTypeName(value->type) + ", not bool");
    return std::nullopt;
  }
  return value->payload[0] == std::byte{1};
}

std::optional<std::string> GgufFields::String(std::string_view key) {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) {
    Fail(key, std::string("has type ") + GgufTypeName(value->type) + ", not string");
    return std::nullopt;
  }
  return std::string(reinterpret_cast<const char*>(value->payload.data()), value->payload.size());
}

std::vector<std::string> GgufFields::Strings(std::string_view key) {
  std::vector<std::string> out;
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return out;
  if (value->type != GgufType::kArray || value->element_type != GgufType::kString) {
    Fail(key, "is not an array of strings");
    return out;
  }
  out.reserve(value->count);
  const std::byte* at = value->payload.data();  // lengths were checked when the file was parsed
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof(length));
    out.emplace_back(reinterpret_cast<const char*>(at + sizeof(length)), length);
    at += sizeof(length) + length;
  }
  return out;
}

std::vector<double> GgufFields::Numbers(std::string_view key) {
  std::vector<double> out;
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) return out;
  const size_t width = ScalarBytes(value->element_type);
  if (value->type != GgufType::kArray || width == 0) {
    Fail(key, "is not an array of numbers");
    return out;
  }
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i)
    out.push_back(NumberAt(value->element_type, value->payload.data() + i * width));
  return out;
}

int64_t GgufFields::RequiredInt(std::string_view key) {
  if (!Has(key)) Fail(key, "is missing");
  return Int(key).value_or(0);
}

std::string GgufFields::RequiredString(std::string_view key) {
  if (!Has(key)) Fail(key, "is missing");
  return String(key).value_or("");
}

}  // namespace tactus::compute
