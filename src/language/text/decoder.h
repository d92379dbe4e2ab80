// Spells tokens as text, by the decoders of a tokeniser. A decoder that needs more than one token at a time is refused,
// because text is streamed. Immutable after Compile: any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "language/text/regex.h"
#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

class TokenDecoder {
 public:
  // kUnimplemented: a decoder, or an order of them, that cannot be streamed.
  static Result<TokenDecoder> Compile(const std::vector<DecoderStep>& steps);
  // The bytes of a token. `first`: of the first one of a text.
  std::string Bytes(std::string_view token, bool first) const;
  // How many of Bytes' last bytes are dropped for the last token of a text.
  size_t DroppedAtEnd(std::string_view token) const;
  // No token's bytes are fewer than those of the text that it stands for, U+2581 counted as one.
  bool keeps_length() const { return keeps_length_; }

 private:
  struct Step {
    DecoderStep spec;
    std::optional<Regex> regex;
  };
  std::string Apply(const Step& step, std::string token, bool first) const;

  std::vector<Step> steps_;
  bool strips_first_space_ = false;  // of the whole text
  bool keeps_length_ = true;
};

}  // namespace tactus::language
