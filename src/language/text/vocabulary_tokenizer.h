// Shared by both algorithms: the vocabulary, added tokens, BOS and EOS, decoding. Private to text/.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "language/text/added_tokens.h"
#include "language/text/tokenizer.h"

namespace tactus::language {

// Pieces in one call of Encode; the keys are views into the text being encoded.
using PieceCache = std::unordered_map<std::string_view, std::vector<TokenId>>;

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, bool add_special, bool parse_special, StopToken stop) const final;
  int64_t LeastTokens(std::string_view text) const final;
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const final;
  std::string_view TokenBytes(TokenId id) const final {
    return InRange(id) ? bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  std::string_view TokenText(TokenId id) const final {
    return InRange(id) ? spec_.tokens[static_cast<size_t>(id)] : std::string_view();
  }
  bool IsSpecial(TokenId id) const final { return InRange(id) && special_[static_cast<size_t>(id)]; }
  int32_t vocab_size() const final { return static_cast<int32_t>(spec_.tokens.size()); }
  TokenId bos_id() const final { return spec_.bos_id; }
  TokenId eos_id() const final { return spec_.eos_id; }
  TokenId FindToken(std::string_view text) const final;
  bool strips_leading_space() const final { return spec_.strip_leading_space; }

 protected:
  explicit VocabularyTokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}
  // Called once by the derived class, when Normalize and BytesOf can be called.
  void Prepare();
  void FindBounds();  // likewise, when LongestUnknown can be called too
  bool InRange(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < spec_.tokens.size(); }

  // `at_start`: the text starts here. Applied to text before added tokens with `normalized` are searched.
  virtual std::string Normalize(std::string_view text, bool at_start) const = 0;
  virtual bool Normalizes() const = 0;
  // Ids of a stretch of normalized text without added tokens.
  virtual void EncodeText(std::string_view text, bool at_start, StopToken stop, PieceCache* cache,
                          std::vector<TokenId>* ids) const = 0;
  // The bytes that a token represents.
  virtual std::string BytesOf(TokenId id) const = 0;
  // Most bytes of text that one unknown token may represent; 0: no limit.
  virtual size_t LongestUnknown() const = 0;

  const TokenizerSpec spec_;
  std::unordered_map<std::string_view, TokenId> id_of_text_;  // views into spec_.tokens

 private:
  // Counts the bytes that tokens represent as in Decode; text that tokens consume in addition does not count.
  struct TextBounds {
    size_t longest_token = 0;  // bytes; 0: no bound
    size_t shrinks_to = 1;     // at least 1 / shrinks_to of the bytes remain after normalising
    bool white_space_counts = true;
  };

  std::vector<std::string> bytes_;
  std::vector<bool> special_;
  AddedTokenMatcher raw_added_, normalized_added_;
  TextBounds bounds_;
};

Result<std::unique_ptr<Tokenizer>> MakeByteLevelTokenizer(TokenizerSpec spec);
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(TokenizerSpec spec);

}  // namespace tactus::language
