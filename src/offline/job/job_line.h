// The format of batch files, OpenAI's: what a line of the input asks for, and the lines of results. What a body may say
// is the API's (api/chat/request_parser.h). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/apis.h"
#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus::offline {

inline constexpr size_t kMostCustomIdBytes = 512;
inline constexpr const char* kUrls = "\"/v1/chat/completions\", \"/v1/completions\" or \"/v1/responses\"";

// The API that a line may ask for under this url; a url may lack the /v1 or end with a slash. Null: none.
const api::Api* ApiOfUrl(std::string_view url);

// {"custom_id": "...", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
struct JobLine {
  std::optional<std::string> custom_id;  // also of a line that is wrong elsewhere
  const api::Api* api = nullptr;         // its url
  std::shared_ptr<const Json> body;      // an object
};
// Nothing is asked for: no line of the job.
bool IsBlankLine(std::string_view text);
// kInvalidArgument: it is no such object. `number`: of the line, for messages about its JSON.
Status ParseLine(std::string_view text, int64_t number, JobLine* line);

// What a result says of its request.
struct ResultNames {
  std::string job;  // tells the results of one job from those of another
  int64_t line = 0;
  std::optional<std::string> custom_id;
  std::string ignored;             // of its body, as a server's header names it; empty: nothing
  std::string request_id() const;  // also the request's in the engine
};
// With its line feed. `body`: a JSON object. What was ignored stands beside it, in `headers`, which are there for
// nothing else: a body is what clients read by their types.
std::string AnswerText(const ResultNames& names, std::string_view body);
// `asked`: the line was a request, and the response is what a server would have answered.
std::string FailureText(const ResultNames& names, const Status& why, bool asked);
// Of a line that was not run, because the whole ended before: `code` tells how.
std::string UnrunText(const ResultNames& names, std::string_view code, std::string_view message);

}  // namespace tactus::offline
