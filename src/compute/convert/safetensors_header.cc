#include "compute/convert/safetensors_header.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::compute {
namespace {

std::string HeadOf(std::span<const SafetensorsEntry> entries, const std::vector<size_t>& tensors) {
  Json json = {{"__metadata__", {{"format", "pt"}}}};
  int64_t at = 0;
  for (const size_t i : tensors) {
    const SafetensorsEntry& entry = entries[i];
    json[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes}}};
    at += entry.bytes;
  }
  std::string text = json_text::JsonText(json);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) head += static_cast<char>(static_cast<uint64_t>(text.size()) >> 8 * i);
  return head + text;
}

}  // namespace

const char* SafetensorsType(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16";
}

std::vector<SafetensorsFile> DivideIntoFiles(std::span<const SafetensorsEntry> entries, int64_t most_bytes) {
  std::vector<SafetensorsFile> files(1);
  int64_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!files.back().tensors.empty() && bytes + entries[i].bytes > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(i);
    bytes += entries[i].bytes;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name =
        files.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    files[i].head = HeadOf(entries, files[i].tensors);
  }
  return files;
}

std::string IndexText(std::span<const SafetensorsEntry> entries, std::span<const SafetensorsFile> files) {
  int64_t total = 0;
  Json places = SortedJson::object();
  for (const SafetensorsFile& file : files) {
    for (const size_t i : file.tensors) {
      places[entries[i].name] = file.name;
      total += entries[i].bytes;
    }
  }
  return json_text::JsonText({{"metadata", {{"total_size", total}}}, {"weight_map", places}}, 2) + "\n";
}

}  // namespace tactus::compute
