// Workloads by name, for the load generator and the simulator alike: who arrives when, with how many tokens, sharing
// what. Plain data made from one seed; no clock, no engine.
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
  TimeNs arrival_ns = 0;      // since the run's start; -1: when its conversation's previous turn has ended
  int64_t prompt_tokens = 0;  // >= 1, shared prefix included
  int64_t output_tokens = 0;  // >= 1
  // Equal (prefix_id, first shared_tokens tokens) means equal text: prefix reuse. -1: nothing shared.
  int64_t prefix_id = -1;
  int64_t shared_tokens = 0;
  std::vector<int64_t> block_ids;  // hash ids of 512-token blocks, where a trace has them; empty otherwise
  int64_t conversation = -1;       // multi-turn: turns of one conversation, in order
  int64_t turn = 0;                // of the conversation
  int64_t index = 0;               // number of the request in its workload, from 0
  // What the workload states of it beside that.
  Slo slo;
  std::string slo_class, client;
  int32_t priority = 0;
  int32_t predicted_output_tokens = 0;  // 0: not stated
};

// As typed: random:in=512,out=128 | prefix:shared=1024,unique=128,out=64 | chat | code | summarize | long-output |
// sharegpt | long-context | mix:chat=0.65,long-context=0.35 | multi-turn[:turns=4] | lengths:FILE |
// trace:FILE[:scale=X]. Built-in distributions are quantile tables of public traces (named_workloads.def;
// docs/workloads.md says how far they are from them).
struct WorkloadSpec {
  enum class Kind : uint8_t { kRandom, kPrefix, kNamed, kMix, kMultiTurn, kLengths, kTrace } kind = Kind::kRandom;
  std::string text;  // as typed
  std::string file;
  std::shared_ptr<const TraceFile> rows;  // of the file, once read (LoadRows); streams share them
  double scale = 1.0;                     // trace: arrival rate multiplied by this
  int64_t in = 512, out = 128;            // random
  int64_t shared = 1024, unique = 128;
  int64_t turns = 4;
  struct Part {
    int32_t named = -1;  // index of the distribution
    double share = 1;    // of all requests; those of a mix sum to 1
  };
  std::vector<Part> parts;  // kNamed: one; kMix: each request is of one of them, and of the class of its name
};
Result<WorkloadSpec> ParseWorkload(const std::string& text);

// Reads the file that the workload names, if it names one and it has not been read. As TraceFile::Read.
Status LoadRows(WorkloadSpec* spec);

struct WorkloadInfo {
  const char* name;
  const char* help;
};
// For --list.
const std::vector<WorkloadInfo>& KnownWorkloads();

struct ArrivalSpec {
  enum class Kind : uint8_t { kPoisson, kGamma, kConstant, kRecorded } kind = Kind::kPoisson;
  double rate_per_s = 0;  // <= 0: all at once (closed loop, or the trace's own times)
  double cv = 1.0;        // gamma: coefficient of variation of the gaps
  double jitter_s = 0;    // recorded: uniform in [0, jitter_s) added to each time
};
// poisson | gamma:CV | constant | jitter:DURATION, with the rate.
Result<ArrivalSpec> ParseArrivals(const std::string& text, double rate_per_s);

// A workload one request at a time, so that memory does not grow with their number (a trace's rows are kept once). One
// seed gives one workload. Not thread-safe; streams of one TraceFile may be used side by side.
class WorkloadStream {
 public:
  // `count` requests, turns included (0: as many as the file has, else 100); a file's rows repeat when it has fewer.
  // kInvalidArgument for one that goes on for more than 4e9 s.
  static Result<std::unique_ptr<WorkloadStream>> Open(const WorkloadSpec& spec, const ArrivalSpec& arrivals,
                                                      int64_t count, uint64_t seed);
  virtual ~WorkloadStream() = default;
  virtual int64_t count() const = 0;
  // Requests that arrive by themselves, in order of arrival. False: there are no more.
  virtual bool Next(WorkloadRequest* request) = 0;
  // The turn after `ended` of its conversation, which arrives when that one has ended. False: it was the last.
  virtual bool NextTurn(const WorkloadRequest& ended, WorkloadRequest* request) = 0;
  virtual bool has_arrivals() const = 0;                    // false: all at once
  virtual bool shares_text() const = 0;                     // some requests may share a prefix
  virtual int64_t rows_dropped() const { return 0; }        // of the file: no prompt or no output
  virtual bool states_objectives() const { return false; }  // some requests state an objective or a class
  virtual bool predicts_lengths() const { return false; }   // some requests state predicted_output_tokens
  virtual bool has_high_priority() const { return false; }  // some requests' priority is below 0
};

// The first `count` requests (0: as many as the file has), sorted by arrival; a file's rows repeat when it has fewer.
Result<std::vector<WorkloadRequest>> MakeWorkload(const WorkloadSpec& spec, const ArrivalSpec& arrivals, int64_t count,
                                                  uint64_t seed);

}  // namespace tactus::sim
