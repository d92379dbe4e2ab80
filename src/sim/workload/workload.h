// Workloads by name, for the load generator and the simulator: arrivals, token counts and shared text of requests.
// Plain data generated from one seed; no clock, no engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::sim {

class TraceFile;

struct WorkloadRequest {
  TimeNs arrival_ns = 0;      // since the run's start; -1: after the conversation's previous turn ends
  int64_t prompt_tokens = 0;  // >= 1, shared prefix included
  int64_t output_tokens = 0;  // >= 1
  // Equal prefix_id means equal text in the first shared_tokens tokens, for prefix reuse. -1: nothing shared.
  int64_t prefix_id = -1;
  int64_t shared_tokens = 0;
  std::vector<int64_t> block_ids;  // hash ids of 512-token blocks, if a trace has them; otherwise empty
  int64_t conversation = -1;       // multi-turn: turns of one conversation, in order
  int64_t turn = 0;                // within the conversation
  int64_t index = 0;               // of the request in its workload, from 0
  // Further values that the workload states.
  Slo slo;
  std::string slo_class, client;
  int32_t priority = 0;
  int32_t predicted_output_tokens = 0;  // 0: not stated
};

// The workload text: random:in=512,out=128
// prefix:shared=1024,unique=128,out=64
// chat
// code
// summarize
// long-output
// sharegpt
// long-context
// mix:chat=0.65,long-context=0.35
// multi-turn[:turns=4]
// lengths:FILE
// trace:FILE[:scale=X]. Built-in distributions are quantile tables of public traces (named_workloads.def;
// docs/reference/workloads.md has their accuracy).
struct WorkloadSpec {
  enum class Kind : uint8_t { kRandom, kPrefix, kNamed, kMix, kMultiTurn, kLengths, kTrace } kind = Kind::kRandom;
  std::string text;  // the original text
  std::string file;
  std::shared_ptr<const TraceFile> rows;  // of the file, once read (LoadRows); shared by streams
  double scale = 1.0;                     // trace: factor on the arrival rate
  int64_t in = 512, out = 128;            // random
  int64_t shared = 1024, unique = 128;
  int64_t turns = 4;
  struct Part {
    int32_t named = -1;  // index of the distribution
    double share = 1;    // of all requests; shares of a mix sum to 1
  };
  std::vector<Part> parts;  // kNamed: one; kMix: each request belongs to one part, and to the class of its name
};
Result<WorkloadSpec> ParseWorkload(const std::string& text);

// Reads the workload's file, if it has one that has not been read yet. Errors as in TraceFile::Read.
Status LoadRows(WorkloadSpec* spec);

struct WorkloadInfo {
  const char* name;
  const char* help;
};
// For --list.
const std::vector<WorkloadInfo>& KnownWorkloads();

struct ArrivalSpec {
  enum class Kind : uint8_t { kPoisson, kGamma, kConstant, kRecorded } kind = Kind::kPoisson;
  double rate_per_s = 0;  // <= 0: all at once (closed loop, or the trace's arrival times)
  double cv = 1.0;        // gamma: coefficient of variation of the gaps
  double jitter_s = 0;    // recorded: uniform in [0, jitter_s) added to each time
};
// Parses poisson
// gamma:CV
// constant
// jitter:DURATION, with the rate.
Result<ArrivalSpec> ParseArrivals(const std::string& text, double rate_per_s);

// Generates a workload one request at a time, so that memory does not grow with their number (a trace's rows are kept
// once). The same seed gives the same workload. Not thread-safe; streams that share a TraceFile may run in parallel.
class WorkloadStream {
 public:
  // `count` requests, turns included (0: as many as the file has, else 100); a shorter file repeats its rows.
  // kInvalidArgument: the workload lasts longer than 4e9 s.
  static Result<std::unique_ptr<WorkloadStream>> Open(const WorkloadSpec& spec, const ArrivalSpec& arrivals,
                                                      int64_t count, uint64_t seed);
  virtual ~WorkloadStream() = default;
  virtual int64_t count() const = 0;
  // The next request that has an arrival time, in order of arrival. False: no more.
  virtual bool Next(WorkloadRequest* request) = 0;
  // The turn after `ended` of its conversation; it arrives after `ended` ends. False: it was the last.
  virtual bool NextTurn(const WorkloadRequest& ended, WorkloadRequest* request) = 0;
  virtual bool has_arrivals() const = 0;                    // false: all at once
  virtual bool shares_text() const = 0;                     // some requests may share a prefix
  virtual int64_t rows_dropped() const { return 0; }        // file rows without prompt or output
  virtual bool states_objectives() const { return false; }  // some requests state an objective or a class
  virtual bool predicts_lengths() const { return false; }   // some requests state predicted_output_tokens
  virtual bool has_high_priority() const { return false; }  // some requests' priority is below 0
};

// The first `count` requests (0: as many as the file has), sorted by arrival; a shorter file repeats its rows.
Result<std::vector<WorkloadRequest>> MakeWorkload(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count,
                                                  uint64_t seed);

}  // namespace tactus::sim
