#include "language/text/gguf_pre_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "language/text/pretokenizer.h"

namespace tactus::language {
namespace {

// Words by case, as in o200k_base, and the same with what may follow a word.
#define TACTUS_CASED_WORD(SUFFIX)                                                          \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" SUFFIX \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" SUFFIX
constexpr char kO200kPattern[] = TACTUS_CASED_WORD(
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekkenPattern[] = TACTUS_CASED_WORD("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef TACTUS_CASED_WORD
constexpr char kQwen35Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kSeedPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kBailingPattern[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kExaoneMoePattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kBloomPattern[] = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr char kDeepseekPattern[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

PreTokenizerStep SplitAt(const char* pattern) {
  return {.kind = PreTokenizerStep::Kind::kSplit, .pattern = {pattern, true}};
}
PreTokenizerStep SplitDigits(SplitBehavior behavior) {
  return {.kind = PreTokenizerStep::Kind::kDigits, .behavior = behavior};
}

enum class Style {
  kGpt2,
  kDigitsThenGpt2,
  kFalcon,
  kLlama3,
  kQwen2,
  kQwen35,
  kO200k,
  kTekken,
  kSeed,
  kBailing,
  kExaoneMoe,
  kBloom,
  kBloomThenDigits,
  kDeepseek3,
  kDeepseekCoder,
};

std::vector<PreTokenizerStep> StepsOfStyle(Style style) {
  const PreTokenizerStep bytes{.kind = PreTokenizerStep::Kind::kBytes};
  switch (style) {
    case Style::kGpt2:
      return {SplitAt(kGpt2Pattern), bytes};
    case Style::kDigitsThenGpt2:
      return {SplitDigits(SplitBehavior::kIsolated), SplitAt(kGpt2Pattern), bytes};
    case Style::kFalcon:
      return {{.kind = PreTokenizerStep::Kind::kPunctuation, .behavior = SplitBehavior::kContiguous},
              SplitAt(kGpt2Pattern),
              bytes,
              SplitDigits(SplitBehavior::kContiguous),
              SplitAt("[0-9][0-9][0-9]")};
    case Style::kLlama3:
      return {SplitAt(kLlama3Pattern), bytes};
    case Style::kQwen2:
      return {SplitAt(kQwen2Pattern), bytes};
    case Style::kQwen35:
      return {SplitAt(kQwen35Pattern), bytes};
    case Style::kO200k:
      return {SplitAt(kO200kPattern), bytes};
    case Style::kTekken:
      return {SplitAt(kTekkenPattern), bytes};
    case Style::kSeed:
      return {SplitAt(kSeedPattern), bytes};
    case Style::kBailing:
      return {SplitAt(kBailingPattern), bytes};
    case Style::kExaoneMoe:
      return {SplitAt(kExaoneMoePattern), bytes};
    case Style::kBloom:
      return {SplitAt(kBloomPattern), bytes};
    case Style::kBloomThenDigits:
      return {SplitAt(kBloomPattern), SplitDigits(SplitBehavior::kIsolated), bytes};
    case Style::kDeepseek3:
      return {SplitAt(R"(\p{N}{1,3})"), SplitAt("[一-龥぀-ゟ゠-ヿ]+"), SplitAt(kDeepseekPattern), bytes};
    case Style::kDeepseekCoder:
      return {SplitAt(R"([\r\n])"),
              SplitAt(R"(\s?\p{L}+)"),
              SplitAt(R"(\s?\p{P}+)"),
              SplitAt("[一-龥ࠀ-一가-퟿]+"),
              SplitDigits(SplitBehavior::kIsolated),
              bytes};
  }
  return {};
}

struct Known {
  const char* name;
  Style style;
  bool ignore_merges = false, nfc = false, add_bos = false;
};
constexpr Known kKnown[] = {
    {"gpt-2", Style::kGpt2},
    {"phi-2", Style::kGpt2},
    {"mellum", Style::kGpt2},
    {"modern-bert", Style::kGpt2},
    {"exaone4", Style::kGpt2},
    {"trillion", Style::kGpt2},
    {"granite-docling", Style::kGpt2},
    {"jais", Style::kGpt2},
    {"mpt", Style::kGpt2, false, true},
    {"olmo", Style::kGpt2, false, true},
    {"smollm", Style::kDigitsThenGpt2},
    {"starcoder", Style::kDigitsThenGpt2},
    {"refact", Style::kDigitsThenGpt2},
    {"codeshell", Style::kDigitsThenGpt2},
    {"exaone", Style::kDigitsThenGpt2},
    {"minerva-7b", Style::kDigitsThenGpt2},
    {"mellum2", Style::kDigitsThenGpt2},
    {"command-r", Style::kDigitsThenGpt2, false, true},
    {"falcon", Style::kFalcon},
    {"llama-bpe", Style::kLlama3, true, false, true},
    {"llama3", Style::kLlama3, true, false, true},
    {"llama-v3", Style::kLlama3, true, false, true},
    {"falcon3", Style::kLlama3, true, false, true},
    {"falcon-h1", Style::kLlama3, true, false, true},
    {"pixtral", Style::kLlama3, true, false, true},
    {"midm-2.0", Style::kLlama3, true, false, true},
    {"lfm2", Style::kLlama3, true, false, true},
    {"smaug-bpe", Style::kLlama3},
    {"dbrx", Style::kLlama3},
    {"glm4", Style::kLlama3},
    {"chatglm-bpe", Style::kLlama3},
    {"qwen2", Style::kQwen2, false, true},
    {"deepseek-r1-qwen", Style::kQwen2, false, true},
    {"kormo", Style::kQwen2, false, true},
    {"stablelm2", Style::kQwen2},
    {"megrez", Style::kQwen2},
    {"hunyuan", Style::kQwen2},
    {"solar-open", Style::kQwen2},
    {"grok-2", Style::kQwen2},
    {"qwen35", Style::kQwen35, false, true},
    {"gpt-4o", Style::kO200k},
    {"llama4", Style::kO200k},
    {"kanana2", Style::kO200k},
    {"minimax-m2", Style::kO200k},
    {"tekken", Style::kTekken, true, false, true},
    {"seed-coder", Style::kSeed},
    {"bailingmoe", Style::kBailing},
    {"bailingmoe2", Style::kBailing},
    {"llada-moe", Style::kBailing},
    {"exaone-moe", Style::kExaoneMoe},
    {"bloom", Style::kBloom},
    {"gpt3-finnish", Style::kBloom},
    {"poro-chat", Style::kBloom},
    {"viking", Style::kBloomThenDigits},
    {"deepseek-v3", Style::kDeepseek3},
    {"hunyuan-dense", Style::kDeepseek3},
    {"hy_v4", Style::kDeepseek3},
    {"joyai-llm", Style::kDeepseek3},
    {"deepseek-coder", Style::kDeepseekCoder},
};

bool IsLower(char c) {
  return c >= 'a' && c <= 'z';
}
bool IsUpper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsMark(char c) {
  return c > ' ' && c < 0x7F && c != '\'' && !IsLower(c) && !IsUpper(c) && !IsDigit(c);
}

// What tokens keep together; each counts the tokens that do.
struct Evidence {
  size_t longest_digits = 0;  // of a token of digits alone
  size_t mark_then_letter = 0, lower_then_upper = 0, letter_then_digit = 0;
};

void LookAt(std::string_view token, Evidence* evidence) {
  if (std::all_of(token.begin(), token.end(), IsDigit)) {
    evidence->longest_digits = std::max(evidence->longest_digits, token.size());
    return;
  }
  const auto letter = [](char c) { return IsLower(c) || IsUpper(c); };
  bool cases = false, numbered = false;
  for (size_t i = 0; i + 1 < token.size(); ++i) {
    cases |= IsLower(token[i]) && IsUpper(token[i + 1]);
    numbered |= letter(token[i]) && IsDigit(token[i + 1]);
  }
  evidence->mark_then_letter += token.size() > 1 && IsMark(token[0]) && letter(token[1]);
  evidence->lower_then_upper += cases;
  evidence->letter_then_digit += numbered;
}

}  // namespace

Status ApplyPreTokenizerName(std::string_view name, TokenizerSpec* spec) {
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return name == k.name; });
  if (known == std::end(kKnown)) {
    std::string names;
    for (const Known& k : kKnown) names += (names.empty() ? "" : ", ") + std::string(k.name);
    return Unimplemented("pre-tokenizer \"" + std::string(name) + "\" is not known; known are: " + names);
  }
  spec->ignore_merges = known->ignore_merges;
  spec->pre_tokenizers = StepsOfStyle(known->style);
  spec->decoders = {{.kind = DecoderStep::Kind::kByteLevel}};
  if (known->nfc) spec->normalizers.push_back({.kind = NormalizerStep::Kind::kNfc});
  if (known->add_bos && spec->bos_id >= 0) spec->prefix = {spec->bos_id};
  return {};
}

std::string PreTokenizerNameOf(const TokenizerSpec& spec) {
  for (const Known& known : kKnown) {
    TokenizerSpec steps;
    if (!ApplyPreTokenizerName(known.name, &steps).ok()) continue;
    if (steps.ignore_merges == spec.ignore_merges && steps.normalizers == spec.normalizers &&
        steps.pre_tokenizers == spec.pre_tokenizers && steps.decoders == spec.decoders) {
      return known.name;
    }
  }
  return {};
}

std::string GuessPreTokenizer(const TokenizerSpec& spec) {
  // The names of control tokens tell families apart whose splits look alike.
  const auto has = [&](std::string_view text) {
    return std::find(spec.tokens.begin(), spec.tokens.end(), text) != spec.tokens.end();
  };
  if (has("<|START_OF_TURN_TOKEN|>")) return "command-r";
  if (has("[gMASK]")) return "glm4";
  Evidence evidence;
  size_t words = 0;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.kinds[i] != TokenKind::kNormal || spec.tokens[i].empty()) continue;
    LookAt(spec.tokens[i], &evidence);
    ++words;
  }
  const size_t many = 1 + words / 2000;  // fewer are accidents
  if (evidence.letter_then_digit >= many) return "bloom";
  const bool single_digits = evidence.longest_digits <= 1;
  if (evidence.mark_then_letter < many) {
    return single_digits ? "starcoder" : evidence.longest_digits == 3 ? "falcon" : "gpt-2";
  }
  if (evidence.lower_then_upper < many) return single_digits ? "tekken" : "gpt-4o";
  if (single_digits) return "qwen2";
  return has("<|begin_of_text|>") ? "llama-bpe" : "dbrx";
}

}  // namespace tactus::language
