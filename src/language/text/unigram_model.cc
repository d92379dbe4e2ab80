// The unigram model of sentencepiece: the tokens whose scores have the largest sum, found from left to right (Viterbi).
// Scores add up in double precision as in tokenizers or, with sentencepiece_scores, in single precision as there.
#include <algorithm>
#include <cmath>
#include <limits>

#include "language/text/byte_trie.h"
#include "language/text/text_model.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

constexpr double kUnknownPenalty = 10;

class UnigramModel final : public TextModel {
 public:
  UnigramModel(const TokenizerSpec& spec, const TokenIndex& index) : spec_(spec), index_(index) {}
  Status Index();
  void Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const override;
  size_t LongestUnknown() const override {
    const bool all = std::all_of(fallback_.begin(), fallback_.end(), [](TokenId id) { return id >= 0; });
    return !fallback_.empty() && all ? 1 : 0;
  }

 private:
  // The best tokens for the text up to a place: the last of them, and where it begins.
  struct Best {
    double score = 0;
    int32_t begin = -1;  // -1: no tokens end here
    TokenId id = -1;
  };
  bool IsPiece(size_t id) const;
  double ScoreOf(TokenId id, size_t size) const;
  void Consider(const Best& from, size_t begin, TokenId id, double score, Best* to) const;
  void KeepPrecision(size_t begin, std::vector<Best>* best) const;
  void PutUnknown(std::string_view text, std::vector<TokenId>* ids) const;

  const TokenizerSpec& spec_;
  const TokenIndex& index_;
  ByteTrie pieces_;
  std::vector<TokenId> fallback_;  // empty: no byte fallback
  double unknown_score_ = 0;
  size_t longest_piece_ = 4;  // bytes; one unknown character at least
};

// sentencepiece finds only these in text; tokenizers finds every token of the model.
bool UnigramModel::IsPiece(size_t id) const {
  const TokenKind kind = spec_.kinds[id];
  if (!spec_.sentencepiece_scores) return kind != TokenKind::kAdded;
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

Status UnigramModel::Index() {
  const size_t tokens = spec_.tokens.size();
  if (spec_.scores.size() != tokens) {
    return DataLoss("tokenizer: a unigram vocabulary of " + std::to_string(tokens) + " tokens with " +
                    std::to_string(spec_.scores.size()) + " scores");
  }
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (size_t i = 0; i < tokens; ++i) {
    if (std::isnan(spec_.scores[i])) {
      return DataLoss("tokenizer: the score of token " + std::to_string(i) + " is not a number");
    }
    if (!IsPiece(i)) continue;
    pieces.emplace_back(spec_.tokens[i], static_cast<int32_t>(i));
    longest_piece_ = std::max(longest_piece_, spec_.tokens[i].size());
    if (spec_.sentencepiece_scores && spec_.kinds[i] != TokenKind::kNormal) continue;
    least = std::min(least, spec_.scores[i]);
  }
  pieces_ = ByteTrie(std::move(pieces));
  unknown_score_ = least - kUnknownPenalty;
  if (spec_.sentencepiece_scores) unknown_score_ = static_cast<float>(unknown_score_);
  if (spec_.byte_fallback) fallback_ = ByteTokens(index_);
  return {};
}

double UnigramModel::ScoreOf(TokenId id, size_t size) const {
  const auto at = static_cast<size_t>(id);
  const bool preferred = spec_.sentencepiece_scores && spec_.kinds[at] == TokenKind::kUserDefined;
  if (!preferred) return spec_.scores[at];
  return static_cast<float>(0.1 * static_cast<double>(size - 1));
}

void UnigramModel::Consider(const Best& from, size_t begin, TokenId id, double score, Best* to) const {
  double sum = score + from.score;
  if (spec_.sentencepiece_scores) sum = static_cast<float>(sum);
  if (to->begin < 0 || sum > to->score) *to = {sum, static_cast<int32_t>(begin), id};
}

// As sentencepiece does where sums become large: those from `begin` on count from there.
void UnigramModel::KeepPrecision(size_t begin, std::vector<Best>* best) const {
  constexpr double kLargest = 100'000;
  const double sum = (*best)[begin].score;
  if (!spec_.sentencepiece_scores || std::abs(sum) <= kLargest) return;
  const size_t reached = std::min(best->size(), begin + longest_piece_ + 1);
  for (size_t i = begin; i < reached; ++i) {
    if ((*best)[i].begin >= 0) (*best)[i].score = static_cast<float>((*best)[i].score - sum);
  }
}

void UnigramModel::PutUnknown(std::string_view text, std::vector<TokenId>* ids) const {
  const TokenId whole = spec_.sentencepiece_scores ? -1 : index_.FindOfModel(text);
  const auto has_token = [&](char c) { return fallback_[static_cast<uint8_t>(c)] >= 0; };
  if (whole >= 0) {
    ids->push_back(whole);
  } else if (!fallback_.empty() && std::all_of(text.begin(), text.end(), has_token)) {
    for (const char c : text) ids->push_back(fallback_[static_cast<uint8_t>(c)]);
  } else if (spec_.unk_id >= 0) {
    ids->push_back(spec_.unk_id);
  }
}

void UnigramModel::Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const {
  constexpr size_t kCharactersBetweenLooks = 4096;
  std::vector<Best> best(piece.size() + 1);
  size_t characters = 0;
  for (size_t begin = 0, size = 0; begin < piece.size(); begin += size) {
    if (++characters % kCharactersBetweenLooks == 0 && stop.stopped()) return;
    size = DecodeUtf8(piece.substr(begin)).size;
    KeepPrecision(begin, &best);
    bool single = false;  // a token is this character alone
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin + 1; end <= piece.size(); ++end) {
      node = pieces_.Next(node, piece[end - 1]);
      if (node == ByteTrie::kNone) break;
      const TokenId id = pieces_.Value(node);
      if (id < 0) continue;
      Consider(best[begin], begin, id, ScoreOf(id, end - begin), &best[end]);
      single |= end - begin == size;
    }
    if (!single) Consider(best[begin], begin, spec_.unk_id, unknown_score_, &best[begin + size]);
  }
  std::vector<std::pair<size_t, size_t>> path;  // begin and end; runs of unknown characters are one
  bool was_unknown = false;
  for (size_t end = piece.size(); end > 0;) {
    const Best& last = best[end];
    const auto begin = static_cast<size_t>(last.begin);
    const bool unknown = last.id == spec_.unk_id;
    if (unknown && was_unknown) {
      path.back().first = begin;
    } else {
      path.emplace_back(begin, end);
    }
    was_unknown = unknown;
    end = begin;
  }
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    const auto [begin, end] = *step;
    const Best& last = best[end];
    if (last.id == spec_.unk_id) {
      PutUnknown(piece.substr(begin, end - begin), ids);
    } else {
      ids->push_back(last.id);
    }
  }
}

}  // namespace

Result<std::unique_ptr<TextModel>> MakeUnigramModel(const TokenizerSpec& spec, const TokenIndex& index) {
  auto model = std::make_unique<UnigramModel>(spec, index);
  TACTUS_RETURN_IF_ERROR(model->Index());
  return std::unique_ptr<TextModel>(std::move(model));
}

}  // namespace tactus::language
