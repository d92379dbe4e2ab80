// A model's vocabulary for llguidance, and matchers over it. The server's process and the helper that tries rules
// (language/grammar/trial.h) both compile with it, so that both behave alike. Internal to grammar/.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "language/grammar/grammar_engine.h"
#include "language/grammar/llguidance.h"
#include "tactus/status.h"

namespace tactus::language {

// Bytes of forced text: the library copies and checks all of it for every mask until it has been sampled.
inline constexpr int64_t kMostForcedBytes = 64 << 10;

// The stack of a thread that compiles: llguidance's readers of regexes and Lark recurse once per nested bracket.
// Address space only, until it is used.
inline constexpr size_t kCompileStackBytes = size_t{512} << 20;

// The vocabulary and the callback for tokenising: shared by everything compiled over it. Any thread.
class LlgVocabulary {
 public:
  // `vocabulary.encode` may be empty: forced text is then split into the longest tokens.
  static Result<std::shared_ptr<const LlgVocabulary>> Make(const LlgFunctions* llg, Vocabulary vocabulary);
  ~LlgVocabulary();
  LlgVocabulary(const LlgVocabulary&) = delete;
  LlgVocabulary& operator=(const LlgVocabulary&) = delete;

  const LlgFunctions& llg() const { return *llg_; }
  const LlgTokenizer* tokenizer() const { return tokenizer_; }
  int64_t size() const { return vocabulary_.size; }
  size_t mask_words() const { return static_cast<size_t>((size() + 31) / 32); }
  bool InRange(TokenId token) const { return token >= 0 && token < vocabulary_.size; }
  bool IsEnd(TokenId token) const;
  // Stops calling the tokeniser: its owner may be destroyed.
  void Close() const;

 private:
  LlgVocabulary(const LlgFunctions* llg, Vocabulary vocabulary) : llg_(llg), vocabulary_(std::move(vocabulary)) {}
  Status Load();
  std::vector<TokenId> EncodeAll(std::string_view text) const;
  std::vector<TokenId> Encode(std::string_view text) const;
  bool Spells(const std::vector<TokenId>& tokens, std::string_view text) const;
  static size_t Tokenize(const void* self, const uint8_t* bytes, size_t size, uint32_t* tokens, size_t room);

  const LlgFunctions* llg_;
  const Vocabulary vocabulary_;
  LlgTokenizer* tokenizer_ = nullptr;
  std::unordered_map<std::string_view, TokenId> id_of_bytes_;  // without special tokens; views into vocabulary_
  size_t longest_token_ = 0;
  mutable std::shared_mutex mutex_;  // held while the tokeniser is called
  mutable bool closed_ = false;
};

// A matcher with its vocabulary. One thread at a time, but any number may clone it.
class Matcher {
 public:
  // The rule `text` of a kind named as in llguidance. Never null; an error in the rule is the matcher's error.
  static std::unique_ptr<Matcher> Of(std::shared_ptr<const LlgVocabulary> vocabulary, const char* kind,
                                     const std::string& text);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  std::unique_ptr<Matcher> Clone() const;
  // False: the matcher is in error, or the mask passed on more than kMostForcedBytes of forced text.
  bool FillMask(uint32_t* mask, size_t words);
  int64_t forced_bytes() const { return forced_bytes_; }  // forced text that the last mask passed on for tokenising

  const std::shared_ptr<const LlgVocabulary>& vocabulary() const { return vocabulary_; }
  const LlgFunctions& llg() const { return vocabulary_->llg(); }
  LlgMatcher* get() const { return matcher_; }
  // Null: none; the matcher's own.
  const char* error() const { return llg().matcher_get_error(matcher_); }

 private:
  Matcher(std::shared_ptr<const LlgVocabulary> vocabulary, LlgMatcher* matcher)
      : vocabulary_(std::move(vocabulary)), matcher_(matcher) {}

  const std::shared_ptr<const LlgVocabulary> vocabulary_;
  LlgMatcher* const matcher_;
  int64_t forced_bytes_ = 0;
};

}  // namespace tactus::language
