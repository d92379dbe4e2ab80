// Text to token ids and back, exactly as in the reference implementations. Immutable after construction: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "language/text/tokenizer_spec.h"
#include "tactus/request.h"
#include "tactus/stop_token.h"

namespace tactus::language {

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
  // The bytes this token adds where a text begins with it: without the space that its spelling puts before a word.
  virtual std::string FirstTokenBytes(TokenId id) const { return std::string(TokenBytes(id)); }
  // How many of a token's last bytes are dropped where a text ends with it.
  virtual size_t DroppedAtEnd(TokenId) const { return 0; }
};

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec);
// A tokeniser with ids for which the model has no embedding is an error with both numbers; embeddings padded beyond the
// tokeniser are usual and valid.
Status CheckTokenizerFits(const TokenizerSpec& spec, int64_t model_vocab_size);
Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view tokenizer_config_json = {});
Result<TokenizerSpec> ParseSentencePieceModel(std::string_view protobuf_bytes);
Result<TokenizerSpec> ParseTekkenJson(std::string_view json);
// Applies bos_token, eos_token, add_bos_token and add_eos_token of a tokenizer_config.json over the tokeniser file's
// values.
Status ApplyTokenizerConfig(std::string_view tokenizer_config_json, TokenizerSpec* spec);
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
  std::string pending_;  // an incomplete character
  std::string held_;     // the last token's end, which only another token after it completes
};

}  // namespace tactus::language
