// In which order a plan's requests start: from the left end, or from both ends of a row that lies sorted by density,
// compute-heavy requests on the left and memory-heavy ones on the right (BlendServe, 3.4).
//
// The paper splits KV memory M between the two ends so that what they run is together as dense as the job:
//
//   M_L + M_R = M        M_L rho_L + M_R rho_R = M rho_job
//
// Here the next request comes from the end that brings all that has been started nearer to the job's density. Over any
// stretch the memory times that the ends get are then as M_L to M_R (a test has the paper's example). What the two do
// otherwise is ours: shares of work that has been started, not of memory that is held. An estimate that is off by a
// factor then changes nothing, since both ends still come to their end together; a share of memory is held for longer
// than was thought, and one end runs out first. And the order is known before anything runs, so that a queue of any
// length can be fed with it.
//
// An answer that is as long as what is left for each sequence of the device is begun at once, whosever turn it is:
// begun later, it would run on alone while the device idles. Where more than a quarter of the sequences would be taken
// that way, turns go on: such answers are what the job consists of, and out of turn they would unbalance it (ours).
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/plan.h"

namespace tactus::offline {

// By how much compute time what has been started is denser than the job: the sum of compute - rho_job x memory. More
// than 0: the memory-heavy end is due.
class StartBalance {
 public:
  explicit StartBalance(const Plan& plan);
  // What the request at the position adds. `plan` is the same one.
  double SecondsOf(const Plan& plan, int32_t position) const;

 private:
  bool ignores_prefixes_ = false;
  double density_ = 0;  // of the whole, as the plan's order counts
};

// Positions of the plan. `ahead_s`: the balance of what has been started before. `sequences`: that run beside each
// other; 0: not known, and nothing is begun early for its length.
std::vector<int32_t> StartOrder(const Plan& plan, const StartBalance& balance, double ahead_s = 0,
                                double sequences = 0);
inline std::vector<int32_t> StartOrder(const Plan& plan) {
  return StartOrder(plan, StartBalance(plan));
}

}  // namespace tactus::offline
