#include "sim/simulator/planned_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/step_rates.h"
#include "cost/cost_model.h"
#include "offline/plan/plan_order.h"
#include "offline/plan/shards.h"
#include "sim/workload/prompt_keys.h"

namespace tactus::sim {

offline::BatchCostModel CostOfSteps(const StepTimeModel& times, const cost::CostModel* meter, int32_t step_tokens) {
  offline::BatchCostModel cost{.flops_per_token = 1, .kv_bytes_per_token = 1};
  if (meter != nullptr) {
    constexpr int32_t kLong = 4096;
    const auto flops = [&](int32_t tokens) {
      const ChunkShape chunk{.tokens = tokens};
      return meter->StepFlops({.chunks = {&chunk, 1}});
    };
    const auto bytes = [&](int64_t context) {
      return meter->StepBytes({.decodes = 1, .decode_context_tokens = context});
    };
    cost.flops_per_token = flops(1);
    cost.attention_flops = std::max(0.0, flops(kLong) - kLong * flops(1)) / (double{kLong} * kLong);
    cost.kv_bytes_per_token = (bytes(2 * kLong) - bytes(kLong)) / kLong;
  }
  const StepRates rates = RatesOf(times, step_tokens);
  cost.flops_per_s = cost.flops_per_token / rates.prompt_token_s;
  // For steps whose time does not grow with context: memory time is negligible.
  cost.bytes_per_s = cost.kv_bytes_per_token / std::max(rates.kv_token_s, 1e-15);
  return cost;
}

Result<std::unique_ptr<PlannedJob>> PlannedJob::Create(const PlannedLoad& load, const PlannedEngine& engine,
                                                       WorkloadStream* workload) {
  TACTUS_RETURN_IF_ERROR(load.cost.Check());
  std::unique_ptr<PlannedJob> job(new PlannedJob(load, engine));
  job->order_ = offline::FindPlanOrder(engine.order).value_or(offline::PlanOrder::kFcfs);
  auto prompts = std::make_shared<offline::PromptSet>(0, engine.block_size);
  TACTUS_RETURN_IF_ERROR(job->Read(workload, prompts.get()));
  TACTUS_RETURN_IF_ERROR(job->Plan(std::move(prompts)));
  return job;
}

Status PlannedJob::Read(WorkloadStream* workload, offline::PromptSet* prompts) {
  std::vector<Hash128> keys;
  for (WorkloadRequest r; workload->Next(&r); requests_.push_back(std::move(r))) {
    if (r.conversation >= 0) {
      return InvalidArgument(
          "turns of a conversation depend on its answers, so they cannot be an offline job: leave --offline out, or "
          "give another workload",
          "offline");
    }
    const auto prompt = static_cast<int32_t>(std::min<int64_t>(r.prompt_tokens, engine_.max_model_len));
    keys.clear();
    if (engine_.prefix_caching && SharesText(r)) AppendPromptKeys(r, prompt, engine_.block_size, &keys);
    offline::RequestTraits traits;
    const int64_t room = std::max<int64_t>(1, engine_.max_model_len - prompt);
    traits.output_is_known = load_.lengths_known;
    traits.max_output_tokens =
        static_cast<int32_t>(std::min(load_.lengths_known ? r.output_tokens : engine_.default_max_tokens, room));
    TACTUS_RETURN_IF_ERROR(prompts->AddKeys(keys, prompt, traits));
  }
  return Status();
}

Status PlannedJob::Plan(std::shared_ptr<offline::PromptSet> prompts) {
  const TimeNs begin_ns = engine_.stopwatch != nullptr ? engine_.stopwatch->NowNs() : 0;
  tree_ = offline::PrefixTree::Build(*prompts);
  prompts->DropKeys();
  TACTUS_ASSIGN_OR_RETURN(
      const std::vector<int32_t> shard_of,
      offline::AssignShards(tree_, load_.cost, offline::EstimateOutputs(tree_, *prompts, {}), engine_.replicas));
  offline::FeedOptions options;
  options.plan = PlanOptions();
  options.sample = {.share = load_.sample_share, .seed = load_.seed};
  options.stopwatch = engine_.stopwatch;
  for (int32_t replica = 0; replica < engine_.replicas; ++replica) {
    std::vector<int32_t> elsewhere(shard_of.size(), 0);
    for (size_t i = 0; i < shard_of.size(); ++i) {
      if (shard_of[i] == replica) elsewhere[i] = offline::kToRun;
    }
    feeds_.emplace_back(prompts, tree_, load_.cost, options, std::move(elsewhere));
    sample_ += feeds_.back().sample_size();
  }
  outputs_.assign(requests_.size(), 0);
  if (engine_.stopwatch != nullptr) planning_ns_ = engine_.stopwatch->NowNs() - begin_ns;
  return Status();
}

offline::PlanOptions PlannedJob::PlanOptions() const {
  return {.order = order_,
          .seed = load_.seed,
          .sequences = engine_.max_num_seqs,
          .kv_tokens = engine_.kv_tokens,
          .shared_reads = engine_.shared_reads};
}

std::optional<PlannedJob::Start> PlannedJob::Next(int32_t replica) {
  const auto start = feeds_[static_cast<size_t>(replica)].Next();
  if (!start) return std::nullopt;
  return Start{&requests_[static_cast<size_t>(start->request)], start->request, start->place};
}

void PlannedJob::OnDone(int32_t replica, int32_t number, int32_t output_tokens) {
  outputs_[static_cast<size_t>(number)] = output_tokens;
  feeds_[static_cast<size_t>(replica)].OnDone(number, output_tokens);
}

PlanFigures PlannedJob::Figures(double run_s) const {
  const offline::Plan plan = offline::Plan::Make(tree_, load_.cost, outputs_, PlanOptions());
  const offline::PlanSummary summary = offline::Summarize(plan, load_.overlap, engine_.kv_tokens);
  PlanFigures figures = offline::FiguresOf(summary, true, 1.0 / engine_.replicas, run_s);
  figures.order = offline::NameOf(order_);
  figures.sample = sample_;
  figures.key_tokens = engine_.block_size;
  DurationNs planning_ns = planning_ns_;
  for (const offline::JobFeed& feed : feeds_) planning_ns += feed.planning_ns();
  figures.planning_s = static_cast<double>(planning_ns) * 1e-9;
  return figures;
}

}  // namespace tactus::sim
