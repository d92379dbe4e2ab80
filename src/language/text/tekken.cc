// Reads Mistral's tekken.json: tokens as bytes in rank order, merged as tiktoken does, behind a block of control
// tokens.
#include <algorithm>

#include "base/json.h"
#include "base/json_text.h"
#include "language/text/base64.h"
#include "language/text/byte_alphabet.h"
#include "language/text/tokenizer.h"

namespace tactus::language {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 22;  // see kMaxVocabulary in tokenizer.cc

// The control tokens of the first version, whose files do not list them.
constexpr const char* kFirstControlTokens[] = {"<unk>",
                                               "<s>",
                                               "</s>",
                                               "[INST]",
                                               "[/INST]",
                                               "[AVAILABLE_TOOLS]",
                                               "[/AVAILABLE_TOOLS]",
                                               "[TOOL_RESULTS]",
                                               "[/TOOL_RESULTS]",
                                               "[TOOL_CALLS]",
                                               "[IMG]",
                                               "<pad>",
                                               "[IMG_BREAK]",
                                               "[IMG_END]",
                                               "[PREFIX]",
                                               "[MIDDLE]",
                                               "[SUFFIX]",
                                               "[SYSTEM_PROMPT]",
                                               "[/SYSTEM_PROMPT]",
                                               "[TOOL_CONTENT]"};

Status BadTekken(const std::string& what) {
  return DataLoss("tekken.json: " + what);
}

Result<int64_t> CountIn(const SortedJson& config, const char* name, int64_t absent) {
  const auto found = config.find(name);
  if (found == config.end()) return absent;
  const bool valid = found->is_number_unsigned() && found->get<uint64_t>() <= uint64_t{kMostTokens};
  return valid ? Result<int64_t>(found->get<int64_t>())
               : BadTekken(std::string("config: ") + name + " is " + found->dump() + ", not a number up to " +
                           std::to_string(kMostTokens));
}

// Control tokens have the first ids; those without a name get one.
Status ReadControlTokens(const SortedJson& file, int64_t count, TokenizerSpec* spec) {
  for (int64_t i = 0; i < count; ++i) spec->tokens.push_back("<SPECIAL_" + std::to_string(i) + ">");
  const auto listed = file.find("special_tokens");
  if (listed == file.end() || listed->is_null()) {
    for (size_t i = 0; i < std::size(kFirstControlTokens) && i < spec->tokens.size(); ++i) {
      spec->tokens[i] = kFirstControlTokens[i];
    }
  } else if (!listed->is_array()) {
    return BadTekken("special_tokens is no list");
  } else {
    for (const SortedJson& token : *listed) {
      const bool valid = token.is_object() && token.contains("rank") && token["rank"].is_number_unsigned() &&
                         token["rank"].get<uint64_t>() < static_cast<uint64_t>(count) && token.contains("token_str") &&
                         token["token_str"].is_string();
      if (!valid)
        return BadTekken("special_tokens: " + token.dump().substr(0, 100) + " is no token with a rank below " +
                         std::to_string(count));
      spec->tokens[token["rank"].get<size_t>()] = token["token_str"].get<std::string>();
    }
  }
  spec->kinds.assign(spec->tokens.size(), TokenKind::kAdded);
  for (size_t i = 0; i < spec->tokens.size(); ++i) {
    const std::string& text = spec->tokens[i];
    const auto id = static_cast<TokenId>(i);
    if (text == "<s>") spec->bos_id = id, spec->prefix = {id};
    if (text == "</s>") spec->eos_id = id;
    spec->added.push_back({text, id, true, false, false, false, false});
  }
  return {};
}

Status ReadTekkenVocabulary(const SortedJson& file, size_t count, TokenizerSpec* spec) {
  const auto vocabulary = file.find("vocab");
  if (vocabulary == file.end() || !vocabulary->is_array()) return BadTekken("vocab is missing, or no list");
  for (size_t rank = 0; rank < std::min(count, vocabulary->size()); ++rank) {
    const SortedJson& token = (*vocabulary)[rank];
    std::string bytes;
    const bool valid = token.is_object() && token.contains("token_bytes") && token["token_bytes"].is_string() &&
                       DecodeBase64(token["token_bytes"].get_ref<const std::string&>(), &bytes) && !bytes.empty();
    if (!valid) return BadTekken("vocab: entry " + std::to_string(rank) + " has no token_bytes in base64");
    if (token.contains("rank") && token["rank"] != rank) {
      return BadTekken("vocab: entry " + std::to_string(rank) + " has rank " + token["rank"].dump());
    }
    spec->tokens.push_back(SpellBytes(bytes));
    spec->kinds.push_back(TokenKind::kNormal);
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> ParseTekkenJson(std::string_view json) {
  const Result<SortedJson> file = json_text::ParseSortedJson(json);
  if (!file.ok() || !file->is_object()) return BadTekken("is not a JSON object");
  const auto config = file->find("config");
  if (config == file->end() || !config->is_object()) return BadTekken("config is missing, or no object");
  const auto pattern = config->find("pattern");
  if (pattern == config->end() || !pattern->is_string()) return BadTekken("config: pattern is missing, or no text");
  TACTUS_ASSIGN_OR_RETURN(const int64_t control, CountIn(*config, "default_num_special_tokens", 1000));
  TACTUS_ASSIGN_OR_RETURN(const int64_t all, CountIn(*config, "default_vocab_size", kMostTokens));
  if (control > all) {
    return BadTekken("config: default_num_special_tokens is " + std::to_string(control) + ", and default_vocab_size " +
                     std::to_string(all));
  }
  TokenizerSpec spec;
  TACTUS_RETURN_IF_ERROR(ReadControlTokens(*file, control, &spec));
  TACTUS_RETURN_IF_ERROR(ReadTekkenVocabulary(*file, static_cast<size_t>(all - control), &spec));
  spec.merges_by_id = spec.ignore_merges = true;
  spec.pre_tokenizers = {{.kind = PreTokenizerStep::Kind::kSplit, .pattern = {pattern->get<std::string>(), true}}};
  AddByteLevel(&spec);
  return spec;
}

}  // namespace tactus::language
