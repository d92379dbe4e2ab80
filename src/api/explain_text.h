// The schedule of a request as the API and `tactus explain` report it: one format for live and recorded requests.
#pragma once

#include <string>
#include <vector>

#include "tactus/timeline.h"

namespace tactus::api {

// The schedule of one request as JSON. `prompts`: its prompts in order of their handles; not empty. Times are
// milliseconds with all digits of the nanoseconds, so that sums are exact. docs/reference/api.md, "Why a request was
// late".
std::string ExplainText(const std::vector<RequestTimeline>& prompts);

// The same as a table for people.
std::string ExplainTable(const std::vector<RequestTimeline>& prompts);

}  // namespace tactus::api
