#include "engine/start/model_text.h"

#include <fmt/format.h>

#include "base/input_file.h"
#include "language/text/gguf_spec.h"

namespace tactus::engine {
namespace {

// One token per byte, spelled in GPT-2's printable alphabet; the rest of the vocabulary is unused names.
language::TokenizerSpec ByteSpec(const compute::ModelConfig& config) {
  language::TokenizerSpec spec;
  auto utf8 = [](uint32_t c) {
    return c < 0x80 ? std::string(1, static_cast<char>(c))
                    : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  };
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    spec.tokens.push_back(utf8(printable ? b : next++));
  }
  for (auto id = static_cast<int64_t>(spec.tokens.size()); id < config.vocab_size; ++id) {
    spec.tokens.push_back(fmt::format("<unused{}>", id));
  }
  spec.kinds.assign(spec.tokens.size(), language::TokenKind::kNormal);
  language::AddByteLevel(&spec);
  auto special = [&](TokenId id, const char* name) {
    if (id < 256 || id >= config.vocab_size || !spec.tokens[static_cast<size_t>(id)].starts_with("<unused"))
      return TokenId{-1};
    spec.tokens[static_cast<size_t>(id)] = name;
    spec.kinds[static_cast<size_t>(id)] = language::TokenKind::kControl;
    spec.added.push_back({name, id, true, false, false, false, false});
    return id;
  };
  spec.bos_id = special(config.bos_id, "<bos>");
  spec.eos_id = config.stop_ids.empty() ? -1 : special(config.stop_ids.front(), "<eos>");
  return spec;
}

Result<language::TokenizerSpec> SpecOf(const compute::ModelDescription& d, const ModelTextOptions& options) {
  if (d.source == compute::ModelDescription::Source::kGguf && !d.gguf_tokenizer.model.empty())
    return language::SpecFromGguf(d.gguf_tokenizer);
  if (!d.tokenizer_json.empty()) return language::ParseTokenizerJson(d.tokenizer_json, d.tokenizer_config_json);
  if (!d.tokenizer_model.empty()) {
    TACTUS_ASSIGN_OR_RETURN(language::TokenizerSpec spec, language::ParseSentencePieceModel(d.tokenizer_model));
    if (!d.tokenizer_config_json.empty())
      TACTUS_RETURN_IF_ERROR(language::ApplyTokenizerConfig(d.tokenizer_config_json, &spec));
    return spec;
  }
  if (!d.tekken_json.empty()) return language::ParseTekkenJson(d.tekken_json);
  if (options.allow_byte_tokenizer) return ByteSpec(d.config);
  if (d.source == compute::ModelDescription::Source::kGguf) {
    return NotFound(fmt::format(
        "{}: metadata 'tokenizer.ggml.model' is missing: the file has no tokeniser; convert the model again", d.path));
  }
  return NotFound(fmt::format(
      "{} has no tokeniser; put tokenizer.json, tokenizer.model or tekken.json beside config.json", d.path));
}

Result<std::string> ReadTemplate(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;  // the limit for a model's own template
  auto text = ReadInputFile(path, kMostBytes);
  if (!text.ok()) return Status(text.status().code(), "--chat-template: " + text.status().message(), "chat-template");
  return text;
}

// Null if `source` is empty.
Result<std::unique_ptr<language::ChatTemplate>> CompileTemplate(const std::string& source,
                                                                const ModelTextOptions& options) {
  if (source.empty()) return std::unique_ptr<language::ChatTemplate>();
  auto compiled = language::ChatTemplate::Compile(source);
  if (compiled.ok()) return compiled;
  return InvalidArgument(
      fmt::format("the chat template{} does not compile: {}; pass another one with --chat-template FILE",
                  options.chat_template_file.empty() ? " of the model" : " " + options.chat_template_file,
                  compiled.status().message()),
      "chat-template");
}

}  // namespace

Result<language::TokenizerSpec> TokenizerSpecOf(const compute::ModelDescription& description) {
  return SpecOf(description, {});
}

Result<ModelText> LoadModelText(const compute::ModelDescription& description, const ModelTextOptions& options) {
  ModelText text;
  TACTUS_ASSIGN_OR_RETURN(language::TokenizerSpec spec, SpecOf(description, options));
  TACTUS_RETURN_IF_ERROR(language::CheckTokenizerFits(spec, description.config.vocab_size));
  text.warnings = std::move(spec.warnings);
  TACTUS_ASSIGN_OR_RETURN(text.tokenizer, language::MakeTokenizer(std::move(spec)));
  if (text.tokenizer->bos_id() >= 0) text.bos_token = text.tokenizer->TokenText(text.tokenizer->bos_id());
  if (text.tokenizer->eos_id() >= 0) text.eos_token = text.tokenizer->TokenText(text.tokenizer->eos_id());
  text.template_source = description.chat_template;
  text.tool_use_source = description.tool_use_template;
  if (!options.chat_template_file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(text.template_source, ReadTemplate(options.chat_template_file));
    text.tool_use_source.clear();
  }
  TACTUS_ASSIGN_OR_RETURN(text.chat_template, CompileTemplate(text.template_source, options));
  if (!text.tool_use_source.empty()) {
    TACTUS_ASSIGN_OR_RETURN(auto tool_use, CompileTemplate(text.tool_use_source, options));
    text.chat_template = language::ChatTemplate::Choosing(std::move(text.chat_template), std::move(tool_use));
  }
  return text;
}

}  // namespace tactus::engine
