#include "base/unit_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tactus {
namespace {

// The end of the number at the beginning of `text`; 0: no number, or hexadecimal.
size_t NumberEnd(const std::string& text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  const std::string_view digits(text.c_str(), static_cast<size_t>(end - text.c_str()));
  return digits.find_first_of("xX") == std::string_view::npos ? digits.size() : 0;
}

// Splits "1.5GiB" into 1.5 and "GiB".
bool SplitNumber(const std::string& text, double* number, std::string* unit) {
  const size_t end = NumberEnd(text, number);
  if (end == 0 || !std::isfinite(*number)) return false;
  *unit = text.substr(end);
  while (!unit->empty() && unit->front() == ' ') unit->erase(unit->begin());
  return true;
}

// Small enough that sums and small multiples stay within 64 bits.
constexpr double kMostNs = 876'000 * 3600e9;  // 100 years
constexpr double kMostBytes = 0x1p50;

// ParseDuration and ParseBytes share this: a non-negative number times a unit's factor.
struct UnitFactor {
  const char* name;
  double factor;
};
struct Quantity {
  std::vector<UnitFactor> units;
  const char* expected;
  double most;
  const char* most_text;
};
Result<int64_t> ParseWithUnit(const std::string& text, const Quantity& quantity) {
  double number = 0;
  std::string unit;
  if (SplitNumber(text, &number, &unit) && number >= 0) {
    for (const UnitFactor& u : quantity.units) {
      if (unit != u.name) continue;
      if (number * u.factor <= quantity.most) return static_cast<int64_t>(std::llround(number * u.factor));
      return InvalidArgument(fmt::format("'{}' is more than {}, the limit", text, quantity.most_text));
    }
  }
  return InvalidArgument(fmt::format("'{}' is not {}", text, quantity.expected));
}

}  // namespace

bool ParsePlainNumber(const std::string& text, double* number) {
  const size_t end = NumberEnd(text, number);
  return end != 0 && end == text.size() && !std::isnan(*number);
}

std::string MissingUnit(const std::string& text) {
  double number = 0;
  std::string unit;
  if (!SplitNumber(text, &number, &unit) || !unit.empty() || number <= 0) return {};
  const std::string digits = text.substr(0, text.find_last_not_of(' ') + 1);
  return fmt::format("has no unit: write {}ms or {}s", digits, digits);
}

Result<DurationText> ParseDuration(const std::string& text) {
  double number = 0;
  std::string unit;
  if (SplitNumber(text, &number, &unit) && unit.empty() && number == 0) return DurationText{0};
  if (const std::string missing = MissingUnit(text); !missing.empty())
    return InvalidArgument(fmt::format("'{}' {}", text, missing));
  static const Quantity kDuration = {{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"m", 60e9}, {"h", 3600e9}},
                                     "a duration such as 50ms, 1.5s or 2m",
                                     kMostNs,
                                     "876000h"};
  auto ns = ParseWithUnit(text, kDuration);
  if (!ns.ok()) return ns.status();
  return DurationText{*ns};
}

Result<BytesText> ParseBytes(const std::string& text) {
  constexpr double kKi = 1024;
  static const Quantity kSize = {{{"", 1},
                                  {"B", 1},
                                  {"K", kKi},
                                  {"KiB", kKi},
                                  {"M", kKi * kKi},
                                  {"MiB", kKi * kKi},
                                  {"G", kKi * kKi * kKi},
                                  {"GiB", kKi * kKi * kKi},
                                  {"TiB", kKi * kKi * kKi * kKi},
                                  {"KB", 1e3},
                                  {"MB", 1e6},
                                  {"GB", 1e9}},
                                 "a size such as 8GiB, 512MiB or a number of bytes",
                                 kMostBytes,
                                 "1024TiB"};
  auto bytes = ParseWithUnit(text, kSize);
  if (!bytes.ok()) return bytes.status();
  return BytesText{*bytes};
}

std::string FormatDuration(int64_t ns) {
  if (ns % 1'000'000'000 == 0) return fmt::format("{}s", ns / 1'000'000'000);
  if (ns % 1'000'000 == 0) return fmt::format("{}ms", ns / 1'000'000);
  if (ns % 1'000 == 0) return fmt::format("{}us", ns / 1'000);
  return fmt::format("{}ns", ns);
}

std::string FormatBytes(int64_t bytes) {
  if (bytes && bytes % (int64_t{1} << 30) == 0) return fmt::format("{}GiB", bytes >> 30);
  if (bytes && bytes % (int64_t{1} << 20) == 0) return fmt::format("{}MiB", bytes >> 20);
  return fmt::format("{}", bytes);
}

}  // namespace tactus
