#include "offline/plan/job_feed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "offline/plan/plan_order.h"
#include "offline/plan/start_order.h"

namespace tactus::offline {
namespace {

// Rounds to an integer, at least 0; NaN gives 0.
int32_t Whole(double value) {
  if (!(value > 0)) return 0;
  return static_cast<int32_t>(std::clamp(std::round(value), 0.0, double{std::numeric_limits<int32_t>::max()}));
}

}  // namespace

JobFeed::JobFeed(std::shared_ptr<const PromptSet> prompts, PrefixTree tree, const BatchCostModel& cost,
                 const FeedOptions& options, std::vector<int32_t> elsewhere)
    : prompts_(std::move(prompts)),
      cost_(cost),
      options_(options),
      tree_(std::move(tree)),
      measured_(std::move(elsewhere)),
      state_(measured_.size(), State::kWaits) {
  TACTUS_CHECK(static_cast<int32_t>(measured_.size()) == prompts_->size());
  for (size_t i = 0; i < state_.size(); ++i) {
    if (measured_[i] == kToRun) {
      measured_[i] = 0;
      ++to_run_;
    } else {
      state_[i] = State::kElsewhere;
      any_measured_ |= measured_[i] > 0;
    }
  }
  left_ = to_run_;
  if (options_.plan.order == PlanOrder::kBlendDualScan) end_of_.assign(state_.size(), PlanEnd::kNone);
  if (NeedsLengths(options_.plan.order) && options_.sample.share > 0) {
    sample_ = ChooseSample(tree_, *prompts_, options_.sample);
    std::erase_if(sample_, [this](int32_t request) { return state_[Index(request)] != State::kWaits; });
    sample_left_ = static_cast<int32_t>(sample_.size());
    plan_again_at_ = sample_left_ / 2;
  }
}

void JobFeed::MakePlan() {
  const TimeNs begin_ns = options_.stopwatch != nullptr ? options_.stopwatch->NowNs() : 0;
  const bool begins = !plan_ || lengths_are_limits_;  // the balance of a plan by max_tokens is meaningless
  if (plan_) tree_ = std::move(*plan_).TakeTree();
  plan_.reset();
  std::vector<int32_t>().swap(order_);
  std::vector<int32_t> outputs = Estimate();
  CountWork(outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (state_[i] != State::kWaits) outputs[i] = 0;
  }
  plan_ = Plan::Make(std::move(tree_), cost_, outputs, options_.plan);
  balance_.emplace(*plan_);
  if (begins) ahead_s_ = 0;
  if (end_of_.empty()) order_ = StartOrder(*plan_, *balance_, ahead_s_, plan_->sequences_at_once());
  left_at_ = 0;
  right_at_ = plan_->size() - 1;
  // Planned requests share as planned; those already handed out are assumed to share as much.
  const NodeTotals& totals = plan_->totals();
  double alone_s = 0;
  for (int32_t i = 0; i < plan_->size(); ++i) alone_s += SecondsOf(plan_->RequestAt(i), plan_->OutputAt(i));
  if (alone_s > 0) bound_s_ = work_s_ * (totals.compute_s + totals.memory_s) / alone_s;
  at_ = 0;
  stale_ = false;
  lengths_are_limits_ = !any_measured_;
  if (options_.stopwatch != nullptr) planning_ns_ += options_.stopwatch->NowNs() - begin_ns;
}

std::vector<int32_t> JobFeed::Estimate() {
  if (sample_left_ == 0 || sample_longest_ == 0) return EstimateOutputs(tree_, *prompts_, measured_);
  std::vector<int32_t> known = measured_;
  for (const int32_t request : sample_) {
    if (state_[Index(request)] == State::kStarted) known[Index(request)] = -sample_longest_;
  }
  return EstimateOutputs(tree_, *prompts_, known);
}

void JobFeed::CountWork(const std::vector<int32_t>& outputs) {
  work_s_ = 0;
  for (int32_t i = 0; i < prompts_->size(); ++i) {
    if (state_[Index(i)] != State::kElsewhere) work_s_ += SecondsOf(i, outputs[Index(i)]);
  }
}

double JobFeed::SecondsOf(int32_t request, int32_t output_tokens) const {
  const int32_t prompt_tokens = prompts_->prompt_tokens(request);
  return cost_.ComputeSeconds(prompt_tokens, output_tokens) + cost_.MemorySeconds(prompt_tokens, output_tokens);
}

std::optional<Start> JobFeed::Next() {
  while (sample_at_ < sample_.size()) {
    const int32_t request = sample_[sample_at_++];
    if (handed_out(request)) continue;
    Take(request);
    return Start{request, {}};
  }
  if (left_ == 0) return std::nullopt;
  if (stale_) MakePlan();
  if (!end_of_.empty()) return NextOfBothEnds();
  while (true) {
    const int32_t position = order_[at_++], request = plan_->RequestAt(position);
    if (handed_out(request)) continue;
    Take(request);
    ahead_s_ += balance_->SecondsOf(*plan_, position);
    return Start{request, {.position = placed_++, .kv_tokens = KvTokensAt(position)}};
  }
}

Start JobFeed::NextOfBothEnds() {
  while (handed_out(plan_->RequestAt(left_at_))) ++left_at_;
  while (handed_out(plan_->RequestAt(right_at_))) --right_at_;
  const auto of = [this](PlanEnd end) -> int32_t& { return of_end_[static_cast<size_t>(end)]; };
  const PlanEnd end = of(PlanEnd::kLeft) <= of(PlanEnd::kRight) ? PlanEnd::kLeft : PlanEnd::kRight;
  const int32_t position = end == PlanEnd::kLeft ? left_at_ : right_at_, request = plan_->RequestAt(position);
  Take(request);
  end_of_[Index(request)] = end;
  ++of(end);
  const double job_density = plan_->totals().density();
  PlannedPlace place{.position = placed_++, .kv_tokens = KvTokensAt(position), .end = end};
  if (job_density > 0) place.density = Whole(1e6 * plan_->UnitDensityAt(position) / job_density);
  place.step_tokens = Whole(StepTokens());
  return {request, place};
}

// The compute tokens that balance one reading of the whole KV memory at the job's density: M rho, in tokens.
double JobFeed::StepTokens() const {
  const double token_s = cost_.flops_per_token / cost_.flops_per_s;
  const double read_s = cost_.kv_bytes_per_token / cost_.bytes_per_s * static_cast<double>(options_.plan.kv_tokens);
  return plan_->totals().density() * read_s / token_s;
}

void JobFeed::Take(int32_t request) {
  TACTUS_CHECK(!handed_out(request));
  state_[Index(request)] = State::kStarted;
  --left_;
}

// Unknown lengths reserve no memory: max_tokens would keep most of it empty.
int32_t JobFeed::KvTokensAt(int32_t position) const {
  const int32_t request = plan_->RequestAt(position);
  return lengths_are_limits_ && !prompts_->output_is_known(request) ? prompts_->prompt_tokens(request)
                                                                    : plan_->KvTokensAt(position);
}

void JobFeed::OnDone(int32_t request, int32_t output_tokens) {
  TACTUS_CHECK(state_[Index(request)] == State::kStarted);
  state_[Index(request)] = State::kDone;
  measured_[Index(request)] = output_tokens;
  if (!end_of_.empty() && end_of_[Index(request)] != PlanEnd::kNone) {  // none: it belongs to the sample
    --of_end_[static_cast<size_t>(end_of_[Index(request)])];
  }
  any_measured_ |= output_tokens > 0;
  done_s_ += SecondsOf(request, output_tokens);
  if (sample_left_ == 0 || !std::binary_search(sample_.begin(), sample_.end(), request)) return;
  sample_longest_ = std::max(sample_longest_, output_tokens);
  if (--sample_left_ > plan_again_at_) return;
  plan_again_at_ = sample_left_ / 2;
  stale_ = true;
}

PlanSummary JobFeed::Summary(const OverlapFit& overlap) const {
  const PrefixTree& tree = plan_ ? plan_->tree() : tree_;
  std::vector<int32_t> outputs = EstimateOutputs(tree, *prompts_, measured_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (state_[i] == State::kElsewhere) outputs[i] = 0;
  }
  return Summarize(Plan::Make(tree, cost_, outputs, options_.plan), overlap, options_.plan.kv_tokens);
}

}  // namespace tactus::offline
