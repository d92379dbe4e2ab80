#include "grammar/regex_text.h"

#include <cstdint>
#include <vector>

namespace tactus::grammar {
namespace {

// The members of a set, as they stand between brackets; null: no class that is written out.
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

// What stands last in a set, as far as it decides what a '-' or a class after it means.
enum class BeforeInSet : uint8_t {
  kNothing,  // or an operator, or the end of a range: a '-' is a member
  kMember,   // a '-' makes a range of it
  kRange,    // the '-' of a range, whose end is missing
  kClass,    // that is written out here: a '-' is a member, and must not make a range of the last written one
};

}  // namespace

std::string AsciiClasses(std::string_view expression) {
  std::string out;
  std::vector<bool> sets;      // that are open, which may be nested: whether each or one around it is a complement
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
      } else if (before == BeforeInSet::kRange) {  // a class ends no range: the library says so
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

}  // namespace tactus::grammar
