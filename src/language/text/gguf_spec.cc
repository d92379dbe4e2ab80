#include "language/text/gguf_spec.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "language/text/gguf_pre_tokenizers.h"

namespace tactus::language {
namespace {

Result<std::vector<TokenKind>> KindsOf(const std::vector<int32_t>& types) {
  constexpr std::array<TokenKind, 7> kKinds = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                               TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                               TokenKind::kByte};
  std::vector<TokenKind> kinds;
  kinds.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const int32_t type = types[i];
    if (type < 0 || type >= static_cast<int32_t>(kKinds.size())) {
      return DataLoss("GGUF tokenizer.ggml.token_type: token " + std::to_string(i) + " has type " +
                      std::to_string(type) + "; known are 0 to 6");
    }
    kinds.push_back(kKinds[static_cast<size_t>(type)]);
  }
  return kinds;
}

// Arrays that a file may leave out read as empty; an array that is needed then is refused by name.
Status CheckTables(const GgufTokenizerFields& fields) {
  const auto missing = [](const char* what, const std::string& why) {
    return DataLoss(std::string("GGUF tokenizer.ggml.") + what + " is missing or empty: " + why +
                    "; convert the model again");
  };
  if (fields.tokens.empty()) return missing("tokens", "the tokeniser has no vocabulary");
  const bool has_markers = fields.bos >= 0 || fields.eos >= 0;
  if (fields.types.empty() && has_markers) return missing("token_type", "control tokens would be split as text");
  return {};
}

// Ordinary tokens of several characters result from merges alone, one each. Published files have about one merge or
// more per such token; with less than half, most words would be split into letters.
Status CheckMerges(std::span<const std::string> tokens, std::span<const TokenKind> kinds, size_t merges) {
  size_t words = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (kinds[i] == TokenKind::kNormal && !tokens[i].empty() && DecodeUtf8(tokens[i]).size < tokens[i].size()) ++words;
  }
  if (merges >= (words + 1) / 2) return {};
  return DataLoss("GGUF tokenizer.ggml.merges " +
                  (merges == 0 ? std::string("is missing or empty") : "has " + std::to_string(merges) + " entries") +
                  ": text would be spelled letter by letter, although the vocabulary has " + std::to_string(words) +
                  " tokens of several characters; convert the model again");
}

Status ReadMerges(std::span<const std::string> merges, TokenizerSpec* spec) {
  spec->merges.reserve(merges.size());
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string::npos || space + 1 == merge.size()) {
      return DataLoss("GGUF tokenizer.ggml.merges: \"" + merge + "\" is not two tokens");
    }
    spec->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

bool IsPhi3(std::string name) {
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

Status CheckId(const char* what, int64_t id, size_t tokens) {
  if (id < static_cast<int64_t>(tokens)) return {};
  return DataLoss(std::string("GGUF tokenizer.ggml.") + what + " is " + std::to_string(id) + ", but there are " +
                  std::to_string(tokens) + " tokens");
}

Status ReadGgufByteLevel(const GgufTokenizerFields& fields, TokenizerSpec* spec) {
  std::string pre = fields.pre;
  if (pre.empty() || pre == "default") {
    pre = GuessPreTokenizer(*spec);
    spec->warnings.push_back("the file has no tokenizer.ggml.pre, which defines how text is split into words: \"" +
                             pre + "\" fits its vocabulary; convert the model again if answers are poor");
  }
  TACTUS_RETURN_IF_ERROR(ApplyPreTokenizerName(pre, spec));
  TACTUS_RETURN_IF_ERROR(CheckMerges(spec->tokens, spec->kinds, fields.merges.size()));
  return ReadMerges(fields.merges, spec);
}

// Gemma 4: merges over characters, with U+2581 for a space and bytes for what the vocabulary lacks.
Status ReadGemma4(const GgufTokenizerFields& fields, TokenizerSpec* spec) {
  spec->normalizers = {
      {.kind = NormalizerStep::Kind::kReplace, .pattern = {" "}, .content = std::string(kSpaceSymbol)}};
  spec->decoders = {{.kind = DecoderStep::Kind::kReplace, .pattern = {std::string(kSpaceSymbol)}, .content = " "},
                    {.kind = DecoderStep::Kind::kByteFallback},
                    {.kind = DecoderStep::Kind::kFuse}};
  spec->byte_fallback = spec->fuse_unknown = true;
  TACTUS_RETURN_IF_ERROR(CheckMerges(spec->tokens, spec->kinds, fields.merges.size()));
  return ReadMerges(fields.merges, spec);
}

Status ReadGgufSentencePiece(GgufTokenizerFields* fields, TokenizerSpec* spec) {
  const size_t n = spec->tokens.size();
  if (fields->scores.size() != n) {
    return DataLoss("GGUF tokenizer.ggml.scores has " + std::to_string(fields->scores.size()) + " entries for " +
                    std::to_string(n) + " tokens; a SentencePiece tokeniser needs one for each");
  }
  spec->scores.assign(fields->scores.begin(), fields->scores.end());
  const bool unigram = fields->model == "t5";
  spec->model = unigram ? TokenizerSpec::Model::kUnigram : TokenizerSpec::Model::kSentencePieceBpe;
  if (spec->unk_id < 0) spec->unk_id = static_cast<TokenId>(std::min<size_t>(unigram ? 2 : 0, n - 1));
  AddSentencePieceSteps(unigram ? std::move(fields->precompiled_charsmap) : std::string(),
                        unigram && fields->remove_extra_whitespaces, fields->add_space_prefix, spec);
  spec->byte_fallback = std::find(spec->kinds.begin(), spec->kinds.end(), TokenKind::kByte) != spec->kinds.end();
  return {};
}

// GGUF marks the tokens that begin a word with U+2581, and BERT's own files those that continue one with "##".
void ReadGgufWordPiece(const GgufTokenizerFields& fields, TokenizerSpec* spec) {
  spec->model = TokenizerSpec::Model::kWordPiece;
  spec->continuing_prefix = "##";
  bool cased = false;
  for (size_t i = 0; i < spec->tokens.size(); ++i) {
    std::string& text = spec->tokens[i];
    if (spec->kinds[i] != TokenKind::kNormal || text.empty()) continue;
    text = text.starts_with(kSpaceSymbol) ? text.substr(kSpaceSymbol.size()) : "##" + text;
    const bool word = text[0] != '[';  // [unused1] and the like
    cased |= word && std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  NormalizerStep step{.kind = NormalizerStep::Kind::kBert};
  step.lower = fields.lowercase.value_or(!cased);
  step.strip_accents = fields.strip_accents.value_or(step.lower);
  spec->normalizers = {step};
  spec->pre_tokenizers = {{.kind = PreTokenizerStep::Kind::kWhiteSpace, .behavior = SplitBehavior::kRemoved},
                          {.kind = PreTokenizerStep::Kind::kPunctuation}};
  spec->decoders = {{.kind = DecoderStep::Kind::kWordPiece, .content = "##"}};
}

// The tokens around a text: what the file says, else what is usual for the model.
void SetEnds(const GgufTokenizerFields& fields, TokenizerSpec* spec) {
  const bool bert = fields.model == "bert", gemma4 = fields.model == "gemma4";
  bool add_bos = bert || gemma4 || fields.model == "llama" || !spec->prefix.empty();
  if (fields.has_add_bos && !gemma4) add_bos = fields.add_bos;  // Gemma 4's files deny it, and its answers need it
  const bool add_eos = fields.has_add_eos ? fields.add_eos : fields.model == "t5";
  spec->prefix.clear();
  if (add_bos && spec->bos_id >= 0) spec->prefix = {spec->bos_id};
  if (add_eos && spec->eos_id >= 0) spec->suffix = {spec->eos_id};
  if (bert && fields.sep >= 0) spec->suffix = {static_cast<TokenId>(fields.sep)};
}

}  // namespace

Result<TokenizerSpec> SpecFromGguf(GgufTokenizerFields fields) {
  TokenizerSpec spec;
  TACTUS_RETURN_IF_ERROR(CheckTables(fields));
  const size_t n = fields.tokens.size();
  TACTUS_ASSIGN_OR_RETURN(spec.kinds, KindsOf(fields.types));
  if (spec.kinds.empty()) spec.kinds.resize(n, TokenKind::kNormal);
  if (spec.kinds.size() != n) {
    return DataLoss("GGUF tokenizer: " + std::to_string(n) + " tokens, but " + std::to_string(spec.kinds.size()) +
                    " token types");
  }
  TACTUS_RETURN_IF_ERROR(CheckId("bos_token_id", fields.bos, n));
  TACTUS_RETURN_IF_ERROR(CheckId("eos_token_id", fields.eos, n));
  TACTUS_RETURN_IF_ERROR(CheckId("unknown_token_id", fields.unk, n));
  TACTUS_RETURN_IF_ERROR(CheckId("seperator_token_id", fields.sep, n));
  spec.bos_id = static_cast<TokenId>(std::max<int64_t>(-1, fields.bos));
  spec.eos_id = static_cast<TokenId>(std::max<int64_t>(-1, fields.eos));
  spec.unk_id = static_cast<TokenId>(std::max<int64_t>(-1, fields.unk));
  const bool phi3 = IsPhi3(fields.model_name);
  for (size_t i = 0; i < n; ++i) {
    const TokenKind kind = spec.kinds[i];
    const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!special && kind != TokenKind::kUserDefined) continue;
    const std::string& text = fields.tokens[i];
    const bool strips = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    spec.added.push_back({text, static_cast<TokenId>(i), special, false, strips, false, false});
  }
  spec.tokens = std::move(fields.tokens);
  if (fields.model == "gpt2") {
    spec.unk_id = -1;
    TACTUS_RETURN_IF_ERROR(ReadGgufByteLevel(fields, &spec));
  } else if (fields.model == "llama" || fields.model == "t5") {
    TACTUS_RETURN_IF_ERROR(ReadGgufSentencePiece(&fields, &spec));
  } else if (fields.model == "gemma4") {
    TACTUS_RETURN_IF_ERROR(ReadGemma4(fields, &spec));
  } else if (fields.model == "bert") {
    ReadGgufWordPiece(fields, &spec);
  } else {
    return Unimplemented("GGUF tokenizer.ggml.model \"" + fields.model +
                         "\" is not known; known are: gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 "
                         "(SentencePiece unigram), bert (WordPiece), gemma4 (BPE over characters)");
  }
  SetEnds(fields, &spec);
  return spec;
}

}  // namespace tactus::language
