// The pre-tokenizers that GGUF files name (`tokenizer.ggml.pre`). Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

// Sets the steps and flags of a byte-level tokeniser ("smollm", "llama-bpe", "qwen2", "gpt-2", ...) as the reference
// files of these models have them. kUnimplemented: an unknown name, with the known ones.
Status ApplyPreTokenizerName(std::string_view name, TokenizerSpec* spec);
// The first name whose steps and flags, prefix aside, are those of `spec`; empty: none.
std::string PreTokenizerNameOf(const TokenizerSpec& spec);
// The name that fits the tokens of a byte-level vocabulary, for a file that states none: tokens show what a split keeps
// together.
std::string GuessPreTokenizer(const TokenizerSpec& spec);

}  // namespace tactus::language
