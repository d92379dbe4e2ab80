// The part of llguidance's C interface that is used here, and the library loaded at run time. The library is from a
// Python wheel (scripts/get_llguidance.sh), so it is not linked and not needed to build.
//
// The structs are those of exactly this version of the library (its parser/llguidance.h): LlgConstraintInit carries no
// size, so another version could read past its end; other versions are refused. The library's functions catch Rust's
// panics and report them as errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tactus/status.h"

namespace tactus::language {

inline constexpr const char kLlguidanceVersion[] = "1.9.1";
inline constexpr const char kLlguidanceFile[] = "libllguidance-1.9.1.so";

struct LlgTokenizer;  // a vocabulary; immutable, any thread
struct LlgMatcher;    // a rule and its state in a text; one thread at a time, but any number may clone it

// Tokenises `bytes`, writes at most `room` tokens to *tokens; returns their number. Any thread; throws nothing.
using LlgTokenizeFn = size_t (*)(const void* user, const uint8_t* bytes, size_t size, uint32_t* tokens, size_t room);

struct LlgTokenizerInitV2 {
  size_t struct_size = sizeof(LlgTokenizerInitV2);
  uint32_t vocab_size = 0;
  uint32_t tok_eos = 0;
  const uint32_t* token_lens = nullptr;
  const uint8_t* token_bytes = nullptr;  // of all tokens, one after the other; special ones begin with 0xff
  const char* tokenizer_json = nullptr;
  bool tokenize_assumes_string = false;  // tokenize_fn accepts UTF-8 alone
  LlgTokenizeFn tokenize_fn = nullptr;
  bool use_approximate_greedy_tokenize_fn = false;  // instead; then nothing is forced
  const void* tokenize_user_data = nullptr;
  const char* const* slices = nullptr;  // regexes, ended by null: sets of tokens that masks allow as a whole
  const uint32_t* tok_eos_extra = nullptr;
  uint32_t tok_eos_extra_count = 0;
};

struct LlgParserLimits {
  size_t max_items_in_row = 0;
  uint64_t initial_lexer_fuel = 0;
  uint64_t step_lexer_fuel = 0;
  size_t step_max_items = 0;
  size_t max_lexer_states = 0;
  size_t max_grammar_size = 0;
  bool precompute_large_lexemes = false;
  bool verbose_errors = false;
};

struct LlgConstraintInit {
  const LlgTokenizer* tokenizer = nullptr;
  uint32_t log_buffer_level = 0;
  uint32_t log_stderr_level = 0;
  bool ff_tokens_ok = false;
  bool backtrack_ok = false;
  LlgParserLimits limits;
};

// Functions that return int return -1 for an error; the matcher then stays in error.
struct LlgFunctions {
  std::string path;  // of the library
  const char* (*get_version)();
  LlgTokenizer* (*new_tokenizer_v2)(const LlgTokenizerInitV2*, char* error, size_t error_size);
  void (*free_tokenizer)(LlgTokenizer*);
  void (*constraint_init_set_defaults)(LlgConstraintInit*, const LlgTokenizer*);
  LlgMatcher* (*new_matcher)(const LlgConstraintInit*, const char* kind, const char* text);  // never null
  LlgMatcher* (*clone_matcher)(const LlgMatcher*);
  void (*free_matcher)(LlgMatcher*);
  const char* (*matcher_get_error)(LlgMatcher*);  // null: none; the matcher's own
  bool (*matcher_is_error)(const LlgMatcher*);
  bool (*matcher_is_stopped)(const LlgMatcher*);
  int32_t (*matcher_compute_mask_into)(LlgMatcher*, uint32_t* mask, size_t bytes);
  int32_t (*matcher_consume_token)(LlgMatcher*, uint32_t token);
  int32_t (*matcher_validate_tokens)(LlgMatcher*, const uint32_t* tokens, size_t count);
  int32_t (*matcher_compute_ff_tokens)(LlgMatcher*, uint32_t* tokens, size_t room);
};

// Candidate paths of the library, in order: the file named by the environment's TACTUS_LLGUIDANCE, and nothing else
// where it is set; lib/tactus/ beside the program or library with this code; lib/ in the cache folder.
std::vector<std::string> LlguidancePaths();

// Opens the first of these files that exists. kUnimplemented: none exists, with instructions; kDataLoss: it is not this
// version of the library.
Result<LlgFunctions> OpenLlguidance(const std::vector<std::string>& paths);

// The library from LlguidancePaths(), loaded once per process and never unloaded, with its allocations counted
// (language/grammar/library_heap.h); errors are not cached. Any thread.
Result<const LlgFunctions*> LoadLlguidance();

}  // namespace tactus::language
