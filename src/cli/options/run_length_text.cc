#include "cli/options/run_length_text.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/options/option_binding.h"

namespace tactus::cli {

Result<results::RunLength> ParseRunLength(const std::string& flag, const std::string& text) {
  results::RunLength length;
  if (text.empty()) return length;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, length.requests);
  if (error == std::errc() && stop == end && length.requests >= 0) return length;
  length.requests = -1;
  // A fractional number needs a unit: it cannot be a number of requests.
  const bool has_unit = text.find_first_of("hmnsu") != std::string::npos;
  const auto duration = ParseDuration(text);
  if (!has_unit || !duration.ok()) {
    return InvalidArgument(
        fmt::format("--{}: '{}' is not a time such as 60s or 10m, or a number of requests", flag, text), flag);
  }
  length.ns = duration->ns;
  return length;
}

}  // namespace tactus::cli
