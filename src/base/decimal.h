// Numbers as JSON writes them, digit by digit: what a double cannot hold. Pure functions: any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tactus {

// digits * 10^exponent. Digits begin and end with others than 0; none: zero, which is not negative.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  bool zero() const { return digits.empty(); }
  bool integer() const { return zero() || exponent >= 0; }
  // Digits before the point; of numbers below 1: none or a negative number of them.
  int64_t magnitude() const { return static_cast<int64_t>(digits.size()) + exponent; }
  friend bool operator==(const Decimal&, const Decimal&) = default;
};
std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);

// `text`: a JSON number. Nothing: it is none, or its exponent has more than nine digits.
std::optional<Decimal> ReadDecimal(std::string_view text);
// The number that the double is taken for: the shortest one that it stands for. Nothing: it is not finite.
std::optional<Decimal> DecimalOf(double value);
// Without an exponent: "-120.5". `most`: bytes; empty beyond them.
std::string PlainText(const Decimal& number, size_t most);

}  // namespace tactus
