// Classes of requests with objectives per class (`--slo-mix`, docs/reference/workloads.md). A request's class is drawn
// by share, or is the part of a `mix:` workload that it comes from. One seed draws the same class and objectives for a
// request, whatever its arrivals and scheduler. Plain data; no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/step_time_model.h"
#include "sim/workload/workload.h"

namespace tactus::sim {

inline constexpr size_t kMostClassNameBytes = 64;  // limit of Request::slo_class, as in the API

// Uniform in [low, high], drawn per request.
struct ObjectiveRange {
  double low = 0, high = 0;  // nanoseconds, or multiples of the latency alone; high 0: no objective
  bool times_alone = false;
};

struct SloClass {
  std::string name;
  double share = 0;  // above 0, relative to the sum of all shares; 0: the class is given by the workload
  ObjectiveRange ttft, tbt, jct;
};

struct SloMix {
  std::vector<SloClass> classes;  // empty: no request gets a class or objectives
  bool needs_latency_alone() const;
  bool by_workload() const { return !classes.empty() && classes.front().share == 0; }  // all classes or none
};

// "TTFT 10 times the latency alone, gap 140 to 234 ms"; "none" for a class without objectives.
std::string ObjectivesText(const SloClass& c);

// kInvalidArgument, param "slo-mix": classes without shares that are not parts of the workload.
Status CheckClasses(const SloMix& mix, const WorkloadSpec& workload);

// Latencies of a request on an idle machine: to the first token, longest gap between tokens, to the end. All above 0.
using LatencyAlone = std::function<Slo(const WorkloadRequest&)>;

// The same from a step-time model: the prompt in one step, then one step per further token.
Slo AloneBy(const StepTimeModel& model, const WorkloadRequest& request);

// Sets the request's class and objectives; none if classes come from the workload and the request's is not in the mix.
// All turns of a conversation have one class. `alone` may be null if it is not needed. Precondition: the mix has
// classes.
void DrawObjectives(const SloMix& mix, uint64_t seed, const LatencyAlone& alone, WorkloadRequest* request);

// The stream with objectives added; without classes the stream unchanged.
std::unique_ptr<WorkloadStream> WithObjectives(std::unique_ptr<WorkloadStream> stream, const SloMix& mix, uint64_t seed,
                                               const LatencyAlone& alone);

}  // namespace tactus::sim
