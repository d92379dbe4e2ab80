// The one Tokenizer: normalizers, added tokens, pre-tokenizers, model, decoders. Each is compiled from the
// specification once; the order in which they run is Hugging Face's.
#include "language/text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "language/text/added_tokens.h"
#include "language/text/byte_alphabet.h"
#include "language/text/decoder.h"
#include "language/text/normalizer.h"
#include "language/text/pretokenizer.h"
#include "language/text/text_model.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

// Far above any tokeniser in use (262,144); bounds what a hostile file can make us allocate.
constexpr size_t kMaxVocabulary = size_t{1} << 22;
constexpr char32_t kSpaceCodePoint = 0x2581;

Status CheckIdInRange(const std::string& what, int64_t id, size_t tokens) {
  if (id < static_cast<int64_t>(tokens)) return {};
  return DataLoss("tokenizer: " + what + " has id " + std::to_string(id) + ", but the vocabulary has " +
                  std::to_string(tokens) + " tokens");
}

Status CheckSpec(TokenizerSpec* spec) {
  const size_t n = spec->tokens.size();
  if (n == 0) return DataLoss("tokenizer: the vocabulary is empty");
  if (n > kMaxVocabulary) {
    return DataLoss("tokenizer: the vocabulary has " + std::to_string(n) + " tokens, the limit is " +
                    std::to_string(kMaxVocabulary));
  }
  if (spec->kinds.empty()) spec->kinds.resize(n, TokenKind::kNormal);
  if (spec->kinds.size() != n) {
    return DataLoss("tokenizer: " + std::to_string(n) + " tokens, but " + std::to_string(spec->kinds.size()) +
                    " token types");
  }
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the BOS token", spec->bos_id, n));
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the EOS token", spec->eos_id, n));
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the unknown token", spec->unk_id, n));
  for (const TokenizerSpec::Added& token : spec->added) {
    TACTUS_RETURN_IF_ERROR(CheckIdInRange("added token \"" + token.content + "\"", token.id, n));
    if (token.id < 0) return DataLoss("tokenizer: added token \"" + token.content + "\" has a negative id");
  }
  for (const std::vector<TokenId>* ids : {&spec->prefix, &spec->suffix}) {
    for (const TokenId id : *ids) {
      TACTUS_RETURN_IF_ERROR(CheckIdInRange("a token that is added to every text", id, n));
      if (id < 0) return DataLoss("tokenizer: a token that is added to every text has a negative id");
    }
  }
  return {};
}

Result<std::unique_ptr<TextModel>> MakeModel(const TokenizerSpec& spec, const TokenIndex& index, bool bytes) {
  if (bytes && spec.model != TokenizerSpec::Model::kBpe) {
    return Unimplemented("tokenizer: a pre-tokenizer that ends in bytes needs a BPE model");
  }
  switch (spec.model) {
    case TokenizerSpec::Model::kBpe:
      return MakeBpeModel(spec, index, bytes);
    case TokenizerSpec::Model::kSentencePieceBpe:
      return MakeSentencePieceBpeModel(spec, index);
    case TokenizerSpec::Model::kUnigram:
      return MakeUnigramModel(spec, index);
    case TokenizerSpec::Model::kWordPiece:
      return MakeWordPieceModel(spec, index);
    case TokenizerSpec::Model::kWordLevel:
      return MakeWordLevelModel(spec, index);
  }
  return Internal("tokenizer: no such model");
}

// Pieces in one call of Encode; the keys are views into the text and into what steps made of it.
using PieceCache = std::unordered_map<std::string_view, std::vector<TokenId>>;

class StepTokenizer final : public Tokenizer {
 public:
  explicit StepTokenizer(TokenizerSpec spec) : spec_(std::move(spec)), index_(spec_) {}
  Status Prepare();

  std::vector<TokenId> Encode(std::string_view text, bool add_special, bool parse_special,
                              StopToken stop) const override;
  int64_t LeastTokens(std::string_view text) const override;
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string_view TokenBytes(TokenId id) const override {
    return InRange(id) ? bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  std::string FirstTokenBytes(TokenId id) const override { return decoder_.Bytes(TokenText(id), true); }
  size_t DroppedAtEnd(TokenId id) const override { return decoder_.DroppedAtEnd(TokenText(id)); }
  std::string_view TokenText(TokenId id) const override {
    return InRange(id) ? spec_.tokens[static_cast<size_t>(id)] : std::string_view();
  }
  bool IsSpecial(TokenId id) const override { return InRange(id) && special_[static_cast<size_t>(id)]; }
  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.tokens.size()); }
  TokenId bos_id() const override { return spec_.bos_id; }
  TokenId eos_id() const override { return spec_.eos_id; }
  TokenId FindToken(std::string_view text) const override { return index_.Find(text); }

 private:
  // Counts the bytes that tokens represent as in Decode; text that tokens consume in addition does not count.
  struct TextBounds {
    size_t longest_token = 0;  // bytes; 0: no bound
    size_t shrinks_to = 1;     // at least 1 / shrinks_to of the bytes remain after normalising
    bool white_space_counts = true;
  };

  bool InRange(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < spec_.tokens.size(); }
  void FindBounds();
  void EncodeText(Pretokenizer::Piece text, StopToken stop, std::deque<std::string>* storage, PieceCache* cache,
                  std::vector<TokenId>* ids) const;

  const TokenizerSpec spec_;
  const TokenIndex index_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<Pretokenizer> pretokenizer_;
  std::unique_ptr<TextModel> model_;
  TokenDecoder decoder_;
  AddedTokenMatcher raw_added_, normalized_added_;
  std::vector<std::string> bytes_;
  std::vector<bool> special_;
  TextBounds bounds_;
};

Status StepTokenizer::Prepare() {
  TACTUS_ASSIGN_OR_RETURN(normalizer_, Normalizer::Compile(spec_));
  TACTUS_ASSIGN_OR_RETURN(decoder_, TokenDecoder::Compile(spec_.decoders));
  const bool bytes =
      !spec_.pre_tokenizers.empty() && spec_.pre_tokenizers.back().kind == PreTokenizerStep::Kind::kBytes;
  TACTUS_ASSIGN_OR_RETURN(model_, MakeModel(spec_, index_, bytes));
  std::vector<PreTokenizerStep> steps = spec_.pre_tokenizers;
  if (model_->WordsAreIndependent()) steps.push_back({.kind = PreTokenizerStep::Kind::kSpaceRuns});
  TACTUS_ASSIGN_OR_RETURN(pretokenizer_, Pretokenizer::Compile(std::move(steps)));
  const size_t n = spec_.tokens.size();
  special_.resize(n, false);
  bytes_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    special_[i] = spec_.kinds[i] == TokenKind::kControl;
    // Holes in a tokenizer.json's ids are unused and empty.
    if (!spec_.tokens[i].empty()) bytes_[i] = decoder_.Bytes(spec_.tokens[i], false);
  }
  std::vector<std::pair<std::string, TokenizerSpec::Added>> raw, normalized;
  for (const TokenizerSpec::Added& token : spec_.added) {
    if (token.special) special_[static_cast<size_t>(token.id)] = true;
    bool at_start = true;
    if (token.normalized) {
      normalized.emplace_back(normalizer_->Apply(token.content, &at_start), token);
    } else {
      raw.emplace_back(token.content, token);
    }
  }
  raw_added_ = AddedTokenMatcher(raw);
  normalized_added_ = AddedTokenMatcher(normalized);
  FindBounds();
  return {};
}

void StepTokenizer::FindBounds() {
  const size_t unknown = model_->LongestUnknown();
  if (unknown == 0 || pretokenizer_->drops_text() || normalizer_->shrinks_to() == 0 || !decoder_.keeps_length()) return;
  bounds_.longest_token = unknown;
  for (const std::string& bytes : bytes_) bounds_.longest_token = std::max(bounds_.longest_token, bytes.size());
  bounds_.white_space_counts = !normalizer_->collapses_spaces();
  for (const TokenizerSpec::Added& token : spec_.added) {
    bounds_.longest_token = std::max(bounds_.longest_token, token.content.size() + 1);  // and a dummy prefix
    if (token.lstrip || token.rstrip) bounds_.white_space_counts = false;
  }
  bounds_.shrinks_to = normalizer_->shrinks_to();
}

int64_t StepTokenizer::LeastTokens(std::string_view text) const {
  if (bounds_.longest_token == 0) return 0;
  size_t bytes = 0;
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    // SentencePiece spells a space as U+2581, and a piece may represent either.
    if (step.code_point == kSpaceCodePoint) {
      bytes += bounds_.white_space_counts;
    } else if (bounds_.white_space_counts || !IsWhiteSpace(step.code_point)) {
      bytes += step.size;
    }
    text.remove_prefix(step.size);
  }
  const size_t per_token = bounds_.longest_token * bounds_.shrinks_to;
  return static_cast<int64_t>((bytes + per_token - 1) / per_token);
}

void StepTokenizer::EncodeText(Pretokenizer::Piece text, StopToken stop, std::deque<std::string>* storage,
                               PieceCache* cache, std::vector<TokenId>* ids) const {
  constexpr size_t kCachedBytes = 64;  // longer pieces rarely recur
  std::vector<Pretokenizer::Piece> pieces;
  pieces.reserve(text.text.size() / 4 + 1);
  pretokenizer_->Split(text, &pieces, storage, stop);
  std::vector<TokenId> scratch;
  for (const Pretokenizer::Piece& piece : pieces) {
    if (stop.stopped()) return;
    std::vector<TokenId>* out = &scratch;
    bool known = false;
    if (piece.text.size() <= kCachedBytes) {
      const auto [entry, is_new] = cache->try_emplace(piece.text);
      out = &entry->second;
      known = !is_new;
    }
    if (!known) {
      out->clear();
      model_->Encode(piece.text, stop, out);
    }
    ids->insert(ids->end(), out->begin(), out->end());
  }
}

std::vector<TokenId> StepTokenizer::Encode(std::string_view text, bool add_special, bool parse_special,
                                           StopToken stop) const {
  std::string replaced;
  if (!IsValidUtf8(text)) {
    replaced = ReplaceInvalidUtf8(text);
    text = replaced;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  if (add_special) ids.insert(ids.end(), spec_.prefix.begin(), spec_.prefix.end());
  std::deque<std::string> storage;  // texts that steps have made
  PieceCache cache;
  for (const AddedTokenMatcher::Fragment& raw : raw_added_.Split(text, parse_special)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    std::string_view stretch = raw.text;
    bool at_start = raw.offset == 0;
    if (!normalizer_->empty()) stretch = storage.emplace_back(normalizer_->Apply(raw.text, &at_start));
    for (const AddedTokenMatcher::Fragment& part : normalized_added_.Split(stretch, parse_special)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        EncodeText({part.text, at_start && part.offset == 0}, stop, &storage, &cache, &ids);
      }
      if (stop.stopped()) return {};
    }
  }
  if (add_special) ids.insert(ids.end(), spec_.suffix.begin(), spec_.suffix.end());
  return ids;
}

std::string StepTokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  TokenId last = -1;
  for (const TokenId id : ids) {
    const std::string_view more = TokenBytes(id);
    if ((skip_special && IsSpecial(id)) || (more.empty() && TokenText(id).empty())) continue;
    if (last < 0) {
      bytes = FirstTokenBytes(id);
    } else {
      bytes += more;
    }
    last = id;
  }
  bytes.resize(bytes.size() - DroppedAtEnd(last));
  return IsValidUtf8(bytes) ? bytes : ReplaceInvalidUtf8(bytes);
}

}  // namespace

void AddByteLevel(TokenizerSpec* spec) {
  spec->pre_tokenizers.push_back({.kind = PreTokenizerStep::Kind::kBytes});
  spec->decoders.push_back({.kind = DecoderStep::Kind::kByteLevel});
}

TokenIndex::TokenIndex(const TokenizerSpec& spec) : spec_(&spec) {
  id_of_text_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!spec.tokens[i].empty()) id_of_text_.try_emplace(spec.tokens[i], static_cast<TokenId>(i));
  }
}

TokenId TokenIndex::Find(std::string_view text) const {
  const auto found = id_of_text_.find(text);
  return found == id_of_text_.end() ? -1 : found->second;
}

TokenId TokenIndex::FindOfModel(std::string_view text) const {
  const TokenId id = Find(text);
  return id >= 0 && spec_->kinds[static_cast<size_t>(id)] == TokenKind::kAdded ? -1 : id;
}

bool TokensStayWithinWords(const TokenizerSpec& spec, const TokenIndex& index) {
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenKind kind = spec.kinds[i];
    if (kind == TokenKind::kControl || kind == TokenKind::kUnknown || kind == TokenKind::kByte) continue;
    std::string_view text = spec.tokens[i];
    while (text.starts_with(kSpaceSymbol)) text.remove_prefix(kSpaceSymbol.size());
    if (text.find(kSpaceSymbol) != std::string_view::npos) return false;
  }
  return index.FindOfModel(kSpaceSymbol) >= 0;
}

std::vector<TokenId> ByteTokens(const TokenIndex& index) {
  std::vector<TokenId> ids;
  for (int b = 0; b < 256; ++b) ids.push_back(index.FindOfModel(FallbackToken(static_cast<uint8_t>(b))));
  return ids;
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec) {
  TACTUS_RETURN_IF_ERROR(CheckSpec(&spec));
  auto tokenizer = std::make_unique<StepTokenizer>(std::move(spec));
  TACTUS_RETURN_IF_ERROR(tokenizer->Prepare());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status CheckTokenizerFits(const TokenizerSpec& spec, int64_t model_vocab_size) {
  const auto tokens = static_cast<int64_t>(spec.tokens.size());
  if (tokens <= model_vocab_size) return {};
  return InvalidArgument("the tokenizer has " + std::to_string(tokens) + " tokens, but the model has embeddings for " +
                         std::to_string(model_vocab_size) + ": they do not belong together");
}

}  // namespace tactus::language
