// safetensors headers. Reads the first and last byte of every accepted tensor.
#include <cstdint>

#include "compute/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  // The first eight bytes are the header's length; half of the inputs get a valid length, so that parsing gets further.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 8 && (data[7] & 1) != 0) {
    const uint64_t length = data[0] * uint64_t{size - 8} / 255;
    __builtin_memcpy(bytes.data(), &length, 8);
  }
  compute::TensorSet set;
  if (!compute::ParseSafetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzz.safetensors", &set).ok())
    return 0;
  [[maybe_unused]] static volatile uint8_t sink;
  for (const auto& [name, tensor] : set.tensors) {
    if (tensor.bytes == 0) continue;
    sink = static_cast<uint8_t>(tensor.data[0]);
    sink = static_cast<uint8_t>(tensor.data[tensor.bytes - 1]);
  }
  return 0;
}
