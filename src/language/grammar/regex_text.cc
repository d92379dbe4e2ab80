#include "language/grammar/regex_text.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tactus::language {
namespace {

// The members of a class, as written between brackets; null: not a class that is expanded.
const char* MembersOf(char name) {
  switch (name) {
    case 'd':
    case 'D':
      return "0-9";
    case 'w':
    case 'W':
      return "0-9A-Za-z_";
    case 's':
      return " \\t\\n\\r\\x0b\\x0c";
    default:
      return nullptr;
  }
}

// The last item of a set, as far as it decides the meaning of a following '-' or class.
enum class BeforeInSet : uint8_t {
  kNothing,  // or an operator, or the end of a range: a '-' is a member
  kMember,   // a '-' starts a range
  kRange,    // the '-' of a range without its end
  kClass,    // an expanded class: a '-' is a member and must not form a range with the class's last member
};

// A count after the '{' at the beginning of `text`: {n}, {n,}, {n,m} or {,m}. `size` 0: not a count.
struct Count {
  size_t size = 0;
  std::string_view least, most;  // digits; empty: not given
  bool exact = false;            // {n}
};

Count ReadCount(std::string_view text) {
  Count count;
  size_t at = 1;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return text.substr(begin, at - begin);
  };
  count.least = digits();
  count.exact = at < text.size() && text[at] == '}';
  if (!count.exact) {
    if (at == text.size() || text[at] != ',') return {};
    ++at;
    count.most = digits();
  }
  if (at == text.size() || text[at] != '}' || (count.least.empty() && count.most.empty())) return {};
  count.size = at + 1;
  return count;
}

}  // namespace

bool IsBeyondMost(std::string_view digits) {
  static const std::string kMost = std::to_string(kMostCount);
  while (digits.size() > 1 && digits[0] == '0') digits.remove_prefix(1);
  return digits.size() != kMost.size() ? digits.size() > kMost.size() : digits > kMost;
}

std::string CountBeyond(std::string_view expression, bool maximums) {
  int sets = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') ++i;
    if (c == '[') ++sets;
    if (c == ']' && sets > 0) --sets;
    if (c != '{' || sets > 0) continue;
    const Count count = ReadCount(expression.substr(i));
    if (count.size > 0 && (IsBeyondMost(count.least) || (maximums && IsBeyondMost(count.most))))
      return std::string(expression.substr(i, count.size));
  }
  return {};
}

std::string BeyondMost() {
  return "is beyond " + std::to_string(kMostCount) + ", the limit of a minimum; give a smaller one";
}

std::string AsciiClasses(std::string_view expression) {
  std::string out;
  std::vector<bool> sets;      // open sets, possibly nested: whether each or one around it is a complement
  bool may_be_member = false;  // a ']' here is the first member of its set, not its end
  BeforeInSet before = BeforeInSet::kNothing;
  const auto add_member = [&] {
    before = before == BeforeInSet::kRange ? BeforeInSet::kNothing : BeforeInSet::kMember;
  };
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const char next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (c == '\\' && i + 1 < expression.size()) {
      ++i;
      const char* const members = MembersOf(next);
      const bool opposite = next >= 'A' && next <= 'Z';
      may_be_member = false;
      if (members == nullptr || (!sets.empty() && (opposite || (next == 's' && sets.back())))) {
        out += {c, next};
        add_member();
      } else if (sets.empty()) {
        out += std::string(opposite ? "[^" : "[") + members + "]";
      } else if (before == BeforeInSet::kRange) {  // a class ends no range: the library reports it
        out += {c, next};
        before = BeforeInSet::kNothing;
      } else {
        out += members;
        before = BeforeInSet::kClass;
      }
      continue;
    }
    if (c == '[') {
      sets.push_back(next == '^' || (!sets.empty() && sets.back()));
      may_be_member = true;
      before = BeforeInSet::kNothing;
      out += c;
      if (next == '^') out += expression[++i];
      continue;
    }
    if (sets.empty() && c == '{') {
      const Count count = ReadCount(expression.substr(i));
      if (count.size > 0 && !count.exact && IsBeyondMost(count.most)) {
        out += "{" + (count.least.empty() ? std::string("0") : std::string(count.least)) + ",}";
        i += count.size - 1;
        continue;
      }
    }
    if (!sets.empty() && c == ']' && !may_be_member) {
      sets.pop_back();
      before = BeforeInSet::kNothing;
    } else if (!sets.empty()) {
      may_be_member = false;
      if (c == next && (c == '&' || c == '-' || c == '~')) {  // an operator between sets
        out += c;
        ++i;
        before = BeforeInSet::kNothing;
      } else if (c == '-' && next != ']' && before == BeforeInSet::kClass) {
        out += '\\';
        before = BeforeInSet::kNothing;
      } else if (c == '-' && next != ']' && before == BeforeInSet::kMember) {
        before = BeforeInSet::kRange;
      } else {
        add_member();
      }
    }
    out += c;
  }
  return out;
}

}  // namespace tactus::language
