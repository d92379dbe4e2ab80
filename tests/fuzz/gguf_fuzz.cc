// GGUF headers and everything derived from them: configuration, tokeniser tables, memory plan. Decodes the last block
// of every accepted tensor, so that the address sanitizer detects wrong bounds, of tensors and of codebooks.
#include <cstdint>
#include <numeric>

#include "compute/tensor/blocks.h"
#include "compute/tensor/dequantize.h"
#include "compute/weights/gguf.h"
#include "compute/weights/gguf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  const auto file = compute::ParseGguf(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  if (!file.ok()) return 0;
  [[maybe_unused]] static volatile float sink;
  for (const auto& [name, tensor] : file->tensors) {
    const compute::DTypeInfo& info = compute::InfoOf(tensor.dtype);
    if (tensor.bytes < info.block_bytes) continue;
    float values[compute::kMostBlockColumns];
    compute::Dequantize(tensor.dtype, tensor.data + tensor.bytes - info.block_bytes, info.block_elements, values);
    sink = std::accumulate(values, values + info.block_elements, 0.0f);
  }
  compute::GgufFields fields(*file);
  for (const auto& [key, value] : file->metadata) {
    static_cast<void>(fields.Int(key));
    static_cast<void>(fields.Strings(key));
    static_cast<void>(fields.Numbers(key));
  }
  const auto config = compute::ConfigFromGguf(*file);
  if (!config.ok()) return 0;
  compute::ModelDescription description;
  static_cast<void>(compute::TokenizerFromGguf(*file, config->vocab_size, &description));
  compute::MemoryPlanInput input;
  input.available_bytes = int64_t{1} << 36;
  static_cast<void>(compute::PlanMemory(*config, input));
  return 0;
}
