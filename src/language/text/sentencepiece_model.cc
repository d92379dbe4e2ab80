// Reads a SentencePiece tokenizer.model: the protobuf message ModelProto of sentencepiece_model.proto, parsed by hand
// for the few fields that encoding needs. The file is hostile input: every length is checked against the rest.
#include <bit>
#include <cstring>

#include "language/text/tokenizer.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

// One field of a protobuf message: `bytes` of a length-delimited one, `number` of others.
struct Field {
  uint32_t id = 0;
  uint32_t wire = 0;
  uint64_t number = 0;
  std::string_view bytes;
};

class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}
  // False: the end, or not a protobuf message (failed()).
  bool Next(Field* field) {
    if (rest_.empty() || failed_) return false;
    uint64_t key = 0;
    *field = {};
    if (!Varint(&key) || key >> 3 == 0 || key >> 32 != 0) return Fail();
    field->id = static_cast<uint32_t>(key >> 3);
    field->wire = static_cast<uint32_t>(key & 7);
    uint64_t size = 0;
    switch (field->wire) {
      case 0:
        return Varint(&field->number) || Fail();
      case 1:
        return Fixed(8, &field->number) || Fail();
      case 5:
        return Fixed(4, &field->number) || Fail();
      case 2:
        if (!Varint(&size) || size > rest_.size()) return Fail();
        field->bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      default:
        return Fail();
    }
  }
  bool failed() const { return failed_; }

 private:
  bool Fail() {
    failed_ = true;
    return false;
  }
  bool Varint(uint64_t* out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Fixed(size_t size, uint64_t* out) {
    if (rest_.size() < size) return false;
    *out = 0;
    for (size_t i = 0; i < size; ++i) *out |= static_cast<uint64_t>(static_cast<unsigned char>(rest_[i])) << 8 * i;
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  bool failed_ = false;
};

Status Malformed(const char* what) {
  return DataLoss(std::string("tokenizer.model: ") + what + " is not a well-formed protobuf message");
}

// ModelProto.SentencePiece: piece = 1, score = 2, type = 3.
Status ReadPiece(std::string_view message, TokenizerSpec* spec) {
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,      TokenKind::kNormal, TokenKind::kUnknown, TokenKind::kControl,
                                  TokenKind::kUserDefined, TokenKind::kUnused, TokenKind::kByte};
  std::string text;
  float score = 0;
  TokenKind kind = TokenKind::kNormal;
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.id == 1 && field.wire == 2) text = field.bytes;
    if (field.id == 2 && field.wire == 5) score = std::bit_cast<float>(static_cast<uint32_t>(field.number));
    if (field.id == 3 && field.wire == 0) {
      if (field.number == 0 || field.number >= std::size(kKinds)) {
        return DataLoss("tokenizer.model: piece " + std::to_string(spec->tokens.size()) + " has type " +
                        std::to_string(field.number) + "; known are 1 to 6");
      }
      kind = kKinds[field.number];
    }
  }
  if (reader.failed()) return Malformed("a piece");
  if (text.empty()) return DataLoss("tokenizer.model: piece " + std::to_string(spec->tokens.size()) + " is empty");
  if (!IsValidUtf8(text))
    return DataLoss("tokenizer.model: piece " + std::to_string(spec->tokens.size()) + " is not UTF-8");
  spec->tokens.push_back(std::move(text));
  spec->scores.push_back(score);
  spec->kinds.push_back(kind);
  return {};
}

struct Names {
  std::string bos = "<s>", eos = "</s>";
};

// TrainerSpec: model_type = 3 (1: unigram, 2: BPE), treat_whitespace_as_suffix = 24, byte_fallback = 35, bos_piece =
// 46, eos_piece = 47.
Status ReadTrainerSpec(std::string_view message, uint64_t* model_type, Names* names, TokenizerSpec* spec) {
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.id == 3 && field.wire == 0) *model_type = field.number;
    if (field.id == 24 && field.wire == 0 && field.number != 0) {
      return Unimplemented("tokenizer.model: treat_whitespace_as_suffix is not supported");
    }
    if (field.id == 35 && field.wire == 0) spec->byte_fallback = field.number != 0;
    if (field.id == 46 && field.wire == 2) names->bos = field.bytes;
    if (field.id == 47 && field.wire == 2) names->eos = field.bytes;
  }
  return reader.failed() ? Malformed("trainer_spec") : Status();
}

// NormalizerSpec: name = 1, precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4,
// escape_whitespaces = 5; the three flags default to true.
struct Normalization {
  std::string map;
  bool dummy_prefix = true, collapses_spaces = true, escapes = true;
};

Status ReadNormalizerSpec(std::string_view message, Normalization* to) {
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.id == 2 && field.wire == 2) to->map = field.bytes;
    if (field.id == 3 && field.wire == 0) to->dummy_prefix = field.number != 0;
    if (field.id == 4 && field.wire == 0) to->collapses_spaces = field.number != 0;
    if (field.id == 5 && field.wire == 0) to->escapes = field.number != 0;
  }
  if (reader.failed()) return Malformed("normalizer_spec");
  if (!to->escapes) return Unimplemented("tokenizer.model: escape_whitespaces = false is not supported");
  return {};
}

}  // namespace

void AddSentencePieceSteps(std::string map, bool collapses_spaces, bool dummy_prefix, TokenizerSpec* spec) {
  using Kind = NormalizerStep::Kind;
  const std::string symbol(kSpaceSymbol);
  if (!map.empty()) spec->normalizers.push_back({.kind = Kind::kLongestPrefix, .content = std::move(map)});
  if (collapses_spaces) spec->normalizers.push_back({.kind = Kind::kCollapseSpaces});
  if (dummy_prefix) spec->normalizers.push_back({.kind = Kind::kPrepend, .content = symbol});
  spec->normalizers.push_back({.kind = Kind::kReplace, .pattern = {" "}, .content = symbol});
  spec->decoders = {{.kind = DecoderStep::Kind::kReplace, .pattern = {symbol}, .content = " "},
                    {.kind = DecoderStep::Kind::kByteFallback},
                    {.kind = DecoderStep::Kind::kFuse}};
  if (dummy_prefix) spec->decoders.push_back({.kind = DecoderStep::Kind::kStrip, .content = " ", .start = 1});
  spec->sentencepiece_scores = true;
  spec->fuse_unknown = true;
}

Result<TokenizerSpec> ParseSentencePieceModel(std::string_view protobuf_bytes) {
  TokenizerSpec spec;
  uint64_t model_type = 1;
  Names names;
  Normalization normalization;
  FieldReader reader(protobuf_bytes);
  for (Field field; reader.Next(&field);) {
    if (field.wire != 2) continue;
    if (field.id == 1) TACTUS_RETURN_IF_ERROR(ReadPiece(field.bytes, &spec));
    if (field.id == 2) TACTUS_RETURN_IF_ERROR(ReadTrainerSpec(field.bytes, &model_type, &names, &spec));
    if (field.id == 3) TACTUS_RETURN_IF_ERROR(ReadNormalizerSpec(field.bytes, &normalization));
  }
  if (reader.failed()) return Malformed("the file");
  if (spec.tokens.empty()) return DataLoss("tokenizer.model: no pieces");
  if (model_type != 1 && model_type != 2) {
    return Unimplemented("tokenizer.model: model type " + std::to_string(model_type) +
                         " is not supported; 1 (unigram) and 2 (BPE) are");
  }
  spec.model = model_type == 1 ? TokenizerSpec::Model::kUnigram : TokenizerSpec::Model::kSentencePieceBpe;
  AddSentencePieceSteps(std::move(normalization.map), normalization.collapses_spaces, normalization.dummy_prefix,
                        &spec);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = spec.kinds[i];
    if (kind == TokenKind::kUnknown) spec.unk_id = id;
    if (kind != TokenKind::kControl && kind != TokenKind::kUnknown) continue;
    if (spec.tokens[i] == names.bos) spec.bos_id = id;
    if (spec.tokens[i] == names.eos) spec.eos_id = id;
    spec.added.push_back({spec.tokens[i], id, true, false, false, false, false});
  }
  if (spec.bos_id >= 0) spec.prefix = {spec.bos_id};
  return spec;
}

}  // namespace tactus::language
