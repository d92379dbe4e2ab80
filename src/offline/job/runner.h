// Runs a job's lines on an engine: reads one line after the other, keeps the engine's queue filled, and writes results
// in groups as they finish.
//
// Thread rule: RunJob on any thread, which writes and reports; a second thread plans, reads, parses and submits, and
// waits for room in the engine (Engine::WaitForRoom); answers arrive on the engine's delivery thread. Memory holds only
// the lines in the engine and the results that are not written yet.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/chat/parsed_request.h"
#include "base/clock.h"
#include "offline/job/job.h"
#include "offline/job/line_order.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct RunProgress {
  JobCounts counts;
  bool planning = false;      // no line has started: the job is read for its plan
  int64_t lines_planned = 0;  // read so far
  double work_share = 0;      // share of this run's work, by its cost, that is done; 0 without a plan
  double bound_s = 0;         // lower bound on its total time on this machine; 0: not known
  int64_t in_engine = 0;      // lines that run or wait in the engine
  int64_t generating = 0;     // of these, lines with a token; they finish even after a stop
  DurationNs elapsed_ns = 0;
};

// Answers, in one run, to lines with unknown fields.
struct IgnoredFields {
  int64_t lines = 0;
  int64_t first_line = 0;  // of the file
  std::string first;       // its ignored fields
};

struct RunnerOptions {
  api::RequestLimits limits;
  std::string url;  // the url that all lines must have; empty: any
  OrderOptions order;
  int64_t max_queue = 0;             // the engine's; 0: not known
  PlanReport* plan = nullptr;        // set at the end if there was a plan: then requests > 0
  IgnoredFields* ignored = nullptr;  // set at the end
  // Called a few times a second, on RunJob's thread. After it returns false no line starts; lines that generate run to
  // their end.
  std::function<bool(const RunProgress&)> progress;
};

// Ok: every line has its result. kCancelled: `progress` ended the run earlier. kUnavailable: the engine accepts no more
// requests. Otherwise the reason why results could not be written or lines not be read. In every case recorded results
// stay, the job may be run again, and none of its requests is left in the engine.
Status RunJob(Job* job, Engine* engine, const RunnerOptions& options, Clock& clock);

}  // namespace tactus::offline
