// How many tokens an answer had, read from its bytes as they pass: `usage.completion_tokens` where it says so, else the
// number of its events. Parses no JSON: in a string the quotes of such a key would be escaped. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::gateway {

class AnswerScan {
 public:
  enum class Form { kUnknown, kJson, kEvents };  // kUnknown: compressed, or neither of the others
  void SetForm(Form form) { form_ = form; }
  void Add(std::string_view bytes);
  // -1: it cannot be told.
  int32_t output_tokens() const;

 private:
  void CountEvents(std::string_view bytes);
  void FindUsage(std::string_view bytes);

  Form form_ = Form::kUnknown;
  int64_t events_ = 0;     // lines that begin with "data:"
  size_t line_match_ = 0;  // bytes of "data:" that the present line began with; npos: it began otherwise
  std::string tail_;       // the last bytes, for a key that two pieces share
  int64_t completion_tokens_ = -1;
};

}  // namespace tactus::gateway
