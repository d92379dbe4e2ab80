// SentencePiece BPE, as sentencepiece runs a tokenizer.model (merges by score, looked up by text; user-defined symbols are
// never split or merged; unused pieces are taken apart again) and as Hugging Face's tokenizers runs its conversion to a
// tokenizer.json (merges by rank). Both: U+2581 for a space, a dummy prefix, bytes for unknown characters.
#include <array>
#include <cmath>
#include <queue>

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary_tokenizer.h"

namespace tactus {
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

// A piece in which a space symbol follows something else: then words of a text are not independent of each other.
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
      if (std::isnan(spec.scores[i])) return DataLoss("tokenizer: the score of token " + std::to_string(i) + " is not a number");
    }
    TACTUS_ASSIGN_OR_RETURN(auto pretokenizer, Pretokenizer::Compile(spec.split_patterns, spec.split_behaviors));
    std::unique_ptr<SentencePieceTokenizer> result(new SentencePieceTokenizer(std::move(spec), std::move(pretokenizer)));
    result->Prepare();
    TACTUS_RETURN_IF_ERROR(result->Index());
    return std::unique_ptr<Tokenizer>(std::move(result));
  }

 protected:
  bool Normalizes() const override { return !spec_.prefix_after_added || spec_.nfc_normalize; }
  std::string Normalize(std::string_view text, bool at_start) const override {
    const std::string composed = spec_.nfc_normalize ? NormalizeNfc(text) : std::string(text);
    return spec_.prefix_after_added ? composed : Escape(composed, at_start);
  }
  void EncodeText(std::string_view text, bool at_start, PieceCache* cache, std::vector<TokenId>* ids) const override;
  std::string BytesOf(TokenId id) const override {
    const std::string& text = spec_.tokens[static_cast<size_t>(id)];
    if (spec_.kinds[static_cast<size_t>(id)] == TokenKind::kByte) {
      const int byte = ByteOfSpelling(text);
      if (byte >= 0) return std::string(1, static_cast<char>(byte));
    }
    return ReplaceAll(text, kSpaceSymbol, " ");
  }

 private:
  struct Symbol {
    std::string_view text;
    int32_t previous, next;
    bool frozen;
  };

  SentencePieceTokenizer(TokenizerSpec spec, std::unique_ptr<Pretokenizer> pretokenizer)
      : VocabularyTokenizer(std::move(spec)), pretokenizer_(std::move(pretokenizer)) {}
  Status Index();
  std::string Escape(std::string_view text, bool at_start) const;
  void EncodeWords(std::string_view text, PieceCache* cache, std::vector<TokenId>* ids) const;
  void EncodeByScore(std::string_view word, std::vector<TokenId>* ids) const;
  void EncodeByRank(std::string_view word, std::vector<TokenId>* ids) const;
  void MergeSymbols(std::vector<Symbol>* symbols,
                    std::unordered_map<std::string_view, size_t>* halves_of_unused) const;
  void PutUnknown(std::string_view text, std::vector<TokenId>* ids) const;
  TokenId FindPiece(std::string_view text) const {
    if (text.size() > longest_piece_) return -1;
    const auto found = pieces_.find(text);
    return found == pieces_.end() ? -1 : found->second;
  }

  std::unique_ptr<Pretokenizer> pretokenizer_;
  std::unordered_map<std::string_view, TokenId> pieces_;  // what merges may make: not control, unknown and byte tokens
  size_t longest_piece_ = 0;                              // bytes
  AddedTokenMatcher user_defined_;                        // those that are not added tokens
  std::array<TokenId, 256> id_of_byte_;
  bool byte_fallback_ = true;
  bool words_are_independent_ = true;
  MergeTable merges_;
};

Status SentencePieceTokenizer::Index() {
  id_of_byte_.fill(-1);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const std::string_view text = TokenText(id);
    switch (spec_.kinds[static_cast<size_t>(id)]) {
      case TokenKind::kByte: {
        const int byte = ByteOfSpelling(text);
        if (byte < 0) return DataLoss("tokenizer: byte token " + std::to_string(id) + " is spelt \"" + std::string(text) + "\"");
        id_of_byte_[static_cast<size_t>(byte)] = id;
        continue;
      }
      case TokenKind::kControl:
      case TokenKind::kUnknown: continue;
      case TokenKind::kUserDefined: user_defined_.Add(text, {std::string(text), id, false, false, false, false, false}); break;
      case TokenKind::kNormal:
      case TokenKind::kUnused: break;
    }
    if (text.empty()) continue;
    pieces_.try_emplace(text, id);
    longest_piece_ = std::max(longest_piece_, text.size());
    if (CrossesWords(text)) words_are_independent_ = false;
  }
  if (!pieces_.contains(kSpaceSymbol)) words_are_independent_ = false;
  for (const TokenId id : id_of_byte_) byte_fallback_ = byte_fallback_ && id >= 0;
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

std::string SentencePieceTokenizer::Escape(std::string_view text, bool at_start) const {
  std::string collapsed;
  if (spec_.remove_extra_whitespaces) {
    collapsed = CollapseSpaces(text);
    text = collapsed;
  }
  if (text.empty()) return {};
  const bool has_space = text[0] == ' ' || text.starts_with(kSpaceSymbol);
  const bool prefix = spec_.add_prefix_space && (at_start || !spec_.prefix_first_only) &&
                      !(spec_.prefix_unless_space && has_space);
  std::string out = ReplaceAll(text, " ", kSpaceSymbol);
  return prefix ? out.insert(0, kSpaceSymbol) : out;
}

void SentencePieceTokenizer::EncodeText(std::string_view text, bool at_start, PieceCache* cache,
                                        std::vector<TokenId>* ids) const {
  std::string escaped;
  PieceCache own_cache;
  if (spec_.prefix_after_added) {
    escaped = Escape(text, at_start);
    text = escaped;
    cache = &own_cache;
  }
  if (spec_.split_patterns.empty()) {
    EncodeWords(text, cache, ids);
    return;
  }
  std::vector<std::string_view> pieces;
  pretokenizer_->Split(text, &pieces);
  for (const std::string_view piece : pieces) EncodeWords(piece, cache, ids);
}

void SentencePieceTokenizer::EncodeWords(std::string_view text, PieceCache* cache, std::vector<TokenId>* ids) const {
  constexpr size_t kCachedBytes = 64;
  std::vector<TokenId> scratch;
  while (!text.empty()) {
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
      spec_.merges.empty() ? EncodeByScore(word, out) : EncodeByRank(word, out);
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

void SentencePieceTokenizer::EncodeByRank(std::string_view word, std::vector<TokenId>* ids) const {
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
  MergePairs(merges_, ids);
}

void SentencePieceTokenizer::MergeSymbols(std::vector<Symbol>* all,
                                          std::unordered_map<std::string_view, size_t>* halves_of_unused) const {
  struct Candidate {
    float score;
    int32_t left, right;
    size_t size;  // of both together, as they were when this was pushed
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol>& symbols = *all;
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0 || at(left).frozen || at(right).frozen) return;
    const std::string_view joined(at(left).text.data(), at(left).text.size() + at(right).text.size());
    const TokenId id = FindPiece(joined);
    if (id < 0) return;
    queue.push({spec_.scores[static_cast<size_t>(id)], left, right, joined.size()});
    if (spec_.kinds[static_cast<size_t>(id)] == TokenKind::kUnused) (*halves_of_unused)[joined] = at(left).text.size();
  };
  for (size_t i = 1; i < symbols.size(); ++i) consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = at(top.left);
    Symbol& right = at(top.right);
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != top.size) continue;
    left.text = std::string_view(left.text.data(), top.size);
    right.text = {};
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = top.left;
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }
}

void SentencePieceTokenizer::EncodeByScore(std::string_view word, std::vector<TokenId>* ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size();) {
    size_t size = 0;
    const bool frozen = !user_defined_.empty() && user_defined_.MatchAt(word, at, &size) >= 0;
    if (!frozen) size = DecodeUtf8(word.substr(at)).size;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({word.substr(at, size), index - 1, at + size < word.size() ? index + 1 : -1, frozen});
    at += size;
  }
  std::unordered_map<std::string_view, size_t> halves_of_unused;
  MergeSymbols(&symbols, &halves_of_unused);
  std::vector<std::string_view> stack;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    stack.push_back(symbols[static_cast<size_t>(i)].text);
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

}  // namespace tactus
