// The format of batch files, OpenAI's: what a line of the input asks for, and the lines of results. What a body may say
// is the API's (api/request_parser.h). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus::batch {

inline constexpr size_t kMostCustomIdBytes = 512;
// What a line may ask.
inline constexpr const char* kChatUrl = "/v1/chat/completions";
inline constexpr const char* kCompletionsUrl = "/v1/completions";

// {"custom_id": "...", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
struct JobLine {
  std::optional<std::string> custom_id;         // also of a line that is wrong elsewhere
  bool chat = false;                            // its url: chat completions, else completions
  std::shared_ptr<const json_text::Json> body;  // an object
};
// kInvalidArgument: it is no such object. `number`: of the line, for messages about its JSON.
Status ParseLine(std::string_view text, int64_t number, JobLine* line);

// What a result says of its request.
struct ResultNames {
  std::string job;  // tells the results of one job from those of another
  int64_t line = 0;
  std::optional<std::string> custom_id;
  std::string request_id() const;  // also the request's in the engine
};
// With its line feed. `body`: a JSON object.
std::string AnswerText(const ResultNames& names, std::string_view body);
// `asked`: the line was a request, and the response is what a server would have answered.
std::string FailureText(const ResultNames& names, const Status& why, bool asked);
// Of a line that was not run, because the whole ended before: `code` tells how.
std::string UnrunText(const ResultNames& names, std::string_view code, std::string_view message);

}  // namespace tactus::batch
