// Byte-level BPE as in Hugging Face's tokenizers (GPT-2 and its successors): NFC where configured, added tokens, split
// patterns, then merges by rank over the bytes of each piece.
#include <algorithm>
#include <array>

#include "language/text/bpe.h"
#include "language/text/pretokenizer.h"
#include "language/text/unicode.h"
#include "language/text/vocabulary_tokenizer.h"

namespace tactus::language {
namespace {

// GPT-2's alphabet: printable bytes represent themselves, the others become U+0100 and on, in order.
struct ByteAlphabet {
  std::array<char32_t, 256> character;
  std::array<int16_t, 0x144> byte;  // -1: not in the alphabet
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = prints ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

// The bytes of a token's spelling; false: it has a character outside the alphabet (an added token's text).
bool BytesOfSpelling(std::string_view text, std::string* out) {
  out->clear();
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.state != Utf8Step::State::kValid || step.code_point >= Alphabet().byte.size()) return false;
    const int16_t byte = Alphabet().byte[step.code_point];
    if (byte < 0) return false;
    out->push_back(static_cast<char>(byte));
    text.remove_prefix(step.size);
  }
  return true;
}

class ByteLevelTokenizer final : public VocabularyTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Make(TokenizerSpec spec) {
    std::vector<std::string> patterns = spec.split_patterns;
    std::vector<SplitBehavior> behaviors = spec.split_behaviors;
    if (spec.digits_one_by_one) {
      patterns.insert(patterns.begin(), kOneDigitPattern);
      if (!behaviors.empty()) behaviors.insert(behaviors.begin(), SplitBehavior::kIsolated);
    }
    TACTUS_ASSIGN_OR_RETURN(auto pretokenizer, Pretokenizer::Compile(patterns, behaviors));
    std::unique_ptr<ByteLevelTokenizer> result(new ByteLevelTokenizer(std::move(spec), std::move(pretokenizer)));
    result->Prepare();
    TACTUS_RETURN_IF_ERROR(result->IndexMerges());
    result->FindBounds();
    return std::unique_ptr<Tokenizer>(std::move(result));
  }

 protected:
  bool Normalizes() const override { return spec_.nfc_normalize; }
  std::string Normalize(std::string_view text, bool) const override { return NormalizeNfc(text); }
  void EncodeText(std::string_view text, bool at_start, StopToken stop, PieceCache* cache,
                  std::vector<TokenId>* ids) const override;
  std::string BytesOf(TokenId id) const override {
    const std::string& text = spec_.tokens[static_cast<size_t>(id)];
    std::string bytes;
    return BytesOfSpelling(text, &bytes) ? bytes : text;
  }
  size_t LongestUnknown() const override {
    const bool all_known = std::all_of(id_of_byte_.begin(), id_of_byte_.end(), [](TokenId id) { return id >= 0; });
    return all_known || (spec_.unk_id >= 0 && !spec_.fuse_unknown) ? 1 : 0;
  }

 private:
  ByteLevelTokenizer(TokenizerSpec spec, std::unique_ptr<Pretokenizer> pretokenizer)
      : VocabularyTokenizer(std::move(spec)), pretokenizer_(std::move(pretokenizer)) {}
  Status IndexMerges();
  void EncodePiece(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const;

  std::unique_ptr<Pretokenizer> pretokenizer_;
  MergeTable merges_;
  std::array<TokenId, 256> id_of_byte_;
  std::unordered_map<std::string_view, TokenId> id_of_bytes_;  // ignore_merges only; views of TokenBytes
};

Status ByteLevelTokenizer::IndexMerges() {
  merges_.Reserve(spec_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    joined = left + right;
    const TokenId ids[] = {FindToken(left), FindToken(right), FindToken(joined)};
    const std::string* texts[] = {&left, &right, &joined};
    for (int i = 0; i < 3; ++i) {
      if (ids[i] < 0) {
        return DataLoss("tokenizer: merge " + std::to_string(rank) + " (\"" + left + "\", \"" + right +
                        "\") needs token \"" + *texts[i] + "\", which is not in the vocabulary");
      }
    }
    merges_.Add(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]});
  }
  for (unsigned b = 0; b < 256; ++b) {
    std::string text;
    AppendUtf8(Alphabet().character[b], &text);
    id_of_byte_[b] = FindToken(text);
  }
  if (spec_.ignore_merges) {
    std::string bytes;
    for (TokenId id = 0; id < vocab_size(); ++id) {
      if (!TokenText(id).empty() && BytesOfSpelling(TokenText(id), &bytes))
        id_of_bytes_.try_emplace(TokenBytes(id), id);
    }
  }
  return {};
}

void ByteLevelTokenizer::EncodePiece(std::string_view piece, StopToken stop, std::vector<TokenId>* ids) const {
  ids->clear();
  if (spec_.ignore_merges) {
    const auto whole = id_of_bytes_.find(piece);
    if (whole != id_of_bytes_.end()) {
      ids->push_back(whole->second);
      return;
    }
  }
  bool after_unknown = false;
  for (const char c : piece) {
    const TokenId id = id_of_byte_[static_cast<unsigned char>(c)];
    // A byte that the vocabulary lacks becomes the unknown token or, without one, is dropped, as in the reference.
    if (id >= 0) {
      ids->push_back(id);
    } else if (spec_.unk_id >= 0 && !(spec_.fuse_unknown && after_unknown)) {
      ids->push_back(spec_.unk_id);
    }
    after_unknown = id < 0;
  }
  MergePairs(merges_, ids, stop);
}

void ByteLevelTokenizer::EncodeText(std::string_view text, bool, StopToken stop, PieceCache* cache,
                                    std::vector<TokenId>* ids) const {
  std::string prefixed;
  PieceCache own_cache;
  if (spec_.add_prefix_space && !text.empty() && text[0] != ' ') {
    prefixed.reserve(text.size() + 1);
    prefixed.push_back(' ');
    prefixed += text;
    text = prefixed;
    cache = &own_cache;
  }
  std::vector<std::string_view> pieces;
  pieces.reserve(text.size() / 4 + 1);
  pretokenizer_->Split(text, &pieces, stop);
  constexpr size_t kCachedBytes = 64;  // longer pieces rarely recur
  std::vector<TokenId> scratch;
  for (const std::string_view piece : pieces) {
    if (stop.stopped()) return;
    std::vector<TokenId>* out = &scratch;
    bool known = false;
    if (piece.size() <= kCachedBytes) {
      const auto [entry, is_new] = cache->try_emplace(piece);
      out = &entry->second;
      known = !is_new;
    }
    if (!known) EncodePiece(piece, stop, out);
    ids->insert(ids->end(), out->begin(), out->end());
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeByteLevelTokenizer(TokenizerSpec spec) {
  return ByteLevelTokenizer::Make(std::move(spec));
}

}  // namespace tactus::language
