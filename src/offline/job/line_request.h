// From a line of a job to what the engine is asked, by the code that a server's requests pass. Any thread.
#pragma once

#include "api/chat/conversation.h"
#include "api/chat/request_parser.h"
#include "offline/job/job.h"
#include "offline/job/job_line.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct LineRequest {
  ResultNames names;
  const api::Api* api = nullptr;  // that it asks for; null: it is no line
  Status status;                  // what is wrong with it
  bool asked = false;             // it is a request: a server would say the same of it
  api::Prepared prepared;         // where nothing is wrong; every request has a seed
};
// What is refused when it is run counts in the engine's figures.
enum class ReadFor : uint8_t { kPlan, kRun };
// Fails where the input cannot be read. `url`: a line that asks another one is wrong; empty: it may ask any.
Result<LineRequest> ReadLineRequest(const Job& job, const LinePlace& place, Engine* engine,
                                    const api::RequestLimits& limits, ReadFor why, std::string_view url = {});

}  // namespace tactus::offline
