// SentencePiece BPE, as sentencepiece runs a tokenizer.model (merges by score, looked up by text; user-defined symbols
// are never split or merged; unused pieces are split again) and as Hugging Face's tokenizers runs its conversion to a
// tokenizer.json (merges by rank). Both: U+2581 for a space, a dummy prefix, bytes for unknown characters.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "language/text/bpe.h"
#include "language/text/merge_by_rank.h"
#include "language/text/pretokenizer.h"
#include "language/text/unicode.h"
#include "language/text/vocabulary_tokenizer.h"

namespace tactus::language {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

// "<0x0A>" -> 10, otherwise -1.
int ByteOfSpelling(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// A piece in which a space symbol follows another character: then a text's words are not independent.
bool CrossesWords(std::string_view text) {
  bool other = false;
  while (!text.empty()) {
    const bool space = text.starts_with(kSpaceSymbol);
    if (space && other) return true;
    other = other || !space;
    text.remove_prefix(space ? kSpaceSymbol.size() : 1);
  }
  return false;
}

std::string CollapseSpaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Make(TokenizerSpec spec) {
    if (spec.merges.empty() && spec.scores.empty()) {
      return DataLoss("tokenizer: a SentencePiece vocabulary of " + std::to_string(spec.tokens.size()) +
                      " tokens without scores or merges");
    }
    for (size_t i = 0; i < spec.scores.size(); ++i) {
      if (std::isnan(spec.scores[i]))
        return DataLoss("tokenizer: the score of token " + std::to_string(i) + " is not a number");
    }
    TACTUS_ASSIGN_OR_RETURN(auto pretokenizer, Pretokenizer::Compile(spec.split_patterns, spec.split_behaviors));
    std::unique_ptr<SentencePieceTokenizer> result(
        new SentencePieceTokenizer(std::move(spec), std::move(pretokenizer)));
    result->Prepare();
    TACTUS_RETURN_IF_ERROR(result->Index());
    result->FindBounds();
    return std::unique_ptr<Tokenizer>(std::move(result));
  }

 protected:
  bool Normalizes() const override { return !spec_.prefix_after_added || spec_.nfc_normalize; }
  std::string Normalize(std::string_view text, bool at_start) const override {
    const std::string composed = spec_.nfc_normalize ? NormalizeNfc(text) : std::string(text);
    return spec_.prefix_after_added ? composed : Escape(composed, at_start);
  }
  void EncodeText(std::string_view text, bool at_start, StopToken stop, PieceCache* cache,
                  std::vector<TokenId>* ids) const override;
  std::string BytesOf(TokenId id) const override {
    const std::string& text = spec_.tokens[static_cast<size_t>(id)];
    if (spec_.kinds[static_cast<size_t>(id)] == TokenKind::kByte) {
      const int byte = ByteOfSpelling(text);
      if (byte >= 0) return std::string(1, static_cast<char>(byte));
    }
    return ReplaceAll(text, kSpaceSymbol, " ");
  }
  size_t LongestUnknown() const override {
    return byte_fallback_ ? 1 : spec_.unk_id >= 0 && !spec_.fuse_unknown ? 4 : 0;  // otherwise one character
  }

 private:
  struct Symbol {
    std::string_view text;
    bool frozen;
  };

  SentencePieceTokenizer(TokenizerSpec spec, std::unique_ptr<Pretokenizer> pretokenizer)
      : VocabularyTokenizer(std::move(spec)), pretokenizer_(std::move(pretokenizer)) {}
  Status Index();
  std::string Escape(std::string_view text, bool at_start) const;
  void EncodeWords(std::string_view text, StopToken stop, PieceCache* cache, std::vector<TokenId>* ids) const;
  void EncodeByScore(std::string_view word, StopToken stop, std::vector<TokenId>* ids) const;
  void EncodeByRank(std::string_view word, StopToken stop, std::vector<TokenId>* ids) const;
  void RankScores();
  void PutUnknown(std::string_view text, std::vector<TokenId>* ids) const;
  TokenId FindPiece(std::string_view text) const {
    if (text.size() > longest_piece_) return -1;
    const auto found = pieces_.find(text);
    return found == pieces_.end() ? -1 : found->second;
  }

  std::unique_ptr<Pretokenizer> pretokenizer_;
  std::unordered_map<std::string_view, TokenId> pieces_;  // results of merges: not control, unknown or byte tokens
  size_t longest_piece_ = 0;                              // bytes
  AddedTokenMatcher user_defined_;                        // user-defined tokens that are not added tokens
  std::array<TokenId, 256> id_of_byte_;
  bool byte_fallback_ = true;
  bool words_are_independent_ = true;
  MergeTable merges_;
  std::vector<int32_t> rank_of_piece_;  // rank of its score: 0 is the best, equal scores have equal ranks
};

Status SentencePieceTokenizer::Index() {
  id_of_byte_.fill(-1);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const std::string_view text = TokenText(id);
    switch (spec_.kinds[static_cast<size_t>(id)]) {
      case TokenKind::kByte: {
        const int byte = ByteOfSpelling(text);
        if (byte < 0)
          return DataLoss("tokenizer: byte token " + std::to_string(id) + " is spelt \"" + std::string(text) + "\"");
        id_of_byte_[static_cast<size_t>(byte)] = id;
        continue;
      }
      case TokenKind::kControl:
      case TokenKind::kUnknown:
        continue;
      case TokenKind::kUserDefined:
        user_defined_.Add(text, {std::string(text), id, false, false, false, false, false});
        break;
      case TokenKind::kNormal:
      case TokenKind::kUnused:
        break;
    }
    if (text.empty()) continue;
    pieces_.try_emplace(text, id);
    longest_piece_ = std::max(longest_piece_, text.size());
    if (CrossesWords(text)) words_are_independent_ = false;
  }
  if (!pieces_.contains(kSpaceSymbol)) words_are_independent_ = false;
  for (const TokenId id : id_of_byte_) byte_fallback_ = byte_fallback_ && id >= 0;
  RankScores();
  merges_.Reserve(spec_.merges.size());
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    const TokenId ids[] = {FindToken(left), FindToken(right), FindToken(left + right)};
    for (const TokenId id : ids) {
      if (id < 0) {
        return DataLoss("tokenizer: merge " + std::to_string(rank) + " (\"" + left + "\", \"" + right +
                        "\") needs a token that is not in the vocabulary");
      }
    }
    merges_.Add(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]});
  }
  return {};
}

void SentencePieceTokenizer::RankScores() {
  std::vector<float> best_first = spec_.scores;
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  rank_of_piece_.reserve(spec_.scores.size());
  for (const float score : spec_.scores) {
    const auto place = std::lower_bound(best_first.begin(), best_first.end(), score, std::greater<>());
    rank_of_piece_.push_back(static_cast<int32_t>(place - best_first.begin()));
  }
}

std::string SentencePieceTokenizer::Escape(std::string_view text, bool at_start) const {
  std::string collapsed;
  if (spec_.remove_extra_whitespaces) {
    collapsed = CollapseSpaces(text);
    text = collapsed;
  }
  if (text.empty()) return {};
  const bool has_space = text[0] == ' ' || text.starts_with(kSpaceSymbol);
  const bool prefix =
      spec_.add_prefix_space && (at_start || !spec_.prefix_first_only) && !(spec_.prefix_unless_space && has_space);
  std::string out = ReplaceAll(text, " ", kSpaceSymbol);
  return prefix ? out.insert(0, kSpaceSymbol) : out;
}

void SentencePieceTokenizer::EncodeText(std::string_view text, bool at_start, StopToken stop, PieceCache* cache,
                                        std::vector<TokenId>* ids) const {
  std::string escaped;
  PieceCache own_cache;
  if (spec_.prefix_after_added) {
    escaped = Escape(text, at_start);
    text = escaped;
    cache = &own_cache;
  }
  if (spec_.split_patterns.empty()) {
    EncodeWords(text, stop, cache, ids);
    return;
  }
  std::vector<std::string_view> pieces;
  pretokenizer_->Split(text, &pieces, stop);
  for (const std::string_view piece : pieces) EncodeWords(piece, stop, cache, ids);
}

void SentencePieceTokenizer::EncodeWords(std::string_view text, StopToken stop, PieceCache* cache,
                                         std::vector<TokenId>* ids) const {
  constexpr size_t kCachedBytes = 64;
  std::vector<TokenId> scratch;
  while (!text.empty() && !stop.stopped()) {
    size_t size = text.size();
    if (words_are_independent_) {
      size_t spaces = 0;
      while (text.substr(spaces).starts_with(kSpaceSymbol)) spaces += kSpaceSymbol.size();
      size = std::min(size, text.find(kSpaceSymbol, spaces));
    }
    const std::string_view word = text.substr(0, size);
    text.remove_prefix(size);
    std::vector<TokenId>* out = &scratch;
    bool known = false;
    if (size <= kCachedBytes) {
      const auto [entry, is_new] = cache->try_emplace(word);
      out = &entry->second;
      known = !is_new;
    }
    if (!known) {
      out->clear();
      spec_.merges.empty() ? EncodeByScore(word, stop, out) : EncodeByRank(word, stop, out);
    }
    ids->insert(ids->end(), out->begin(), out->end());
  }
}

void SentencePieceTokenizer::PutUnknown(std::string_view text, std::vector<TokenId>* ids) const {
  if (byte_fallback_) {
    for (const char c : text) ids->push_back(id_of_byte_[static_cast<unsigned char>(c)]);
  } else if (spec_.unk_id >= 0 && !(spec_.fuse_unknown && !ids->empty() && ids->back() == spec_.unk_id)) {
    ids->push_back(spec_.unk_id);
  }
}

void SentencePieceTokenizer::EncodeByRank(std::string_view word, StopToken stop, std::vector<TokenId>* ids) const {
  if (spec_.ignore_merges) {
    const TokenId whole = FindPiece(word);
    if (whole >= 0) {
      ids->push_back(whole);
      return;
    }
  }
  while (!word.empty()) {
    const std::string_view character = word.substr(0, DecodeUtf8(word).size);
    const TokenId id = FindToken(character);
    if (id >= 0) {
      ids->push_back(id);
    } else {
      PutUnknown(character, ids);
    }
    word.remove_prefix(character.size());
  }
  MergePairs(merges_, ids, stop);
}

void SentencePieceTokenizer::EncodeByScore(std::string_view word, StopToken stop, std::vector<TokenId>* ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size();) {
    size_t size = 0;
    const bool frozen = !user_defined_.empty() && user_defined_.MatchAt(word, at, &size) >= 0;
    if (!frozen) size = DecodeUtf8(word.substr(at)).size;
    symbols.push_back({word.substr(at, size), frozen});
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

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(TokenizerSpec spec) {
  return SentencePieceTokenizer::Make(std::move(spec));
}

}  // namespace tactus::language
