// The cost of the engine and the scheduler, without the model: whole passes of the step loop (drain, commit, plan,
// apply, submit, events) with an executor that does nothing. One JSON line per case on stdout.
//   bench_engine [scheduler [case]]
//   bench_engine decisions [repetitions [scheduler [case]]]   decision times of every preset, as a table
//   bench_engine steps [repetitions [scheduler [case]]]       the slowest decisions and their contents
// pass_us is wall-clock time (on a busy machine use p50), cpu_us_per_pass the thread's CPU time.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sim_request.h"
#include "core/loop/metrics.h"
#include "core/loop/replica.h"
#include "core/sched/accelgen/slack.h"
#include "core/sched/promise/promise.h"
#include "core/sched/scheduler.h"
#include "cost/cost_model.h"
#include "results/obs/histogram.h"
#include "support/fake_executor.h"
#include "tactus/version.h"

namespace tactus {
namespace {

int64_t ThreadCpuNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// The thread's CPU time: time while another thread has the core is not the scheduler's.
class ThreadClock final : public Clock {
 public:
  TimeNs NowNs() override { return ThreadCpuNs(); }
};

// The contents of plans.
struct Decided {
  size_t items = 0, starts = 0, preempts = 0, blocks = 0;
};
class CountingExecutor final : public Executor {
 public:
  explicit CountingExecutor(bool short_form) : null_(1, false, 7, short_form) {}
  ExecutorTraits traits() const override { return null_.traits(); }
  void Submit(const StepPlan& plan) override {
    last = {plan.items.size(), plan.starts.size(), plan.preempts.size(), plan.table_blocks.size()};
    null_.Submit(plan);
  }
  bool Poll(StepResult* result) override { return null_.Poll(result); }
  void SetWakeup(std::function<void()>) override {}
  Decided last;

 private:
  NullExecutor null_;
};

class CountingSink final : public core::EventSink {
 public:
  explicit CountingSink(bool want) : wants(want) {}
  bool wants_tokens() const override { return wants; }
  void OnStep(const core::StepEvents& events) override {
    for (const core::GapEvent& gap : events.gaps) tokens += gap.count;
    if (events.decision_ns >= 0) decision_ns.Add(last_decision_ns = events.decision_ns);
    if (!wants) metrics.OnStep(events);
    done += static_cast<int64_t>(events.done.size());
  }
  const bool wants;
  core::EngineMetrics metrics{"null", core::KvCacheConfig{1, 16, 1, 1, true}, 512};
  results::Histogram decision_ns;
  int64_t last_decision_ns = 0;
  int64_t tokens = 0, done = 0;
};

struct Case {
  const char* name;
  int32_t running;   // max_num_seqs
  int32_t requests;  // submitted at the start; those that do not run wait
  int32_t prompt_tokens;
  int32_t output_tokens;    // per request
  bool memory_full;         // KV memory has room only for the running requests: the head of the queue is tried in every
                            // step
  bool churn;               // every ended request is replaced; outputs have different lengths
  int64_t steps;            // number of measured steps
  bool objectives = false;  // prompts of 16 to prompt_tokens, objectives of many kinds, KV for about `running`
                            // requests,
  bool late = false;        // steps of 25 ms on a virtual clock: many objectives are missed
  bool simulated = false;   // no tokens, the short form of results, metrics on, virtual clock, no prefix caching
  bool settled = false;  // as `late`, with step times of a GPU and --tbt-slo 50ms, measured after as many steps as are
};

const StepTimeModel& GpuStepTimes() {
  static const std::unique_ptr<cost::CostModel> model = [] {
    cost::Deployment d;
    d.model = "llama-3.1-8b";
    d.device = "h100";
    auto made = cost::CostModel::Create(d);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::exit(2);
    }
    return std::move(made).value();
  }();
  return *model;
}

struct Bench {
  Bench(const Case& c, const std::string& preset, bool decisions = false) : spec(c) {
    const int32_t longest = c.prompt_tokens + c.output_tokens;
    const int32_t blocks_each = (longest + 15) / 16;
    core::ReplicaConfig config;
    core::SchedulerLimits& sizes = config.scheduler.limits;
    config.scheduler.preset = preset;
    sizes.max_num_seqs = c.objectives ? 2 * c.running : c.memory_full ? c.running + 64 : c.running;
    sizes.max_model_len = longest;
    sizes.blocks_total = int64_t{blocks_each} * c.running / (c.objectives ? 2 : 1);
    sizes.token_budget = 8192;
    config.max_queue = std::max(4096, 2 * c.requests);
    config.prefix_caching = !c.simulated;
    config.secret = {1, 2};
    config.model = "null";
    config.true_lengths_known = true;
    core::ReplicaServices services;
    if (c.settled) {
      services.step_time = &GpuStepTimes();
      sizes.tbt_slo_ns = 50 * kMillisecond;
    }
    auto made = core::Replica::Create(std::move(config), std::move(services));
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::exit(2);
    }
    replica = std::move(made).value();
    core::ReplicaParts parts;
    parts.executor = &executor;
    parts.clock = c.simulated || Slow() ? static_cast<Clock*>(&manual) : &SystemClock();
    parts.stopwatch = decisions ? static_cast<Clock*>(&thread_clock) : &SystemClock();
    parts.stopwatch_every = c.simulated ? 16 : 1;
    parts.sink = &sink;
    if (!replica->Connect(std::move(parts)).ok()) std::exit(2);
    loop = &replica->loop();
  }

  void Submit() {
    auto request = std::make_shared<SimRequest>();
    const int32_t length =
        spec.objectives ? 16 + static_cast<int32_t>(submitted * 7919 % (spec.prompt_tokens - 15)) : spec.prompt_tokens;
    std::vector<TokenId> prompt(static_cast<size_t>(length));
    for (TokenId& t : prompt) t = static_cast<TokenId>(next_token++ % 30000);
    if (!spec.simulated) request->prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    request->stop.max_tokens = spec.churn ? 1 + (submitted * 37) % spec.output_tokens : spec.output_tokens;
    request->prompt_tokens = length;
    request->output_tokens = static_cast<int32_t>(request->stop.max_tokens);
    if (spec.objectives) {
      request->slo.ttft_ns = (100 + submitted * 104729 % 10000) * kMillisecond;
      request->slo.tbt_ns = (20 + submitted * 31 % 400) * kMillisecond;
      if (submitted % 10 == 0) request->slo.jct_ns = 60 * kSecond;
    }
    ++submitted;
    auto prepared = spec.simulated ? core::PrepareWithoutTokens(std::move(request), length, {}, replica->limits())
                                   : core::PrepareRequest(std::move(request), replica->limits());
    if (!prepared.ok() || !loop->Submit(std::move(prepared).value()).ok()) std::exit(1);
  }

  void Start() {
    for (int32_t i = 0; i < spec.requests; ++i) Submit();
    // Some presets never run that many requests at once: they are measured with fewer.
    for (int i = 0; i < 1000 && loop->Stats().running < spec.running; ++i) Pass();
  }
  void Pass() {
    if (spec.simulated || Slow()) manual.AdvanceTo(manual.NowNs() + (Slow() ? 25 : 1) * kMillisecond);
    loop->RunOnce();
  }
  bool Slow() const { return spec.late || spec.settled; }

  // Only decisions, of `steps` steps after the start.
  void RunDecisions() {
    RunDecisions([](int64_t) {});
  }
  template <class Visit>  // called after each step, with its number
  void RunDecisions(Visit visit) {
    Start();
    for (int64_t i = spec.settled ? -spec.steps : 0; i < spec.steps; ++i) {
      if (i == 0) sink.decision_ns = results::Histogram();
      const int64_t replaced = sink.done;
      Pass();
      if (i >= 0) visit(i);
      for (int64_t n = replaced; spec.churn && n < sink.done; ++n) Submit();
    }
  }

  void Run(const std::string& preset) {
    Start();
    std::vector<int64_t> pass_ns;
    pass_ns.reserve(static_cast<size_t>(spec.steps));
    int64_t total_ns = 0;
    const int64_t first_tokens = sink.tokens;
    const int64_t cpu_begin_ns = ThreadCpuNs();
    for (int64_t i = 0; i < spec.steps; ++i) {
      const int64_t replaced = sink.done;
      const TimeNs begin = SystemClock().NowNs();
      Pass();
      const TimeNs took = SystemClock().NowNs() - begin;
      total_ns += took;
      pass_ns.push_back(took);
      if (spec.churn) {
        for (int64_t n = replaced; n < sink.done; ++n) Submit();  // the submitter's work, not the loop's
      }
    }
    const double cpu_us =
        spec.churn ? 0 : static_cast<double>(ThreadCpuNs() - cpu_begin_ns) / 1e3 / static_cast<double>(spec.steps);
    std::sort(pass_ns.begin(), pass_ns.end());
    const auto at = [&](double q) {
      return static_cast<double>(pass_ns[static_cast<size_t>(q * static_cast<double>(pass_ns.size() - 1))]) / 1e3;
    };
    const EngineStats stats = loop->Stats();
    std::printf(
        "{\"bench\":\"engine\",\"case\":\"%s\",\"scheduler\":\"%s\",\"running\":%lld,\"waiting\":%lld,\"steps\":%lld,"
        "\"steps_per_s\":%.0f,\"pass_us\":{\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f},"
        "\"cpu_us_per_pass\":%.3f,\"decision_us\":{\"p50\":%.3f,\"p99\":%.3f},\"tokens_per_step\":%.1f,\"version\":\"%"
        "s\"}\n",
        spec.name, preset.c_str(), static_cast<long long>(stats.running), static_cast<long long>(stats.waiting),
        static_cast<long long>(spec.steps), static_cast<double>(spec.steps) * 1e9 / static_cast<double>(total_ns),
        static_cast<double>(total_ns) / 1e3 / static_cast<double>(spec.steps), at(0.5), at(0.99), cpu_us,
        sink.decision_ns.Quantile(0.5) / 1e3, sink.decision_ns.Quantile(0.99) / 1e3,
        static_cast<double>(sink.tokens - first_tokens) / static_cast<double>(spec.steps), Version());
  }

  const Case spec;
  CountingExecutor executor{spec.simulated};
  ManualClock manual;
  ThreadClock thread_clock;
  CountingSink sink{!spec.simulated};
  std::unique_ptr<core::Replica> replica;
  core::StepLoop* loop = nullptr;
  int64_t submitted = 0, next_token = 0;
};

constexpr Case kDecisions[] = {
    {"plain", 256, 10256, 64, 4100, false, false, 2000},
    {"KV full", 256, 10256, 1024, 2100, true, false, 2000},
    {"turnover", 256, 10256, 128, 256, false, true, 2000},
    {"KV full, settled", 256, 10256, 1024, 2100, true, true, 2000, false, false, false, true},
    {"turnover, settled", 256, 10256, 128, 256, false, true, 2000, false, false, false, true},
    {"objectives", 256, 10256, 2048, 256, false, true, 2000, true},
    {"objectives, late", 256, 10256, 2048, 256, false, true, 2000, true, true},
};

bool KnowsObjectives(const core::PresetInfo& preset) {
  for (const core::ChoiceInfo& order : core::Values(core::Choice::kBudget)) {
    if (std::string(order.name) == preset.budget)
      return order.Declares(core::kTtftObjective) || order.Declares(core::kPromiseTurn);
  }
  return false;
}

// Every preset, all runs of a case in turn and then repeated, so that other load on the machine affects all equally. A
// cell: median p50 / median p99 (least to most p99), in microseconds of the thread's CPU time.
void Decisions(int repetitions, const std::string& only, const std::string& only_case) {
  struct Times {
    std::vector<double> p50, p99;
  };
  std::map<std::string, std::map<std::string, Times>> times;
  for (int r = 0; r < repetitions; ++r) {
    for (const core::PresetInfo& preset : core::Presets()) {
      if (!only.empty() && only != preset.name) continue;
      for (const Case& c : kDecisions) {
        if ((c.objectives && !KnowsObjectives(preset)) || (!only_case.empty() && only_case != c.name)) continue;
        Bench bench(c, preset.name, true);
        bench.RunDecisions();
        Times& t = times[preset.name][c.name];
        t.p50.push_back(bench.sink.decision_ns.Quantile(0.5) / 1e3);
        t.p99.push_back(bench.sink.decision_ns.Quantile(0.99) / 1e3);
        if (bench.Slow())
          std::fprintf(stderr, "%s, %s: plans %016" PRIx64 "\n", preset.name, c.name, bench.loop->plan_hash());
      }
    }
  }
  std::printf("| preset |");
  for (const Case& c : kDecisions) std::printf(" %s |", c.name);
  std::printf("\n|---|");
  for (size_t i = 0; i < std::size(kDecisions); ++i) std::printf("---|");
  std::printf("\n");
  for (auto& [preset, cases] : times) {
    std::printf("| %s |", preset.c_str());
    for (const Case& c : kDecisions) {
      Times& t = cases[c.name];
      if (t.p50.empty()) {
        std::printf(" |");
        continue;
      }
      std::sort(t.p50.begin(), t.p50.end());
      std::sort(t.p99.begin(), t.p99.end());
      std::printf(" %.1f / %.1f (%.1f to %.1f) |", t.p50[t.p50.size() / 2], t.p99[t.p99.size() / 2], t.p99.front(),
                  t.p99.back());
    }
    std::printf("\n");
  }
}

// The minimum time of each step of a case over all repetitions, for cases with the same plans in every run: the cost of
// a decision without interference. Prints quantiles, and the slowest decisions with their contents.
void Steps(int repetitions, const std::string& only, const std::string& only_case) {
  struct Step {
    int64_t least_ns = INT64_MAX;
    Decided decided;
  };
  for (const core::PresetInfo& preset : core::Presets()) {
    if (!only.empty() && only != preset.name) continue;
    for (const Case& c : kDecisions) {
      if ((c.objectives && !KnowsObjectives(preset)) || (!only_case.empty() && only_case != c.name)) continue;
      std::vector<Step> steps(static_cast<size_t>(c.steps));
      for (int r = 0; r < repetitions; ++r) {
        Bench bench(c, preset.name, true);
        bench.RunDecisions([&](int64_t i) {
          Step& step = steps[static_cast<size_t>(i)];
          step.least_ns = std::min(step.least_ns, bench.sink.last_decision_ns);
          step.decided = bench.executor.last;
        });
      }
      std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.least_ns > b.least_ns; });
      const auto us = [&](size_t i) { return static_cast<double>(steps[i].least_ns) / 1e3; };
      std::printf("%s, %s: p50 %.1f, p90 %.1f, p99 %.1f us\n", preset.name, c.name, us(steps.size() / 2),
                  us(steps.size() / 10), us(steps.size() / 100));
      for (size_t i = 0; i < steps.size(); i = i < 40 ? i + 4 : i * 5 / 4) {
        const Decided& d = steps[i].decided;
        std::printf("  %4zu. %6.1f us: %zu items, %zu starts, %zu preemptions, %zu blocks\n", i, us(i), d.items,
                    d.starts, d.preempts, d.blocks);
      }
    }
  }
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  const std::string preset = argc > 1 ? argv[1] : "sarathi-serve";
  if (preset == "decisions") {
    tactus::Decisions(argc > 2 ? std::max(1, std::atoi(argv[2])) : 5, argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
    return 0;
  }
  if (preset == "steps") {
    tactus::Steps(argc > 2 ? std::max(1, std::atoi(argv[2])) : 5, argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
    return 0;
  }
  const tactus::Case cases[] = {
      {"37-running", 37, 37, 32, 40100, false, false, 40000},
      {"37-running-simulated", 37, 37, 32, 400100, false, false, 400000, false, false, true},
      {"37-running-simulated-churn", 37, 60, 1024, 256, false, true, 400000, false, false, true},
      {"256-running-1000-waiting", 256, 1256, 64, 4100, false, false, 4000},
      {"256-running-10000-waiting", 256, 10256, 64, 4100, false, false, 4000},
      {"256-running-10000-waiting-memory-full", 256, 10256, 1024, 2100, true, false, 2000},
      {"256-running-10000-waiting-churn", 256, 10256, 128, 256, false, true, 4000},
      {"256-running-10000-waiting-objectives", 256, 10256, 2048, 256, false, true, 4000, true},
      {"256-running-1000-waiting-memory-full", 256, 1256, 1024, 2100, true, false, 2000},
      {"256-running-1000-waiting-churn", 256, 1256, 128, 256, false, true, 4000},
  };
  for (const tactus::Case& c : cases) {
    if (argc > 2 && std::string(argv[2]) != c.name) continue;
    tactus::Bench(c, preset).Run(preset);
  }
  return 0;
}
