// The text side of a model: its tokeniser and chat template, from any file format. Needs no weights, so command-line
// tools use it too. Immutable: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compute/weights/model_description.h"
#include "language/text/chat_template.h"
#include "language/text/tokenizer.h"

namespace tactus::engine {

struct ModelText {
  std::unique_ptr<language::Tokenizer> tokenizer;
  std::unique_ptr<language::ChatTemplate> chat_template;  // null: the model has none
  std::string template_source;
  std::string tool_use_source;        // the template for chats with tools, if it is a separate one
  std::string bos_token, eos_token;   // as text, for templates; empty: none
  std::vector<std::string> warnings;  // what had to be guessed about the tokeniser
};

struct ModelTextOptions {
  std::string chat_template_file;     // replaces the model's template; empty: the model's
  bool allow_byte_tokenizer = false;  // a model without a tokeniser (dummy weights) gets one token per byte
};

// The tokeniser as its files state it. kNotFound: the model has none.
Result<language::TokenizerSpec> TokenizerSpecOf(const compute::ModelDescription& description);

// kDataLoss or kInvalidArgument: no tokeniser, one that does not fit the vocabulary, a template that does not compile.
Result<ModelText> LoadModelText(const compute::ModelDescription& description, const ModelTextOptions& options);

}  // namespace tactus::engine
