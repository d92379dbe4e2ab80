#include "language/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace tactus::language {
namespace {

// Bounds on one match, so that no pattern and no text can run or grow endlessly. A piece of a megabyte needs at most a
// few million steps with the patterns of known models.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = size_t{16} << 20;

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

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::Compile(std::string_view pattern) {
  TACTUS_ASSIGN_OR_RETURN(const std::string rewritten, RewritePattern(pattern));
  const auto code = std::make_shared<Code>();
  int error = 0;
  size_t place = 0;
  // ^ and $ match at every line, as in Oniguruma.
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (code->code == nullptr) {
    std::array<unsigned char, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return Unimplemented("pattern \"" + std::string(pattern) + "\": " + reinterpret_cast<const char*>(text.data()) +
                         " at byte " + std::to_string(place) + " of \"" + rewritten + "\"");
  }
  // Without JIT on this machine the interpreter runs: slower, with the same matches.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.code_ = code;
  return regex;
}

bool Regex::Find(std::string_view text, size_t from, size_t* begin, size_t* end) const {
  thread_local MatchState state;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                     state.context);
  }
  if (rc < 0) return false;
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(state.data);
  *begin = ovector[0], *end = ovector[1];
  return true;
}

}  // namespace tactus::language
