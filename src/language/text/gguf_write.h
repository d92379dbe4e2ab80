// A tokeniser as GGUF's metadata. Pure functions: any thread.
#pragma once

#include "base/gguf_tokenizer_fields.h"
#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

// The fields of "gpt2" for BPE over bytes, Tekken among it, of "llama" for SentencePiece's BPE and for its form in a
// tokenizer.json (BPE over characters with tokens of bytes), of "t5" for Unigram, and of "bert" for WordPiece. `pieces`
// is the model's tokenizer.model, whose scores are taken; null: it has none, and the order of the merges gives the
// scores. kUnimplemented: another kind of tokeniser, or steps that GGUF has no name for. Whether the result gives the
// same ids is for the caller to check (CheckSameIds).
Result<GgufTokenizerFields> GgufFieldsOf(const TokenizerSpec& spec, const TokenizerSpec* pieces);

// How many added tokens strip white space beside them or match whole words alone, which GGUF cannot state.
int64_t TokensWithUnstatedFlags(const TokenizerSpec& spec);

// Adds unused tokens up to a number of rows of the embedding: readers of GGUF expect a token for each row.
void PadTokens(int64_t rows, GgufTokenizerFields* fields);

}  // namespace tactus::language
