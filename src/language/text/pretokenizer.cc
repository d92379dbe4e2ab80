#include "language/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tactus::language {

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kOneDigitPattern[] = R"(\p{N})";
const char kPunctuationPattern[] = R"([\p{P}$+<=>^`|~]+)";

namespace {

// Bounds on one match, so that no pattern and no text can run or grow endlessly. A piece of a megabyte needs at most a
// few million steps with the patterns above.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = size_t{16} << 20;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

// State written by a match: one per thread, because all threads share the compiled patterns.
struct MatchState {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);
  MatchState() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Status BadPattern(std::string_view pattern, const std::string& why) {
  return Unimplemented("pre-tokenizer pattern \"" + std::string(pattern) + "\": " + why);
}

}  // namespace

struct Pretokenizer::Rule {
  std::unique_ptr<pcre2_code, FreeCode> code;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  void Apply(std::string_view text, StopToken stop, std::vector<std::string_view>* pieces) const;
  // The next non-empty match at or after `from`; false: none.
  bool Find(std::string_view text, size_t from, size_t* begin, size_t* end) const;
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

Result<std::string> RewritePattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (++i == pattern.size()) return BadPattern(pattern, "ends in a backslash");
      switch (pattern[i]) {
        case 's':
          out += R"(\p{wspace})";
          break;
        case 'S':
          out += R"(\P{wspace})";
          break;
        case 'w':
          out += in_class ? R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})" : R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";
          break;
        case 'W':
          if (in_class) return BadPattern(pattern, "\\W inside a class is not supported");
          out += R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";
          break;
        case 'h':
        case 'H':
        case 'X':
        case 'R':
        case 'K':
        case 'G':
        case 'C':
          return BadPattern(pattern, std::string{'\\', pattern[i]}.append(" is not supported"));
        default:
          out.append({'\\', pattern[i]});
      }
    } else if (in_class && (c == '[' || pattern.substr(i, 2) == "&&")) {
      return BadPattern(pattern, "nested classes and class intersections are not supported");
    } else {
      if (c == '[') {
        in_class = true;
        out += c;
        if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
        if (i + 1 < pattern.size() && pattern[i + 1] == ']') {
          return BadPattern(pattern, "an empty class, or ']' as its first character, is not supported");
        }
        continue;
      }
      if (c == ']') in_class = false;
      out += c;
    }
  }
  return out;
}

Result<std::unique_ptr<Pretokenizer>> Pretokenizer::Compile(const std::vector<std::string>& patterns,
                                                            const std::vector<SplitBehavior>& behaviors) {
  if (!behaviors.empty() && behaviors.size() != patterns.size()) {
    return Internal(std::to_string(behaviors.size()) + " split behaviours for " + std::to_string(patterns.size()) +
                    " patterns");
  }
  std::unique_ptr<Pretokenizer> result(new Pretokenizer);
  for (size_t i = 0; i < patterns.size(); ++i) {
    TACTUS_ASSIGN_OR_RETURN(const std::string pattern, RewritePattern(patterns[i]));
    int error = 0;
    size_t place = 0;
    Rule rule;
    rule.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr));
    if (!rule.code) {
      std::array<unsigned char, 256> text{};
      pcre2_get_error_message(error, text.data(), text.size());
      return BadPattern(patterns[i],
                        std::string(reinterpret_cast<const char*>(text.data())) + " at byte " + std::to_string(place));
    }
    // Without JIT on this machine the interpreter runs: slower, with the same matches.
    (void)pcre2_jit_compile(rule.code.get(), PCRE2_JIT_COMPLETE);
    rule.behavior = behaviors.empty() ? SplitBehavior::kIsolated : behaviors[i];
    result->rules_.push_back(std::move(rule));
  }
  return result;
}

bool Pretokenizer::Rule::Find(std::string_view text, size_t from, size_t* begin, size_t* end) const {
  thread_local MatchState state;
  while (from <= text.size()) {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                       state.context);
    }
    // No match, or a pattern that reached its limits: the rest stays one piece.
    if (rc < 0) return false;
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(state.data);
    *begin = ovector[0], *end = ovector[1];
    if (*end > *begin) return true;
    // An empty match splits nothing; continue at the next character.
    from = *end + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return false;
}

void Pretokenizer::Rule::Apply(std::string_view text, StopToken stop, std::vector<std::string_view>* pieces) const {
  const auto put = [&](size_t begin, size_t end) {
    if (end > begin) pieces->push_back(text.substr(begin, end - begin));
  };
  size_t at = 0;  // earlier text is in pieces
  size_t begin = 0, end = 0, from = 0;
  while (from < text.size() && !stop.stopped() && Find(text, from, &begin, &end)) {
    from = end;
    switch (behavior) {
      case SplitBehavior::kIsolated:
        put(at, begin), put(begin, end), at = end;
        break;
      case SplitBehavior::kRemoved:
        put(at, begin), at = end;
        break;
      case SplitBehavior::kOnlyMatches:
        put(begin, end), at = end;
        break;
      case SplitBehavior::kMergedWithPrevious:
        put(at, end), at = end;
        break;
      case SplitBehavior::kMergedWithNext:
        put(at, begin), at = begin;
        break;
    }
  }
  if (behavior != SplitBehavior::kOnlyMatches) put(at, text.size());
}

void Pretokenizer::Split(std::string_view text, std::vector<std::string_view>* pieces, StopToken stop) const {
  if (text.empty()) return;
  if (rules_.empty()) {
    pieces->push_back(text);
    return;
  }
  if (rules_.size() == 1) {
    rules_[0].Apply(text, stop, pieces);
    return;
  }
  std::vector<std::string_view> now{text}, next;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const bool last = i + 1 == rules_.size();
    next.clear();
    for (const std::string_view piece : now) rules_[i].Apply(piece, stop, last ? pieces : &next);
    now.swap(next);
  }
}

}  // namespace tactus::language
