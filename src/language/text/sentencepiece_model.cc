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

// TrainerSpec: model_type = 3 (2: BPE), treat_whitespace_as_suffix = 24, bos_piece = 46, eos_piece = 47.
Status ReadTrainerSpec(std::string_view message, uint64_t* model_type, Names* names) {
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.id == 3 && field.wire == 0) *model_type = field.number;
    if (field.id == 24 && field.wire == 0 && field.number != 0) {
      return Unimplemented("tokenizer.model: treat_whitespace_as_suffix is not supported");
    }
    if (field.id == 46 && field.wire == 2) names->bos = field.bytes;
    if (field.id == 47 && field.wire == 2) names->eos = field.bytes;
  }
  return reader.failed() ? Malformed("trainer_spec") : Status();
}

// NormalizerSpec: name = 1, precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4,
// escape_whitespaces = 5; the three flags default to true.
Status ReadNormalizerSpec(std::string_view message, TokenizerSpec* spec) {
  std::string name;
  bool has_map = false, escapes = true;
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.id == 1 && field.wire == 2) name = field.bytes;
    if (field.id == 2 && field.wire == 2) has_map = !field.bytes.empty();
    if (field.id == 3 && field.wire == 0) spec->add_prefix_space = field.number != 0;
    if (field.id == 4 && field.wire == 0) spec->remove_extra_whitespaces = field.number != 0;
    if (field.id == 5 && field.wire == 0) escapes = field.number != 0;
  }
  if (reader.failed()) return Malformed("normalizer_spec");
  if (has_map)
    return Unimplemented("tokenizer.model: normalization \"" + name + "\" is not supported; only identity is");
  if (!escapes) return Unimplemented("tokenizer.model: escape_whitespaces = false is not supported");
  return {};
}

}  // namespace

Result<TokenizerSpec> ParseSentencePieceModel(std::string_view protobuf_bytes) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::kSentencePieceBpe;
  spec.add_prefix_space = true;
  spec.remove_extra_whitespaces = true;
  spec.fuse_unknown = true;
  uint64_t model_type = 1;
  Names names;
  FieldReader reader(protobuf_bytes);
  for (Field field; reader.Next(&field);) {
    if (field.wire != 2) continue;
    if (field.id == 1) TACTUS_RETURN_IF_ERROR(ReadPiece(field.bytes, &spec));
    if (field.id == 2) TACTUS_RETURN_IF_ERROR(ReadTrainerSpec(field.bytes, &model_type, &names));
    if (field.id == 3) TACTUS_RETURN_IF_ERROR(ReadNormalizerSpec(field.bytes, &spec));
  }
  if (reader.failed()) return Malformed("the file");
  if (spec.tokens.empty()) return DataLoss("tokenizer.model: no pieces");
  if (model_type != 2) {
    return Unimplemented("tokenizer.model: model type " + std::to_string(model_type) +
                         " is not supported; only 2 (BPE) is");
  }
  spec.strip_leading_space = spec.add_prefix_space;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = spec.kinds[i];
    if (kind == TokenKind::kUnknown) spec.unk_id = id;
    if (kind != TokenKind::kControl && kind != TokenKind::kUnknown) continue;
    if (spec.tokens[i] == names.bos) spec.bos_id = id;
    if (spec.tokens[i] == names.eos) spec.eos_id = id;
    spec.added.push_back({spec.tokens[i], id, true, false, false, false, false});
  }
  spec.add_bos = spec.bos_id >= 0;
  return spec;
}

}  // namespace tactus::language
