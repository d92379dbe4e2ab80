// Compiles the rules that answers have to match, over one model's vocabulary. llguidance does the work
// (grammar/llguidance.h); what stands behind this interface is nobody else's concern.
//
// JSON answers have one spacing, `{"a": 1, "b": [2, 3]}`, and object keys in the order of the schema. A schema that
// cannot be kept to in full is refused, never loosened.
#pragma once

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

namespace tactus::grammar {

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

// What bounds the work for one client's rule. Beyond these, llguidance's own limits (grammar_engine.cc).
struct GrammarLimits {
  int64_t text_bytes = 512 << 10;  // of a rule
  int64_t compile_ms = 5000;       // until the caller gets an answer, waiting for a place included
  int compiles_at_once = 2;
  int64_t kept_rules = 32;  // compiled ones that are used again, and the bytes of their texts
  int64_t kept_text_bytes = 4 << 20;
};

class GrammarEngine {
 public:
  // Takes about 0.3 s per 50 000 tokens. kUnimplemented: llguidance's library is not there, with what to do, or the
  // vocabulary has no end token. kDataLoss: a library that cannot be used.
  static Result<std::unique_ptr<GrammarEngine>> Create(Vocabulary vocabulary, const GrammarLimits& limits = {});
  virtual ~GrammarEngine() = default;

  // The grammar of `rule`, the same one again for the same rule while it is kept; it may outlive this. Any thread;
  // takes at most limits.compile_ms of the caller's time, however hostile the rule. kInvalidArgument: the rule cannot
  // be taken: the keyword or place at fault. kTooLarge: longer than the limit. kResourceExhausted: no memory, thread or
  // place to compile it with. kCancelled: `stop`. Precondition: rule.any().
  virtual Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop = {}) = 0;
};

// "json_schema": how messages and llguidance call a kind of rule.
const char* RuleName(OutputRule::Kind kind);

}  // namespace tactus::grammar
