// The order in which a plan's requests start: from the left end, or from both ends of a row sorted by density, with
// compute-heavy requests on the left and memory-heavy ones on the right (BlendServe, 3.4).
//
// The paper splits KV memory M between the two ends so that their running requests together have the job's density:
//
//   M_L + M_R = M        M_L rho_L + M_R rho_R = M rho_job
//
// Here the next request comes from the end that brings the density of all started requests closer to the job's. Over
// any stretch the ends' memory times are then in the ratio M_L to M_R (a test has the paper's example). The rest is
// ours: shares of started work, not of held memory. An estimate that is wrong by a factor then changes nothing, since
// both ends still finish together; with shares of memory, underestimated requests hold memory longer, and one end
// finishes first. And the order is known before anything runs, so that it can feed a queue of any length.
//
// An answer as long as the remaining tokens per sequence of the device starts at once, out of turn: started later, it
// would run alone while the device idles. If that would concern more than a quarter of the sequences, turns are kept:
// such answers are then the bulk of the job, and starting them out of turn would unbalance it (ours).
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/plan.h"

namespace tactus::offline {

// The compute time by which the started requests are denser than the job: the sum of compute - rho_job x memory. Above
// 0 the memory-heavy end is due.
class StartBalance {
 public:
  explicit StartBalance(const Plan& plan);
  // The contribution of the request at the position. `plan` must be the constructor's.
  double SecondsOf(const Plan& plan, int32_t position) const;

 private:
  bool ignores_prefixes_ = false;
  double density_ = 0;  // of the whole job, as the plan's order counts it
};

// Positions of the plan. `ahead_s`: the balance of requests started earlier. `sequences`: number that run at once; 0:
// not known, and no long answer is started early.
std::vector<int32_t> StartOrder(const Plan& plan, const StartBalance& balance, double ahead_s = 0,
                                double sequences = 0);
inline std::vector<int32_t> StartOrder(const Plan& plan) {
  return StartOrder(plan, StartBalance(plan));
}

}  // namespace tactus::offline
