#include "compute/weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/printable.h"
#include "compute/config/json_fields.h"

namespace tactus::compute {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr int64_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxDims = 8;

struct StoredType {
  std::string_view name;
  DType dtype = DType::kF32;
  CodeType codes = CodeType::kNone;
};
constexpr StoredType kTypes[] = {{"F32", DType::kF32},
                                 {"F16", DType::kF16},
                                 {"BF16", DType::kBF16},
                                 {"F8_E4M3", {}, CodeType::kF8E4M3},
                                 {"F8_E8M0", {}, CodeType::kF8E8M0},
                                 {"I8", {}, CodeType::kI8},
                                 {"U8", {}, CodeType::kU8},
                                 {"I32", {}, CodeType::kI32},
                                 {"I64", {}, CodeType::kI64}};

const StoredType* FindType(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

struct HeaderEntry {
  TensorEntry tensor;
  uint64_t begin = 0, end = 0;
};

Result<HeaderEntry> ReadEntry(const std::string& name, const SortedJson& value, const std::string& path) {
  const std::string where = path + ": tensor '" + Printable(name) + "' ";
  if (!value.is_object()) return DataLoss(where + "is not described by a JSON object");
  const auto dtype = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (dtype == value.end() || shape == value.end() || offsets == value.end()) {
    return DataLoss(where + "lacks dtype, shape or data_offsets");
  }
  if (!dtype->is_string()) return DataLoss(where + "has a dtype that is not a string");
  HeaderEntry entry;
  const std::string dtype_name = dtype->get<std::string>();
  const StoredType* const known = FindType(dtype_name);
  if (known == nullptr) {
    return Unimplemented(where + "has dtype " + Printable(dtype_name) +
                         "; supported are F32, F16 and BF16, and of quantised weights F8_E4M3, F8_E8M0, I8, U8, I32 "
                         "and I64");
  }
  entry.tensor.dtype = known->dtype;
  entry.tensor.codes = known->codes;
  entry.tensor.file = path;

  if (!shape->is_array() || shape->size() > kMaxDims) {
    return DataLoss(where + "has a shape that is not a list of at most " + std::to_string(kMaxDims) + " numbers");
  }
  for (const SortedJson& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > (uint64_t{1} << 40)) {
      return DataLoss(where + "has a dimension that is not a number from 0 to 2^40");
    }
    entry.tensor.shape.push_back(dim.get<int64_t>());
  }
  if (!offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return DataLoss(where + "has data_offsets that are not two numbers");
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  entry.tensor.bytes = known->codes == CodeType::kNone ? CheckedTensorBytes(known->dtype, entry.tensor.shape)
                                                       : CheckedTensorBytes(known->codes, entry.tensor.shape);
  if (entry.tensor.bytes < 0) return DataLoss(where + "has shape " + ShapeText(entry.tensor.shape) + ": too large");
  if (entry.end < entry.begin || entry.end - entry.begin != static_cast<uint64_t>(entry.tensor.bytes)) {
    return DataLoss(where + "lies at bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                    ", but " + dtype_name + " " + ShapeText(entry.tensor.shape) + " needs " +
                    std::to_string(entry.tensor.bytes));
  }
  return entry;
}

// Refuses duplicate keys: JSON allows them, and each reader chooses another one.
Result<SortedJson> ParseHeader(std::string_view text, const std::string& path) {
  std::set<std::string> seen;
  std::string duplicate;
  bool too_deep = false;
  const auto watch = [&](int depth, SortedJson::parse_event_t event, SortedJson& parsed) {
    if (depth > 8) too_deep = true;
    if (event == SortedJson::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second && duplicate.empty()) duplicate = key.empty() ? "(empty)" : key;
    }
    return !too_deep;
  };
  try {
    SortedJson header = SortedJson::parse(text, watch);
    if (!duplicate.empty())
      return DataLoss(path + ": tensor '" + Printable(duplicate) + "' occurs twice in the header");
    if (too_deep || !header.is_object()) return DataLoss(path + ": the header is not an object of tensors");
    return header;
  } catch (const SortedJson::exception&) {
    return DataLoss(path + ": the header is not valid JSON");
  }
}

bool StaysInFolder(const std::string& name) {
  const std::filesystem::path p(name);
  return !name.empty() && name.find('\0') == std::string::npos && !p.has_parent_path() && p.is_relative() &&
         name != "." && name != "..";
}

Status AddFile(const std::string& path, TensorSet* set) {
  TACTUS_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  TACTUS_RETURN_IF_ERROR(ParseSafetensors(file->bytes(), path, set));
  set->files.push_back(std::move(file));
  return Status();
}

Result<TensorSet> OpenShards(const std::string& folder, const std::string& index_path) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(index_path, kMaxIndexBytes));
  TACTUS_ASSIGN_OR_RETURN(const auto index, ParseJsonObject(text, index_path));
  JsonFields fields(*index, index_path);
  const SortedJson* weight_map = fields.Object("weight_map");
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (weight_map == nullptr || weight_map->empty()) return DataLoss(index_path + ": 'weight_map' is missing or empty");

  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string())
      return DataLoss(index_path + ": the shard of tensor '" + Printable(tensor) + "' is not a string");
    const auto name = shard.get<std::string>();
    if (!StaysInFolder(name)) {
      return DataLoss(index_path + ": shard '" + Printable(name) + "' of tensor '" + Printable(tensor) +
                      "' is not a file name within the folder");
    }
    shards.insert(name);
  }
  TensorSet set;
  for (const std::string& name : shards) {
    const std::string path = folder + "/" + name;
    const Status status = AddFile(path, &set);
    if (status.code() == StatusCode::kNotFound) {
      return NotFound(index_path + " names shard '" + name +
                      "', which is not in the folder: the download is incomplete");
    }
    TACTUS_RETURN_IF_ERROR(status);
  }
  for (const auto& [tensor, shard] : weight_map->items()) {
    const TensorEntry* entry = set.Find(tensor);
    const std::string path = folder + "/" + shard.get<std::string>();
    if (entry == nullptr || entry->file != path) {
      return DataLoss(index_path + " places tensor '" + Printable(tensor) + "' in " + path + ", which lacks it");
    }
  }
  return set;
}

}  // namespace

Status ParseSafetensors(std::span<const std::byte> bytes, const std::string& path, TensorSet* set) {
  constexpr std::string_view kLfs = "version https://git-lfs";
  if (bytes.size() >= kLfs.size() && std::memcmp(bytes.data(), kLfs.data(), kLfs.size()) == 0) {
    return DataLoss(path + " is a Git LFS pointer, not the weights: fetch them with `git lfs pull`");
  }
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return DataLoss(path + ": has " + std::to_string(bytes.size()) + " bytes, too short for a safetensors header");
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const uint64_t left = bytes.size() - sizeof(header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > left) {
    return DataLoss(path + ": the header claims " + std::to_string(header_bytes) + " bytes; " + std::to_string(left) +
                    " are left in the file and the limit is " + std::to_string(kMaxHeaderBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes), header_bytes);
  TACTUS_ASSIGN_OR_RETURN(const SortedJson header, ParseHeader(text, path));
  const std::byte* data = bytes.data() + sizeof(header_bytes) + header_bytes;
  const uint64_t data_bytes = left - header_bytes;

  std::vector<ByteRange> ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    TACTUS_ASSIGN_OR_RETURN(HeaderEntry entry, ReadEntry(name, value, path));
    if (entry.end > data_bytes) {
      return DataLoss(path + ": tensor '" + Printable(name) + "' ends at byte " + std::to_string(entry.end) +
                      " of the data, which has " + std::to_string(data_bytes) + ": the file is cut short");
    }
    entry.tensor.data = data + entry.begin;
    const auto at = header.find(name);  // items() yields copies of keys in some versions; the header's own key stays
                                        // valid
    ranges.push_back({entry.begin, entry.end, at.key()});
    if (!set->tensors.emplace(name, std::move(entry.tensor)).second) {
      return DataLoss(path + ": tensor '" + Printable(name) + "' is also in another shard");
    }
  }
  return CheckNoOverlap(std::move(ranges), path);
}

Result<TensorSet> OpenSafetensorsFolder(const std::string& folder) {
  std::error_code error;
  const std::string index = folder + "/model.safetensors.index.json";
  if (std::filesystem::exists(index, error)) return OpenShards(folder, index);
  const std::string single = folder + "/model.safetensors";
  if (!std::filesystem::exists(single, error)) {
    std::string message = folder + " holds neither model.safetensors nor model.safetensors.index.json";
    if (std::filesystem::exists(folder + "/pytorch_model.bin", error) ||
        std::filesystem::exists(folder + "/pytorch_model.bin.index.json", error)) {
      message += "; pytorch_model.bin is not supported: save the model with safetensors";
    }
    return NotFound(message);
  }
  TensorSet set;
  TACTUS_RETURN_IF_ERROR(AddFile(single, &set));
  return set;
}

}  // namespace tactus::compute
