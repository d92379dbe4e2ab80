// Shared by the CSV files of a simulation.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/units.h"

namespace tactus::sim {

// Seconds with nine decimals: exact.
inline std::string ExactSeconds(TimeNs ns) {
  return fmt::format("{}.{:09}", ns / kSecond, ns % kSecond);
}

}  // namespace tactus::sim
