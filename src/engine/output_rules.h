// Output rules for one model: builds the vocabulary for grammars from its tokeniser, and compiles rules over it
// (language/grammar/grammar_engine.h). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/token_grammar.h"
#include "language/grammar/grammar_engine.h"
#include "language/text/tokenizer.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::engine {

// A tokeniser's data for language::GrammarEngine. The tokeniser outlives the engine made with it. `model_size`: size of
// the model's vocabulary, which may be padded beyond the tokeniser's.
language::Vocabulary VocabularyOf(const language::Tokenizer* tokenizer, int64_t model_size,
                                  std::span<const TokenId> end_ids);

// Memory that rules may use beside the model; the memory plan reserves its total.
struct OutputRulesMemory {
  int64_t vocabularies = 0;  // of the server and of the process that tries rules, each with its library
  int64_t trial_bytes = 0;   // for one rule while it is tried and compiled
  int trials = 0;            // at once
  int64_t answers = 0;       // the states of all answers that follow a rule, and the compiled rules that are cached

  // `available`: memory that this process may use; negative: not known.
  static OutputRulesMemory Of(int64_t model_size, int64_t available);
  int64_t total() const { return vocabularies + trial_bytes * trials + answers; }
  std::string Text() const;  // for people
};

class OutputRules {
 public:
  // Starts to prepare the vocabulary (some 0.3 s per 50 000 tokens) on its own thread, and in the process that tries
  // rules, so that the first request with a rule need not wait for it. `tokenizer` outlives this.
  OutputRules(const language::Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids,
              const OutputRulesMemory& memory);
  ~OutputRules();

  // Like GrammarEngine::Compile; waits for the vocabulary first. kUnimplemented, kDataLoss as from
  // GrammarEngine::Create, which is tried again each time so that a library installed meanwhile is found.
  Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop, RuleWait* wait = nullptr);
  // Like GrammarEngine::CheckRoom.
  Status CheckRoom(const TokenGrammar& grammar, int64_t answers);

 private:
  Result<language::GrammarEngine*> Engine();

  const language::Tokenizer* const tokenizer_;
  const int64_t model_size_;
  const std::vector<TokenId> end_ids_;
  const OutputRulesMemory memory_;
  std::mutex mutex_;
  std::unique_ptr<language::GrammarEngine> engine_;  // null: not made yet, or creation failed
  std::thread prepares_;
};

}  // namespace tactus::engine
