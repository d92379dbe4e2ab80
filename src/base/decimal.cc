#include "base/decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tactus {
namespace {

constexpr size_t kMostExponentDigits = 9;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view TakeDigits(std::string_view* text) {
  size_t count = 0;
  while (count < text->size() && IsDigit((*text)[count])) ++count;
  const std::string_view digits = text->substr(0, count);
  text->remove_prefix(count);
  return digits;
}

// Compares absolute values; both are non-zero.
std::strong_ordering CompareSizes(const Decimal& a, const Decimal& b) {
  if (const auto order = a.magnitude() <=> b.magnitude(); order != 0) return order;
  return a.digits.compare(b.digits) <=> 0;  // neither ends with 0
}

}  // namespace

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& d) { return d.zero() ? 0 : d.negative ? -1 : 1; };
  if (const auto order = sign(a) <=> sign(b); order != 0 || a.zero()) return order;
  return a.negative ? CompareSizes(b, a) : CompareSizes(a, b);
}

std::optional<Decimal> ReadDecimal(std::string_view text) {
  Decimal out;
  out.negative = text.starts_with('-');
  if (out.negative) text.remove_prefix(1);
  const std::string_view whole = TakeDigits(&text);
  if (whole.empty()) return std::nullopt;
  out.digits = whole;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const std::string_view fraction = TakeDigits(&text);
    out.digits += fraction;
    out.exponent = -static_cast<int64_t>(fraction.size());
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool down = text.starts_with('-');
    if (down || text.starts_with('+')) text.remove_prefix(1);
    std::string_view digits = TakeDigits(&text);
    while (digits.starts_with('0')) digits.remove_prefix(1);
    if (digits.size() > kMostExponentDigits) return std::nullopt;
    int64_t exponent = 0;
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    out.exponent += down ? -exponent : exponent;
  }
  if (!text.empty()) return std::nullopt;
  const size_t last = out.digits.find_last_not_of('0');
  if (last == std::string::npos) return Decimal();
  out.exponent += static_cast<int64_t>(out.digits.size() - last - 1);
  out.digits.resize(last + 1);
  out.digits.erase(0, out.digits.find_first_not_of('0'));
  return out;
}

std::optional<Decimal> DecimalOf(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return ReadDecimal(fmt::format("{}", value));
}

std::string PlainText(const Decimal& number, size_t most) {
  if (number.zero()) return "0";
  const int64_t whole = number.magnitude(), zeros = std::max(std::abs(whole), std::abs(number.exponent));
  if (static_cast<size_t>(zeros) + number.digits.size() > most) return {};
  std::string text = number.digits;
  if (number.exponent >= 0)
    text.append(static_cast<size_t>(number.exponent), '0');
  else if (whole > 0)
    text.insert(static_cast<size_t>(whole), 1, '.');
  else
    text.insert(0, "0." + std::string(static_cast<size_t>(-whole), '0'));
  return number.negative ? "-" + text : text;
}

}  // namespace tactus
