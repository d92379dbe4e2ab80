// Finds the largest load (rate or concurrency) at which a condition on the run still holds, for each configuration and
// seed separately and in parallel. Used by `tactus sim capacity` and `tactus fit`.
// Thread rule: main thread; runs use their own threads.
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
            {.help = "the condition: 'p99(tbt)<=100ms and p50(delay)<=2s and rejected==0'; or sarathi-strict, "
                     "sarathi-relaxed: the objectives of Sarathi-Serve, p99(tbt) at most 5 or 25 times a step of 32 "
                     "decodes after 4,096 tokens, and p50(delay)<=2s"});
    v.Field("over", over, {.choices = "rate|concurrency", .help = "the load to search for: --rate or --concurrency"});
    v.Field("from", from,
            {.min = 0, .max = 1e6, .help = "the lowest value to try; 0: 0.01 requests/s, or 1 in flight"});
    v.Field("to", to,
            {.min = 0, .max = 1e6, .help = "the highest value to try; 0: 10,000 requests/s, or 65,536 in flight"});
    v.Field("tolerance", tolerance,
            {.unit = "%",
             .min = 0.01,
             .max = 50,
             .help = "largest gap between the highest value that held and the lowest that failed"});
    v.Field("csv", csv,
            {.help = "a table with one row per configuration and seed, written as each is found: its capacity, what "
                     "failed above it, and every metric at the capacity. The same search resumes from its file"});
    SimManyOptions::VisitFields(v);
  }
};

// The outcome at one value.
struct Probe {
  double value = 0;
  std::vector<results::RunCondition::Verdict> verdicts;
  Json result;
  std::string nothing_completed;  // the reason, if no request completed
  bool held() const {
    return nothing_completed.empty() &&
           std::all_of(verdicts.begin(), verdicts.end(), [](const auto& verdict) { return verdict.held; });
  }
};

struct SeedOutcome {
  Status status;  // not ok: a run failed
  sim::Largest found;
  std::optional<Probe> held, broke;  // results from --csv have only the values
  std::string none;                  // why it has no capacity, from --csv
  std::string breaks;                // each clause that failed at the smallest failing value, with its result
  std::optional<double> cost;        // per million tokens, at the capacity
};

// The search for one configuration.
struct CapacityCase {
  SimCase of;
  std::string name;  // names the varied values; may be empty
  Status status;     // not ok: the configuration is invalid
  std::optional<results::RunCondition> condition;
  int64_t requests = 0;  // in its load
  std::vector<SeedOutcome> seeds;
};

// kInvalidArgument: the options contradict each other; the flag is the param.
Status CheckCapacity(const CapacityOptions& options, const std::vector<VariedFlag>& varied);
// Sets up every configuration, then searches. With a single configuration its error is returned; with several each case
// has its own. Prints the values tried to stderr. Ctrl-C: returns the results so far, which --csv has too. kDataLoss:
// the CSV file could not be written.
Result<std::vector<CapacityCase>> FindCapacities(const CapacityOptions& options, const std::vector<VariedFlag>& varied);

// Why a configuration has no capacity; empty if it has one.
std::string WhyNone(const CapacityOptions& options, const CapacityCase& of);
// The largest value that held, for each seed; the configuration must have a capacity.
std::vector<double> HeldValues(const CapacityCase& of);
std::string ValueText(const CapacityOptions& options, double value);  // "3.2 requests/s", "14 in flight"
// {options, until, capacity: {mean, low, high}, why_none, of_first, seeds: [{seed, held, broke}]}
Json CapacityJson(const CapacityOptions& options, const std::vector<VariedFlag>& varied, const CapacityCase& of,
                  const CapacityCase& first);

}  // namespace tactus::cli
