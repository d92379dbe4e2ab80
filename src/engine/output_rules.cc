#include "engine/output_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_role.h"

namespace tactus::engine {
namespace {

// A tokeniser that puts a space before every text (SentencePiece) also does so before this line break, whose tokens
// EncodeInside cuts off again.
constexpr std::string_view kBefore = "\n";

constexpr int64_t kMiB = 1 << 20;

std::vector<TokenId> EncodeInside(const language::Tokenizer& tokenizer, size_t tokens_before, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.Encode(std::string(kBefore) + std::string(text), false, false);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(tokens_before, tokens.size())));
  return tokens;
}

bool AddsSpace(const language::Tokenizer& tokenizer) {
  const std::vector<TokenId> tokens = tokenizer.Encode("a", false, false);
  return !tokens.empty() && tokenizer.TokenBytes(tokens[0]).starts_with(' ');
}

}  // namespace

language::Vocabulary VocabularyOf(const language::Tokenizer* tokenizer, int64_t model_size,
                                  std::span<const TokenId> end_ids) {
  language::Vocabulary v;
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

// Shares of the available memory, clamped between what usual rules need and more than enough for any rule
// (docs/measurements/structured_output.md).
OutputRulesMemory OutputRulesMemory::Of(int64_t model_size, int64_t available) {
  constexpr int64_t kTokenBytes = 800, kLibraryBytes = kMiB * 8, kUnknown = int64_t{16} << 30;
  if (available < 0) available = kUnknown;
  OutputRulesMemory memory;
  memory.vocabularies = 2 * (kTokenBytes * model_size + kLibraryBytes);
  memory.trial_bytes = std::clamp(available / 64, 24 * kMiB, 64 * kMiB);
  memory.trials = static_cast<int>(std::clamp<int64_t>(available >> 31, 2, 8));
  memory.answers = std::clamp(available / 32, 32 * kMiB, 512 * kMiB);
  return memory;
}

std::string OutputRulesMemory::Text() const {
  return fmt::format(
      "rules of answers: up to {} MiB as needed: {} for vocabularies, {} compilations at once of {} each, {} for "
      "answers that follow a rule",
      total() / kMiB, vocabularies / kMiB, trials, trial_bytes / kMiB, answers / kMiB);
}

OutputRules::OutputRules(const language::Tokenizer* tokenizer, int64_t model_size, std::span<const TokenId> end_ids,
                         const OutputRulesMemory& memory)
    : tokenizer_(tokenizer),
      model_size_(model_size),
      end_ids_(end_ids.begin(), end_ids.end()),
      memory_(memory),
      prepares_([this] {
        SetThreadRole(ThreadRole::kService, "tactus-rules");
        (void)Engine();  // Compile tries again and returns the error
      }) {}

OutputRules::~OutputRules() {
  prepares_.join();
}

Result<language::GrammarEngine*> OutputRules::Engine() {
  const std::lock_guard lock(mutex_);
  if (engine_ == nullptr) {
    language::GrammarLimits limits;
    limits.trial_bytes = memory_.trial_bytes;
    limits.compiles_at_once = memory_.trials;
    limits.memory_bytes = memory_.answers;
    try {
      TACTUS_ASSIGN_OR_RETURN(engine_,
                              language::GrammarEngine::Create(VocabularyOf(tokenizer_, model_size_, end_ids_), limits));
    } catch (const std::exception&) {  // the next rule tries again
      return Status(StatusCode::kResourceExhausted,
                    "there is no memory, or no thread, to compile rules with; try again later");
    }
  }
  return engine_.get();
}

Result<std::shared_ptr<const TokenGrammar>> OutputRules::Compile(const OutputRule& rule, StopToken stop,
                                                                 RuleWait* wait) {
  TACTUS_ASSIGN_OR_RETURN(language::GrammarEngine* const engine, Engine());
  return engine->Compile(rule, stop, wait);
}

Status OutputRules::CheckRoom(const TokenGrammar& grammar, int64_t answers) {
  const std::lock_guard lock(mutex_);
  return engine_ == nullptr ? Status() : engine_->CheckRoom(grammar, answers);
}

}  // namespace tactus::engine
