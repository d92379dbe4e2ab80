#include "language/text/gguf_spec.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "language/text/pretokenizer.h"

namespace tactus::language {
namespace {

// Models whose pre-tokeniser is one of the regexes here. Where the reference runs `Digits` or `Split` before the GPT-2
// regex, these do too.
enum class Flavor { kGpt2, kDigitsThenGpt2, kLlama3, kQwen2, kFalcon };
struct Known {
  const char* name;
  Flavor flavor;
  bool ignore_merges = false, nfc = false, add_bos = false;
};
constexpr Known kKnown[] = {
    {"gpt-2", Flavor::kGpt2},
    {"phi-2", Flavor::kGpt2},
    {"mpt", Flavor::kGpt2, false, true},
    {"olmo", Flavor::kGpt2, false, true},
    {"exaone4", Flavor::kGpt2},
    {"smollm", Flavor::kDigitsThenGpt2},
    {"starcoder", Flavor::kDigitsThenGpt2},
    {"refact", Flavor::kDigitsThenGpt2},
    {"codeshell", Flavor::kDigitsThenGpt2},
    {"command-r", Flavor::kDigitsThenGpt2, false, true},
    {"falcon", Flavor::kFalcon},
    {"llama-bpe", Flavor::kLlama3, true, false, true},
    {"llama3", Flavor::kLlama3, true, false, true},
    {"llama-v3", Flavor::kLlama3, true, false, true},
    {"falcon3", Flavor::kLlama3, true, false, true},
    {"pixtral", Flavor::kLlama3, true, false, true},
    {"smaug-bpe", Flavor::kLlama3},
    {"dbrx", Flavor::kLlama3},
    {"qwen2", Flavor::kQwen2, false, true},
    {"deepseek-r1-qwen", Flavor::kQwen2, false, true},
    {"stablelm2", Flavor::kQwen2},
    {"megrez", Flavor::kQwen2},
};

const Known* FindKnown(std::string_view name) {
  const auto found = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return name == k.name; });
  return found == std::end(kKnown) ? nullptr : found;
}

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
  if (fields.model == "gpt2" && fields.pre.empty()) return missing("pre", "it defines how text is split into words");
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

}  // namespace

Status ApplyPreTokenizerName(std::string_view name, TokenizerSpec* spec) {
  const Known* known = FindKnown(name);
  if (known == nullptr) {
    std::string names;
    for (const Known& k : kKnown) names += (names.empty() ? "" : ", ") + std::string(k.name);
    return Unimplemented("pre-tokenizer \"" + std::string(name) + "\" is not known; known are: " + names);
  }
  spec->ignore_merges = known->ignore_merges;
  spec->nfc_normalize = known->nfc;
  spec->add_bos = known->add_bos;
  spec->digits_one_by_one = known->flavor == Flavor::kDigitsThenGpt2;
  spec->split_behaviors.clear();
  switch (known->flavor) {
    case Flavor::kGpt2:
    case Flavor::kDigitsThenGpt2:
      spec->split_patterns = {kGpt2Pattern};
      break;
    case Flavor::kLlama3:
      spec->split_patterns = {kLlama3Pattern};
      break;
    case Flavor::kQwen2:
      spec->split_patterns = {kQwen2Pattern};
      break;
    case Flavor::kFalcon:
      spec->split_patterns = {kPunctuationPattern, kGpt2Pattern, "[0-9][0-9][0-9]"};
      break;
  }
  return {};
}

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
  spec.bos_id = static_cast<TokenId>(std::max<int64_t>(-1, fields.bos));
  spec.eos_id = static_cast<TokenId>(std::max<int64_t>(-1, fields.eos));
  const bool phi3 = IsPhi3(fields.model_name);
  for (size_t i = 0; i < n; ++i) {
    const TokenKind kind = spec.kinds[i];
    const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!special && kind != TokenKind::kUserDefined) continue;
    const std::string& text = fields.tokens[i];
    const bool strips = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    spec.added.push_back({text, static_cast<TokenId>(i), special, false, strips, false, false});
  }
  if (fields.model == "gpt2") {
    spec.algorithm = TokenizerSpec::Algorithm::kByteLevelBpe;
    TACTUS_RETURN_IF_ERROR(ApplyPreTokenizerName(fields.pre, &spec));
    TACTUS_RETURN_IF_ERROR(CheckMerges(fields.tokens, spec.kinds, fields.merges.size()));
    TACTUS_RETURN_IF_ERROR(ReadMerges(fields.merges, &spec));
  } else if (fields.model == "llama") {
    spec.algorithm = TokenizerSpec::Algorithm::kSentencePieceBpe;
    if (fields.scores.size() != n) {
      return DataLoss("GGUF tokenizer.ggml.scores has " + std::to_string(fields.scores.size()) + " entries for " +
                      std::to_string(n) + " tokens; a SentencePiece tokeniser needs one for each");
    }
    spec.scores = std::move(fields.scores);
    spec.unk_id =
        static_cast<TokenId>(fields.unk >= 0 ? fields.unk : std::min<int64_t>(0, static_cast<int64_t>(n) - 1));
    spec.add_prefix_space = fields.add_space_prefix;
    spec.strip_leading_space = fields.add_space_prefix;
    spec.fuse_unknown = true;
    spec.add_bos = true;
  } else {
    return Unimplemented("GGUF tokenizer.ggml.model \"" + fields.model +
                         "\" is not known; known are: gpt2 (byte-level BPE), llama (SentencePiece BPE)");
  }
  if (fields.has_add_bos) spec.add_bos = fields.add_bos;
  spec.add_bos = spec.add_bos && spec.bos_id >= 0;
  spec.add_eos = fields.add_eos && spec.eos_id >= 0;
  spec.tokens = std::move(fields.tokens);
  return spec;
}

}  // namespace tactus::language
