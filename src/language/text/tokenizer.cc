#include "language/text/tokenizer.h"

#include <algorithm>

#include "language/text/unicode.h"
#include "language/text/vocabulary_tokenizer.h"

namespace tactus::language {
namespace {

// Far above any tokeniser in use (262,144); bounds what a hostile file can make us allocate.
constexpr size_t kMaxVocabulary = size_t{1} << 22;
constexpr char32_t kSpaceCodePoint = 0x2581;

Status CheckIdInRange(const char* what, int64_t id, size_t tokens) {
  if (id < static_cast<int64_t>(tokens)) return {};
  return DataLoss(std::string("tokenizer: ") + what + " has id " + std::to_string(id) + ", but the vocabulary has " +
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
  if (!spec->scores.empty() && spec->scores.size() != n) {
    return DataLoss("tokenizer: " + std::to_string(n) + " tokens, but " + std::to_string(spec->scores.size()) +
                    " scores");
  }
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the BOS token", spec->bos_id, n));
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the EOS token", spec->eos_id, n));
  TACTUS_RETURN_IF_ERROR(CheckIdInRange("the unknown token", spec->unk_id, n));
  for (const TokenizerSpec::Added& token : spec->added) {
    TACTUS_RETURN_IF_ERROR(CheckIdInRange(("added token \"" + token.content + "\"").c_str(), token.id, n));
    if (token.id < 0) return DataLoss("tokenizer: added token \"" + token.content + "\" has a negative id");
  }
  if (spec->add_bos && spec->bos_id < 0) return DataLoss("tokenizer: adds a BOS token, but names none");
  if (spec->add_eos && spec->eos_id < 0) return DataLoss("tokenizer: adds an EOS token, but names none");
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec) {
  TACTUS_RETURN_IF_ERROR(CheckSpec(&spec));
  if (spec.algorithm == TokenizerSpec::Algorithm::kByteLevelBpe) return MakeByteLevelTokenizer(std::move(spec));
  return MakeSentencePieceTokenizer(std::move(spec));
}

Status CheckTokenizerFits(const TokenizerSpec& spec, int64_t model_vocab_size) {
  const auto tokens = static_cast<int64_t>(spec.tokens.size());
  if (tokens <= model_vocab_size) return {};
  return InvalidArgument("the tokenizer has " + std::to_string(tokens) + " tokens, but the model has embeddings for " +
                         std::to_string(model_vocab_size) + ": they do not belong together");
}

void VocabularyTokenizer::Prepare() {
  const size_t n = spec_.tokens.size();
  id_of_text_.reserve(n);
  special_.resize(n, false);
  for (size_t i = 0; i < n; ++i) {
    // Holes in a tokenizer.json's ids are unused and empty; among equal texts the first counts.
    if (!spec_.tokens[i].empty()) id_of_text_.try_emplace(spec_.tokens[i], static_cast<TokenId>(i));
    special_[i] = spec_.kinds[i] == TokenKind::kControl;
  }
  for (const TokenizerSpec::Added& token : spec_.added) {
    if (token.special) special_[static_cast<size_t>(token.id)] = true;
    if (token.normalized && Normalizes()) {
      normalized_added_.Add(Normalize(token.content, true), token);
    } else if (token.normalized) {
      normalized_added_.Add(token.content, token);
    } else {
      raw_added_.Add(token.content, token);
    }
  }
  bytes_.resize(n);
  for (size_t i = 0; i < n; ++i) bytes_[i] = BytesOf(static_cast<TokenId>(i));
}

void VocabularyTokenizer::FindBounds() {
  // U+1FBE U+0308 U+0301, 7 bytes, compose to the 2 of U+0390: no sequence shrinks more.
  constexpr size_t kNfcShrinksTo = 4;
  const auto drops = [](SplitBehavior b) { return b == SplitBehavior::kRemoved || b == SplitBehavior::kOnlyMatches; };
  const std::vector<SplitBehavior>& splits = spec_.split_behaviors;
  const size_t unknown = LongestUnknown();
  if (unknown == 0 || std::any_of(splits.begin(), splits.end(), drops)) return;
  bounds_.longest_token = unknown;
  for (const std::string& bytes : bytes_) bounds_.longest_token = std::max(bounds_.longest_token, bytes.size());
  bounds_.white_space_counts = !spec_.remove_extra_whitespaces;
  for (const TokenizerSpec::Added& token : spec_.added) {
    bounds_.longest_token = std::max(bounds_.longest_token, token.content.size() + 1);  // and a dummy prefix
    if (token.lstrip || token.rstrip) bounds_.white_space_counts = false;
  }
  bounds_.shrinks_to = spec_.nfc_normalize ? kNfcShrinksTo : 1;
}

int64_t VocabularyTokenizer::LeastTokens(std::string_view text) const {
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

TokenId VocabularyTokenizer::FindToken(std::string_view text) const {
  const auto found = id_of_text_.find(text);
  return found == id_of_text_.end() ? -1 : found->second;
}

std::vector<TokenId> VocabularyTokenizer::Encode(std::string_view text, bool add_special, bool parse_special,
                                                 StopToken stop) const {
  std::string replaced;
  if (!IsValidUtf8(text)) {
    replaced = ReplaceInvalidUtf8(text);
    text = replaced;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  if (add_special && spec_.add_bos) ids.push_back(spec_.bos_id);
  PieceCache cache;
  std::string normalized;
  for (const AddedTokenMatcher::Fragment& raw : raw_added_.Split(text, parse_special)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    std::string_view stretch = raw.text;
    if (Normalizes()) {
      cache = PieceCache();  // its keys point into the buffer that changes now; clear() would cost its largest size
      normalized = Normalize(raw.text, raw.offset == 0);
      stretch = normalized;
    }
    for (const AddedTokenMatcher::Fragment& part : normalized_added_.Split(stretch, parse_special)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        EncodeText(part.text, raw.offset + part.offset == 0, stop, &cache, &ids);
      }
      if (stop.stopped()) return {};
    }
  }
  if (add_special && spec_.add_eos) ids.push_back(spec_.eos_id);
  return ids;
}

std::string VocabularyTokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  if (spec_.strip_leading_space && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
  return IsValidUtf8(bytes) ? bytes : ReplaceInvalidUtf8(bytes);
}

}  // namespace tactus::language
