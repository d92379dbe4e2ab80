// Reads Hugging Face's tokenizer.json (model BPE, byte-level or SentencePiece-like) and tokenizer_config.json. Features
// that this build would not run exactly as the reference are refused by name, never approximated. Files are hostile
// input.
#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/json_text.h"
#include "language/text/pretokenizer.h"
#include "language/text/tokenizer.h"

namespace tactus::language {
namespace {

using Plain = SortedJson;  // where the order of keys does not matter

constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;  // see kMaxVocabulary in tokenizer.cc
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

Status Unsupported(const std::string& part, const std::string& what) {
  return Unimplemented("tokenizer.json: " + part + " " + what + " is not supported");
}

std::string TypeOf(const Plain& part) {
  return part.is_object() ? part.value("type", std::string()) : std::string();
}

// The steps of a normalizer, pre-tokenizer, ...: `Sequence` flattened, none for null. `list`: the name of its member.
std::vector<const Plain*> StepsOf(const Plain& part, const char* list, int depth = 0) {
  std::vector<const Plain*> steps;
  if (part.is_null() || depth > 8) return steps;
  if (TypeOf(part) != "Sequence") return {&part};
  for (const Plain& step : part.at(list)) {
    for (const Plain* inner : StepsOf(step, list, depth + 1)) steps.push_back(inner);
  }
  return steps;
}

const Plain& Member(const Plain& object, const char* name) {
  static const Plain kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool Flag(const Plain& object, const char* name, bool fallback) {
  const Plain& value = Member(object, name);
  return value.is_null() ? fallback : value.get<bool>();
}

std::string EscapeRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}/-#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Status PutToken(const std::string& text, int64_t id, TokenizerSpec* spec) {
  if (id < 0 || id > kMaxTokenId) {
    return DataLoss("tokenizer.json: token \"" + text + "\" has id " + std::to_string(id) + ", the limit is " +
                    std::to_string(kMaxTokenId));
  }
  const auto at = static_cast<size_t>(id);
  if (at >= spec->tokens.size()) {
    spec->tokens.resize(at + 1);
    spec->kinds.resize(at + 1, TokenKind::kUnused);
  }
  if (!spec->tokens[at].empty() && spec->tokens[at] != text) {
    return DataLoss("tokenizer.json: id " + std::to_string(id) + " is both \"" + spec->tokens[at] + "\" and \"" + text +
                    "\"");
  }
  spec->tokens[at] = text;
  spec->kinds[at] = TokenKind::kNormal;
  return {};
}

using IdOfText = std::map<std::string, TokenId, std::less<>>;

class TokenizerJsonReader {
 public:
  Result<TokenizerSpec> Read(const Plain& file) {
    TACTUS_RETURN_IF_ERROR(ReadModel(file.at("model")));
    TACTUS_RETURN_IF_ERROR(ReadAddedTokens(Member(file, "added_tokens")));
    const auto has_byte_level = [&](const char* part, const char* list) {
      const std::vector<const Plain*> steps = StepsOf(Member(file, part), list);
      return std::any_of(steps.begin(), steps.end(), [](const Plain* step) { return TypeOf(*step) == "ByteLevel"; });
    };
    byte_level_ = has_byte_level("pre_tokenizer", "pretokenizers") || has_byte_level("decoder", "decoders");
    spec_.algorithm =
        byte_level_ ? TokenizerSpec::Algorithm::kByteLevelBpe : TokenizerSpec::Algorithm::kSentencePieceBpe;
    for (const Plain* step : StepsOf(Member(file, "normalizer"), "normalizers"))
      TACTUS_RETURN_IF_ERROR(ReadNormalizer(*step));
    for (const Plain* step : StepsOf(Member(file, "pre_tokenizer"), "pretokenizers")) {
      TACTUS_RETURN_IF_ERROR(ReadPreTokenizer(*step));
    }
    for (const Plain* step : StepsOf(Member(file, "post_processor"), "processors")) {
      TACTUS_RETURN_IF_ERROR(ReadPostProcessor(*step));
    }
    for (const Plain* step : StepsOf(Member(file, "decoder"), "decoders")) TACTUS_RETURN_IF_ERROR(ReadDecoder(*step));
    return Finish();
  }

 private:
  Status ReadModel(const Plain& model);
  Status ReadMerges(const Plain& merges);
  Status ReadAddedTokens(const Plain& added);
  Status ReadNormalizer(const Plain& step);
  Status ReadPreTokenizer(const Plain& step);
  Status ReadSplit(const Plain& step);
  Status ReadMetaspace(const Plain& step);
  Status ReadPostProcessor(const Plain& step);
  Status ReadTemplate(const Plain& step);
  Status ReadDecoder(const Plain& step);
  Result<TokenizerSpec> Finish();

  void AddSplit(std::string pattern, SplitBehavior behavior = SplitBehavior::kIsolated) {
    spec_.split_patterns.push_back(std::move(pattern));
    spec_.split_behaviors.push_back(behavior);
  }

  TokenizerSpec spec_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool escapes_spaces_ = false;  // a normalizer or Metaspace converts spaces to U+2581
  bool metaspace_ = false;
  bool byte_level_done_ = false;
};

Status TokenizerJsonReader::ReadModel(const Plain& model) {
  const std::string type = model.value("type", model.contains("merges") ? "BPE" : "");
  if (type != "BPE") return Unsupported("model", "\"" + type + "\"");
  for (const char* table : {"vocab", "merges"}) {  // merges: [] is explicit and has the reference's meaning
    if (!model.contains(table)) return DataLoss(std::string("tokenizer.json: model.") + table + " is missing");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Plain& value = Member(model, name);
    if (!value.is_null() && !value.get_ref<const std::string&>().empty()) return Unsupported("model", name);
  }
  const Plain& dropout = Member(model, "dropout");
  if (!dropout.is_null() && dropout.get<double>() != 0) return Unsupported("model", "dropout");
  spec_.ignore_merges = Flag(model, "ignore_merges", false);
  spec_.fuse_unknown = Flag(model, "fuse_unk", false);
  byte_fallback_ = Flag(model, "byte_fallback", false);
  const Plain& vocab = model.at("vocab");
  if (!vocab.is_object()) return DataLoss("tokenizer.json: model.vocab is not an object");
  spec_.tokens.reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) TACTUS_RETURN_IF_ERROR(PutToken(text, id.get<int64_t>(), &spec_));
  const Plain& unknown = Member(model, "unk_token");
  if (!unknown.is_null()) {
    const auto& text = unknown.get_ref<const std::string&>();
    const auto found = vocab.find(text);
    if (found != vocab.end()) spec_.unk_id = found->get<TokenId>();
  }
  return ReadMerges(model.at("merges"));
}

Status TokenizerJsonReader::ReadMerges(const Plain& merges) {
  if (!merges.is_array()) return DataLoss("tokenizer.json: model.merges is not a list");
  spec_.merges.reserve(merges.size());
  for (const Plain& merge : merges) {
    if (merge.is_array() && merge.size() == 2) {
      spec_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return DataLoss("tokenizer.json: merge " + std::to_string(spec_.merges.size()) + " is not two tokens");
    }
    spec_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return {};
}

Status TokenizerJsonReader::ReadAddedTokens(const Plain& added) {
  if (added.is_null()) return {};
  for (const Plain& token : added) {
    TokenizerSpec::Added entry;
    entry.content = token.at("content").get<std::string>();
    const auto id = token.at("id").get<int64_t>();
    entry.special = Flag(token, "special", false);
    entry.lstrip = Flag(token, "lstrip", false);
    entry.rstrip = Flag(token, "rstrip", false);
    entry.single_word = Flag(token, "single_word", false);
    entry.normalized = Flag(token, "normalized", !entry.special);
    if (entry.content.empty()) continue;
    TACTUS_RETURN_IF_ERROR(PutToken(entry.content, id, &spec_));
    entry.id = static_cast<TokenId>(id);
    if (entry.special) spec_.kinds[static_cast<size_t>(id)] = TokenKind::kControl;
    spec_.added.push_back(std::move(entry));
  }
  return {};
}

Status TokenizerJsonReader::ReadNormalizer(const Plain& step) {
  const std::string type = TypeOf(step);
  if (type == "NFC") {
    // After a Prepend or Replace it would process their U+2581, which composes with nothing.
    spec_.nfc_normalize = true;
    return {};
  }
  if (!byte_level_ && type == "Prepend" && !escapes_spaces_ && step.at("prepend") == kMetaspace) {
    spec_.add_prefix_space = true;
    return {};
  }
  if (!byte_level_ && type == "Replace" && step.at("content") == kMetaspace &&
      step.at("pattern") == Plain{{"String", " "}}) {
    escapes_spaces_ = true;
    return {};
  }
  return Unsupported("normalizer", step.dump().substr(0, 100));
}

Status TokenizerJsonReader::ReadPreTokenizer(const Plain& step) {
  const std::string type = TypeOf(step);
  if (byte_level_done_) return Unsupported("pre_tokenizer", type + " after ByteLevel");
  if (type == "Split") return ReadSplit(step);
  if (type == "Metaspace" && !byte_level_) return ReadMetaspace(step);
  if (type == "Digits") {
    AddSplit(Flag(step, "individual_digits", false) ? kOneDigitPattern : R"(\p{N}+)");
    return {};
  }
  if (type == "Punctuation") {
    const std::string behavior = step.value("behavior", "Isolated");
    if (behavior != "Isolated" && behavior != "Contiguous") return Unsupported("pre_tokenizer Punctuation", behavior);
    const std::string pattern = kPunctuationPattern;
    AddSplit(behavior == "Contiguous" ? pattern : pattern.substr(0, pattern.size() - 1));
    return {};
  }
  if (type == "ByteLevel") {
    byte_level_done_ = true;
    spec_.add_prefix_space = Flag(step, "add_prefix_space", true);
    if (spec_.add_prefix_space && !spec_.split_patterns.empty()) {
      return Unsupported("pre_tokenizer", "ByteLevel with add_prefix_space after another split");
    }
    if (Flag(step, "use_regex", true)) AddSplit(kGpt2Pattern);
    return {};
  }
  return Unsupported("pre_tokenizer", "\"" + type + "\"");
}

Status TokenizerJsonReader::ReadSplit(const Plain& step) {
  const Plain& pattern = step.at("pattern");
  std::string regex;
  if (pattern.is_object() && pattern.contains("Regex")) {
    regex = pattern["Regex"].get<std::string>();
  } else if (pattern.is_object() && pattern.contains("String")) {
    regex = EscapeRegex(pattern["String"].get<std::string>());
  } else {
    return DataLoss("tokenizer.json: the pattern of a Split is neither Regex nor String");
  }
  const std::string behavior = step.at("behavior").get<std::string>();
  const bool invert = Flag(step, "invert", false);
  if (behavior == "Isolated") {
    AddSplit(regex);
  } else if (behavior == "Removed") {
    AddSplit(regex, invert ? SplitBehavior::kOnlyMatches : SplitBehavior::kRemoved);
  } else if (behavior == "MergedWithPrevious" && !invert) {
    AddSplit(regex, SplitBehavior::kMergedWithPrevious);
  } else if (behavior == "MergedWithNext" && !invert) {
    AddSplit(regex, SplitBehavior::kMergedWithNext);
  } else {
    return Unsupported("pre_tokenizer Split", "with behavior " + behavior + (invert ? ", inverted," : ""));
  }
  return {};
}

Status TokenizerJsonReader::ReadMetaspace(const Plain& step) {
  if (step.value("replacement", std::string(kMetaspace)) != kMetaspace) {
    return Unsupported("pre_tokenizer Metaspace", "with another replacement than U+2581");
  }
  if (escapes_spaces_ || spec_.add_prefix_space || !spec_.split_patterns.empty()) {
    return Unsupported("pre_tokenizer", "Metaspace after a Split, Prepend or Replace");
  }
  const std::string scheme = step.value("prepend_scheme", Flag(step, "add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return Unsupported("Metaspace prepend_scheme", scheme);
  spec_.add_prefix_space = scheme != "never";
  spec_.prefix_first_only = scheme == "first";
  spec_.prefix_unless_space = spec_.prefix_after_added = true;
  escapes_spaces_ = metaspace_ = true;
  if (Flag(step, "split", true)) AddSplit(std::string(kMetaspace), SplitBehavior::kMergedWithNext);
  return {};
}

Status TokenizerJsonReader::ReadPostProcessor(const Plain& step) {
  const std::string type = TypeOf(step);
  if (type == "ByteLevel") return {};  // offsets only
  if (type == "TemplateProcessing") return ReadTemplate(step);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    spec_.bos_id = step.at("cls").at(1).get<TokenId>();
    spec_.eos_id = step.at("sep").at(1).get<TokenId>();
    spec_.add_bos = spec_.add_eos = true;
    return {};
  }
  return Unsupported("post_processor", "\"" + type + "\"");
}

Status TokenizerJsonReader::ReadTemplate(const Plain& step) {
  bool seen_text = false;
  for (const Plain& piece : step.at("single")) {
    if (piece.contains("Sequence")) {
      if (seen_text) return Unsupported("post_processor TemplateProcessing", "with the text twice");
      seen_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").get<std::string>();
    const Plain& ids = step.at("special_tokens").at(name).at("ids");
    bool& adds = seen_text ? spec_.add_eos : spec_.add_bos;
    if (adds || ids.size() != 1)
      return Unsupported("post_processor TemplateProcessing", "with several tokens on one side");
    adds = true;
    (seen_text ? spec_.eos_id : spec_.bos_id) = ids[0].get<TokenId>();
  }
  if (!seen_text) return Unsupported("post_processor TemplateProcessing", "without the text");
  return {};
}

Status TokenizerJsonReader::ReadDecoder(const Plain& step) {
  const std::string type = TypeOf(step);
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return {};
  if (!byte_level_ && type == "Metaspace") {
    spec_.strip_leading_space = spec_.add_prefix_space;
    return {};
  }
  if (!byte_level_ && type == "Strip" && step.at("content") == " " && step.at("start") == 1 && step.at("stop") == 0) {
    spec_.strip_leading_space = true;
    return {};
  }
  if (!byte_level_ && type == "Replace" && step.at("content") == " " &&
      step.at("pattern") == Plain{{"String", kMetaspace}}) {
    return {};
  }
  return Unsupported("decoder", step.dump().substr(0, 100));
}

Result<TokenizerSpec> TokenizerJsonReader::Finish() {
  if (byte_level_) {
    if (byte_fallback_) return Unsupported("model", "byte_fallback together with ByteLevel");
    return std::move(spec_);
  }
  if (!escapes_spaces_) return Unsupported("a BPE model", "without ByteLevel, Metaspace or Replace of spaces");
  if (byte_fallback_) {
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const std::string& text = spec_.tokens[i];
      if (text.size() == 6 && text.starts_with("<0x") && text.back() == '>') spec_.kinds[i] = TokenKind::kByte;
    }
  }
  if (spec_.unk_id >= 0) spec_.kinds[static_cast<size_t>(spec_.unk_id)] = TokenKind::kUnknown;
  return std::move(spec_);
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
std::string TokenName(const Plain& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_object() ? value.value("content", std::string()) : std::string();
}

// transformers makes tokens named in tokenizer_config.json special, also where tokenizer.json leaves out added_tokens.
void AddNamedTokens(const Plain& config, TokenizerSpec* spec) {
  std::vector<TokenizerSpec::Added> named;
  const auto name = [&](const Plain& value, bool special) {
    if (TokenName(value).empty()) return;
    TokenizerSpec::Added token{TokenName(value), -1, special, false, false, false, false};
    if (value.is_object()) {
      token.lstrip = Flag(value, "lstrip", false);
      token.rstrip = Flag(value, "rstrip", false);
      token.single_word = Flag(value, "single_word", false);
      token.normalized = Flag(value, "normalized", false);
    }
    named.push_back(std::move(token));
  };
  const Plain& listed = Member(config, "added_tokens_decoder");
  if (listed.is_object()) {
    for (const auto& [id, value] : listed.items()) name(value, Flag(value, "special", false));
  }
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) name(Member(config, key), true);
  const Plain& more = Member(config, "additional_special_tokens");
  if (more.is_array()) {
    for (const Plain& value : more) name(value, true);
  }
  for (TokenizerSpec::Added& token : named) {
    const auto same = [&](const TokenizerSpec::Added& other) { return other.content == token.content; };
    if (std::any_of(spec->added.begin(), spec->added.end(), same)) continue;
    const auto found = std::find(spec->tokens.begin(), spec->tokens.end(), token.content);
    if (found == spec->tokens.end()) continue;  // a new token, which the model does not use
    token.id = static_cast<TokenId>(found - spec->tokens.begin());
    TokenKind& kind = spec->kinds[static_cast<size_t>(token.id)];
    if (token.special && kind == TokenKind::kNormal) kind = TokenKind::kControl;
    spec->added.push_back(std::move(token));
  }
}

Status ReadTokenizerConfig(const Plain& config, TokenizerSpec* spec) {
  const auto find = [&](const char* name, TokenId* id) {
    const std::string text = TokenName(Member(config, name));
    if (text.empty()) return;
    const auto found = std::find(spec->tokens.begin(), spec->tokens.end(), text);
    if (found != spec->tokens.end()) *id = static_cast<TokenId>(found - spec->tokens.begin());
  };
  // A template's own tokens stay: the reference inserts them.
  if (!spec->add_bos) find("bos_token", &spec->bos_id);
  if (!spec->add_eos) find("eos_token", &spec->eos_id);
  const auto override_flag = [&](const char* name, TokenId id, bool* flag) {
    const Plain& value = Member(config, name);
    if (value.is_boolean()) *flag = value.get<bool>() && id >= 0;
  };
  override_flag("add_bos_token", spec->bos_id, &spec->add_bos);
  override_flag("add_eos_token", spec->eos_id, &spec->add_eos);
  return {};
}

Result<Plain> ParseJson(std::string_view text, const char* name) {
  Result<Plain> json = json_text::ParseSortedJson(text);
  if (!json.ok() || !json->is_object()) return DataLoss(std::string(name) + " is not a JSON object");
  return json;
}

}  // namespace

Status ApplyTokenizerConfig(std::string_view tokenizer_config_json, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const Plain config, ParseJson(tokenizer_config_json, "tokenizer_config.json"));
  try {
    return ReadTokenizerConfig(config, spec);
  } catch (const Plain::exception& error) {
    return DataLoss(std::string("tokenizer_config.json: ") + error.what());
  }
}

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view tokenizer_config_json) {
  TACTUS_ASSIGN_OR_RETURN(const Plain file, ParseJson(json, "tokenizer.json"));
  try {
    TACTUS_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerJsonReader().Read(file));
    if (tokenizer_config_json.empty()) return spec;
    TACTUS_RETURN_IF_ERROR(ApplyTokenizerConfig(tokenizer_config_json, &spec));
    if (spec.added.empty()) AddNamedTokens(Plain::parse(tokenizer_config_json), &spec);
    return spec;
  } catch (const Plain::exception& error) {
    return DataLoss(std::string("tokenizer.json: ") + error.what());
  }
}

}  // namespace tactus::language
