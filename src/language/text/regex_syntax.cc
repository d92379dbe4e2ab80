// Rewrites a regex from the syntax of Oniguruma (its default, close to Ruby's) to that of PCRE2. What has another
// meaning in PCRE2 is spelled out or refused.
#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "language/text/regex.h"

namespace tactus::language {
namespace {

// UTS 18's \w without Join_Control, which Oniguruma leaves out.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

std::string ClassText(std::string_view items, bool negated = false) {
  return (negated ? "[^" : "[") + std::string(items) + "]";
}

// What [[:name:]] and \p{name} mean.
struct PosixClass {
  std::string_view name, items;
  bool negated = false;  // the characters that are not among the items
};
constexpr PosixClass kPosixClasses[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"digit", R"(\p{Nd})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"space", R"(\p{wspace})"},
    {"blank", R"(\p{Zs}\t)"},
    {"cntrl", R"(\p{Cc})"},
    {"punct", R"(\p{P}\p{S})"},
    {"graph", R"(\p{Z}\p{Cc}\p{Cn}\p{Cs})", true},
    {"print", R"(\p{Zl}\p{Zp}\p{Cc}\p{Cn}\p{Cs})", true},
    {"xdigit", kHexDigits},
    {"word", kWord},
};

// A set of characters, as the inside of a class and as further patterns that match one character each.
struct CharacterSet {
  std::string items;
  std::vector<std::string> others;
  void Add(std::string_view more, bool negated) {
    if (negated) {
      others.push_back(ClassText(more, true));
    } else {
      items += more;
    }
  }
  // False: there is no such class.
  bool AddPosix(std::string_view name, bool negated) {
    const auto found = std::find_if(std::begin(kPosixClasses), std::end(kPosixClasses),
                                    [&](const PosixClass& known) { return known.name == name; });
    if (found == std::end(kPosixClasses)) return false;
    Add(found->items, negated != found->negated);
    return true;
  }
  std::string Pattern() const {
    std::string out = items.empty() ? "" : ClassText(items);
    for (const std::string& other : others) out += (out.empty() ? "" : "|") + other;
    return others.empty() || (items.empty() && others.size() == 1) ? out : "(?:" + out + ")";
  }
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Rewrite() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        TACTUS_RETURN_IF_ERROR(Escape());
      } else if (c == '[') {
        CharacterSet set;
        TACTUS_RETURN_IF_ERROR(ReadClass(0, &set));
        out_ += set.Pattern();
      } else if (c == '(') {
        TACTUS_RETURN_IF_ERROR(Group());
      } else if (c == '{') {
        TACTUS_RETURN_IF_ERROR(Interval());
      } else {
        out_ += pattern_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  Status Bad(const std::string& why) const {
    return Unimplemented("pattern \"" + std::string(pattern_) + "\": " + why);
  }
  bool Starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  Status Escape();
  Status Group();
  Status Interval();
  Status ReadClass(int depth, CharacterSet* set);
  Status ReadClassItem(int depth, CharacterSet* set);
  Status Property(bool negated, CharacterSet* set);
  // An escape that means a set of characters, in a class or outside; *known: it was one and has been read.
  Status SetEscape(CharacterSet* set, bool* known);

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
};

// \p{Name}, \P{Name} and \p{^Name}, where at_ is behind the p. A script is the one that a character has, which PCRE2
// must be asked for; it takes the plain name for the scripts that use the character.
Status Rewriter::Property(bool negated, CharacterSet* set) {
  const size_t end = pattern_.find('}', at_);
  if (!Starts("{") || end == std::string_view::npos) return Bad("\\p without a name in braces");
  std::string name(pattern_.substr(at_ + 1, end - at_ - 1));
  at_ = end + 1;
  if (name.starts_with('^')) negated = !negated, name.erase(0, 1);
  std::string lower;
  for (const char c : name) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (set->AddPosix(lower, negated)) return {};
  const int32_t mask = u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, name.c_str());
  if (mask != UCHAR_INVALID_CODE) {
    name = u_getPropertyValueName(UCHAR_GENERAL_CATEGORY_MASK, mask, U_SHORT_PROPERTY_NAME);
    if (name == "LC") name = "L&";
  } else if (u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str()) != UCHAR_INVALID_CODE) {
    name.insert(0, "sc:");
  }
  set->items += (negated ? "\\P{" : "\\p{") + name + "}";
  return {};
}

Status Rewriter::SetEscape(CharacterSet* set, bool* known) {
  *known = true;
  const char c = pattern_[at_ + 1];
  at_ += 2;
  switch (c) {
    case 's':
      set->items += R"(\p{wspace})";
      return {};
    case 'S':
      set->items += R"(\P{wspace})";
      return {};
    case 'd':
    case 'D':
      set->items += {'\\', c};
      return {};
    case 'w':
      set->items += kWord;
      return {};
    case 'W':
      set->Add(kWord, true);
      return {};
    case 'h':
      set->items += kHexDigits;
      return {};
    case 'H':
      set->Add(kHexDigits, true);
      return {};
    case 'p':
    case 'P':
      return Property(c == 'P', set);
    case 'v':
      set->items += R"(\x0B)";
      return {};
    default:
      at_ -= 2;
      *known = false;
      return {};
  }
}

Status Rewriter::Escape() {
  if (at_ + 1 == pattern_.size()) return Bad("ends in a backslash");
  CharacterSet set;
  bool known = false;
  TACTUS_RETURN_IF_ERROR(SetEscape(&set, &known));
  if (known) {
    // PCRE2's own spelling where there is one: shorter, and faster to run.
    const bool single =
        set.others.empty() && (set.items.size() == 2 || (set.items[0] == '\\' && set.items.back() == '}' &&
                                                         set.items.find('\\', 1) == std::string::npos));
    out_ += single ? set.items : set.Pattern();
    return {};
  }
  const char c = pattern_[at_ + 1];
  at_ += 2;
  const std::string word = ClassText(kWord);
  if (c == 'b' || c == 'B') {
    const std::string ahead = "(?=" + word + ")", behind = "(?<=" + word + ")";
    const std::string none_ahead = "(?!" + word + ")", none_behind = "(?<!" + word + ")";
    out_ += c == 'b' ? "(?:" + behind + none_ahead + "|" + none_behind + ahead + ")"
                     : "(?:" + behind + ahead + "|" + none_behind + none_ahead + ")";
    return {};
  }
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (letter && std::string_view("AzZnrtfaexu").find(c) == std::string_view::npos) {
    return Bad(std::string{'\\', c}.append(" is not supported"));
  }
  if (c != 'u') {
    out_ += {'\\', c};
    return {};
  }
  out_ += "\\x{" + std::string(pattern_.substr(at_, 4)) + "}";
  at_ = std::min(at_ + 4, pattern_.size());
  return {};
}

// (?imx-imx) and (?imx-imx:...): m makes the dot match line ends. Other groups are the same in both.
Status Rewriter::Group() {
  if (Starts("(*") || Starts("(?~") || Starts("(?(") || Starts("(?{")) {
    return Bad("the group that begins with \"" + std::string(pattern_.substr(at_, 3)) + "\" is not supported");
  }
  out_ += pattern_[at_++];
  if (!Starts("?")) return {};
  out_ += pattern_[at_++];
  while (at_ < pattern_.size()) {
    const char c = pattern_[at_];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && c != '-') return {};
    if (c != 'i' && c != 'm' && c != 'x' && c != '-') return Bad(std::string("option ") + c + " is not supported");
    out_ += c == 'm' ? 's' : c;
    ++at_;
  }
  return {};
}

// {n,m}: {,m} begins at 0. A plus behind it would make PCRE2's possessive.
Status Rewriter::Interval() {
  const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
  const bool is_interval = end != std::string_view::npos && pattern_[end] == '}' && end > at_ + 1;
  if (is_interval && end + 1 < pattern_.size() && pattern_[end + 1] == '+') {
    return Bad("a plus behind an interval is not supported");
  }
  out_ += pattern_[at_++];
  if (is_interval && pattern_[at_] == ',') out_ += '0';
  return {};
}

Status Rewriter::ReadClassItem(int depth, CharacterSet* set) {
  if (Starts("[:")) {
    const size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) return Bad("a class [: without its end");
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (!set->AddPosix(name, negated)) return Bad("class [:" + std::string(name) + ":] is not supported");
    at_ = end + 2;
    return {};
  }
  if (pattern_[at_] == '[') {
    CharacterSet inner;
    TACTUS_RETURN_IF_ERROR(ReadClass(depth + 1, &inner));
    set->items += inner.items;
    set->others.insert(set->others.end(), inner.others.begin(), inner.others.end());
    return {};
  }
  if (pattern_[at_] != '\\') {
    set->items += pattern_[at_++];
    return {};
  }
  if (at_ + 1 == pattern_.size()) return Bad("ends in a backslash");
  bool known = false;
  TACTUS_RETURN_IF_ERROR(SetEscape(set, &known));
  if (known) return {};
  set->items += {'\\', pattern_[at_ + 1]};
  at_ += 2;
  return {};
}

// A class with at_ at its bracket. Nested classes are unions, and && intersects what is on its two sides.
Status Rewriter::ReadClass(int depth, CharacterSet* set) {
  constexpr int kMostDepth = 16;
  if (depth == kMostDepth) return Bad("classes are nested too deep");
  ++at_;
  const bool negated = Starts("^");
  at_ += negated;
  if (Starts("]")) return Bad("an empty class, or ']' as its first character, is not supported");
  CharacterSet part;
  std::vector<std::string> intersected;
  while (!Starts("]")) {
    if (at_ == pattern_.size()) return Bad("a class without its end");
    if (!Starts("&&")) {
      TACTUS_RETURN_IF_ERROR(ReadClassItem(depth, &part));
      continue;
    }
    intersected.push_back(part.Pattern());
    part = {};
    at_ += 2;
  }
  ++at_;
  if (intersected.empty() && part.others.empty()) {
    set->Add(part.items, negated);
    return {};
  }
  std::string all;
  for (const std::string& pattern : intersected) all += pattern.empty() ? "(?!)" : "(?=" + pattern + ")";
  const std::string last = part.Pattern();
  all += last.empty() ? "(?!)" : last;
  set->others.push_back(negated ? "(?:(?!" + all + ")\\p{Any})" : "(?:" + all + ")");
  return {};
}

}  // namespace

Result<std::string> RewritePattern(std::string_view pattern) {
  return Rewriter(pattern).Rewrite();
}

}  // namespace tactus::language
