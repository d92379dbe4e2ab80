// The rules of one model's answers: makes the vocabulary that grammars stand on out of its tokeniser, and compiles over
// it (grammar/grammar_engine.h). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/token_grammar.h"
#include "grammar/grammar_engine.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"
#include "text/tokenizer.h"

namespace tactus {

// What grammar::GrammarEngine wants to know of a tokeniser, which outlives the engine made with it. `model_size`: of
// the model's vocabulary, which may be padded beyond the tokeniser's.
grammar::Vocabulary VocabularyOf(const Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids);

class OutputRules {
 public:
  // Begins to prepare the vocabulary (some 0.3 s per 50 000 tokens) on a thread of its own, so that the first request
  // with a rule need not wait for it. `tokenizer` outlives this.
  OutputRules(const Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids);
  ~OutputRules();

  // Of the vocabulary and of some rules and answers in use, beside the model (docs/measurements/structured_output.md).
  static constexpr int64_t MemoryBytes(int64_t model_size) { return 800 * model_size + (int64_t{32} << 20); }

  // As GrammarEngine::Compile; waits for the vocabulary first. kUnimplemented, kDataLoss as GrammarEngine::Create: it
  // is tried again each time, so that a library fetched meanwhile is found.
  Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop);

 private:
  Result<grammar::GrammarEngine*> Engine();

  const Tokenizer* const tokenizer_;
  const int64_t model_size_;
  const std::vector<TokenId> end_ids_;
  std::mutex mutex_;
  std::unique_ptr<grammar::GrammarEngine> engine_;  // null: not yet, or it could not be made
  std::thread prepares_;
};

}  // namespace tactus
