// What the schedule of a request tells its report (http/answered.h). Any thread.
#pragma once

#include "http/answered.h"
#include "tactus/timeline.h"

namespace tactus::serve {

// Sets latencies, preemptions, the cause and missed objectives.
void AddTimeline(const RequestTimeline& timeline, http::RequestFacts* facts);

}  // namespace tactus::serve
