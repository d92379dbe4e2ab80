#include "language/text/json_write.h"

#include "base/json.h"
#include "base/json_text.h"
#include "language/text/tokenizer.h"

namespace tactus::language {
namespace {

const char* BehaviorName(SplitBehavior behavior) {
  constexpr const char* kNames[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
  return kNames[static_cast<size_t>(behavior)];
}

Json PatternJson(const TextPattern& pattern) {
  return Json{{pattern.is_regex ? "Regex" : "String", pattern.text}};
}

// Null: a step that is not written.
Json StepJson(const PreTokenizerStep& step) {
  using Kind = PreTokenizerStep::Kind;
  switch (step.kind) {
    case Kind::kSplit:
      return {{"type", "Split"},
              {"pattern", PatternJson(step.pattern)},
              {"behavior", BehaviorName(step.behavior)},
              {"invert", step.invert}};
    case Kind::kDigits:
      return {{"type", "Digits"}, {"individual_digits", step.behavior == SplitBehavior::kIsolated}};
    case Kind::kPunctuation:
      return {{"type", "Punctuation"}, {"behavior", BehaviorName(step.behavior)}};
    case Kind::kBytes:
      return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    default:
      return nullptr;
  }
}

Result<Json> PreTokenizerJson(const TokenizerSpec& spec) {
  Json steps = SortedJson::array();
  for (const PreTokenizerStep& step : spec.pre_tokenizers) {
    steps.push_back(StepJson(step));
    if (steps.back().is_null()) return Unimplemented("a step of the tokeniser's pre-tokenizer cannot be written");
  }
  return Json{{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json AddedJson(const TokenizerSpec& spec) {
  Json list = SortedJson::array();
  for (const TokenizerSpec::Added& token : spec.added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

// The tokens around a text.
Json PostProcessorJson(const TokenizerSpec& spec) {
  if (spec.prefix.empty() && spec.suffix.empty()) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  }
  Json single = SortedJson::array(), pair = SortedJson::array(), special = SortedJson::object();
  const auto add = [&](const std::vector<TokenId>& ids, int type, Json* list) {
    for (const TokenId id : ids) {
      const std::string& text = spec.tokens[static_cast<size_t>(id)];
      list->push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  const auto add_text = [&](const char* name, int type, Json* list) {
    add(spec.prefix, type, list);
    list->push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    add(spec.suffix, type, list);
  };
  add_text("A", 0, &single);
  add_text("A", 0, &pair);
  add_text("B", 1, &pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Json BpeModelJson(const TokenizerSpec& spec) {
  Json vocabulary = SortedJson::object(), merges = SortedJson::array();
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.kinds[i] != TokenKind::kAdded && !spec.tokens[i].empty()) vocabulary[spec.tokens[i]] = i;
  }
  for (const auto& [left, right] : spec.merges) merges.push_back({left, right});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", vocabulary},
          {"merges", merges}};
}

bool SameSteps(const TokenizerSpec& a, const TokenizerSpec& b) {
  return a.normalizers == b.normalizers && a.pre_tokenizers == b.pre_tokenizers && a.decoders == b.decoders &&
         a.merges == b.merges && a.ignore_merges == b.ignore_merges && a.prefix == b.prefix && a.suffix == b.suffix &&
         a.added == b.added;
}

}  // namespace

Result<std::string> TokenizerJsonText(const TokenizerSpec& spec) {
  if (spec.model != TokenizerSpec::Model::kBpe || spec.byte_fallback || spec.merges_by_id) {
    return Unimplemented("tokenizer.json is written for BPE over bytes alone; this tokeniser is of another kind");
  }
  TACTUS_ASSIGN_OR_RETURN(const Json pre_tokenizer, PreTokenizerJson(spec));
  Json normalizer = nullptr;
  if (!spec.normalizers.empty()) normalizer = {{"type", "NFC"}};
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", AddedJson(spec)},
      {"normalizer", normalizer},
      {"pre_tokenizer", pre_tokenizer},
      {"post_processor", PostProcessorJson(spec)},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", BpeModelJson(spec)}};
  std::string text = json_text::JsonText(file, 2);
  TACTUS_ASSIGN_OR_RETURN(const TokenizerSpec read, ParseTokenizerJson(text));
  if (!SameSteps(spec, read)) return Unimplemented("the tokeniser has steps that tokenizer.json is not written with");
  return text;
}

}  // namespace tactus::language
