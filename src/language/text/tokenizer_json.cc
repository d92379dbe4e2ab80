// Reads Hugging Face's tokenizer.json and tokenizer_config.json. Features that this build would not run exactly as the
// reference are refused by name, never approximated. Files are hostile input.
#include <algorithm>

#include "base/json.h"
#include "base/json_text.h"
#include "language/text/json_component.h"
#include "language/text/tokenizer.h"

namespace tactus::language {
namespace {

using Plain = SortedJson;  // where the order of keys does not matter

const Plain& Member(const Plain& object, const char* name) {
  static const Plain kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool Flag(const Plain& object, const char* name, bool fallback) {
  const Plain& value = Member(object, name);
  return value.is_null() ? fallback : value.get<bool>();
}

Status ReadAddedTokens(const Plain& file, TokenizerSpec* spec) {
  const JsonComponent whole(file, "added_tokens");
  if (!whole.Has("added_tokens")) return {};
  TACTUS_ASSIGN_OR_RETURN(const Plain* list, whole.List("added_tokens"));
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonComponent token((*list)[i], "added token " + std::to_string(i));
    TokenizerSpec::Added entry;
    TACTUS_ASSIGN_OR_RETURN(entry.content, token.String("content"));
    TACTUS_ASSIGN_OR_RETURN(const int64_t id, token.Int("id"));
    TACTUS_ASSIGN_OR_RETURN(entry.special, token.Bool("special", false));
    TACTUS_ASSIGN_OR_RETURN(entry.lstrip, token.Bool("lstrip", false));
    TACTUS_ASSIGN_OR_RETURN(entry.rstrip, token.Bool("rstrip", false));
    TACTUS_ASSIGN_OR_RETURN(entry.single_word, token.Bool("single_word", false));
    TACTUS_ASSIGN_OR_RETURN(entry.normalized, token.Bool("normalized", !entry.special));
    if (entry.content.empty()) continue;
    TACTUS_RETURN_IF_ERROR(PutToken(entry.content, id, TokenKind::kAdded, spec));
    entry.id = static_cast<TokenId>(id);
    TokenKind& kind = spec->kinds[static_cast<size_t>(id)];
    if (entry.special && kind == TokenKind::kNormal) kind = TokenKind::kControl;
    spec->added.push_back(std::move(entry));
  }
  return {};
}

Result<TokenizerSpec> ReadTokenizer(const Plain& file) {
  TokenizerSpec spec;
  TACTUS_RETURN_IF_ERROR(ReadJsonModel(Member(file, "model"), &spec));
  TACTUS_RETURN_IF_ERROR(ReadAddedTokens(file, &spec));
  TACTUS_RETURN_IF_ERROR(ReadNormalizers(Member(file, "normalizer"), &spec));
  TACTUS_RETURN_IF_ERROR(ReadPreTokenizers(Member(file, "pre_tokenizer"), &spec));
  TACTUS_RETURN_IF_ERROR(ReadPostProcessors(Member(file, "post_processor"), &spec));
  TACTUS_RETURN_IF_ERROR(ReadDecoders(Member(file, "decoder"), &spec));
  if (!spec.scores.empty()) spec.scores.resize(spec.tokens.size());  // added tokens have none
  return spec;
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
  if (spec->prefix.size() != 1) find("bos_token", &spec->bos_id);
  if (spec->suffix.size() != 1) find("eos_token", &spec->eos_id);
  const auto override_ids = [&](const char* name, TokenId id, std::vector<TokenId>* ids) {
    const Plain& value = Member(config, name);
    if (!value.is_boolean() || ids->size() > 1) return;
    ids->clear();
    if (value.get<bool>() && id >= 0) ids->push_back(id);
  };
  override_ids("add_bos_token", spec->bos_id, &spec->prefix);
  override_ids("add_eos_token", spec->eos_id, &spec->suffix);
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
    TACTUS_ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizer(file));
    if (tokenizer_config_json.empty()) return spec;
    TACTUS_RETURN_IF_ERROR(ApplyTokenizerConfig(tokenizer_config_json, &spec));
    if (spec.added.empty()) AddNamedTokens(Plain::parse(tokenizer_config_json), &spec);
    return spec;
  } catch (const Plain::exception& error) {
    return DataLoss(std::string("tokenizer.json: ") + error.what());
  }
}

}  // namespace tactus::language
