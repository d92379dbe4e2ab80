// The tokeniser and the further small files of a converted model. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/gguf_tokenizer_fields.h"
#include "compute/weights/model_description.h"

namespace tactus::cli {

// Both check that the new tokeniser gives the ids of the model's own. kUnimplemented: the model's tokeniser cannot be
// written in this form, with the reason. kNotFound: the model has none.
// `warning` gets what the file does not state; empty: nothing.
Result<GgufTokenizerFields> GgufTokenizerFor(const compute::ModelDescription& description, std::string* warning);
// Name and content of each file beside the weights and the configuration.
Result<std::vector<std::pair<std::string, std::string>>> FolderFilesFor(const compute::ModelDescription& description);

}  // namespace tactus::cli
