#include "offline/job/line_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "offline/job/line_request.h"
#include "offline/plan/shards.h"

namespace tactus::offline {
namespace {

constexpr int64_t kLinesAtOnce = 256;

RequestTraits TraitsOf(const Request& request, uint32_t group) {
  const StopConditions& stop = request.stop;
  RequestTraits traits;
  traits.max_output_tokens = static_cast<int32_t>(std::clamp<int64_t>(stop.max_tokens, 1, int64_t{1} << 28));
  traits.output_is_known = stop.ignore_eos && stop.stop_token_ids.empty() && stop.stop.empty();
  traits.group = group;
  return traits;
}

}  // namespace

bool IsRated(const ModelInfo& model) {
  return model.prompt_token_s > 0 && model.kv_token_s > 0;
}

BatchCostModel CostOf(const ModelInfo& model) {
  BatchCostModel cost;
  cost.flops_per_token = 2 * static_cast<double>(std::max<int64_t>(1, model.num_parameters));
  cost.attention_flops = 4 * static_cast<double>(model.hidden_size * model.num_layers);
  cost.kv_bytes_per_token = static_cast<double>(std::max<int64_t>(1, model.kv_bytes_per_token));
  cost.flops_per_s = cost.bytes_per_s = 1;
  if (IsRated(model)) {
    cost.flops_per_s = cost.flops_per_token / model.prompt_token_s;
    cost.bytes_per_s = cost.kv_bytes_per_token / model.kv_token_s;
  }
  return cost;
}

LineOrder::LineOrder(Job* job, Engine* engine, const api::RequestLimits& limits, std::string url,
                     const OrderOptions& options, Clock* clock)
    : job_(*job), engine_(*engine), limits_(limits), url_(std::move(url)), options_(options), clock_(*clock) {}

Status LineOrder::Plan(const std::function<bool(int64_t lines)>& go_on) {
  const bool cuts = options_.shards > 1 && job_.cut().empty();
  if (options_.order == PlanOrder::kFcfs && !cuts) return Status();
  const TimeNs begin_ns = clock_.NowNs();
  auto prompts = std::make_shared<PromptSet>(options_.memory_bytes, options_.key_tokens);
  TACTUS_RETURN_IF_ERROR(ReadLines(go_on, prompts.get()));
  const TimeNs read_ns = clock_.NowNs();
  report_.reading_ns = read_ns - begin_ns;
  report_.key_tokens = prompts->key_tokens();
  report_.coarsened = prompts->coarsened();
  PrefixTree tree = PrefixTree::Build(*prompts);
  prompts->DropKeys();
  if (cuts) TACTUS_RETURN_IF_ERROR(Cut(tree, *prompts));
  if (options_.order == PlanOrder::kFcfs) return Status();

  FeedOptions feed;
  feed.plan.order = options_.order;
  feed.plan.seed = options_.seed;
  feed.sample = {.share = options_.sample_share, .seed = options_.seed};
  feed.plan.kv_tokens = options_.kv_tokens;
  feed.plan.sequences = options_.sequences;
  feed.plan.shared_reads = options_.shared_reads;
  feed.stopwatch = &clock_;
  feed_ = std::make_unique<JobFeed>(prompts, std::move(tree), CostOf(engine_.model()), feed, std::move(elsewhere_));
  report_.requests = feed_->size();
  report_.sample = feed_->sample_size();
  report_.planning_ns = clock_.NowNs() - read_ns;
  return Status();
}

Status LineOrder::ReadLines(const std::function<bool(int64_t lines)>& go_on, PromptSet* prompts) {
  for (int64_t last = 0, read = 0;;) {
    TACTUS_ASSIGN_OR_RETURN(const std::vector<LineState> lines, job_.Lines(last, kLinesAtOnce));
    if (lines.empty()) return Status();
    for (const LineState& line : lines) {
      if (!go_on(read++)) return Status(StatusCode::kCancelled, "interrupted while the job was planned");
      last = line.place.number;
      TACTUS_ASSIGN_OR_RETURN(const LineRequest request,
                              ReadLineRequest(job_, line.place, &engine_, limits_, ReadFor::kPlan, url_));
      if (!request.status.ok()) {
        if (line.state == LineState::kWaits) not_asked_.push_back(last);
        continue;
      }
      lines_.push_back({last, requests_});
      TACTUS_RETURN_IF_ERROR(AddRequests(request.prepared, prompts));
      const int32_t count = requests_ - lines_.back().first;
      int32_t elsewhere = kToRun;
      if (line.state != LineState::kWaits)
        elsewhere = static_cast<int32_t>(std::min<int64_t>(line.output_tokens / count, 1 << 28));
      elsewhere_.insert(elsewhere_.end(), static_cast<size_t>(count), elsewhere);
    }
  }
}

Status LineOrder::AddRequests(const api::Prepared& prepared, PromptSet* prompts) {
  for (const Request& request : prepared.requests) {
    const auto group = groups_.try_emplace({request.adapter, request.cache_salt}, groups_.size()).first->second;
    for (int32_t choice = 0; choice < request.n; ++choice) {
      TACTUS_RETURN_IF_ERROR(prompts->Add(*request.prompt, TraitsOf(request, group)));
      ++requests_;
    }
  }
  return Status();
}

// Assigns shards by what every process knows before anything has run: prompts, and estimated lengths of answers. A line
// belongs to its first request's shard; a line that is not a request is assigned by its number.
Status LineOrder::Cut(const PrefixTree& tree, const PromptSet& prompts) {
  TACTUS_ASSIGN_OR_RETURN(
      const std::vector<int32_t> shard_of,
      AssignShards(tree, CostOf(engine_.model()), EstimateOutputs(tree, prompts, {}), options_.shards));
  ShardCut cut;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const int32_t shard = shard_of[static_cast<size_t>(lines_[i].first)];
    cut.Add(lines_[i].number, shard, options_.shard);
    if (shard != options_.shard) {
      std::fill(elsewhere_.begin() + lines_[i].first, elsewhere_.begin() + EndOf(i), 0);
    }
  }
  std::vector<int64_t> own;
  for (const int64_t line : not_asked_) {
    const auto shard = static_cast<int32_t>(line % options_.shards);
    cut.Add(line, shard, options_.shard);
    if (shard == options_.shard) own.push_back(line);
  }
  not_asked_ = std::move(own);
  return job_.SetCut(cut);
}

size_t LineOrder::LineOf(int32_t request) const {
  const auto after = std::upper_bound(lines_.begin(), lines_.end(), request,
                                      [](int32_t r, const Line& line) { return r < line.first; });
  return static_cast<size_t>(after - lines_.begin()) - 1;
}

Result<std::optional<LineStart>> LineOrder::Next() {
  if (feed_ == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(const std::optional<LinePlace> place, NextOfFile());
    return place ? std::optional<LineStart>({*place, {}}) : std::nullopt;
  }
  if (not_asked_at_ < not_asked_.size()) {
    TACTUS_ASSIGN_OR_RETURN(const LinePlace place, job_.WaitingLine(not_asked_[not_asked_at_++]));
    return std::optional<LineStart>({place, {}});
  }
  const std::optional<Start> start = feed_->Next();
  if (!start) return std::optional<LineStart>();
  const size_t line = LineOf(start->request);
  for (int32_t other = lines_[line].first; other < EndOf(line); ++other) {
    if (other != start->request) feed_->Take(other);
  }
  TACTUS_ASSIGN_OR_RETURN(const LinePlace place, job_.WaitingLine(lines_[line].number));
  return std::optional<LineStart>({place, start->place});
}

Result<std::optional<LinePlace>> LineOrder::NextOfFile() {
  if (places_.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const std::vector<LinePlace> more, job_.Waiting(last_place_, kLinesAtOnce));
    if (more.empty()) return std::optional<LinePlace>();
    places_.assign(more.begin(), more.end());
    last_place_ = more.back().number;
  }
  const LinePlace place = places_.front();
  places_.pop_front();
  return std::optional<LinePlace>(place);
}

void LineOrder::OnDone(int64_t number, int64_t output_tokens) {
  if (feed_ == nullptr) return;
  const auto at = std::lower_bound(lines_.begin(), lines_.end(), number,
                                   [](const Line& line, int64_t n) { return line.number < n; });
  if (at == lines_.end() || at->number != number) return;  // not a request
  const int32_t end = EndOf(static_cast<size_t>(at - lines_.begin())), count = end - at->first;
  const auto each = static_cast<int32_t>(std::min<int64_t>(output_tokens / count, std::numeric_limits<int32_t>::max()));
  for (int32_t request = at->first; request < end; ++request) feed_->OnDone(request, each);
}

std::optional<PlanReport> LineOrder::Report() const {
  if (feed_ == nullptr) return std::nullopt;
  PlanReport report = report_;
  report.planning_ns += feed_->planning_ns();
  report.work_share = feed_->done_share();
  report.rated = IsRated(engine_.model());
  // 1, nothing overlaps, unless it was measured: on CPUs compute-bound work uses the whole machine.
  report.summary = feed_->Summary({.linear = engine_.model().overlap_interference});
  return report;
}

}  // namespace tactus::offline
