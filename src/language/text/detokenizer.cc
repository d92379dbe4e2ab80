// Incremental detokenising. The returned texts and Flush together equal Tokenizer::Decode of all ids.
#include "language/text/tokenizer.h"
#include "language/text/unicode.h"

namespace tactus::language {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool skip_special, bool at_start)
    : tokenizer_(tokenizer), skip_special_(skip_special), at_start_(at_start) {}

std::string Detokenizer::Append(TokenId id) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return {};
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return {};
  if (at_start_ && tokenizer_->strips_leading_space() && bytes[0] == ' ') bytes.remove_prefix(1);
  at_start_ = false;
  pending_ += bytes;
  const size_t whole = CompleteUtf8Prefix(pending_);
  std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace tactus::language
