#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tactus::hub {

// "1.23 GB", in powers of 1000 as the hub and disks count.
inline std::string SizeText(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value * 1e-3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value * 1e-6);
  return fmt::format("{:.2f} GB", value * 1e-9);
}

}  // namespace tactus::hub
