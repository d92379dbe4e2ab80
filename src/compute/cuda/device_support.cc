#include "compute/cuda/device_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tactus::compute::cuda {
namespace {

// The oldest driver whose CUDA has this major version (NVIDIA, "CUDA Compatibility").
std::string_view FirstRelease(int runtime) {
  return runtime / 1000 >= 13 ? "580" : "525";
}

std::string CapabilityText(int32_t capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

// Calls f(10 * major + minor, has a letter) for each architecture.
template <class F>
void ForEach(std::string_view architectures, F f) {
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(','));
    int32_t number = 0;
    const auto end = std::from_chars(one.data(), one.data() + one.size(), number).ptr;
    const bool letter = end != one.data() + one.size() && *end >= 'a' && *end <= 'z';
    if (number > 0) f(number, letter);
    architectures.remove_prefix(std::min(one.size() + 1, architectures.size()));
  }
}

}  // namespace

std::string CudaVersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string DriverReleaseOf(std::string_view line) {
  // A word of digits and points with at least one point.
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    if (word.find_first_not_of("0123456789.") == std::string_view::npos && word.find('.') != std::string_view::npos) {
      return std::string(word);
    }
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return {};
}

std::string OldDriverText(int driver, std::string_view release, int runtime) {
  const std::string needed =
      fmt::format("CUDA {} needs release {} or later", CudaVersionText(runtime), FirstRelease(runtime));
  if (driver == 0 && release.empty()) {
    return fmt::format(
        "no NVIDIA driver is installed (libcuda.so.1 is missing, or its kernel module is not loaded); {}", needed);
  }
  if (driver == 0) {
    return fmt::format("the kernel module of the NVIDIA driver {} is loaded, but libcuda.so.1 is missing; {}", release,
                       needed);
  }
  return fmt::format("the NVIDIA driver {} is too old: it supports CUDA {}; {}",
                     release.empty() ? "of this machine" : release, CudaVersionText(driver), needed);
}

bool HasCodeFor(std::string_view architectures, int32_t capability) {
  bool has = false;
  ForEach(architectures, [&](int32_t number, bool letter) {
    has |= letter ? number == capability : number / 10 == capability / 10 && number <= capability;
  });
  return has;
}

std::string NoCodeText(std::string_view device, int32_t capability, std::string_view architectures) {
  std::string list;
  ForEach(architectures, [&](int32_t number, bool) { list += (list.empty() ? "" : ", ") + CapabilityText(number); });
  return fmt::format(
      "{} has compute capability {}, and this build has code for {}: configure it with "
      "-DTACTUS_CUDA_ARCHITECTURES={}",
      device, CapabilityText(capability), list, capability);
}

}  // namespace tactus::compute::cuda
