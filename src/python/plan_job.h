// The planner of offline jobs (offline/plan/plan.h) for Python: prompts one by one, then a plan as plain values.
// Thread rule: one thread at a time.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "offline/plan/cost_model.h"
#include "offline/plan/prompt_set.h"

namespace tactus::python {

struct JobPlanOptions {
  offline::BatchCostModel cost;
  std::string order;  // one of offline::PlanOrderNames()
  int32_t shards = 1;
  int64_t kv_tokens = 0;
  double split_share = 0;
  double overlap_linear = 0, overlap_quadratic = 0;
  uint64_t seed = 0;
};

class PlannedJob {
 public:
  explicit PlannedJob(int64_t memory_limit_bytes) : prompts_(memory_limit_bytes) {}
  PlannedJob(const PlannedJob&) = delete;
  PlannedJob& operator=(const PlannedJob&) = delete;
  // Throws StatusError.
  void Add(const std::vector<TokenId>& prompt, int32_t max_tokens, bool exactly, uint32_t group);
  // {"order", "start_order", "places", "shards", "summary"}; call once. Within a Call; releases the GIL while it plans.
  nanobind::dict Plan(const JobPlanOptions& options);

 private:
  offline::PromptSet prompts_;
};

}  // namespace tactus::python
