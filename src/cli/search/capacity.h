// The largest value of a load, its rate or its concurrency, at which a condition on the run still holds: searched for
// each seed of each configuration by itself, all of them side by side. What `tactus sim capacity` and `tactus fit` ask.
//
// Thread rule: main thread; runs go on threads of their own.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/search/sim_cases.h"
#include "results/obs/run_condition.h"
#include "sim/find_largest.h"

namespace tactus::cli {

struct CapacityOptions : SimManyOptions {
  std::string until, over = "rate", csv;
  double from = 0, to = 0, tolerance = 2;

  CapacityOptions() { seeds = 3; }

  template <class V>
  void VisitFields(V& v) {
    v.Group("Search");
    v.Field("until", until,
            {.help = "what must hold: 'p99(tbt)<=100ms and p50(delay)<=2s and rejected==0'; or sarathi-strict, "
                     "sarathi-relaxed: the objectives of Sarathi-Serve, 5 and 25 times a step of 32 decodes behind "
                     "4,096 tokens as p99(tbt), and p50(delay)<=2s"});
    v.Field("over", over, {.choices = "rate|concurrency", .help = "what is searched: --rate or --concurrency"});
    v.Field("from", from, {.min = 0, .max = 1e6, .help = "the lowest value that is tried; 0: 0.01 requests/s, or 1"});
    v.Field("to", to, {.min = 0, .max = 1e6, .help = "the highest; 0: 10,000 requests/s, or 65,536 in flight"});
    v.Field("tolerance", tolerance,
            {.unit = "%",
             .min = 0.01,
             .max = 50,
             .help = "how far the highest that held may be below the lowest that broke"});
    v.Field(
        "csv", csv,
        {.help = "a table with a row per configuration and seed, written as each is found: its capacity, what broke "
                 "above it, and every metric at the capacity. A file that the same search began is gone on with"});
    SimManyOptions::VisitFields(v);
  }
};

// One value that was tried.
struct Probe {
  double value = 0;
  std::vector<results::RunCondition::Verdict> verdicts;
  Json result;
  std::string nothing_completed;  // why, where that is so
  bool held() const {
    return nothing_completed.empty() &&
           std::all_of(verdicts.begin(), verdicts.end(), [](const auto& verdict) { return verdict.held; });
  }
};

struct SeedOutcome {
  Status status;  // not ok: a run could not be made
  sim::Largest found;
  std::optional<Probe> held, broke;  // of what --csv had found before: their values alone
  std::string none;                  // why it has no capacity, where --csv had found that before
  std::string breaks;                // each clause that the least that broke broke, with its value
  std::optional<double> cost;        // per million tokens, at the capacity
};

// What is asked of one configuration.
struct CapacityCase {
  SimCase of;
  std::string name;  // of what is varied; may be empty
  Status status;     // not ok: it cannot be set up
  std::optional<results::RunCondition> condition;
  int64_t requests = 0;  // of its load
  std::vector<SeedOutcome> seeds;
};

// kInvalidArgument: what is asked makes no sense, with the flag as param.
Status CheckCapacity(const CapacityOptions& options, const std::vector<VariedFlag>& varied);
// Sets every configuration up, then searches. A single configuration's error is the answer; of several each keeps its
// own. Says on stderr what it tries. Ctrl-C: what is known so far, also in --csv. kDataLoss: that could not be written.
Result<std::vector<CapacityCase>> FindCapacities(const CapacityOptions& options, const std::vector<VariedFlag>& varied);

// Why a configuration has no capacity; "": it has one.
std::string WhyNone(const CapacityOptions& options, const CapacityCase& of);
// The largest value that held, of each seed; of a configuration that has a capacity.
std::vector<double> HeldValues(const CapacityCase& of);
std::string ValueText(const CapacityOptions& options, double value);  // "3.2 requests/s", "14 in flight"
// {options, until, capacity: {mean, low, high}, why_none, of_first, seeds: [{seed, held, broke}]}
Json CapacityJson(const CapacityOptions& options, const std::vector<VariedFlag>& varied, const CapacityCase& of,
                  const CapacityCase& first);

}  // namespace tactus::cli
