// Classes of requests, each with objectives of its own (`--slo-mix`, docs/workloads.md). Requests are of a class by
// share, or by the part of a `mix:` workload that they come from. One seed draws one class and one set of objectives
// for a request, whatever its arrivals and scheduler. Plain data; no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/step_time_model.h"
#include "sim/workload.h"

namespace tactus::sim {

inline constexpr size_t kMostClassNameBytes = 64;  // of Request::slo_class, as the API has it

// Uniform in [low, high]; of each request anew.
struct ObjectiveRange {
  double low = 0, high = 0;  // nanoseconds, or multiples of the latency alone; high 0: no objective
  bool times_alone = false;
};

struct SloClass {
  std::string name;
  double share = 0;  // above 0, against the sum of all; 0: those that the workload says are of this class
  ObjectiveRange ttft, tbt, jct;
};

struct SloMix {
  std::vector<SloClass> classes;  // none: no request is given anything
  bool needs_latency_alone() const;
  bool by_workload() const { return !classes.empty() && classes.front().share == 0; }  // all classes or none
};

// "TTFT 10 times alone, gap 140 to 234 ms"; "none" of a class without objectives.
std::string ObjectivesText(const SloClass& c);

// kInvalidArgument, param "slo-mix", for classes without shares that are no parts of the workload.
Status CheckClasses(const SloMix& mix, const WorkloadSpec& workload);

// What a request takes when it has the machine to itself: to its first token, from a token to the next at most, to its
// end. All above 0.
using LatencyAlone = std::function<Slo(const WorkloadRequest&)>;

// The same by a step-time model: its prompt in one step, then a step for each further token.
Slo AloneBy(const StepTimeModel& model, const WorkloadRequest& request);

// Gives the request its class and its objectives; none where classes go by the workload and its own is not among them.
// Those of a conversation are of one class. `alone` may be null where
// nothing needs it. Precondition: the mix has classes.
void DrawObjectives(const SloMix& mix, uint64_t seed, const LatencyAlone& alone, WorkloadRequest* request);

// The stream with objectives; without classes the stream itself.
std::unique_ptr<WorkloadStream> WithObjectives(std::unique_ptr<WorkloadStream> stream, const SloMix& mix, uint64_t seed,
                                               const LatencyAlone& alone);

}  // namespace tactus::sim
