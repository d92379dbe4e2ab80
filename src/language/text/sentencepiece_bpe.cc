// Byte-pair encoding as sentencepiece runs a tokenizer.model: merges by the score of their result, which is looked up
// by its text; user-defined pieces are never split or merged; unused ones are split again.
#include <algorithm>
#include <cmath>
#include <functional>

#include "language/text/byte_alphabet.h"
#include "language/text/byte_trie.h"
#include "language/text/merge_by_rank.h"
#include "language/text/text_model.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

class SentencePieceBpeModel final : public TextModel {
 public:
  SentencePieceBpeModel(const TokenizerSpec& spec, const TokenIndex& index) : spec_(spec), index_(index) {}
  Status Index();
  void Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const override;
  size_t LongestUnknown() const override {
    return byte_fallback_ ? 1 : spec_.unk_id >= 0 && !spec_.fuse_unknown ? 4 : 0;  // otherwise one character
  }
  bool WordsAreIndependent() const override { return words_are_independent_; }

 private:
  struct Symbol {
    std::string_view text;
    bool frozen;
  };
  void RankScores();
  size_t UserDefinedAt(std::string_view text) const;
  void PutUnknown(std::string_view text, std::vector<TokenId>* ids) const;
  // Results of merges are not control, unknown or byte tokens.
  TokenId FindPiece(std::string_view text) const {
    const TokenId id = text.size() > longest_piece_ ? -1 : index_.Find(text);
    if (id < 0) return -1;
    const TokenKind kind = spec_.kinds[static_cast<size_t>(id)];
    const bool found = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
    return found ? id : -1;
  }

  const TokenizerSpec& spec_;
  const TokenIndex& index_;
  size_t longest_piece_ = 0;  // bytes
  ByteTrie user_defined_;
  std::vector<TokenId> id_of_byte_;
  bool byte_fallback_ = true;
  bool words_are_independent_ = true;
  std::vector<int32_t> rank_of_piece_;  // rank of its score: 0 is the best, equal scores have equal ranks
};

Status SentencePieceBpeModel::Index() {
  const size_t tokens = spec_.tokens.size();
  if (spec_.scores.size() != tokens) {
    return DataLoss("tokenizer: a SentencePiece vocabulary of " + std::to_string(tokens) + " tokens with " +
                    std::to_string(spec_.scores.size()) + " scores");
  }
  id_of_byte_.assign(256, -1);
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (size_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& text = spec_.tokens[i];
    if (std::isnan(spec_.scores[i])) {
      return DataLoss("tokenizer: the score of token " + std::to_string(i) + " is not a number");
    }
    if (spec_.kinds[i] == TokenKind::kByte) {
      const int byte = ByteOfFallbackToken(text);
      if (byte < 0) return DataLoss("tokenizer: byte token " + std::to_string(i) + " is spelt \"" + text + "\"");
      id_of_byte_[static_cast<size_t>(byte)] = id;
    }
    if (spec_.kinds[i] == TokenKind::kUserDefined) user_defined.emplace_back(text, id);
    longest_piece_ = std::max(longest_piece_, text.size());
  }
  user_defined_ = ByteTrie(std::move(user_defined));
  words_are_independent_ = TokensStayWithinWords(spec_, index_);
  for (const TokenId id : id_of_byte_) byte_fallback_ = byte_fallback_ && id >= 0;
  RankScores();
  return {};
}

void SentencePieceBpeModel::RankScores() {
  std::vector<double> best_first = spec_.scores;
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  rank_of_piece_.reserve(spec_.scores.size());
  for (const double score : spec_.scores) {
    const auto place = std::lower_bound(best_first.begin(), best_first.end(), score, std::greater<>());
    rank_of_piece_.push_back(static_cast<int32_t>(place - best_first.begin()));
  }
}

// The size of the longest user-defined piece that `text` begins with; 0: none.
size_t SentencePieceBpeModel::UserDefinedAt(std::string_view text) const {
  size_t size = 0;
  int32_t node = ByteTrie::kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = user_defined_.Next(node, text[i]);
    if (node == ByteTrie::kNone) break;
    if (user_defined_.Value(node) >= 0) size = i + 1;
  }
  return size;
}

void SentencePieceBpeModel::PutUnknown(std::string_view text, std::vector<TokenId>* ids) const {
  if (byte_fallback_) {
    for (const char c : text) ids->push_back(id_of_byte_[static_cast<unsigned char>(c)]);
  } else if (spec_.unk_id >= 0 && !(spec_.fuse_unknown && !ids->empty() && ids->back() == spec_.unk_id)) {
    ids->push_back(spec_.unk_id);
  }
}

void SentencePieceBpeModel::Encode(std::string_view word, StopToken stop, std::vector<TokenId>* ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size();) {
    const size_t frozen = UserDefinedAt(word.substr(at));
    const size_t size = frozen > 0 ? frozen : DecodeUtf8(word.substr(at)).size;
    symbols.push_back({word.substr(at, size), frozen > 0});
    at += size;
  }
  std::unordered_map<std::string_view, size_t> halves_of_unused;
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto rank_of = [&](int32_t i, int32_t j) {
    if (symbol(i).frozen || symbol(j).frozen) return -1;
    const std::string_view joined(symbol(i).text.data(), symbol(i).text.size() + symbol(j).text.size());
    const TokenId id = FindPiece(joined);
    if (id < 0) return -1;
    if (spec_.kinds[static_cast<size_t>(id)] == TokenKind::kUnused) halves_of_unused[joined] = symbol(i).text.size();
    return rank_of_piece_[static_cast<size_t>(id)];
  };
  const auto merge = [&](int32_t i, int32_t j) {
    symbol(i).text = std::string_view(symbol(i).text.data(), symbol(i).text.size() + symbol(j).text.size());
  };
  std::vector<RankedLink> links;
  MergeByRank(symbols.size(), stop, rank_of, merge, &links);
  std::vector<std::string_view> stack;
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = links[static_cast<size_t>(i)].next) {
    stack.push_back(symbol(i).text);
    while (!stack.empty()) {
      const std::string_view text = stack.back();
      stack.pop_back();
      const TokenId id = FindPiece(text);
      const auto halves = halves_of_unused.find(text);
      if (id >= 0 && spec_.kinds[static_cast<size_t>(id)] == TokenKind::kUnused && halves != halves_of_unused.end()) {
        stack.push_back(text.substr(halves->second));
        stack.push_back(text.substr(0, halves->second));
      } else if (id >= 0) {
        ids->push_back(id);
      } else {
        PutUnknown(text, ids);
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<TextModel>> MakeSentencePieceBpeModel(const TokenizerSpec& spec, const TokenIndex& index) {
  auto model = std::make_unique<SentencePieceBpeModel>(spec, index);
  TACTUS_RETURN_IF_ERROR(model->Index());
  return std::unique_ptr<TextModel>(std::move(model));
}

}  // namespace tactus::language
