// Compiles the rules that answers must match, over one model's vocabulary. llguidance does the work
// (language/grammar/llguidance.h); this interface hides it.
//
// JSON answers have one spacing, `{"a": 1, "b": [2, 3]}`, and object keys in the order of the schema. A schema that
// cannot be enforced in full is refused, never relaxed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_grammar.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

struct Vocabulary {
  int64_t size = 0;                 // of the model: bits of a mask; ids without bytes below are never allowed
  std::vector<std::string> tokens;  // the bytes that each id adds to the text, at most `size`
  std::vector<bool> special;        // parallel to `tokens`: no part of any text; only a Lark grammar names one, as
                                    // <name>
  std::vector<TokenId> end_ids;     // tokens allowed where the answer may end
  // Tokenises `text` as the model does, without BOS: decides which tokens of forced text come next. Any thread; not
  // called after the engine is destroyed. Where its tokens do not decode to the same bytes, the longest tokens from the
  // left are used.
  std::function<std::vector<TokenId>(std::string_view text)> encode;
};

// Limits of the work for one client's rule, and of the memory of all. llguidance's own limits apply in addition
// (llg_vocabulary.cc).
struct GrammarLimits {
  int64_t text_bytes = 512 << 10;  // per rule
  int64_t compile_ms = 5000;       // before the caller gets an answer, waiting for a place included
  int64_t trial_ms = 2000;         // CPU time of its trial in a process that can be killed
  int64_t trial_bytes = int64_t{64} << 20;
  int compiles_at_once = 4;
  int64_t kept_rules = 32;                    // compiled rules in the cache
  int64_t memory_bytes = int64_t{256} << 20;  // of those, at most a quarter, and of all answers with a rule
};

class GrammarEngine {
 public:
  // Takes about 0.3 s per 50 000 tokens; starts the process that tries rules. kUnimplemented: llguidance's library is
  // not installed, with instructions, or the vocabulary has no end token. kDataLoss: the library cannot be used.
  static Result<std::unique_ptr<GrammarEngine>> Create(Vocabulary vocabulary, const GrammarLimits& limits = {});
  virtual ~GrammarEngine() = default;

  // The grammar of `rule`, the same object for the same rule while it is cached; it may outlive the engine. Any thread.
  // Takes at most limits.compile_ms of the caller's time, however hostile the rule; rules with one `wait` share that
  // time. A client has at most half of the places. kInvalidArgument: the rule is refused, with the keyword or place at
  // fault; repeated from the cache a limited number of times. kTooLarge: longer than the limit. kResourceExhausted: no
  // memory, thread or place to compile it. kUnavailable: the process that tries rules cannot be started. kCancelled:
  // `stop`. Precondition: rule.any().
  virtual Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop = {},
                                                              RuleWait* wait = nullptr) = 0;

  // Whether the states of `answers` more fit beside the existing ones: kInvalidArgument: never; kResourceExhausted: not
  // now. A grammar of another engine always fits. Any thread.
  virtual Status CheckRoom(const TokenGrammar& grammar, int64_t answers) const = 0;

  virtual pid_t helper() const = 0;           // the process that tries rules; -1: not running
  virtual int64_t memory_in_use() const = 0;  // of memory_bytes
};

// "json_schema": a kind of rule as named by messages and llguidance.
const char* RuleName(OutputRule::Kind kind);

}  // namespace tactus::language
