// Decimal numbers of JSON with all digits, which a double cannot represent. Pure functions: any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tactus {

// digits * 10^exponent. Digits have no leading or trailing 0; no digits: zero, which is not negative.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  bool zero() const { return digits.empty(); }
  bool integer() const { return zero() || exponent >= 0; }
  // The number of digits before the point; 0 or negative for numbers below 1.
  int64_t magnitude() const { return static_cast<int64_t>(digits.size()) + exponent; }
  friend bool operator==(const Decimal&, const Decimal&) = default;
};
std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);

// `text`: a JSON number. Nothing: not a number, or its exponent has more than nine digits.
std::optional<Decimal> ReadDecimal(std::string_view text);
// The shortest decimal that is read back as this double. Nothing: not finite.
std::optional<Decimal> DecimalOf(double value);
// The number without exponent: "-120.5". Empty if longer than `most` bytes.
std::string PlainText(const Decimal& number, size_t most);

}  // namespace tactus
