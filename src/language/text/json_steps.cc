// The normalizers, pre-tokenizers, decoders and post-processors of a tokenizer.json.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "language/text/base64.h"
#include "language/text/json_component.h"
#include "language/text/pretokenizer.h"

namespace tactus::language {
namespace {

using Steps = std::vector<JsonComponent>;
using PreStep = PreTokenizerStep;

// --- Normalizers

Status ReadBertNormalizer(const JsonComponent& from, NormalizerStep* step) {
  TACTUS_ASSIGN_OR_RETURN(step->clean_text, from.Bool("clean_text", true));
  TACTUS_ASSIGN_OR_RETURN(step->chinese, from.Bool("handle_chinese_chars", true));
  TACTUS_ASSIGN_OR_RETURN(step->lower, from.Bool("lowercase", true));
  TACTUS_ASSIGN_OR_RETURN(step->strip_accents, from.Bool("strip_accents", step->lower));
  return {};
}

Status ReadNormalizer(const JsonComponent& from, TokenizerSpec* spec) {
  using Kind = NormalizerStep::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"NFC", Kind::kNfc},
      {"NFD", Kind::kNfd},
      {"NFKC", Kind::kNfkc},
      {"NFKD", Kind::kNfkd},
      {"Nmt", Kind::kNmt},
      {"Lowercase", Kind::kLowercase},
      {"Strip", Kind::kStrip},
      {"StripAccents", Kind::kStripAccents},
      {"Replace", Kind::kReplace},
      {"Prepend", Kind::kPrepend},
      {"Precompiled", Kind::kPrecompiled},
      {"BertNormalizer", Kind::kBert},
      {"ByteLevel", Kind::kByteLevel},
  };
  const std::string type = from.Type();
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.first == type; });
  if (found == std::end(kKinds)) return from.Unsupported("this type");
  NormalizerStep step{.kind = found->second};
  if (step.kind == Kind::kStrip) {
    TACTUS_ASSIGN_OR_RETURN(step.left, from.Bool("strip_left", true));
    TACTUS_ASSIGN_OR_RETURN(step.right, from.Bool("strip_right", true));
  } else if (step.kind == Kind::kReplace) {
    TACTUS_ASSIGN_OR_RETURN(step.pattern, from.Pattern("pattern"));
    TACTUS_ASSIGN_OR_RETURN(step.content, from.String("content"));
  } else if (step.kind == Kind::kPrepend) {
    TACTUS_ASSIGN_OR_RETURN(step.content, from.String("prepend"));
  } else if (step.kind == Kind::kPrecompiled) {
    TACTUS_ASSIGN_OR_RETURN(const std::string map, from.String("precompiled_charsmap", ""));
    if (!DecodeBase64(map, &step.content)) return from.Bad("precompiled_charsmap is not base64");
  } else if (step.kind == Kind::kBert) {
    TACTUS_RETURN_IF_ERROR(ReadBertNormalizer(from, &step));
  }
  spec->normalizers.push_back(std::move(step));
  return {};
}

// --- Pre-tokenizers

Result<SplitBehavior> BehaviorOf(const JsonComponent& from) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
  };
  TACTUS_ASSIGN_OR_RETURN(const std::string name, from.String("behavior", "Isolated"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return from.Unsupported("behavior \"" + name + "\"");
}

Status ReadMetaspace(const JsonComponent& from, TokenizerSpec* spec) {
  PreStep step{.kind = PreStep::Kind::kMetaspace};
  TACTUS_ASSIGN_OR_RETURN(step.pattern.text, from.String("replacement"));
  if (step.pattern.text.empty() || DecodeUtf8(step.pattern.text).size != step.pattern.text.size()) {
    return from.Bad("replacement is not one character");
  }
  TACTUS_ASSIGN_OR_RETURN(const bool prefix, from.Bool("add_prefix_space", true));
  TACTUS_ASSIGN_OR_RETURN(const std::string scheme, from.String("prepend_scheme", prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return from.Unsupported("prepend_scheme \"" + scheme + "\"");
  }
  step.prepend = scheme == "always"  ? PreStep::Prepend::kAlways
                 : scheme == "first" ? PreStep::Prepend::kFirst
                                     : PreStep::Prepend::kNever;
  TACTUS_ASSIGN_OR_RETURN(const bool split, from.Bool("split", true));
  spec->pre_tokenizers.push_back(step);
  if (split) {
    spec->pre_tokenizers.push_back(
        {.kind = PreStep::Kind::kSplit, .pattern = step.pattern, .behavior = SplitBehavior::kMergedWithNext});
  }
  return {};
}

Status ReadByteLevel(const JsonComponent& from, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const bool prefix, from.Bool("add_prefix_space", true));
  TACTUS_ASSIGN_OR_RETURN(const bool regex, from.Bool("use_regex", true));
  if (prefix) spec->pre_tokenizers.push_back({.kind = PreStep::Kind::kPrefixSpace});
  if (regex) spec->pre_tokenizers.push_back({.kind = PreStep::Kind::kSplit, .pattern = {kGpt2Pattern, true}});
  spec->pre_tokenizers.push_back({.kind = PreStep::Kind::kBytes});
  return {};
}

Status ReadPreTokenizer(const JsonComponent& from, TokenizerSpec* spec) {
  const std::string type = from.Type();
  std::vector<PreStep>& steps = spec->pre_tokenizers;
  const auto add = [&](PreStep::Kind kind, SplitBehavior behavior) {
    steps.push_back({.kind = kind, .behavior = behavior});
  };
  if (type == "ByteLevel") return ReadByteLevel(from, spec);
  if (type == "Metaspace") return ReadMetaspace(from, spec);
  if (type == "Split") {
    PreStep step{.kind = PreStep::Kind::kSplit};
    TACTUS_ASSIGN_OR_RETURN(step.pattern, from.Pattern("pattern"));
    TACTUS_ASSIGN_OR_RETURN(step.behavior, BehaviorOf(from));
    TACTUS_ASSIGN_OR_RETURN(step.invert, from.Bool("invert", false));
    steps.push_back(std::move(step));
  } else if (type == "CharDelimiterSplit") {
    PreStep step{.kind = PreStep::Kind::kSplit, .behavior = SplitBehavior::kRemoved};
    TACTUS_ASSIGN_OR_RETURN(step.pattern.text, from.String("delimiter"));
    steps.push_back(std::move(step));
  } else if (type == "Digits") {
    TACTUS_ASSIGN_OR_RETURN(const bool single, from.Bool("individual_digits", false));
    add(PreStep::Kind::kDigits, single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "Punctuation") {
    TACTUS_ASSIGN_OR_RETURN(const SplitBehavior behavior, BehaviorOf(from));
    add(PreStep::Kind::kPunctuation, behavior);
  } else if (type == "Whitespace") {
    steps.push_back({.kind = PreStep::Kind::kWords, .behavior = SplitBehavior::kRemoved, .invert = true});
  } else if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    add(PreStep::Kind::kWhiteSpace, SplitBehavior::kRemoved);
    if (type == "BertPreTokenizer") add(PreStep::Kind::kPunctuation, SplitBehavior::kIsolated);
  } else if (type == "UnicodeScripts") {
    add(PreStep::Kind::kUnicodeScripts, SplitBehavior::kIsolated);
  } else if (type == "FixedLength") {
    PreStep step{.kind = PreStep::Kind::kFixedLength};
    TACTUS_ASSIGN_OR_RETURN(step.length, from.Int("length", 5));
    if (step.length < 1) return from.Bad("length is below 1");
    steps.push_back(std::move(step));
  } else {
    return from.Unsupported("this type");
  }
  return {};
}

// --- Decoders

Status ReadStrip(const JsonComponent& from, DecoderStep* step) {
  TACTUS_ASSIGN_OR_RETURN(step->content, from.String("content"));
  TACTUS_ASSIGN_OR_RETURN(step->start, from.Int("start"));
  TACTUS_ASSIGN_OR_RETURN(step->stop, from.Int("stop"));
  if (step->content.empty() || DecodeUtf8(step->content).size != step->content.size()) {
    return from.Bad("content is not one character");
  }
  return step->start < 0 || step->stop < 0 ? from.Bad("start or stop is negative") : Status();
}

Status ReadDecoder(const JsonComponent& from, TokenizerSpec* spec) {
  using Kind = DecoderStep::Kind;
  const std::string type = from.Type();
  DecoderStep step{.kind = Kind::kFuse};
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    TACTUS_ASSIGN_OR_RETURN(step.pattern.text, from.String("replacement"));
    if (step.pattern.text.empty()) return from.Bad("replacement is empty");
    TACTUS_ASSIGN_OR_RETURN(const bool prefix, from.Bool("add_prefix_space", true));
    TACTUS_ASSIGN_OR_RETURN(const std::string scheme, from.String("prepend_scheme", prefix ? "always" : "never"));
    step.flag = scheme != "never";
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    TACTUS_ASSIGN_OR_RETURN(step.pattern, from.Pattern("pattern"));
    TACTUS_ASSIGN_OR_RETURN(step.content, from.String("content"));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    TACTUS_RETURN_IF_ERROR(ReadStrip(from, &step));
  } else if (type == "WordPiece") {
    step.kind = Kind::kWordPiece;
    TACTUS_ASSIGN_OR_RETURN(step.content, from.String("prefix"));
    TACTUS_ASSIGN_OR_RETURN(step.flag, from.Bool("cleanup", true));
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kBpe;
    TACTUS_ASSIGN_OR_RETURN(step.content, from.String("suffix"));
    if (step.content.empty()) return from.Unsupported("an empty suffix");
  } else if (type != "Fuse") {
    return from.Unsupported("this type");
  }
  spec->decoders.push_back(std::move(step));
  return {};
}

// --- Post-processors

// {"cls": [text, id], "sep": [text, id]}.
Result<TokenId> IdOfPair(const JsonComponent& from, const char* member) {
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* pair, from.List(member));
  if (pair->size() != 2 || !(*pair)[1].is_number_unsigned() || (*pair)[1].get<uint64_t>() > uint64_t{kMaxTokenId}) {
    return from.Bad(std::string(member) + " is not a token and its id");
  }
  return (*pair)[1].get<TokenId>();
}

Status AppendIds(const JsonComponent& special, const std::string& token, std::vector<TokenId>* ids) {
  const JsonComponent entry(special[token.c_str()], special.name() + " \"" + token + "\"");
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* list, entry.List("ids"));
  for (const SortedJson& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kMaxTokenId}) return entry.Bad("id " + id.dump());
    ids->push_back(id.get<TokenId>());
  }
  return {};
}

Status ReadTemplate(const JsonComponent& from, std::vector<TokenId>* before, std::vector<TokenId>* after) {
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* pieces, from.List("single"));
  const JsonComponent special(from["special_tokens"], from.name() + ", special_tokens");
  bool seen_text = false;
  for (const SortedJson& value : *pieces) {
    const JsonComponent piece(value, from.name() + ", single");
    if (piece.Has("Sequence")) {
      if (seen_text) return from.Unsupported("a template with the text twice");
      seen_text = true;
      continue;
    }
    const JsonComponent token(piece["SpecialToken"], piece.name());
    TACTUS_ASSIGN_OR_RETURN(const std::string name, token.String("id"));
    TACTUS_RETURN_IF_ERROR(AppendIds(special, name, seen_text ? after : before));
  }
  return seen_text ? Status() : from.Unsupported("a template without the text");
}

Status ReadPostProcessor(const JsonComponent& from, TokenizerSpec* spec) {
  const std::string type = from.Type();
  std::vector<TokenId> before, after;
  if (type == "TemplateProcessing") {
    TACTUS_RETURN_IF_ERROR(ReadTemplate(from, &before, &after));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    TACTUS_ASSIGN_OR_RETURN(const TokenId first, IdOfPair(from, "cls"));
    TACTUS_ASSIGN_OR_RETURN(const TokenId last, IdOfPair(from, "sep"));
    before = {first}, after = {last};
  } else if (type != "ByteLevel") {  // that one changes offsets only
    return from.Unsupported("this type");
  }
  spec->prefix.insert(spec->prefix.begin(), before.begin(), before.end());
  spec->suffix.insert(spec->suffix.end(), after.begin(), after.end());
  return {};
}

}  // namespace

Status ReadNormalizers(const SortedJson& part, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const Steps steps, StepsOf(part, "normalizer", "normalizers"));
  for (const JsonComponent& step : steps) TACTUS_RETURN_IF_ERROR(ReadNormalizer(step, spec));
  return {};
}

Status ReadPreTokenizers(const SortedJson& part, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const Steps steps, StepsOf(part, "pre_tokenizer", "pretokenizers"));
  for (const JsonComponent& step : steps) TACTUS_RETURN_IF_ERROR(ReadPreTokenizer(step, spec));
  return {};
}

Status ReadDecoders(const SortedJson& part, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const Steps steps, StepsOf(part, "decoder", "decoders"));
  if (part.is_null()) spec->decoders.push_back({.kind = DecoderStep::Kind::kSpaces});
  for (const JsonComponent& step : steps) TACTUS_RETURN_IF_ERROR(ReadDecoder(step, spec));
  return {};
}

Status ReadPostProcessors(const SortedJson& part, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const Steps steps, StepsOf(part, "post_processor", "processors"));
  for (const JsonComponent& step : steps) TACTUS_RETURN_IF_ERROR(ReadPostProcessor(step, spec));
  // A single token around a text is its BOS or EOS, whatever the other files call so.
  if (spec->prefix.size() == 1) spec->bos_id = spec->prefix[0];
  if (spec->suffix.size() == 1) spec->eos_id = spec->suffix[0];
  return {};
}

}  // namespace tactus::language
