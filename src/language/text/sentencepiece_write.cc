// Writes a tokenizer.model: the fields of SentencePiece's ModelProto that sentencepiece_model.cc reads.
#include <algorithm>
#include <bit>

#include "language/text/json_write.h"

namespace tactus::language {
namespace {

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

void PutNumber(int field, uint64_t value, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3, out);
  PutVarint(value, out);
}

void PutBytes(int field, std::string_view bytes, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  PutVarint(bytes.size(), out);
  *out += bytes;
}

void PutFloat(int field, float value, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | 5, out);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) *out += static_cast<char>(bits >> 8 * i);
}

uint64_t PieceTypeOf(TokenKind kind) {
  switch (kind) {
    case TokenKind::kUnknown:
      return 2;
    case TokenKind::kControl:
      return 3;
    case TokenKind::kUserDefined:
    case TokenKind::kAdded:
      return 4;
    case TokenKind::kUnused:
      return 5;
    case TokenKind::kByte:
      return 6;
    case TokenKind::kNormal:
      break;
  }
  return 1;
}

std::string TokenTextOf(const TokenizerSpec& spec, TokenId id) {
  return id >= 0 ? spec.tokens[static_cast<size_t>(id)] : std::string();
}

}  // namespace

Result<std::string> SentencePieceModelText(const TokenizerSpec& spec) {
  if (spec.model != TokenizerSpec::Model::kSentencePieceBpe) {
    return Unimplemented("tokenizer.model is written for SentencePiece's BPE alone; this tokeniser is of another kind");
  }
  std::string out;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    std::string piece;
    PutBytes(1, spec.tokens[i], &piece);
    PutFloat(2, static_cast<float>(spec.scores[i]), &piece);
    PutNumber(3, PieceTypeOf(spec.kinds[i]), &piece);
    PutBytes(1, piece, &out);
  }
  std::string trainer;
  PutNumber(3, 2, &trainer);  // BPE
  PutNumber(35, spec.byte_fallback ? 1 : 0, &trainer);
  PutNumber(40, static_cast<uint64_t>(static_cast<int64_t>(spec.unk_id)), &trainer);
  PutNumber(41, static_cast<uint64_t>(static_cast<int64_t>(spec.bos_id)), &trainer);
  PutNumber(42, static_cast<uint64_t>(static_cast<int64_t>(spec.eos_id)), &trainer);
  PutBytes(45, TokenTextOf(spec, spec.unk_id), &trainer);
  if (spec.bos_id >= 0) PutBytes(46, TokenTextOf(spec, spec.bos_id), &trainer);
  if (spec.eos_id >= 0) PutBytes(47, TokenTextOf(spec, spec.eos_id), &trainer);
  PutBytes(2, trainer, &out);
  const bool prefix = std::any_of(spec.normalizers.begin(), spec.normalizers.end(), [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kPrepend;
  });
  std::string normalizer;
  PutBytes(1, "identity", &normalizer);
  PutNumber(3, prefix ? 1 : 0, &normalizer);
  PutNumber(4, 0, &normalizer);
  PutNumber(5, 1, &normalizer);
  PutBytes(3, normalizer, &out);
  return out;
}

}  // namespace tactus::language
