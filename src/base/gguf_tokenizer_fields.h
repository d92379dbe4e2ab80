// The tokeniser's metadata of a GGUF file (`tokenizer.ggml.*`): compute/weights reads them, language/text makes a
// tokeniser of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tactus {

struct GgufTokenizerFields {
  std::string model;       // "gpt2": byte-level BPE; "llama": SentencePiece BPE; empty: the file has no tokeniser
  std::string pre;         // "smollm", "llama-bpe", ...; for "gpt2" only
  std::string model_name;  // general.name, else the file's; only it shows that added tokens of Phi-3 strip white space
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "a b"
  int64_t bos = -1, eos = -1, unk = -1, eot = -1, eom = -1;  // -1: none
  bool has_add_bos = false, add_bos = false, add_eos = false;
  bool add_space_prefix = true;  // "llama" only
};

}  // namespace tactus
