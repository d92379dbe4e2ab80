// Incremental detokenising. The returned texts and Flush together equal Tokenizer::Decode of all ids.
#include "language/text/tokenizer.h"
#include "language/text/unicode.h"

namespace tactus::language {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool skip_special, bool at_start)
    : tokenizer_(tokenizer), skip_special_(skip_special), at_start_(at_start) {}

std::string Detokenizer::Append(TokenId id) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return {};
  if (tokenizer_->TokenText(id).empty()) return {};
  pending_ += held_;
  if (at_start_) {
    pending_ += tokenizer_->FirstTokenBytes(id);
  } else {
    pending_ += tokenizer_->TokenBytes(id);
  }
  at_start_ = false;
  const size_t held = tokenizer_->DroppedAtEnd(id);
  held_ = pending_.substr(pending_.size() - held);
  pending_.resize(pending_.size() - held);
  const size_t whole = CompleteUtf8Prefix(pending_);
  std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  held_.clear();
  return text;
}

}  // namespace tactus::language
