#include "language/text/gguf_write.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "language/text/gguf_pre_tokenizers.h"

namespace tactus::language {
namespace {

constexpr int32_t kNormalType = 1, kUnknownType = 2, kControlType = 3, kUserDefinedType = 4, kUnusedType = 5,
                  kByteType = 6;

int32_t GgufTypeOf(TokenKind kind) {
  switch (kind) {
    case TokenKind::kUnknown:
      return kUnknownType;
    case TokenKind::kControl:
      return kControlType;
    case TokenKind::kUserDefined:
    case TokenKind::kAdded:
      return kUserDefinedType;
    case TokenKind::kUnused:
      return kUnusedType;
    case TokenKind::kByte:
      return kByteType;
    case TokenKind::kNormal:
      break;
  }
  return kNormalType;
}

// "<0x0A>".
bool NamesByte(const std::string& text) {
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>';
}

bool HasStep(const TokenizerSpec& spec, NormalizerStep::Kind kind) {
  return std::any_of(spec.normalizers.begin(), spec.normalizers.end(),
                     [kind](const NormalizerStep& step) { return step.kind == kind; });
}
bool HasStep(const TokenizerSpec& spec, PreTokenizerStep::Kind kind) {
  return std::any_of(spec.pre_tokenizers.begin(), spec.pre_tokenizers.end(),
                     [kind](const PreTokenizerStep& step) { return step.kind == kind; });
}

// Whether a space is put before a text.
bool PrependsSpace(const TokenizerSpec& spec) {
  return HasStep(spec, NormalizerStep::Kind::kPrepend) ||
         std::any_of(spec.pre_tokenizers.begin(), spec.pre_tokenizers.end(), [](const PreTokenizerStep& step) {
           return step.kind == PreTokenizerStep::Kind::kMetaspace && step.prepend != PreTokenizerStep::Prepend::kNever;
         });
}

GgufTokenizerFields CommonFields(const TokenizerSpec& spec) {
  GgufTokenizerFields fields;
  fields.tokens = spec.tokens;
  fields.types.resize(spec.tokens.size(), kNormalType);
  for (size_t i = 0; i < spec.kinds.size(); ++i) fields.types[i] = GgufTypeOf(spec.kinds[i]);
  for (const TokenizerSpec::Added& added : spec.added) {
    int32_t& type = fields.types[static_cast<size_t>(added.id)];
    if (type != kUnknownType) type = added.special ? kControlType : kUserDefinedType;
  }
  for (size_t i = 0; i < fields.tokens.size(); ++i) {  // an empty text is no token for some readers
    if (fields.tokens[i].empty()) fields.tokens[i] = "[PAD" + std::to_string(i) + "]", fields.types[i] = kUnusedType;
  }
  fields.bos = spec.bos_id;
  fields.eos = spec.eos_id;
  fields.unk = spec.unk_id;
  fields.has_add_bos = fields.has_add_eos = true;
  fields.add_bos = !spec.prefix.empty();
  fields.add_eos = !spec.suffix.empty();
  return fields;
}

// Scores under which the token of the earliest merge comes first.
std::vector<float> ScoresOfMerges(const TokenizerSpec& spec) {
  std::unordered_map<std::string, float> by_text;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    by_text.emplace(spec.merges[i].first + spec.merges[i].second, -static_cast<float>(i));
  }
  std::vector<float> scores;
  for (const std::string& token : spec.tokens) {
    const auto found = by_text.find(token);
    scores.push_back(found != by_text.end() ? found->second : -static_cast<float>(spec.merges.size()));
  }
  return scores;
}

// The types of a vocabulary with a token for what it lacks, or tokens of bytes.
void SetFallbackTypes(const TokenizerSpec& spec, GgufTokenizerFields* fields) {
  if (spec.unk_id >= 0) fields->types[static_cast<size_t>(spec.unk_id)] = kUnknownType;
  for (size_t i = 0; i < fields->tokens.size(); ++i) {
    if (fields->types[i] == kNormalType && spec.byte_fallback && NamesByte(fields->tokens[i]))
      fields->types[i] = kByteType;
  }
}

Result<GgufTokenizerFields> SentencePieceFields(const TokenizerSpec& spec, const TokenizerSpec* pieces) {
  if (HasStep(spec, NormalizerStep::Kind::kLongestPrefix) || HasStep(spec, NormalizerStep::Kind::kPrecompiled) ||
      HasStep(spec, NormalizerStep::Kind::kCollapseSpaces)) {
    return Unimplemented("the tokeniser normalises its text in a way that GGUF's model \"llama\" does not know");
  }
  GgufTokenizerFields fields = CommonFields(spec);
  fields.model = "llama";
  fields.add_space_prefix = PrependsSpace(spec);
  SetFallbackTypes(spec, &fields);
  if (!spec.scores.empty()) {
    fields.scores.assign(spec.scores.begin(), spec.scores.end());
  } else {
    fields.scores = ScoresOfMerges(spec);
    const size_t known = pieces != nullptr ? std::min(pieces->tokens.size(), spec.tokens.size()) : 0;
    for (size_t i = 0; i < known; ++i) {
      if (pieces->tokens[i] == spec.tokens[i]) fields.scores[i] = static_cast<float>(pieces->scores[i]);
    }
  }
  return fields;
}

// sentencepiece's remove_extra_whitespaces, in the forms that tokenizer.json has it.
bool CollapsesSpaces(const TokenizerSpec& spec) {
  const bool words = std::any_of(spec.pre_tokenizers.begin(), spec.pre_tokenizers.end(), [](const auto& step) {
    return step.kind == PreTokenizerStep::Kind::kWhiteSpace && step.behavior == SplitBehavior::kRemoved;
  });
  return words || HasStep(spec, NormalizerStep::Kind::kCollapseSpaces) ||
         std::any_of(spec.normalizers.begin(), spec.normalizers.end(),
                     [](const NormalizerStep& step) { return step.pattern == TextPattern{" {2,}", true}; });
}

Result<GgufTokenizerFields> UnigramFields(const TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  GgufTokenizerFields fields = CommonFields(spec);
  fields.model = "t5";
  for (const NormalizerStep& step : spec.normalizers) {
    const bool map = step.kind == Kind::kLongestPrefix || step.kind == Kind::kPrecompiled;
    const bool spaces = step.pattern.text == " " || step.pattern.text == " {2,}";
    if (map) fields.precompiled_charsmap = step.content;
    if (map || step.kind == Kind::kCollapseSpaces || step.kind == Kind::kPrepend || step.kind == Kind::kStrip) continue;
    if (step.kind == Kind::kReplace && spaces) continue;
    return Unimplemented("the tokeniser normalises its text in a way that GGUF's model \"t5\" does not know");
  }
  fields.remove_extra_whitespaces = CollapsesSpaces(spec);
  fields.add_space_prefix = PrependsSpace(spec);
  SetFallbackTypes(spec, &fields);
  fields.scores.assign(spec.scores.begin(), spec.scores.end());
  return fields;
}

// BERT's. What its files put around a text has keys other than BOS and EOS: any single tokens.
Result<GgufTokenizerFields> WordPieceFields(const TokenizerSpec& spec) {
  const bool bert = spec.normalizers.size() == 1 && spec.normalizers[0].kind == NormalizerStep::Kind::kBert &&
                    spec.normalizers[0].clean_text && spec.normalizers[0].chinese;
  if (!bert || spec.continuing_prefix != "##" || spec.prefix.size() > 1 || spec.suffix.size() > 1) {
    return Unimplemented("the tokeniser has steps that GGUF's model \"bert\" does not know");
  }
  GgufTokenizerFields fields = CommonFields(spec);
  fields.model = "bert";
  fields.lowercase = spec.normalizers[0].lower;
  fields.strip_accents = spec.normalizers[0].strip_accents;
  if (!spec.prefix.empty()) fields.bos = spec.prefix[0];
  if (!spec.suffix.empty()) fields.sep = spec.suffix[0];
  for (size_t i = 0; i < fields.tokens.size(); ++i) {
    std::string& text = fields.tokens[i];
    if (fields.types[i] != kNormalType) continue;
    text = text.starts_with("##") ? text.substr(2) : std::string(kSpaceSymbol) + text;
  }
  return fields;
}

// Every two tokens whose joint text is a token, in the order of its id: what tiktoken merges.
std::vector<std::string> MergesOfIds(const TokenizerSpec& spec) {
  std::unordered_set<std::string_view> tokens;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.kinds[i] == TokenKind::kNormal) tokens.insert(spec.tokens[i]);
  }
  std::vector<std::string> merges;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.kinds[i] != TokenKind::kNormal) continue;
    const std::string_view text = spec.tokens[i];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view left = text.substr(0, cut), right = text.substr(cut);
      if (tokens.contains(left) && tokens.contains(right))
        merges.push_back(std::string(left) + " " + std::string(right));
    }
  }
  return merges;
}

Result<GgufTokenizerFields> ByteLevelFields(const TokenizerSpec& spec) {
  const std::string pre = PreTokenizerNameOf(spec);
  if (pre.empty()) {
    return Unimplemented(
        "the tokeniser splits text into words in a way that no name of GGUF's tokenizer.ggml.pre stands for");
  }
  GgufTokenizerFields fields = CommonFields(spec);
  fields.model = "gpt2";
  fields.pre = pre;
  if (spec.merges_by_id) fields.merges = MergesOfIds(spec);
  for (const auto& [left, right] : spec.merges) fields.merges.push_back(left + " " + right);
  return fields;
}

}  // namespace

Result<GgufTokenizerFields> GgufFieldsOf(const TokenizerSpec& spec, const TokenizerSpec* pieces) {
  if (spec.model == TokenizerSpec::Model::kWordPiece) return WordPieceFields(spec);
  if (spec.prefix.size() > 1 || spec.suffix.size() > 1 || (!spec.prefix.empty() && spec.prefix[0] != spec.bos_id) ||
      (!spec.suffix.empty() && spec.suffix[0] != spec.eos_id)) {
    return Unimplemented("the tokeniser puts other tokens than BOS and EOS around a text, which GGUF cannot state");
  }
  const bool bpe = spec.model == TokenizerSpec::Model::kBpe;
  const bool plain = spec.continuing_prefix.empty() && spec.word_suffix.empty();
  if (bpe && plain && HasStep(spec, PreTokenizerStep::Kind::kBytes)) return ByteLevelFields(spec);
  if (spec.model == TokenizerSpec::Model::kSentencePieceBpe || (bpe && plain && spec.byte_fallback)) {
    return SentencePieceFields(spec, pieces);
  }
  if (spec.model == TokenizerSpec::Model::kUnigram) return UnigramFields(spec);
  return Unimplemented(
      "tokenisers for GGUF are BPE over bytes, SentencePiece's BPE and Unigram, and WordPiece; this one is "
      "WordLevel, or BPE over characters without tokens of bytes");
}

int64_t TokensWithUnstatedFlags(const TokenizerSpec& spec) {
  return std::count_if(spec.added.begin(), spec.added.end(),
                       [](const TokenizerSpec::Added& t) { return t.lstrip || t.rstrip || t.single_word; });
}

void PadTokens(int64_t rows, GgufTokenizerFields* fields) {
  for (auto i = static_cast<int64_t>(fields->tokens.size()); i < rows; ++i) {
    fields->tokens.push_back("[PAD" + std::to_string(i) + "]");
    fields->types.push_back(kUnusedType);
    if (!fields->scores.empty()) fields->scores.push_back(-10000.0f);
  }
}

}  // namespace tactus::language
