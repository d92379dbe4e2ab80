#include "grammar/regex_text.h"

namespace tactus::grammar {
namespace {

// The members of a set, as they stand between brackets; null: no set of these.
const char* MembersOf(char name) {
  switch (name) {
    case 'd':
    case 'D':
      return "0-9";
    case 'w':
    case 'W':
      return "0-9A-Za-z_";
    case 's':
    case 'S':
      return " \\t\\n\\r\\x0b\\x0c";
    default:
      return nullptr;
  }
}

}  // namespace

std::string AsciiClasses(std::string_view expression) {
  std::string out;
  int brackets = 0;            // that are open: they may be nested
  bool may_be_member = false;  // a ']' here is the first member of its set, not its end
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char name = expression[++i];
      const char* members = MembersOf(name);
      const bool opposite = name >= 'A' && name <= 'Z';
      if (members == nullptr || (opposite && brackets > 0)) {
        out += {c, name};
      } else if (brackets > 0) {
        out += members;
      } else {
        out += std::string(opposite ? "[^" : "[") + members + "]";
      }
      may_be_member = false;
      continue;
    }
    out += c;
    if (c == '[') {
      ++brackets;
      may_be_member = true;
    } else if (c == ']' && brackets > 0 && !may_be_member) {
      --brackets;
    } else if (c != '^' || brackets == 0) {
      may_be_member = false;
    }
  }
  return out;
}

}  // namespace tactus::grammar
