#include "python/plan_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "offline/plan/output_lengths.h"
#include "offline/plan/plan.h"
#include "offline/plan/plan_order.h"
#include "offline/plan/plan_summary.h"
#include "offline/plan/shards.h"
#include "offline/plan/start_order.h"
#include "python/calls.h"

namespace tactus::python {

namespace nb = nanobind;

namespace {

offline::PlanOrder OrderOf(const std::string& name) {
  if (const auto order = offline::FindPlanOrder(name)) return *order;
  throw StatusError(InvalidArgument(
      fmt::format("order: '{}' is not one of: {}", Printable(name), offline::PlanOrderNames()), "order"));
}

// The result for Python, computed without the GIL.
struct Planned {
  std::vector<int32_t> order, start_order;  // requests
  std::vector<PlannedPlace> places;         // [start]
  std::vector<std::vector<int32_t>> shards;
  offline::PlanSummary summary;
};

std::vector<int32_t> RequestsAt(const offline::Plan& plan, const std::vector<int32_t>& positions) {
  std::vector<int32_t> requests;
  requests.reserve(positions.size());
  for (const int32_t position : positions) requests.push_back(plan.RequestAt(position));
  return requests;
}

Planned Make(const offline::PromptSet& prompts, const JobPlanOptions& o) {
  Check(o.cost.Check());
  offline::PlanOptions options;
  options.order = OrderOf(o.order);
  options.split_share = o.split_share;
  options.seed = o.seed;
  offline::PrefixTree tree = offline::PrefixTree::Build(prompts);
  const std::vector<int32_t> outputs = offline::EstimateOutputs(tree, prompts, {});
  Planned made;
  const std::vector<int32_t> shard_of = Take(offline::AssignShards(tree, o.cost, outputs, o.shards));
  made.shards.resize(static_cast<size_t>(o.shards));
  const offline::Plan plan = offline::Plan::Make(std::move(tree), o.cost, outputs, options);
  for (int32_t i = 0; i < plan.size(); ++i) made.order.push_back(plan.RequestAt(i));
  const std::vector<int32_t> starts = offline::StartOrder(plan);
  made.start_order = RequestsAt(plan, starts);
  for (const int32_t position : starts) {
    made.places.push_back({static_cast<int32_t>(made.places.size()), plan.KvTokensAt(position)});
  }
  for (const int32_t request : made.order) {
    made.shards[static_cast<size_t>(shard_of[static_cast<size_t>(request)])].push_back(request);
  }
  made.summary = offline::Summarize(plan, {o.overlap_linear, o.overlap_quadratic}, o.kv_tokens);
  return made;
}

nb::list ListOf(const std::vector<int32_t>& values) {
  nb::list list;
  for (const int32_t value : values) list.append(value);
  return list;
}

nb::dict SummaryOf(const offline::PlanSummary& s) {
  nb::dict d;
  d["requests"] = s.requests;
  d["prompt_tokens"] = s.prompt_tokens;
  d["output_tokens"] = s.output_tokens;
  d["compute_s"] = s.compute_s;
  d["memory_s"] = s.memory_s;
  d["density"] = s.density;
  d["optimal_sharing"] = s.optimal_sharing;
  d["planned_sharing"] = s.planned_sharing;
  d["planned_compute_s"] = s.planned_compute_s;
  d["bound_s"] = s.bound_s;
  d["practical_bound_s"] = s.practical_bound_s;
  d["sequential_s"] = s.sequential_s;
  return d;
}

}  // namespace

void PlannedJob::Add(const std::vector<TokenId>& prompt, int32_t max_tokens, bool exactly, uint32_t group) {
  const auto bad = std::find_if(prompt.begin(), prompt.end(), [](TokenId token) { return token < 0; });
  if (bad != prompt.end())
    throw StatusError(InvalidArgument(fmt::format("prompts: {} is not a token id", *bad), "prompts"));
  if (prompt.empty())
    throw StatusError(InvalidArgument("prompts: a prompt has no tokens; give at least one", "prompts"));
  Check(prompts_.Add(prompt, {max_tokens, exactly, group}));
}

nb::dict PlannedJob::Plan(const JobPlanOptions& options) {
  const Planned made = Away([&] { return Make(prompts_, options); });
  nb::list places, shards;
  for (const PlannedPlace& p : made.places) places.append(nb::make_tuple(p.position, p.kv_tokens));
  for (const auto& shard : made.shards) shards.append(ListOf(shard));
  nb::dict result;
  result["order"] = ListOf(made.order);
  result["start_order"] = ListOf(made.start_order);
  result["places"] = places;
  result["shards"] = shards;
  result["summary"] = SummaryOf(made.summary);
  return result;
}

}  // namespace tactus::python
