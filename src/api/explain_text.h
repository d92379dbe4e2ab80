// The schedule of a request as the API and `tactus explain` tell it: one object, whoever observed it.
#pragma once

#include <string>
#include <vector>

#include "tactus/timeline.h"

namespace tactus::api {

// The schedule of one request: its prompts, by handle; not empty. Milliseconds with all digits of the nanoseconds, so
// that what adds up adds up. docs/api.md, "Why a request was late".
std::string ExplainText(const std::vector<RequestTimeline>& prompts);

// The same for people.
std::string ExplainTable(const std::vector<RequestTimeline>& prompts);

}  // namespace tactus::api
