// What an answer must match, token by token: the interface between whoever compiles a rule (src/language/grammar/) and
// those who keep a sequence to it: the executor, which lets only tokens be sampled that the rule allows, and the loop,
// which knows ahead what the rule leaves no choice about.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tactus/request.h"

namespace tactus {

// Where one sequence stands in its rule. One thread at a time.
class GrammarState {
 public:
  virtual ~GrammarState() = default;
  // Sets bit t % 32 of mask[t / 32] for every token t that may come next, and clears the others; `mask` has
  // ceil(vocab_size / 32) words. Where the text may end, the model's end tokens are allowed; where it must, they alone
  // are. False: the rule can go on no more (a limit of the library was met, or the rule has taken more CPU time than
  // its answer may); the sequence has to end with an error.
  virtual bool FillMask(std::span<uint32_t> mask) = 0;
  // The token has come next. False: the rule does not allow it; nothing has changed then.
  virtual bool Accept(TokenId token) = 0;
  // How many of `tokens`, from the first, the rule would allow one after the other. Changes nothing.
  virtual int32_t CountValid(std::span<const TokenId> tokens) = 0;
  // Puts the tokens that must come next, at most `most`, into *tokens; none where there is a choice. They spell the
  // text as the tokeniser does. Changes nothing.
  virtual void Forced(int32_t most, std::vector<TokenId>* tokens) = 0;
};

// A compiled rule. Immutable: any thread.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  // At the beginning of an answer. Null: no memory.
  virtual std::unique_ptr<GrammarState> Start() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace tactus
