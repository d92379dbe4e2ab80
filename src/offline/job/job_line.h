// The format of batch files, OpenAI's: the request of an input line, and the lines of results. The API defines the body
// (api/request_parser.h). Any thread.
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

// The API of this url, of those that a line may use; a url may lack the /v1 or end with a slash. Null: none.
const api::Api* ApiOfUrl(std::string_view url);

// {"custom_id": "...", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
struct JobLine {
  std::optional<std::string> custom_id;  // also set if the line has a fault elsewhere
  const api::Api* api = nullptr;         // its url
  std::shared_ptr<const Json> body;      // an object
};
// A line without a request, which is not a line of the job.
bool IsBlankLine(std::string_view text);
// kInvalidArgument: the text is not such an object. `number`: of the line, for messages about its JSON.
Status ParseLine(std::string_view text, int64_t number, JobLine* line);

// What a result repeats of its request.
struct ResultNames {
  std::string job;  // distinguishes the results of jobs
  int64_t line = 0;
  std::optional<std::string> custom_id;
  std::string ignored;             // ignored fields of its body, as in a server's header; empty: none
  std::string request_id() const;  // also the request's id in the engine
};
// Includes its line feed. `body`: a JSON object. Ignored fields are named beside it, in `headers`, which is absent
// otherwise: clients parse the body by their own types.
std::string AnswerText(const ResultNames& names, std::string_view body);
// `asked`: the line was a valid request, and the response is what a server would have answered.
std::string FailureText(const ResultNames& names, const Status& why, bool asked);
// The result of a line that was not run, because the job ended before: `code` states how.
std::string UnrunText(const ResultNames& names, std::string_view code, std::string_view message);

}  // namespace tactus::offline
