// Generated workloads for the conformance suite; each is a function of the seed.
#pragma once

#include <string>
#include <vector>

#include "core/loop/harness.h"

namespace tactus::testing {

struct Arrival {
  TimeNs at_ns = 0;
  Request request;
  TimeNs cancel_at_ns = 0;  // 0: never
};

struct Workload {
  HarnessConfig config;  // without the scheduler's names
  std::vector<Arrival> arrivals;
  bool faults = false;  // executor errors or rejections
  std::string ToString() const;
};

struct WorkloadOptions {
  bool cancels = false;
  bool faults = false;
  bool rejects = false;  // partial acceptance of chunks; no prefix caching then
  bool drafts = false;
  bool adapters = false;
  bool tokens_on_host = false;  // for every other request
};

Workload MakeWorkload(uint64_t seed, const WorkloadOptions& options);

struct Outcome {
  std::string broken;                   // first violated invariant, with the workload; empty: none
  std::vector<RequestOutput> requests;  // accepted requests, by arrival
  std::vector<uint64_t> hashes;         // after every step
  EngineStats stats;
  int64_t drafts_accepted = 0, drafts_rejected = 0;
  int64_t chained_items = 0, chained_on_host = 0;  // all, and those of sequences with tokens_on_host
};

Outcome Play(const Workload& workload, const core::SchedulerConfig& names, bool fresh_policies = false,
             const std::string& trace_path = {});

}  // namespace tactus::testing
