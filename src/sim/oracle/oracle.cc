#include "sim/oracle/oracle.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/printable.h"
#include "base/rng.h"
#include "core/predict/predictor.h"
#include "core/sched/scheduler.h"

namespace tactus::sim {
namespace {

using Ranks = std::vector<int32_t>;  // by request index: lower goes first
constexpr size_t kProposals = 8;     // of a round; fixed, so that threads do not matter
constexpr uint64_t kSwaps = 77;      // random stream
constexpr const char* kStopped = "the search was stopped";

// What is compared: goodput, then mean latency. Without objectives only the latency.
struct Score {
  double goodput = 0, mean_e2e_ms = 0;
  bool operator<(const Score& other) const {
    if (goodput != other.goodput) return goodput < other.goodput;
    return mean_e2e_ms > other.mean_e2e_ms;
  }
};

struct Entry {
  Score score;
  RunResult result;
};

std::optional<Entry> Read(const Result<RunResult>& result) {
  if (!result.ok() || result->unfinished != 0 || !result->e2e_ms.known) return std::nullopt;
  return Entry{{result->goodput().value_or(0), result->e2e_ms.mean}, *result};
}

// What a request's place in an order may be chosen by.
struct Known {
  TimeNs scheduled_ns = kNever, deadline_ns = kNever;
  int64_t work_tokens = 0;
};

// What reaches the engine with objectives, whatever becomes of it: the same in every run of an open load.
class Load {
 public:
  void Submitted(const WorkloadRequest& r, TimeNs arrival_ns, const SimRequest& request) {
    follows_ = follows_ || r.arrival_ns < 0;
    for (const int64_t id : r.block_ids) ++blocks_[id];
    if (!request.slo.any()) return;
    const int64_t output = std::min<int64_t>(request.output_tokens, request.stop.max_tokens);
    const int64_t shared = r.prefix_id >= 0 ? r.shared_tokens : 0;
    requests_.push_back({arrival_ns, request.prompt_tokens, output, shared, request.slo});
    ids_.push_back(r.block_ids);
  }

  // Without a prefix cache nothing is shared.
  std::vector<AskedRequest> Requests(bool prefix_caching) const {
    constexpr int64_t kIdTokens = 512;  // WorkloadRequest::block_ids
    std::vector<AskedRequest> requests = requests_;
    for (size_t i = 0; i < requests.size(); ++i) {
      for (const int64_t id : ids_[i]) requests[i].shared_tokens += blocks_.at(id) > 1 ? kIdTokens : 0;
      if (!prefix_caching) requests[i].shared_tokens = 0;
    }
    return requests;
  }
  bool follows() const { return follows_; }  // some requests arrive after others end
  bool empty() const { return requests_.empty(); }

 private:
  std::vector<AskedRequest> requests_;
  std::vector<std::vector<int64_t>> ids_;        // [request]: its block ids
  std::unordered_map<int64_t, int32_t> blocks_;  // occurrences in the load; looked up, never iterated
  bool follows_ = false;
};

// Why there is no bound for such a simulation; empty: there is one.
std::string WhyUnbounded(const SimulationConfig& c, const Load& load) {
  if (load.empty()) return "no request has an objective";
  if (load.follows() || c.concurrency > 0)
    return "requests arrive after others end, so arrivals depend on the schedule";
  if (c.step_spread.any()) return "step times vary (--step-noise) and have no minimum";
  if (c.draft_acceptance > 0) return "speculation (--speculation) generates several tokens in one step";
  if (c.warmup.given() || c.measure.given()) return "only a part of the run is measured (--warmup, --measure)";
  return "";
}

KeptBoundMachine MachineOf(const SimulationConfig& c) {
  KeptBoundMachine m;
  m.step_time = c.step_time;
  m.kv_tokens = c.scheduler.limits.blocks_total * c.scheduler.limits.block_size;
  m.max_num_seqs = c.scheduler.limits.max_num_seqs;
  m.context = c.scheduler.limits.max_model_len;
  m.replicas = 0;
  for (int32_t i = 0; i < c.replicas; ++i) {
    const double slowness = c.slowness.empty() ? 1 : c.slowness[static_cast<size_t>(i) % c.slowness.size()];
    m.replicas += 1 / slowness;
    m.quickest = i == 0 ? slowness : std::min(m.quickest, slowness);
  }
  return m;
}

class Search {
 public:
  Search(const SimulationJob& base, const OracleOptions& options,
         const std::function<bool(const OracleProgress&)>& keep_going)
      : base_(base), options_(options), keep_going_(keep_going) {
    base_.config.requests_out.clear();
    base_.config.steps_out.clear();
    base_.config.trace_out.clear();
    for (const core::PresetInfo& preset : core::Presets()) {
      if (std::find(options.without.begin(), options.without.end(), preset.name) == options.without.end())
        starts_.push_back(&preset);
    }
    progress_.total = static_cast<int64_t>(starts_.size()) + 4 + options.swaps;
  }

  Result<OracleResult> Run() {
    TACTUS_RETURN_IF_ERROR(TryPresets());
    if (going_) TryOrders();
    if (going_ && start_) TrySwaps();
    OracleResult result{best_->result, from_, presets_, tried_, kept_, std::nullopt, kStopped};
    if (!looked_) return result;
    result.unbounded = WhyUnbounded(base_.config, load_);
    if (!result.unbounded.empty()) return result;
    const std::vector<AskedRequest> asked = load_.Requests(base_.config.prefix_caching);
    result.most_kept = MostKept(asked, MachineOf(base_.config), [this](const KeptBoundProgress& bound) {
      progress_.bound = bound;
      return GoOn();
    });
    if (!result.most_kept) result.unbounded = kStopped;
    return result;
  }

 private:
  SimulationJob JobOf(const core::PresetInfo& preset) const {
    SimulationJob job = base_;
    core::SchedulerConfig& c = job.config.scheduler;
    c.preset = preset.name;
    c.order = c.admission = c.composition = c.budget = c.preemption = "";
    c.predictor = "";
    const auto needs = core::Scheduler::PredictorFor(c);
    if (needs.ok() && *needs != core::kNoPredictor && core::Learns(*needs)) c.predictor = core::kTruth;
    return job;
  }
  SimulationJob JobOf(std::shared_ptr<const Ranks> ranks) const {
    SimulationJob job = base_;
    job.config.scheduler = with_order_;
    job.config.priorities = std::move(ranks);
    return job;
  }

  bool GoOn() { return going_ = going_ && (!keep_going_ || keep_going_(progress_)); }

  // One result per job; stops if keep_going_ returns false.
  std::vector<Result<RunResult>> RunAll(const std::vector<SimulationJob>& jobs) {
    auto results = RunSimulations(jobs, options_.threads, [this] {
      std::lock_guard<std::mutex> lock(mutex_);
      return GoOn();
    });
    progress_.runs += static_cast<int64_t>(jobs.size());
    return results;
  }

  bool Take(const Entry& entry, const std::string& from) {
    if (best_ && !(best_->score < entry.score)) return false;
    best_ = entry;
    from_ = from;
    progress_.best_goodput = entry.score.goodput;
    return true;
  }

  Status TryPresets() {
    std::vector<SimulationJob> jobs;
    for (const core::PresetInfo* preset : starts_) jobs.push_back(JobOf(*preset));
    const auto results = RunAll(jobs);
    Status first;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const char* name = starts_[i]->name;
      if (!results[i].ok() && first.ok()) first = results[i].status();
      const auto entry = Read(results[i]);
      presets_.emplace_back(name, entry ? std::optional<double>(entry->score.goodput) : std::nullopt);
      if (entry && Take(*entry, std::string("preset ") + name)) best_preset_ = i;
    }
    if (best_) return Status();
    return going_ ? first : Status(StatusCode::kCancelled, "interrupted before any preset had run");
  }

  // Collects facts about each request in a run of the best preset.
  std::vector<Known> Look() {
    std::vector<Known> known;
    SimulationJob job = JobOf(*starts_[best_preset_]);
    job.config.on_submit = [&](const WorkloadRequest& r, TimeNs arrival_ns, const SimRequest& request) {
      load_.Submitted(r, arrival_ns, request);
    };
    job.config.on_done = [&](const WorkloadRequest& r, int32_t, const core::RequestDoneEvent& d) {
      const auto at = static_cast<size_t>(r.index);
      if (known.size() <= at) known.resize(at + 1);
      const Slo& slo = d.request->slo;
      const DurationNs allowed = slo.ttft_ns > 0 ? slo.ttft_ns : slo.jct_ns;
      known[at] = {d.scheduled_ns, d.arrival_ns + allowed, r.prompt_tokens + r.output_tokens};
    };
    RunAll({job});
    looked_ = going_;
    return known;
  }

  static std::shared_ptr<const Ranks> RanksOf(const std::vector<int32_t>& order) {
    auto ranks = std::make_shared<Ranks>(order.size());
    for (size_t place = 0; place < order.size(); ++place)
      (*ranks)[static_cast<size_t>(order[place])] = static_cast<int32_t>(place);
    return ranks;
  }

  // Initial orders, with the best preset's other choices, or the default's if those do not allow an order by priority.
  void TryOrders() {
    const std::vector<Known> known = Look();
    if (!going_) return;
    const auto workload = base_.open();  // also counts requests that never ran
    if (!workload.ok()) return;
    count_ = static_cast<size_t>((*workload)->count());
    const auto sorted = [&](auto key) {
      std::vector<int32_t> order(count_);
      std::iota(order.begin(), order.end(), 0);
      const Known none;
      const auto at = [&](int32_t i) {
        return key(static_cast<size_t>(i) < known.size() ? known[static_cast<size_t>(i)] : none);
      };
      std::sort(order.begin(), order.end(),
                [&](int32_t a, int32_t b) { return std::pair(at(a), a) < std::pair(at(b), b); });
      return order;
    };
    const std::pair<const char*, std::vector<int32_t>> orders[] = {
        {"in the order of the best preset", sorted([](const Known& k) { return k.scheduled_ns; })},
        {"earliest deadline first", sorted([](const Known& k) { return k.deadline_ns; })},
        {"least work first", sorted([](const Known& k) { return k.work_tokens; })},
    };
    for (const bool of_best : {true, false}) {
      with_order_ = JobOf(*starts_[best_preset_]).config.scheduler;
      if (!of_best) with_order_.preset = core::SchedulerConfig().preset;
      with_order_.order = "priority";
      std::vector<SimulationJob> jobs;
      for (const auto& [name, order] : orders) jobs.push_back(JobOf(RanksOf(order)));
      const auto results = RunAll(jobs);
      for (size_t i = 0; i < jobs.size(); ++i) {
        const auto entry = Read(results[i]);
        if (!entry) continue;
        if (!start_ || start_->score < entry->score) {
          start_ = *entry;
          order_ = orders[i].second;
        }
        Take(*entry, std::string("order: ") + orders[i].first);
      }
      if (start_ || !going_) return;
    }
  }

  // Hill climbing: an improvement among a round's proposals becomes the new order.
  void TrySwaps() {
    Rng rng(base_.config.seed, kSwaps);
    const auto n = static_cast<int64_t>(order_.size());
    if (n < 2) return;
    while (going_ && tried_ < options_.swaps) {
      std::vector<std::vector<int32_t>> proposals;
      std::vector<SimulationJob> jobs;
      while (jobs.size() < kProposals && tried_ < options_.swaps) {
        const int64_t a = rng.UniformInt(0, n - 1);
        int64_t b = rng.UniformInt(0, n - 2);
        b += b >= a;
        proposals.push_back(order_);
        std::swap(proposals.back()[static_cast<size_t>(a)], proposals.back()[static_cast<size_t>(b)]);
        jobs.push_back(JobOf(RanksOf(proposals.back())));
        ++tried_;
      }
      const auto results = RunAll(jobs);
      for (size_t i = 0; i < jobs.size(); ++i) {
        const auto entry = Read(results[i]);
        if (!entry || !(start_->score < entry->score)) continue;
        start_ = *entry;
        order_ = proposals[i];
        ++kept_;
        Take(*entry, "order found by swaps");
      }
    }
  }

  SimulationJob base_;
  const OracleOptions options_;
  const std::function<bool(const OracleProgress&)>& keep_going_;
  std::mutex mutex_;
  bool going_ = true;
  OracleProgress progress_;
  std::optional<Entry> best_, start_;  // the best of all, and the one that swaps improve
  std::string from_;
  std::vector<std::pair<std::string, std::optional<double>>> presets_;
  std::vector<const core::PresetInfo*> starts_;
  size_t best_preset_ = 0;  // index in starts_
  Load load_;
  bool looked_ = false;  // the load has been recorded
  core::SchedulerConfig with_order_;
  std::vector<int32_t> order_;
  size_t count_ = 0;
  int64_t tried_ = 0, kept_ = 0;
};

}  // namespace

Result<std::vector<std::string>> ParseOracleWithout(const std::string& names) {
  std::vector<std::string> without;
  std::string known;
  for (const core::PresetInfo& preset : core::Presets()) known += std::string(known.empty() ? "" : ", ") + preset.name;
  if (names.empty()) return without;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    const auto is = [&](const core::PresetInfo& preset) { return name == preset.name; };
    if (std::none_of(core::Presets().begin(), core::Presets().end(), is)) {
      return InvalidArgument(
          fmt::format("--oracle-without: '{}' is not a preset; the presets are: {}", Printable(name), known),
          "oracle-without");
    }
    if (std::find(without.begin(), without.end(), name) == without.end()) without.push_back(name);
  }
  if (without.size() == core::Presets().size()) {
    return InvalidArgument("--oracle-without excludes every preset, and the search needs one to start from: name fewer",
                           "oracle-without");
  }
  return without;
}

Result<OracleResult> RunOracle(const SimulationJob& base, const OracleOptions& options,
                               const std::function<bool(const OracleProgress&)>& keep_going) {
  return Search(base, options, keep_going).Run();
}

}  // namespace tactus::sim
