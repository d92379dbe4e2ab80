// The model of a tokeniser: turns a piece of text into ids. Private to text/. Immutable once made: any thread.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

// The tokens of a specification by their texts; of equal texts the first one counts. The specification must outlive it.
class TokenIndex {
 public:
  explicit TokenIndex(const TokenizerSpec& spec);
  TokenId Find(std::string_view text) const;         // -1: none
  TokenId FindOfModel(std::string_view text) const;  // tokens of kind kAdded do not count

 private:
  const TokenizerSpec* spec_;
  std::unordered_map<std::string_view, TokenId> id_of_text_;
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  // The ids of `piece`, not empty, into the empty `ids`; when stopped, of a part of it.
  virtual void Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const = 0;
  // Most bytes of text that one unknown token may represent; 0: no limit, or unknown text may be dropped.
  virtual size_t LongestUnknown() const = 0;
  // A piece has the same ids if it is split before its runs of U+2581.
  virtual bool WordsAreIndependent() const { return false; }
};

// `bytes`: the pieces are bytes, which the tokens spell in GPT-2's alphabet. kDataLoss: the vocabulary contradicts
// itself. The specification and the index must outlive the model.
Result<std::unique_ptr<TextModel>> MakeBpeModel(const TokenizerSpec& spec, const TokenIndex& index, bool bytes);
Result<std::unique_ptr<TextModel>> MakeSentencePieceBpeModel(const TokenizerSpec& spec, const TokenIndex& index);
Result<std::unique_ptr<TextModel>> MakeUnigramModel(const TokenizerSpec& spec, const TokenIndex& index);
Result<std::unique_ptr<TextModel>> MakeWordPieceModel(const TokenizerSpec& spec, const TokenIndex& index);
Result<std::unique_ptr<TextModel>> MakeWordLevelModel(const TokenizerSpec& spec, const TokenIndex& index);

// Whether U+2581 is a token and none has it behind another character: then no token spans two words.
bool TokensStayWithinWords(const TokenizerSpec& spec, const TokenIndex& index);
// The ids of the tokens <0x00> to <0xFF>, -1 where there is none; by their kinds, or by their texts.
std::vector<TokenId> ByteTokens(const TokenIndex& index);

}  // namespace tactus::language
