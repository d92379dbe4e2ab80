#include "gateway/request_view.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace tactus::gateway {
namespace {

using Json = nlohmann::json;

int32_t TokensOf(int64_t bytes) {
  const int64_t tokens = (bytes + kBytesPerToken - 1) / kBytesPerToken;
  return static_cast<int32_t>(std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max()));
}

// Keys of a text that comes in parts. Holds one piece of it.
class PieceKeys {
 public:
  PieceKeys(const Hash128& secret, std::vector<Hash128>* keys) : secret_(secret), keys_(keys) {}

  void Add(std::string_view text) {
    bytes_ += static_cast<int64_t>(text.size());
    while (!text.empty()) {
      const size_t taken = std::min(text.size(), kPieceBytes - held_);
      std::memcpy(block_.data() + sizeof(Hash128) + held_, text.data(), taken);
      text.remove_prefix(taken);
      held_ += taken;
      if (held_ == kPieceBytes) Close();
    }
  }
  // What the prompt's keys hang on besides its text.
  void Root(std::string_view name) { parent_ = SipHash128(secret_, name.data(), name.size()); }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kPieceBytes = static_cast<size_t>(kPieceTokens) * kBytesPerToken;

  void Close() {
    std::memcpy(block_.data(), &parent_, sizeof parent_);
    parent_ = SipHash128(secret_, block_.data(), block_.size());
    keys_->push_back(parent_);
    held_ = 0;
  }

  const Hash128 secret_;
  std::vector<Hash128>* const keys_;
  Hash128 parent_;
  std::array<char, sizeof(Hash128) + kPieceBytes> block_;
  size_t held_ = 0;
  int64_t bytes_ = 0;
};

// Every text and number below the fields that make a prompt, in the order in which the client wrote them: whatever the
// shape of a message's content, equal beginnings give equal keys.
class PromptReader final : public Json::json_sax_t {
 public:
  PromptReader(const Hash128& secret, RequestView* view) : view_(view), text_(secret, &view->keys) {}
  int64_t bytes() const { return text_.bytes(); }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      in_model_ = name == "model";
      in_prompt_ = IsPrompt(name);
    }
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 1 && in_model_) {
      view_->model = value;
      // Behind the prompt it comes too late for the keys, and costs a few shared pieces between models of one fleet.
      if (text_.bytes() == 0) text_.Root(value);
    }
    if (in_prompt_) {
      text_.Add(value);
      text_.Add(std::string_view("\0", 1));  // "ab", "c" is not "a", "bc"
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { return Number(static_cast<uint64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(value); }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool boolean(bool) override { return true; }
  bool null() override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Down(); }
  bool end_object() override { return Up(); }
  bool start_array(size_t) override { return Down(); }
  bool end_array() override { return Up(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  static bool IsPrompt(const string_t& name) {
    return name == "messages" || name == "prompt" || name == "input" || name == "instructions" || name == "system" ||
           name == "tools";
  }
  // In a prompt a number is a token's id.
  bool Number(uint64_t value) {
    const auto id = static_cast<uint32_t>(value);
    char bytes[sizeof id];
    std::memcpy(bytes, &id, sizeof id);
    static_assert(sizeof id == kBytesPerToken);
    if (in_prompt_) text_.Add(std::string_view(bytes, sizeof bytes));
    return true;
  }
  bool Down() { return ++depth_, true; }
  bool Up() { return --depth_, true; }

  RequestView* const view_;
  PieceKeys text_;
  int depth_ = 0;
  bool in_model_ = false, in_prompt_ = false;
};

}  // namespace

RequestView ViewRequest(std::string_view body, const Hash128& secret) {
  RequestView view;
  PromptReader reader(secret, &view);
  if (!Json::sax_parse(body.begin(), body.end(), &reader)) return ViewOfLength(static_cast<int64_t>(body.size()));
  view.prompt_tokens = TokensOf(reader.bytes());
  return view;
}

RequestView ViewOfLength(int64_t body_bytes) {
  RequestView view;
  view.prompt_tokens = TokensOf(std::max<int64_t>(body_bytes, 0));
  return view;
}

}  // namespace tactus::gateway
