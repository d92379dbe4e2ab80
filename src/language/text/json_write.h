// A tokeniser as the files of a Hugging Face folder. Pure functions: any thread.
#pragma once

#include <string>

#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

// tokenizer.json of BPE over bytes, from which ParseTokenizerJson makes the same specification. kUnimplemented: another
// kind of tokeniser, or a step that is not written.
Result<std::string> TokenizerJsonText(const TokenizerSpec& spec);

// tokenizer.model of SentencePiece's BPE (kSentencePieceBpe), as ParseSentencePieceModel reads it. kUnimplemented:
// another kind of tokeniser.
Result<std::string> SentencePieceModelText(const TokenizerSpec& spec);

}  // namespace tactus::language
