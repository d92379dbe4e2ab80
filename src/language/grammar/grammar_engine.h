// Compiles the rules that answers have to match, over one model's vocabulary. llguidance does the work
// (language/grammar/llguidance.h); what stands behind this interface stays here.
//
// JSON answers have one spacing, `{"a": 1, "b": [2, 3]}`, and object keys in the order of the schema. A schema that
// cannot be kept to in full is refused, never loosened.
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
  std::vector<bool> special;        // as `tokens`: no part of any text; only a Lark grammar names one, as <name>
  std::vector<TokenId> end_ids;     // what may be sampled where the answer may end
  // `text` as the model's tokeniser spells it, without BOS: it decides which tokens of forced text come next. Any
  // thread; not called any more once the engine is gone. Where its tokens do not spell the very bytes, the longest
  // tokens from the left are taken.
  std::function<std::vector<TokenId>(std::string_view text)> encode;
};

// What bounds the work for one client's rule, and the memory of all. Beyond these, llguidance's own limits
// (llg_vocabulary.cc).
struct GrammarLimits {
  int64_t text_bytes = 512 << 10;  // of a rule
  int64_t compile_ms = 5000;       // until the caller gets an answer, waiting for a place included
  int64_t trial_ms = 2000;         // of CPU time, for its trial in a process that can be ended
  int64_t trial_bytes = int64_t{64} << 20;
  int compiles_at_once = 4;
  int64_t kept_rules = 32;                    // compiled ones that are used again
  int64_t memory_bytes = int64_t{256} << 20;  // of those, at most a quarter, and of all answers that follow a rule
};

class GrammarEngine {
 public:
  // Takes about 0.3 s per 50 000 tokens; starts the process in which rules are tried. kUnimplemented: llguidance's
  // library is not there, with what to do, or the vocabulary has no end token. kDataLoss: a library that cannot be
  // used.
  static Result<std::unique_ptr<GrammarEngine>> Create(Vocabulary vocabulary, const GrammarLimits& limits = {});
  virtual ~GrammarEngine() = default;

  // The grammar of `rule`, the same one again for the same rule while it is kept; it may outlive this. Any thread;
  // takes at most limits.compile_ms of the caller's time, however hostile the rule, and of all rules with one `wait`
  // together. A client has half of the places at most. kInvalidArgument: the rule cannot be taken: the keyword or place
  // at fault; said again from memory some times. kTooLarge: longer than the limit. kResourceExhausted: no memory,
  // thread or place to compile it with. kUnavailable: the process that tries rules cannot be started. kCancelled:
  // `stop`. Precondition: rule.any().
  virtual Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop = {},
                                                              RuleWait* wait = nullptr) = 0;

  // Whether the states of `answers` more have room beside those that there are: kInvalidArgument: they never
  // have, kResourceExhausted: not now. A grammar that is not of this engine always has. Any thread.
  virtual Status CheckRoom(const TokenGrammar& grammar, int64_t answers) const = 0;

  virtual pid_t helper() const = 0;           // the process that tries rules; -1: it does not run
  virtual int64_t memory_in_use() const = 0;  // of memory_bytes
};

// "json_schema": how messages and llguidance call a kind of rule.
const char* RuleName(OutputRule::Kind kind);

}  // namespace tactus::language
