// Runs a job's lines on an engine: reads one after the other, keeps the engine's queue filled, and writes results as
// they finish, a group at a time.
//
// Thread rule: RunJob on any thread, which writes and reports; a second thread plans, reads, parses and submits, and
// waits for room in the engine (Engine::WaitForRoom); answers come on the engine's delivery thread. In memory are the
// lines in the engine, and results that are not written yet.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/chat/request_parser.h"
#include "base/clock.h"
#include "offline/job/job.h"
#include "offline/job/line_order.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct RunProgress {
  JobCounts counts;
  bool planning = false;      // no line has begun: the job is read for its plan
  int64_t lines_planned = 0;  // read so far
  double work_share = 0;      // of this run's work, by its cost, that is done; 0 without a plan
  double bound_s = 0;         // that all of it takes at least on this machine; 0: not known
  int64_t in_engine = 0;      // lines that run or wait there
  int64_t generating = 0;     // of these; what goes on after a stop
  DurationNs elapsed_ns = 0;
};

// Answers to lines with fields that are not known, of one run.
struct IgnoredFields {
  int64_t lines = 0;
  int64_t first_line = 0;  // of the file
  std::string first;       // what was ignored of it
};

struct RunnerOptions {
  api::RequestLimits limits;
  std::string url;  // what all lines ask; empty: each its own
  OrderOptions order;
  int64_t max_queue = 0;             // the engine's; 0: not known
  PlanReport* plan = nullptr;        // filled in at the end where there was a plan: requests is more than 0 then
  IgnoredFields* ignored = nullptr;  // filled in at the end
  // A few times a second, on RunJob's thread. False, from then on: no line begins any more, those that have begun to
  // generate go on to their end.
  std::function<bool(const RunProgress&)> progress;
};

// Ok: every line has its result. kCancelled: `progress` ended it before. kUnavailable: the engine takes nothing more.
// Else why results could not be written, or lines not be read. Whatever it says, what the job has recorded stays, and
// the job may be run again; nothing of it is left in the engine.
Status RunJob(Job* job, Engine* engine, const RunnerOptions& options, Clock& clock);

}  // namespace tactus::offline
