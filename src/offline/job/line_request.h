// Converts a line of a job into engine requests, by the same code as a server's requests. Any thread.
#pragma once

#include "api/chat/conversation.h"
#include "api/chat/parsed_request.h"
#include "offline/job/job.h"
#include "offline/job/job_line.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct LineRequest {
  ResultNames names;
  const api::Api* api = nullptr;  // the line's API; null: the line was not parsed
  Status status;                  // the fault of the line
  bool asked = false;             // it is a valid line: a server would report the same fault
  api::Prepared prepared;         // set without a fault; every request has a seed
};
// kRun: refused requests count in the engine's statistics.
enum class ReadFor : uint8_t { kPlan, kRun };
// Fails if the input cannot be read. `url`: a line with another url is faulty; empty: any url.
Result<LineRequest> ReadLineRequest(const Job& job, const LinePlace& place, Engine* engine,
                                    const api::RequestLimits& limits, ReadFor why, std::string_view url = {});

}  // namespace tactus::offline
