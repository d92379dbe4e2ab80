// Converts a GGUF file's tokeniser metadata to a TokenizerSpec. Pure functions: any thread.
#pragma once

#include "base/gguf_tokenizer_fields.h"
#include "language/text/tokenizer.h"

namespace tactus::language {

// Control tokens become special added tokens, user-defined ones ordinary added tokens, as in llama.cpp and in Hugging
// Face's conversion. Without add_bos in the file: SentencePiece BPE, WordPiece and Llama 3 add it, other byte-level
// tokenisers do not. A pre-tokeniser that the file does not name is guessed, with a warning in the specification.
// kUnimplemented names an unknown model or pre-tokeniser, and the known ones.
Result<TokenizerSpec> SpecFromGguf(GgufTokenizerFields fields);

}  // namespace tactus::language
