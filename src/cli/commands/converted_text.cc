#include "cli/commands/converted_text.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "engine/start/model_text.h"
#include "language/text/gguf_spec.h"
#include "language/text/gguf_write.h"
#include "language/text/json_write.h"
#include "language/text/same_ids.h"
#include "language/text/tokenizer.h"

namespace tactus::cli {
namespace {

constexpr int64_t kMostTokenizerBytes = int64_t{256} << 20;

using Files = std::vector<std::pair<std::string, std::string>>;

Status CheckSameText(language::TokenizerSpec from, language::TokenizerSpec to) {
  TACTUS_ASSIGN_OR_RETURN(const auto old_tokenizer, language::MakeTokenizer(std::move(from)));
  TACTUS_ASSIGN_OR_RETURN(const auto new_tokenizer, language::MakeTokenizer(std::move(to)));
  return language::CheckSameIds(*old_tokenizer, *new_tokenizer);
}

// The files that transformers reads beside config.json and the weights.
Result<Files> CopiedFiles(const std::string& folder) {
  Files files;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
        "additional_chat_templates/tool_use.jinja", "generation_config.json"}) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    TACTUS_ASSIGN_OR_RETURN(std::string text, ReadInputFile(path, kMostTokenizerBytes));
    files.emplace_back(name, std::move(text));
  }
  return files;
}

std::string TokenizerConfigText(const language::TokenizerSpec& spec, bool sentencepiece) {
  const auto text = [&spec](TokenId id) {
    return id >= 0 ? Json(spec.tokens[static_cast<size_t>(id)]) : Json(nullptr);
  };
  Json json = {{"tokenizer_class", sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
               {"bos_token", text(spec.bos_id)},
               {"eos_token", text(spec.eos_id)},
               {"add_bos_token", !spec.prefix.empty()},
               {"add_eos_token", !spec.suffix.empty()},
               {"clean_up_tokenization_spaces", false}};
  if (spec.unk_id >= 0) json["unk_token"] = text(spec.unk_id);
  if (sentencepiece) json["legacy"] = false;
  return json_text::JsonText(json, 2) + "\n";
}

// The tokeniser of a GGUF file.
Status AddTokenizerFiles(const compute::ModelDescription& d, Files* files) {
  TACTUS_ASSIGN_OR_RETURN(language::TokenizerSpec spec, engine::TokenizerSpecOf(d));
  const bool sentencepiece = spec.model == language::TokenizerSpec::Model::kSentencePieceBpe;
  const std::string config = TokenizerConfigText(spec, sentencepiece);
  language::TokenizerSpec written;
  if (sentencepiece) {
    TACTUS_ASSIGN_OR_RETURN(std::string model, language::SentencePieceModelText(spec));
    TACTUS_ASSIGN_OR_RETURN(written, language::ParseSentencePieceModel(model));
    TACTUS_RETURN_IF_ERROR(language::ApplyTokenizerConfig(config, &written));
    files->emplace_back("tokenizer.model", std::move(model));
  } else {
    TACTUS_ASSIGN_OR_RETURN(std::string json, language::TokenizerJsonText(spec));
    TACTUS_ASSIGN_OR_RETURN(written, language::ParseTokenizerJson(json, config));
    files->emplace_back("tokenizer.json", std::move(json));
  }
  files->emplace_back("tokenizer_config.json", config);
  return CheckSameText(std::move(spec), std::move(written));
}

}  // namespace

Result<GgufTokenizerFields> GgufTokenizerFor(const compute::ModelDescription& d, std::string* warning) {
  TACTUS_ASSIGN_OR_RETURN(language::TokenizerSpec spec, engine::TokenizerSpecOf(d));
  TACTUS_RETURN_IF_ERROR(language::CheckTokenizerFits(spec, d.config.vocab_size));
  language::TokenizerSpec pieces;
  if (!d.tokenizer_model.empty()) {
    TACTUS_ASSIGN_OR_RETURN(pieces, language::ParseSentencePieceModel(d.tokenizer_model));
  }
  TACTUS_ASSIGN_OR_RETURN(GgufTokenizerFields fields,
                          language::GgufFieldsOf(spec, pieces.tokens.empty() ? nullptr : &pieces));
  language::PadTokens(d.config.vocab_size, &fields);
  fields.model_name = d.config.name;
  if (const int64_t flags = language::TokensWithUnstatedFlags(spec); flags > 0) {
    *warning = fmt::format(
        "{} added tokens strip white space beside them or match whole words alone, which GGUF cannot state", flags);
  }
  TACTUS_ASSIGN_OR_RETURN(language::TokenizerSpec written, language::SpecFromGguf(fields));
  TACTUS_RETURN_IF_ERROR(CheckSameText(std::move(spec), std::move(written)));
  return fields;
}

Result<Files> FolderFilesFor(const compute::ModelDescription& d) {
  if (d.source == compute::ModelDescription::Source::kHuggingFace) return CopiedFiles(d.path);
  Files files;
  if (!d.gguf_tokenizer.model.empty()) TACTUS_RETURN_IF_ERROR(AddTokenizerFiles(d, &files));
  if (!d.chat_template.empty()) files.emplace_back("chat_template.jinja", d.chat_template);
  if (!d.tool_use_template.empty()) files.emplace_back("additional_chat_templates/tool_use.jinja", d.tool_use_template);
  return files;
}

}  // namespace tactus::cli
