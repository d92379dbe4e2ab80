// Text to token ids and back, exactly as in the reference implementations. Immutable after construction: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tactus/request.h"
#include "tactus/stop_token.h"

namespace tactus::language {

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kByte, kUnused };

// Treatment of a split pattern's matches (Hugging Face "Split"). kOnlyMatches: "Removed" with invert.
enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kOnlyMatches, kMergedWithPrevious, kMergedWithNext };

// All data of a tokeniser, from any file (tokenizer.json, tokenizer.model, GGUF metadata).
struct TokenizerSpec {
  enum class Algorithm : uint8_t { kByteLevelBpe, kSentencePieceBpe } algorithm = Algorithm::kByteLevelBpe;
  std::vector<std::string> tokens;  // as spelled in the file (byte-level alphabet or U+2581 for space)
  std::vector<float> scores;        // SentencePiece; empty otherwise
  std::vector<TokenKind> kinds;     // same length as tokens
  // In rank order: byte-level BPE always; SentencePiece from a tokenizer.json, where they replace the scores.
  std::vector<std::pair<std::string, std::string>> merges;
  // Byte-level: the regexes that split text, applied in sequence (Hugging Face "Sequence"); see
  // language/text/pretokenizer.h.
  std::vector<std::string> split_patterns;
  std::vector<SplitBehavior> split_behaviors;  // one per pattern; empty: all kIsolated
  bool digits_one_by_one = false;              // SmolLM: before the split patterns
  bool add_prefix_space = false;               // SentencePiece dummy prefix, byte-level add_prefix_space
  bool ignore_merges = false;                  // Llama 3: a whole pre-token in the vocabulary stays whole
  bool nfc_normalize = false;                  // Qwen2
  struct Added {
    std::string content;
    TokenId id;
    bool special;
    bool lstrip;
    bool rstrip;
    bool single_word;
    bool normalized;
  };
  std::vector<Added> added;
  TokenId bos_id = -1, eos_id = -1, unk_id = -1;
  bool add_bos = false, add_eos = false;  // effect of add_special_tokens for this model
  bool fuse_unknown = false;              // one unknown token for a run of unknown characters
  // SentencePiece only. Place of the dummy prefix: on every stretch of text between added tokens (Llama 2, GGUF) or on
  // the text's start alone (Metaspace "first"); not where the text already starts with a space (Metaspace); before
  // added tokens with `normalized` are searched (a normalizer) or after (a pre-tokenizer).
  bool prefix_first_only = false, prefix_unless_space = false, prefix_after_added = false;
  bool remove_extra_whitespaces = false;
  bool strip_leading_space = false;  // decoding drops one space at the start
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // add_special: BOS/EOS as added by the model's post-processor. parse_special: special tokens written in `text` become
  // their ids (as in a chat template's output). The reference does this for users' plain completion texts too, so
  // callers pass true there. Invalid UTF-8 is first replaced by U+FFFD. Empty once `stop` is set: it then returns
  // within milliseconds for any text.
  virtual std::vector<TokenId> Encode(std::string_view text, bool add_special, bool parse_special,
                                      StopToken stop = {}) const = 0;
  // A lower bound of Encode's number of tokens, special ones not counted: one pass over the text shows what can never
  // fit. 0 if tokens may consume any amount of text.
  virtual int64_t LeastTokens(std::string_view text) const = 0;
  // Bytes that are not UTF-8 become U+FFFD, one per maximal ill-formed part, streamed or not. (Where the bytes of
  // SentencePiece byte tokens are not UTF-8, sentencepiece and tokenizers each produce a different number of U+FFFD.)
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  // The bytes this token adds to the text (a control token: its content). Out of range: empty.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  virtual std::string_view TokenText(TokenId id) const = 0;  // as spelled in the vocabulary
  virtual bool IsSpecial(TokenId id) const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual TokenId bos_id() const = 0;
  virtual TokenId eos_id() const = 0;
  virtual TokenId FindToken(std::string_view text) const = 0;  // -1: none
  // SentencePiece strips the dummy prefix's space from the start of a decoded text.
  virtual bool strips_leading_space() const = 0;
};

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec);
// A tokeniser with ids for which the model has no embedding is an error with both numbers; embeddings padded beyond the
// tokeniser are usual and valid.
Status CheckTokenizerFits(const TokenizerSpec& spec, int64_t model_vocab_size);
Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view tokenizer_config_json = {});
Result<TokenizerSpec> ParseSentencePieceModel(std::string_view protobuf_bytes);
// Applies bos_token, eos_token, add_bos_token and add_eos_token of a tokenizer_config.json over the tokeniser file's
// values.
Status ApplyTokenizerConfig(std::string_view tokenizer_config_json, TokenizerSpec* spec);
// The split regexes and flags of a GGUF `tokenizer.ggml.pre` name ("smollm", "llama-bpe", "qwen2", "gpt-2", ...).
Status ApplyPreTokenizerName(std::string_view name, TokenizerSpec* spec);

// Incremental detokenising: receives ids, returns whole UTF-8 characters only. Not thread-safe; one per choice.
class Detokenizer {
 public:
  // at_start: the ids begin a text; false: they continue one (SentencePiece then keeps their first space).
  explicit Detokenizer(const Tokenizer* tokenizer, bool skip_special = true, bool at_start = true);
  // Text that became final with this token; possibly empty while a character is incomplete.
  std::string Append(TokenId id);
  // The rest at the end: incomplete bytes as U+FFFD, as in the reference.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_;
  std::string pending_;
};

}  // namespace tactus::language
