// Quantised weights of Hugging Face folders: a configuration (two bytes of length, then JSON) and a safetensors file.
// Decodes the first and the last row of every weight that is accepted.
#include <cstdint>
#include <cstring>
#include <vector>

#include "compute/weights/quant/quantization.h"
#include "compute/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  uint16_t config_bytes = 0;
  if (size < sizeof config_bytes) return 0;
  std::memcpy(&config_bytes, data, sizeof config_bytes);
  const std::string_view rest(reinterpret_cast<const char*>(data) + sizeof config_bytes, size - sizeof config_bytes);
  const auto method = compute::ReadQuantization(rest.substr(0, config_bytes), "fuzz/config.json");
  if (!method.ok() || *method == nullptr || rest.size() < config_bytes) return 0;
  // A copy of its exact size, so that reading beyond it is noticed.
  const std::vector<char> file(rest.begin() + config_bytes, rest.end());
  compute::TensorSet set;
  if (!compute::ParseSafetensors(std::as_bytes(std::span(file)), "fuzz.safetensors", &set).ok()) return 0;
  if (!compute::ApplyQuantization(**method, &set).ok()) return 0;
  for (const auto& [name, tensor] : set.tensors) {
    const int64_t elements = compute::CheckedElements(tensor.shape);
    if (tensor.rows == nullptr || elements <= 0 || tensor.shape.back() > int64_t{1} << 20) continue;
    const int64_t cols = tensor.shape.back();
    std::vector<float> numbers(static_cast<size_t>(cols));
    std::vector<std::byte> stored(static_cast<size_t>(compute::RowBytes(tensor.dtype, cols)));
    for (const int64_t row : {int64_t{0}, elements / cols - 1}) {
      tensor.rows->Numbers(row, numbers.data());
      tensor.rows->Stored(row, stored.data());
    }
  }
  return 0;
}
