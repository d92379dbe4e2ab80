// Byte-pair encoding as in Hugging Face's tokenizers, over the bytes or the characters of a piece, and as in tiktoken.
#include <algorithm>
#include <array>

#include "language/text/bpe.h"
#include "language/text/byte_alphabet.h"
#include "language/text/text_model.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

constexpr char32_t kTableEnd = 0x400;  // characters below have their ids in a table

std::string Quoted(const std::string& text) {
  return "\"" + text + "\"";
}

class BpeModel final : public TextModel {
 public:
  BpeModel(const TokenizerSpec& spec, const TokenIndex& index, bool bytes)
      : spec_(spec),
        index_(index),
        bytes_(bytes),
        affixes_(!spec.continuing_prefix.empty() || !spec.word_suffix.empty()) {}
  Status Index();
  void Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const override;
  size_t LongestUnknown() const override;
  bool WordsAreIndependent() const override { return words_are_independent_; }

 private:
  Status IndexMerges();
  void IndexMergesById();
  TokenId FindWhole(std::string_view piece) const;
  // Appends the id of a character, or what stands for it. `*unknown`: an unknown token is still to be appended.
  void Put(std::string_view character, TokenId id, bool* unknown, std::vector<TokenId>* ids) const;
  bool PutBytes(std::string_view character, std::vector<TokenId>* ids) const;
  void PutWithAffixes(std::string_view piece, bool* unknown, std::vector<TokenId>* ids) const;

  const TokenizerSpec& spec_;
  const TokenIndex& index_;
  const bool bytes_, affixes_;
  bool words_are_independent_ = false;
  MergeTable merges_;
  std::array<TokenId, kTableEnd> id_of_character_;
  std::array<TokenId, 256> id_of_byte_;
  std::array<std::string, 256> spelling_of_byte_;
  std::vector<TokenId> fallback_;                              // empty: no byte fallback
  std::unordered_map<std::string_view, TokenId> id_of_bytes_;  // where pieces are bytes and compared as a whole
  std::vector<std::string> bytes_of_token_;                    // what its keys point to
};

Status BpeModel::Index() {
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string text;
    AppendUtf8(c, &text);
    id_of_character_[c] = index_.FindOfModel(text);
  }
  for (size_t b = 0; b < 256; ++b) {
    spelling_of_byte_[b] = SpellBytes(std::string(1, static_cast<char>(b)));
    id_of_byte_[b] = id_of_character_[CharacterOfByte(static_cast<uint8_t>(b))];
  }
  if (spec_.byte_fallback) fallback_ = ByteTokens(index_);
  if (bytes_ && (spec_.ignore_merges || spec_.merges_by_id)) {
    bytes_of_token_.resize(spec_.tokens.size());
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const bool of_model = !spec_.tokens[i].empty() && spec_.kinds[i] != TokenKind::kAdded;
      if (of_model && BytesOfSpelling(spec_.tokens[i], &bytes_of_token_[i])) {
        id_of_bytes_.try_emplace(bytes_of_token_[i], static_cast<TokenId>(i));
      }
    }
  }
  words_are_independent_ = !bytes_ && !affixes_ && !spec_.ignore_merges && TokensStayWithinWords(spec_, index_);
  if (!spec_.merges_by_id) return IndexMerges();
  IndexMergesById();
  return {};
}

Status BpeModel::IndexMerges() {
  merges_.Reserve(spec_.merges.size());
  const size_t prefix = spec_.continuing_prefix.size();
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    const std::string joined = right.size() < prefix ? left : left + right.substr(prefix);
    const std::string* texts[] = {&left, &right, &joined};
    TokenId ids[3];
    for (int i = 0; i < 3; ++i) {
      ids[i] = index_.FindOfModel(*texts[i]);
      if (ids[i] >= 0) continue;
      return DataLoss("tokenizer: merge " + std::to_string(rank) + " (" + Quoted(left) + ", " + Quoted(right) +
                      ") needs token " + Quoted(*texts[i]) + ", which is not in the vocabulary");
    }
    merges_.Add(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]});
  }
  return {};
}

void BpeModel::IndexMergesById() {
  for (size_t i = 0; i < bytes_of_token_.size(); ++i) {
    const std::string_view text = bytes_of_token_[i];
    const auto id = static_cast<TokenId>(i);
    for (size_t size = 1; size < text.size(); ++size) {
      const TokenId left = FindWhole(text.substr(0, size)), right = FindWhole(text.substr(size));
      if (left >= 0 && right >= 0) merges_.Add(left, right, {id, id});
    }
  }
}

TokenId BpeModel::FindWhole(std::string_view piece) const {
  if (!bytes_) return index_.FindOfModel(piece);
  const auto found = id_of_bytes_.find(piece);
  return found == id_of_bytes_.end() ? -1 : found->second;
}

bool BpeModel::PutBytes(std::string_view character, std::vector<TokenId>* ids) const {
  if (fallback_.empty()) return false;
  const size_t size = ids->size();
  for (const char c : character) {
    const TokenId id = fallback_[static_cast<uint8_t>(c)];
    if (id < 0) {
      ids->resize(size);
      return false;
    }
    ids->push_back(id);
  }
  return true;
}

void BpeModel::Put(std::string_view character, TokenId id, bool* unknown, std::vector<TokenId>* ids) const {
  if (id >= 0) {
    if (*unknown) ids->push_back(spec_.unk_id);
    *unknown = false;
    ids->push_back(id);
  } else if (!PutBytes(character, ids) && spec_.unk_id >= 0) {
    // Without an unknown token the character is dropped, as in the reference.
    if (*unknown && !spec_.fuse_unknown) ids->push_back(spec_.unk_id);
    *unknown = true;
  }
}

void BpeModel::PutWithAffixes(std::string_view piece, bool* unknown, std::vector<TokenId>* ids) const {
  const std::string spelled = bytes_ ? SpellBytes(piece) : std::string();
  if (bytes_) piece = spelled;
  for (size_t at = 0; at < piece.size();) {
    const size_t size = DecodeUtf8(piece.substr(at)).size;
    std::string symbol = at == 0 ? std::string() : spec_.continuing_prefix;
    symbol += piece.substr(at, size);
    at += size;
    if (at == piece.size()) symbol += spec_.word_suffix;
    Put(symbol, index_.FindOfModel(symbol), unknown, ids);
  }
}

void BpeModel::Encode(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const {
  if (spec_.ignore_merges) {
    const TokenId whole = FindWhole(piece);
    if (whole >= 0) {
      ids->push_back(whole);
      return;
    }
  }
  bool unknown = false;
  if (affixes_) {
    PutWithAffixes(piece, &unknown, ids);
  } else if (bytes_) {
    for (const char c : piece) {
      const auto byte = static_cast<uint8_t>(c);
      Put(spelling_of_byte_[byte], id_of_byte_[byte], &unknown, ids);
    }
  } else {
    while (!piece.empty()) {
      const Utf8Step step = DecodeUtf8(piece);
      const std::string_view character = piece.substr(0, step.size);
      const TokenId id =
          step.code_point < kTableEnd ? id_of_character_[step.code_point] : index_.FindOfModel(character);
      Put(character, id, &unknown, ids);
      piece.remove_prefix(step.size);
    }
  }
  if (unknown) ids->push_back(spec_.unk_id);
  MergePairs(merges_, ids, stop);
}

size_t BpeModel::LongestUnknown() const {
  const auto known = [](TokenId id) { return id >= 0; };
  if (affixes_) return 0;
  if (bytes_ && std::all_of(id_of_byte_.begin(), id_of_byte_.end(), known)) return 1;
  if (!fallback_.empty() && std::all_of(fallback_.begin(), fallback_.end(), known)) return 1;
  return spec_.unk_id < 0 || spec_.fuse_unknown ? 0 : bytes_ ? 1 : 4;  // otherwise one character
}

}  // namespace

Result<std::unique_ptr<TextModel>> MakeBpeModel(const TokenizerSpec& spec, const TokenIndex& index, bool bytes) {
  auto model = std::make_unique<BpeModel>(spec, index, bytes);
  TACTUS_RETURN_IF_ERROR(model->Index());
  return std::unique_ptr<TextModel>(std::move(model));
}

}  // namespace tactus::language
