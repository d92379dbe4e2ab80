// A line of a batch file: any content gives a request or an error with a message, and the result is one line of JSON
// with the line's id.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "offline/job/job_line.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Parses the text, which must be one line of JSON.
tactus::SortedJson Parsed(const std::string& text) {
  Require(!text.empty() && text.find('\n') == text.size() - 1);
  return tactus::SortedJson::parse(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  offline::JobLine line;
  const Status status = offline::ParseLine(text, 7, &line);
  if (status.ok()) {
    Require(line.custom_id && !line.custom_id->empty() && line.custom_id->size() <= offline::kMostCustomIdBytes);
    Require(line.body != nullptr && line.body->is_object());
  } else {
    Require(!status.message().empty());
  }
  const offline::ResultNames names{"job", 7, line.custom_id};
  const tactus::SortedJson failure =
      Parsed(offline::FailureText(names, status.ok() ? Internal("x") : status, status.ok()));
  Require(failure.contains("error") && failure["custom_id"].is_null() == !line.custom_id.has_value());
  const tactus::SortedJson answer = Parsed(offline::AnswerText(names, "{}"));
  if (line.custom_id) Require(answer["custom_id"] == failure["custom_id"]);
  return 0;
}
