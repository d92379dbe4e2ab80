#include "conformance/workload.h"

#include <algorithm>

#include "base/rng.h"
#include "support/plan_digest.h"

namespace tactus::testing {
namespace {

constexpr TokenId kEos = 2;

template <class T>
T Pick(Rng* rng, const std::vector<T>& values) {
  return values[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(values.size()) - 1))];
}

Request MakeAny(Rng* rng, const std::vector<std::vector<TokenId>>& prefixes, int32_t max_model_len,
                bool prompt_logprobs) {
  std::vector<TokenId> prompt;
  if (rng->Uniform() < 0.5) prompt = Pick(rng, prefixes);
  const int64_t most = std::max<int64_t>(1, max_model_len - 1 - static_cast<int64_t>(prompt.size()));
  const int64_t extra =
      rng->Uniform() < 0.3 ? rng->UniformInt(1, most) : rng->UniformInt(1, std::min<int64_t>(most, 12));
  for (int64_t i = 0; i < extra; ++i) prompt.push_back(static_cast<TokenId>(rng->UniformInt(0, 63)));
  if (static_cast<int32_t>(prompt.size()) >= max_model_len) prompt.resize(static_cast<size_t>(max_model_len - 1));
  const int64_t room = max_model_len - static_cast<int64_t>(prompt.size());
  // Most requests have a place in a plan. It is computed from the prompt and not drawn, so that later draws stay the
  // same.
  PlannedPlace place;
  const auto spot = static_cast<int32_t>((31 * prompt.size() + 17 * static_cast<size_t>(prompt.back())) % 64);
  if (spot >= 16) {
    place = {spot, static_cast<int32_t>(prompt.size())};
    if (spot % 4 > 0) {
      place.end = spot % 4 == 1 ? PlanEnd::kRight : PlanEnd::kLeft;
      place.density = 50'000 * (80 - spot);
      place.step_tokens = 200;
    }
  }
  Request r =
      MakeRequest(std::move(prompt), rng->Uniform() < 0.2 ? room : rng->UniformInt(1, std::min<int64_t>(room, 20)));
  r.n = rng->Uniform() < 0.15 ? static_cast<int32_t>(rng->UniformInt(2, 4)) : 1;
  r.priority = static_cast<int32_t>(rng->UniformInt(-1, 2));
  r.planned = place;
  r.stop.ignore_eos = rng->Uniform() < 0.5;
  if (rng->Uniform() < 0.2) r.stop.min_tokens = rng->UniformInt(1, 5);
  if (rng->Uniform() < 0.2) r.stop.stop = {"ab", "q"};
  if (rng->Uniform() < 0.2) r.sampling.logprobs = 1;
  r.prompt_logprobs = prompt_logprobs && rng->Uniform() < 0.1;
  if (rng->Uniform() < 0.2) r.cache_salt = "salt";
  return r;
}

}  // namespace

Workload MakeWorkload(uint64_t seed, const WorkloadOptions& options) {
  Rng rng(seed, 9);
  Workload w;
  HarnessConfig& c = w.config;
  c.block_size = Pick<int32_t>(&rng, {1, 2, 4, 16});
  c.max_model_len = Pick<int32_t>(&rng, {24, 48, 100});
  const int64_t needed = (c.max_model_len + c.block_size - 1) / c.block_size;
  c.num_blocks = needed * Pick<int64_t>(&rng, {1, 2, 8}) + rng.UniformInt(0, needed);  // from one sequence to plenty
  c.max_num_seqs = Pick<int32_t>(&rng, {1, 2, 5, 16});
  // Swap space: none, too little for all, plenty. (Separate random streams keep the older workloads unchanged.)
  Rng swap_rng(seed, 10), slo_rng(seed, 11), client_rng(seed, 12);
  c.swap_blocks = Pick<int64_t>(&swap_rng, {0, needed / 2 + 1, 10 * needed});
  c.max_queue = 64;
  c.prefix_caching = !options.rejects && rng.Uniform() < 0.7;
  c.model_stop_ids = {kEos};
  c.scheduler.limits.token_budget = Pick<int64_t>(&rng, {0, 1, 3, 7, 16, 40});
  c.scheduler.limits.watermark = rng.Uniform() < 0.3 ? 0.1 : 0.0;
  c.executor.seed = seed;
  c.executor.max_in_flight = Pick<int32_t>(&rng, {1, 2, 8});
  c.executor.can_chain = c.executor.max_in_flight > 1 && rng.Uniform() < 0.6;
  c.executor.fault_seed = seed;
  if (options.faults) {
    c.executor.step_error_rate = 0.05;
    c.executor.item_error_rate = 0.02;
    c.executor.item_lost_rate = 0.02;
  }
  if (options.rejects) c.executor.reject_rate = 0.2;
  w.faults = options.faults;
  Rng contract_rng(seed, 13);
  if (options.drafts) {
    c.executor.max_draft_tokens = static_cast<int32_t>(contract_rng.UniformInt(1, 5));
    c.draft_accuracy = Pick<double>(&contract_rng, {0.2, 0.7, 1.0});
  }
  if (options.adapters) c.executor.adapters = {"red", "blue"};
  c.tokens_on_host = options.tokens_on_host;

  std::vector<std::vector<TokenId>> prefixes;
  for (int i = 0; i < 3; ++i) {
    prefixes.push_back(
        Tokens(seed * 31 + static_cast<uint64_t>(i), static_cast<int32_t>(rng.UniformInt(1, c.max_model_len - 2))));
  }
  const int64_t count = rng.UniformInt(3, 24);
  TimeNs at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (rng.Uniform() < 0.6) at += static_cast<TimeNs>(rng.Exponential(2e6));
    Arrival a{.at_ns = at, .request = MakeAny(&rng, prefixes, c.max_model_len, !options.rejects), .cancel_at_ns = 0};
    if (options.adapters) a.request.adapter = Pick<std::string>(&contract_rng, {"", "red", "blue"});
    a.request.client = Pick<std::string>(&client_rng, {"", "alice", "bob"});
    if (slo_rng.Uniform() < 0.5) a.request.slo.ttft_ns = slo_rng.UniformInt(1, 50) * kMillisecond;
    if (slo_rng.Uniform() < 0.5) a.request.slo.tbt_ns = slo_rng.UniformInt(1, 20) * kMillisecond;
    if (slo_rng.Uniform() < 0.2) a.request.slo.jct_ns = slo_rng.UniformInt(5, 300) * kMillisecond;
    if (options.cancels && rng.Uniform() < 0.35) a.cancel_at_ns = at + static_cast<TimeNs>(rng.Exponential(1e7));
    w.arrivals.push_back(std::move(a));
  }
  return w;
}

std::string Workload::ToString() const {
  return "blocks " + std::to_string(config.num_blocks) + "x" + std::to_string(config.block_size) + " context " +
         std::to_string(config.max_model_len) + " seqs " + std::to_string(config.max_num_seqs) + " budget " +
         std::to_string(config.scheduler.limits.token_budget) + " depth " +
         std::to_string(config.executor.max_in_flight) + " swap " + std::to_string(config.swap_blocks) +
         (config.executor.max_draft_tokens > 0 ? " drafts " + std::to_string(config.executor.max_draft_tokens) : "") +
         (config.executor.can_chain ? " chained" : "") + (config.prefix_caching ? " cached" : "") + " requests " +
         std::to_string(arrivals.size());
}

Outcome Play(const Workload& workload, const core::SchedulerConfig& names, bool fresh_policies,
             const std::string& trace_path) {
  Outcome outcome;
  HarnessConfig config = workload.config;
  config.fresh_policies = fresh_policies;
  config.trace_path = trace_path;
  const core::SchedulerLimits limits = config.scheduler.limits;
  config.scheduler = names;
  config.scheduler.limits = limits;
  Harness h(config);
  const auto broken = [&](const std::string& what) {
    outcome.broken =
        what + " [" + (h.scheduler_error().ok() ? h.scheduler().Describe() : "") + "; " + workload.ToString() + "]";
    return outcome;
  };
  if (!h.scheduler_error().ok()) return broken(h.scheduler_error().ToString());

  struct Timed {
    TimeNs at;
    size_t index;
    bool cancel;
  };
  std::vector<Timed> timeline;
  for (size_t i = 0; i < workload.arrivals.size(); ++i) {
    timeline.push_back({workload.arrivals[i].at_ns, i, false});
    if (workload.arrivals[i].cancel_at_ns > 0) timeline.push_back({workload.arrivals[i].cancel_at_ns, i, true});
  }
  std::stable_sort(timeline.begin(), timeline.end(), [](const Timed& a, const Timed& b) { return a.at < b.at; });
  std::vector<RequestHandle> handles(workload.arrivals.size(), 0);

  size_t next = 0;
  for (int64_t rounds = 0;; ++rounds) {
    if (rounds > 20000) return broken("no end: livelock");
    for (; next < timeline.size() && timeline[next].at <= h.clock().NowNs(); ++next) {
      const size_t i = timeline[next].index;
      if (timeline[next].cancel) {
        if (handles[i] != 0) h.Cancel(handles[i]);
      } else if (auto handle = h.Submit(workload.arrivals[i].request); handle.ok()) {
        handles[i] = *handle;
      } else if (handle.status().code() != StatusCode::kUnavailable) {
        return broken("refused: " + handle.status().ToString());
      }
    }
    if (std::string what = h.Settle(); !what.empty()) return broken(what);
    TimeNs until = h.executor().NextReadyNs();
    if (next < timeline.size()) until = std::min(until, timeline[next].at);
    if (until == kNever) break;
    h.clock().AdvanceTo(until);
  }
  if (!h.loop().idle()) return broken("deadlock: nothing in flight, but not idle");
  if (h.loop().live_requests() != 0) return broken("requests are still counted as live");
  if (h.kv().Stats().blocks_in_use != 0 || h.kv().Stats().blocks_reserved != 0) return broken("KV is still held");
  for (const RequestHandle handle : handles) {
    if (handle == 0) continue;
    RequestOutput& out = h.outputs()[handle];
    if (!out.done) return broken("lost request " + std::to_string(handle));
    outcome.requests.push_back(std::move(out));
  }
  outcome.hashes = *h.loop().plan_hashes();
  outcome.stats = h.loop().Stats();
  outcome.drafts_accepted = h.executor().drafts_accepted();
  outcome.drafts_rejected = h.executor().drafts_rejected();
  for (const auto& [handle, items] : h.chained_items()) {
    outcome.chained_items += items;
    if (config.tokens_on_host && handle % 2 == 1) outcome.chained_on_host += items;
  }
  RecordPlans(outcome.stats.plan_hash);
  if (Status closed = h.CloseTrace(); !closed.ok()) return broken(closed.ToString());
  return outcome;
}

}  // namespace tactus::testing
