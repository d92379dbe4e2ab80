// Regexes in the syntax of Oniguruma, which the reference runs. PCRE2 runs them here; where its syntax or its character
// classes differ, the pattern is rewritten. Immutable after Compile: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus::language {

class Regex {
 public:
  // kUnimplemented with the pattern and the place: PCRE2 or the rewriting does not support it.
  static Result<Regex> Compile(std::string_view pattern);
  // The first match that begins at `from` or behind, perhaps an empty one. False: none, or the pattern reached the
  // bounds on the work of one match. `text` is valid UTF-8.
  bool Find(std::string_view text, size_t from, size_t* begin, size_t* end) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// Calls `match(begin, end)` for the matches from left to right, until it returns false. As in the reference, a match is
// not empty where the last one ended.
template <class Match>
void ForEachMatch(const Regex& regex, std::string_view text, Match match) {
  size_t last_end = std::string_view::npos, begin = 0, end = 0;
  for (size_t from = 0; from <= text.size() && regex.Find(text, from, &begin, &end);) {
    if (begin == end && end == last_end) {
      for (++from; from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80;) ++from;
      continue;
    }
    from = last_end = end;
    if (!match(begin, end)) return;
  }
}

// In PCRE2's syntax; declared for its test.
Result<std::string> RewritePattern(std::string_view pattern);

}  // namespace tactus::language
