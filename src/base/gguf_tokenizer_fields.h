// The tokeniser's metadata of a GGUF file (`tokenizer.ggml.*`): compute/weights reads them, language/text makes a
// tokeniser of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tactus {

struct GgufTokenizerFields {
  std::string model;       // "gpt2", "llama", "t5", "bert", "gemma4"; empty: the file has no tokeniser
  std::string pre;         // "smollm", "llama-bpe", ...; for "gpt2" only; empty: the file does not say
  std::string model_name;  // general.name, else the file's; only it shows that added tokens of Phi-3 strip white space
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "a b"
  int64_t bos = -1, eos = -1, unk = -1, eot = -1, eom = -1, sep = -1;  // -1: none
  bool has_add_bos = false, add_bos = false, has_add_eos = false, add_eos = false;
  bool add_space_prefix = true;                  // "llama" and "t5"
  std::string precompiled_charsmap;              // bytes; "t5" only
  bool remove_extra_whitespaces = false;         // "t5" only
  std::optional<bool> lowercase, strip_accents;  // "bert" only
};

}  // namespace tactus
