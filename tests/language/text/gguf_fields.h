// The tokeniser fields of a GGUF file as JSON, written by tools/make_tokenizer_golden.py: tests of text/ need no model
// code.
#pragma once

#include "base/json.h"
#include "language/text/gguf_spec.h"

namespace tactus::language {

inline GgufTokenizerFields GgufFieldsFromJson(const SortedJson& json) {
  GgufTokenizerFields fields;
  fields.model = json.value("model", "");
  fields.pre = json.value("pre", "");
  fields.model_name = json.value("model_name", "");
  fields.tokens = json.value("tokens", std::vector<std::string>());
  fields.scores = json.value("scores", std::vector<float>());
  fields.types = json.value("types", std::vector<int32_t>());
  fields.merges = json.value("merges", std::vector<std::string>());
  fields.bos = json.value("bos", int64_t{-1});
  fields.eos = json.value("eos", int64_t{-1});
  fields.unk = json.value("unk", int64_t{-1});
  fields.has_add_bos = json.contains("add_bos");
  fields.add_bos = json.value("add_bos", false);
  fields.has_add_eos = json.contains("add_eos");
  fields.add_eos = json.value("add_eos", false);
  fields.sep = json.value("sep", int64_t{-1});
  fields.remove_extra_whitespaces = json.value("remove_extra_whitespaces", false);
  for (const int byte : json.value("precompiled_charsmap", std::vector<int>())) {
    fields.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  fields.add_space_prefix = json.value("add_space_prefix", true);
  return fields;
}

}  // namespace tactus::language
