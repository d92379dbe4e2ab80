// The rule that an answer must match, token by token: the interface between the compiler of rules
// (src/language/grammar/) and their users: the executor, which samples only allowed tokens, and the loop, which reads
// forced tokens in advance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tactus/request.h"

namespace tactus {

// The state of one sequence in its rule. One thread at a time.
class GrammarState {
 public:
  virtual ~GrammarState() = default;
  // Sets bit t % 32 of mask[t / 32] for every token t that may come next, and clears the others; `mask` has
  // ceil(vocab_size / 32) words. If the text may end, the model's end tokens are allowed; if it must end, only those
  // are. False: the rule cannot continue (a limit of the library, or of CPU time per answer, was reached); the sequence
  // must end with an error.
  virtual bool FillMask(std::span<uint32_t> mask) = 0;
  // Advances the state by the next token. False: the rule does not allow it; the state is unchanged.
  virtual bool Accept(TokenId token) = 0;
  // The length of the longest prefix of `tokens` that the rule allows. Changes nothing.
  virtual int32_t CountValid(std::span<const TokenId> tokens) = 0;
  // Writes the forced next tokens, at most `most`, to *tokens; none if there is a choice. They are the tokeniser's
  // encoding of the text. Changes nothing.
  virtual void Forced(int32_t most, std::vector<TokenId>* tokens) = 0;
};

// A compiled rule. Immutable: any thread.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  // The state at the beginning of an answer. Null: no memory.
  virtual std::unique_ptr<GrammarState> Start() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace tactus
