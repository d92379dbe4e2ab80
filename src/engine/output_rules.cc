#include "engine/output_rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_role.h"

namespace tactus {
namespace {

// A tokeniser that puts a space before every text (SentencePiece) does so after a line break of its own too, which is
// cut off again with the tokens that it makes by itself.
constexpr std::string_view kBefore = "\n";

std::vector<TokenId> EncodeInside(const Tokenizer& tokenizer, size_t tokens_before, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.Encode(std::string(kBefore) + std::string(text), false, false);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(tokens_before, tokens.size())));
  return tokens;
}

bool AddsSpace(const Tokenizer& tokenizer) {
  const std::vector<TokenId> tokens = tokenizer.Encode("a", false, false);
  return !tokens.empty() && tokenizer.TokenBytes(tokens[0]).starts_with(' ');
}

}  // namespace

grammar::Vocabulary VocabularyOf(const Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids) {
  grammar::Vocabulary v;
  v.size = model_size;
  const auto known = static_cast<size_t>(std::min<int64_t>(tokenizer->vocab_size(), model_size));
  v.tokens.reserve(known);
  v.special.reserve(known);
  for (size_t i = 0; i < known; ++i) {
    const auto id = static_cast<TokenId>(i);
    v.tokens.emplace_back(tokenizer->TokenBytes(id));
    v.special.push_back(tokenizer->IsSpecial(id));
  }
  for (const TokenId id : end_ids) {
    if (id >= 0 && id < model_size) v.end_ids.push_back(id);
  }
  if (AddsSpace(*tokenizer)) {
    const size_t before = tokenizer->Encode(kBefore, false, false).size();
    v.encode = [tokenizer, before](std::string_view text) { return EncodeInside(*tokenizer, before, text); };
  } else {
    v.encode = [tokenizer](std::string_view text) { return tokenizer->Encode(text, false, false); };
  }
  return v;
}

OutputRules::OutputRules(const Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids)
    : tokenizer_(tokenizer), model_size_(model_size), end_ids_(end_ids.begin(), end_ids.end()), prepares_([this] {
        SetThreadRole(ThreadRole::kService, "tactus-rules");
        (void)Engine();  // what goes wrong is said to whoever asks for a rule
      }) {}

OutputRules::~OutputRules() {
  prepares_.join();
}

Result<grammar::GrammarEngine*> OutputRules::Engine() {
  const std::lock_guard lock(mutex_);
  if (engine_ == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(engine_, grammar::GrammarEngine::Create(VocabularyOf(tokenizer_, model_size_, end_ids_)));
  }
  return engine_.get();
}

Result<std::shared_ptr<const TokenGrammar>> OutputRules::Compile(const OutputRule& rule, StopToken stop) {
  TACTUS_ASSIGN_OR_RETURN(grammar::GrammarEngine* const engine, Engine());
  return engine->Compile(rule, stop);
}

}  // namespace tactus
