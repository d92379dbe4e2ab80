// Converts a GGUF file's tokeniser metadata to a TokenizerSpec. The model module reads the file; this module interprets
// the fields. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "language/text/tokenizer.h"

namespace tactus::language {

// `tokenizer.ggml.*`, in neutral form.
struct GgufTokenizerFields {
  std::string model;       // "gpt2": byte-level BPE; "llama": SentencePiece BPE
  std::string pre;         // "smollm", "llama-bpe", ...; for "gpt2" only
  std::string model_name;  // general.name; only it shows that the added tokens of Phi-3 files strip white space
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "a b"
  int64_t bos = -1, eos = -1, unk = -1;
  bool has_add_bos = false, add_bos = false, add_eos = false;
  bool add_space_prefix = true;  // "llama" only
};

// Control tokens become special added tokens, user-defined ones ordinary added tokens, as in llama.cpp and in Hugging
// Face's conversion. Without add_bos in the file: SentencePiece and Llama 3 add it, other byte-level tokenisers do not.
// kUnimplemented names an unknown model or pre-tokeniser, and the known ones.
Result<TokenizerSpec> SpecFromGguf(GgufTokenizerFields fields);

}  // namespace tactus::language
