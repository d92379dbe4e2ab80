#include "compute/weights/tensor_file.h"

#include "base/printable.h"

#include <algorithm>

namespace tactus::compute {

const TensorEntry* TensorSet::Find(std::string_view name) const {
  const auto it = tensors.find(name);
  return it == tensors.end() ? nullptr : &it->second;
}

void TensorSet::KeepText() {
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {{"language_model.model.", "model."},
                                                                         {"model.language_model.", "model."},
                                                                         {"language_model.", ""},
                                                                         {"lm_head.", "lm_head."}};
  std::map<std::string, TensorEntry, std::less<>> text;
  for (auto& [name, tensor] : tensors) {
    for (const auto& [prefix, model_prefix] : kPrefixes) {
      if (!std::string_view(name).starts_with(prefix)) continue;
      text.emplace(std::string(model_prefix) + name.substr(prefix.size()), std::move(tensor));
      break;
    }
  }
  tensors = std::move(text);
}

namespace {

struct CodesInfo {
  const char* name;
  int64_t bytes;
};
constexpr CodesInfo kCodesInfo[] = {{"", 0},   {"f8_e4m3", 1}, {"f8_e8m0", 1}, {"i8", 1},
                                    {"u8", 1}, {"i32", 4},     {"i64", 8}};

}  // namespace

const char* ElementName(const TensorEntry& tensor) {
  return tensor.codes == CodeType::kNone ? InfoOf(tensor.dtype).name
                                         : kCodesInfo[static_cast<size_t>(tensor.codes)].name;
}

int64_t CheckedElements(std::span<const int64_t> shape) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (dim < 0) return -1;
    if (dim > 0 && elements > kLimit / dim) return -1;
    elements *= dim;
  }
  return elements;
}

int64_t CheckedTensorBytes(DType dtype, std::span<const int64_t> shape) {
  const DTypeInfo& info = InfoOf(dtype);
  const int64_t elements = CheckedElements(shape);
  if (elements < 0) return -1;
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % info.block_elements != 0) return -1;
  const int64_t blocks = elements / info.block_elements;
  if (blocks > (int64_t{1} << 62) / info.block_bytes) return -1;
  return blocks * info.block_bytes;
}

int64_t CheckedTensorBytes(CodeType codes, std::span<const int64_t> shape) {
  const int64_t elements = CheckedElements(shape), each = kCodesInfo[static_cast<size_t>(codes)].bytes;
  return elements < 0 || elements > (int64_t{1} << 62) / each ? -1 : elements * each;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Status CheckNoOverlap(std::vector<ByteRange> ranges, const std::string& file) {
  std::erase_if(ranges, [](const ByteRange& r) { return r.begin == r.end; });
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.name < b.name;
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    return DataLoss(file + ": tensors '" + Printable(ranges[i - 1].name) + "' and '" + Printable(ranges[i].name) +
                    "' overlap (bytes " + std::to_string(ranges[i - 1].begin) + " to " +
                    std::to_string(ranges[i - 1].end) + " and from " + std::to_string(ranges[i].begin) + ")");
  }
  return Status();
}

}  // namespace tactus::compute
