#include "language/grammar/number_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace tactus::language {
namespace {

constexpr size_t kMostDigits = 400;  // a double has up to 309 before the point
constexpr std::string_view kFraction = R"((\.[0-9]+)?)", kNoFraction = R"((\.0+)?)",
                           kSomeFraction = R"(\.[0-9]*[1-9][0-9]*)";

// Non-negative integers, as digits.
struct Span {
  std::string least;                // "0" or more
  std::optional<std::string> most;  // nothing: no bound
};

bool Less(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::string Next(std::string digits) {
  size_t at = digits.size();
  while (at > 0 && digits[at - 1] == '9') digits[--at] = '0';
  if (at == 0) return "1" + digits;
  ++digits[at - 1];
  return digits;
}

// The preceding integer; `digits` is not 0.
std::string Before(std::string digits) {
  size_t at = digits.size();
  while (digits[at - 1] == '0') digits[--at] = '9';
  --digits[at - 1];
  if (digits.size() > 1 && digits[0] == '0') digits.erase(0, 1);
  return digits;
}

// Digits as a regex, with long runs of one digit abbreviated.
std::string Shortened(std::string_view digits) {
  constexpr size_t kRun = 6;
  std::string out;
  for (size_t at = 0; at < digits.size();) {
    const size_t end = std::min(digits.find_first_not_of(digits[at], at), digits.size());
    if (end - at >= kRun)
      out += fmt::format("{}{{{}}}", digits[at], end - at);
    else
      out += digits.substr(at, end - at);
    at = end;
  }
  return out;
}

std::string AnyDigits(size_t count) {
  return count == 0 ? std::string() : count == 1 ? "[0-9]" : fmt::format("[0-9]{{{}}}", count);
}

void Add(std::string_view before, char least, char most, size_t digits_behind, std::vector<std::string>* parts) {
  if (least > most) return;
  const std::string digit = least == most ? std::string(1, least) : fmt::format("[{}-{}]", least, most);
  parts->push_back(Shortened(before) + digit + AnyDigits(digits_behind));
}

// From `least` to `most`, of equal length.
void AddSameLength(std::string_view least, std::string_view most, std::vector<std::string>* parts) {
  const size_t size = least.size();
  const auto same = static_cast<size_t>(std::mismatch(least.begin(), least.end(), most.begin()).first - least.begin());
  parts->push_back(Shortened(least));
  if (same == size) return;
  const auto digit = [](char c, int more) { return static_cast<char>(c + more); };
  for (size_t at = size; at-- > same + 1;) Add(least.substr(0, at), digit(least[at], 1), '9', size - at - 1, parts);
  Add(least.substr(0, same), digit(least[same], 1), digit(most[same], -1), size - same - 1, parts);
  for (size_t at = same + 1; at < size; ++at) Add(most.substr(0, at), '0', digit(most[at], -1), size - at - 1, parts);
  parts->push_back(Shortened(most));
}

std::string SpanRegex(const Span& span) {
  std::vector<std::string> parts;
  std::string least = span.least;
  if (span.most && Less(*span.most, least)) return {};
  if (least == "0") {
    parts.emplace_back("0");
    if (span.most == "0") return "0";
    least = "1";
  }
  const std::string nines(least.size(), '9');
  if (!span.most) {
    AddSameLength(least, nines, &parts);
    parts.push_back(fmt::format("[1-9][0-9]{{{},}}", least.size()));
  } else if (span.most->size() == least.size()) {
    AddSameLength(least, *span.most, &parts);
  } else {
    AddSameLength(least, nines, &parts);
    const size_t shortest = least.size() + 1, longest = span.most->size() - 1;
    if (shortest <= longest) parts.push_back(fmt::format("[1-9][0-9]{{{},{}}}", shortest - 1, longest - 1));
    AddSameLength("1" + std::string(longest, '0'), *span.most, &parts);
  }
  return fmt::format("({})", fmt::join(parts, "|"));
}

std::string WholeDigits(const Decimal& number) {
  Decimal size = number;
  size.negative = false;
  return PlainText(size, kMostDigits);
}

// The integer nearest to a bound, at or above it (`up`), or at or below it.
struct IntegerBound {
  bool negative = false;
  std::string digits;  // of its magnitude
};

IntegerBound Rounded(const Decimal& bound, bool up, bool exclusive) {
  IntegerBound out;
  const bool whole = bound.integer();
  if (whole) {
    out = {bound.negative, WholeDigits(bound)};
  } else {
    const int64_t before = bound.magnitude();
    out = {bound.negative, before > 0 ? bound.digits.substr(0, static_cast<size_t>(before)) : "0"};
  }
  // Dropping the fraction moves across the bound on one side only.
  const bool step = whole ? exclusive : up != bound.negative;
  if (!step) return out;
  if (out.digits == "0") return {!up, "1"};
  const bool grows = up != out.negative;
  out.digits = grows ? Next(out.digits) : Before(out.digits);
  return out;
}

}  // namespace

std::string IntegerRegex(const NumberBounds& bounds) {
  std::optional<IntegerBound> least, most;
  if (bounds.least) least = Rounded(*bounds.least, true, bounds.above_least);
  if (bounds.most) most = Rounded(*bounds.most, false, bounds.below_most);
  const auto below_zero = [](const IntegerBound& b) { return b.negative && b.digits != "0"; };
  std::vector<std::string> parts;
  if (!least || below_zero(*least)) {
    Span size{"1", std::nullopt};
    if (least) size.most = least->digits;
    if (most && below_zero(*most)) size.least = most->digits;
    if (const std::string sizes = SpanRegex(size); !sizes.empty()) parts.push_back("-" + sizes);
  }
  if (!most || !below_zero(*most)) {
    Span size{"0", std::nullopt};
    if (most) size.most = most->digits;
    if (least && !below_zero(*least)) size.least = least->digits;
    if (std::string sizes = SpanRegex(size); !sizes.empty()) parts.push_back(std::move(sizes));
  }
  if (parts.empty()) return {};
  return fmt::format("({})", fmt::join(parts, "|"));
}

namespace {

// Numbers of one sign: magnitudes from `least` to `most`, given as digits of integers.
std::string SizeRegex(const std::string& least, bool above, const std::optional<std::string>& most, bool below) {
  std::vector<std::string> parts;
  if (most && (Less(*most, least) || (*most == least && (above || below)))) return {};
  if (most == least) return Shortened(least) + std::string(kNoFraction);
  if (above) parts.push_back(Shortened(least) + std::string(kSomeFraction));
  Span inner{above ? Next(least) : least, std::nullopt};
  if (most && *most != "0") inner.most = Before(*most);
  if (const std::string whole = SpanRegex(inner); !whole.empty()) parts.push_back(whole + std::string(kFraction));
  if (most && !below) parts.push_back(Shortened(*most) + std::string(kNoFraction));
  return fmt::format("({})", fmt::join(parts, "|"));
}

}  // namespace

std::optional<std::string> NumberRegex(const NumberBounds& bounds) {
  constexpr int64_t kRoom = 101;  // digits: beyond 9.9e99
  for (const auto& bound : {bounds.least, bounds.most}) {
    if (bound && !bound->integer()) return std::nullopt;
  }
  const std::optional<Decimal>&least = bounds.least, &most = bounds.most;
  const bool from_negative = !least || least->negative, to_negative = most && most->negative;
  const bool to_zero = most && most->zero();
  std::vector<std::string> parts;
  if (from_negative) {
    // A magnitude of 0 is 0 itself, which the other part covers.
    const std::string nearest = to_negative ? WholeDigits(*most) : "0";
    std::optional<std::string> farthest;
    if (least) farthest = WholeDigits(*least);
    const bool beyond_nearest = !to_negative || bounds.below_most;
    if (const std::string sizes = SizeRegex(nearest, beyond_nearest, farthest, bounds.above_least); !sizes.empty())
      parts.push_back("-" + sizes);
  }
  if (!to_negative && !(to_zero && bounds.below_most)) {
    const bool above = least && !least->negative && bounds.above_least;
    std::optional<std::string> farthest;
    if (most) farthest = WholeDigits(*most);
    std::string sizes =
        SizeRegex(least && !least->negative ? WholeDigits(*least) : "0", above, farthest, bounds.below_most);
    if (!sizes.empty()) parts.push_back(std::move(sizes));
  }
  if (parts.empty()) return std::string();
  constexpr std::string_view kExponent = R"([1-9](\.[0-9]+)?[eE][+-]?[0-9]{1,2})";
  const bool far_down = !least || (least->negative && least->magnitude() >= kRoom);
  const bool far_up = !most || (!most->negative && most->magnitude() >= kRoom);
  if (far_down && !to_negative) parts.push_back("-" + std::string(kExponent));
  if (far_up && (from_negative || least->zero())) parts.emplace_back(kExponent);
  return fmt::format("({})", fmt::join(parts, "|"));
}

}  // namespace tactus::language
