// WordPiece (the longest tokens from left to right, else the whole word is unknown) and WordLevel (the whole word is a
// token), as in Hugging Face's tokenizers.
#include "language/text/byte_trie.h"
#include "language/text/text_model.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

class WordPieceModel final : public TextModel {
 public:
  WordPieceModel(const TokenizerSpec& spec, const TokenIndex&) : spec_(spec) {
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.kinds[i] != TokenKind::kAdded) pieces.emplace_back(spec.tokens[i], static_cast<int32_t>(i));
    }
    pieces_ = ByteTrie(std::move(pieces));
    continuing_ = ByteTrie::kRoot;
    for (const char c : spec.continuing_prefix) {
      if (continuing_ != ByteTrie::kNone) continuing_ = pieces_.Next(continuing_, c);
    }
  }
  void Encode(std::string_view piece, StopToken, std::vector<TokenId>* ids) const override {
    if (!IsTooLong(piece)) {
      while (!piece.empty()) {
        size_t size = 0;
        const TokenId id = Longest(piece, ids->empty() ? ByteTrie::kRoot : continuing_, &size);
        if (id < 0) break;
        ids->push_back(id);
        piece.remove_prefix(size);
      }
      if (piece.empty()) return;
    }
    ids->clear();
    if (spec_.unk_id >= 0) ids->push_back(spec_.unk_id);
  }
  size_t LongestUnknown() const override { return 0; }

 private:
  bool IsTooLong(std::string_view piece) const {
    int64_t characters = 0;
    for (const char c : piece) characters += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    return characters > spec_.max_word_characters;
  }
  TokenId Longest(std::string_view text, int32_t node, size_t* size) const {
    TokenId found = -1;
    for (size_t i = 0; i < text.size() && node != ByteTrie::kNone; ++i) {
      node = pieces_.Next(node, text[i]);
      if (node == ByteTrie::kNone || pieces_.Value(node) < 0) continue;
      found = pieces_.Value(node);
      *size = i + 1;
    }
    return found;
  }

  const TokenizerSpec& spec_;
  ByteTrie pieces_;
  int32_t continuing_;  // the node of the prefix that spells tokens within a word
};

class WordLevelModel final : public TextModel {
 public:
  WordLevelModel(const TokenizerSpec& spec, const TokenIndex& index) : spec_(spec), index_(index) {}
  void Encode(std::string_view piece, StopToken, std::vector<TokenId>* ids) const override {
    const TokenId id = index_.FindOfModel(piece);
    if (id >= 0 || spec_.unk_id >= 0) ids->push_back(id >= 0 ? id : spec_.unk_id);
  }
  size_t LongestUnknown() const override { return 0; }

 private:
  const TokenizerSpec& spec_;
  const TokenIndex& index_;
};

}  // namespace

Result<std::unique_ptr<TextModel>> MakeWordPieceModel(const TokenizerSpec& spec, const TokenIndex& index) {
  return std::unique_ptr<TextModel>(std::make_unique<WordPieceModel>(spec, index));
}

Result<std::unique_ptr<TextModel>> MakeWordLevelModel(const TokenizerSpec& spec, const TokenIndex& index) {
  return std::unique_ptr<TextModel>(std::make_unique<WordLevelModel>(spec, index));
}

}  // namespace tactus::language
