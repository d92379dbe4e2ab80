#include "theory/theory_case.h"

#include <cmath>

#include "core/sched/choices.h"

namespace tactus::theory {
namespace {

class Listed final : public sim::WorkloadStream {
 public:
  explicit Listed(const std::vector<Arrival>& arrivals) : arrivals_(arrivals) {}
  int64_t count() const override { return static_cast<int64_t>(arrivals_.size()); }
  bool has_arrivals() const override { return true; }
  bool shares_text() const override { return false; }
  bool NextTurn(const sim::WorkloadRequest&, sim::WorkloadRequest*) override { return false; }
  bool Next(sim::WorkloadRequest* out) override {
    if (next_ == arrivals_.size()) return false;
    const Arrival& a = arrivals_[next_];
    *out = sim::WorkloadRequest();
    out->arrival_ns = a.at_ns;
    out->prompt_tokens = a.prompt_tokens;
    out->output_tokens = a.output_tokens;
    out->index = static_cast<int64_t>(next_++);
    return true;
  }

 private:
  const std::vector<Arrival>& arrivals_;
  size_t next_ = 0;
};

// A budget that records the number of requests in the system at the start of every plan.
class Counter final : public core::Budget {
 public:
  Counter(std::unique_ptr<core::Budget> inner, int64_t* in_system) : inner_(std::move(inner)), in_system_(*in_system) {}
  void Describe(core::ChoiceTraits* traits) const override { inner_->Describe(traits); }
  core::StepBudget Next(const core::StepView& view) override {
    in_system_ = static_cast<int64_t>(view.waiting.size() + view.running.size());
    return inner_->Next(view);
  }
  std::string Why() const override { return inner_->Why(); }

 private:
  const std::unique_ptr<core::Budget> inner_;
  int64_t& in_system_;
};

class Log final : public core::EventSink {
 public:
  explicit Log(Outcome* out) : out_(*out) {}
  bool wants_tokens() const override { return false; }
  void OnStep(const core::StepEvents& events) override {
    for (const core::RequestDoneEvent& e : events.done) {
      out_.ended.push_back({e.arrival_ns, e.scheduled_ns, e.first_token_ns, e.done_ns, e.prompt_tokens,
                            e.completion_tokens, e.preemptions, e.recomputed_tokens});
    }
  }

 private:
  Outcome& out_;
};

}  // namespace

std::vector<Arrival> Poisson(uint64_t seed, int64_t count, double rate_per_s,
                             const std::function<Arrival(Rng&)>& lengths) {
  Rng gaps(seed, 1), sizes(seed, 2);
  std::vector<Arrival> arrivals;
  double now_s = 0;
  for (int64_t i = 0; i < count; ++i) {
    now_s += gaps.Exponential(1 / rate_per_s);
    Arrival a = lengths(sizes);
    a.at_ns = std::llround(now_s * 1e9);
    arrivals.push_back(a);
  }
  return arrivals;
}

Outcome Simulate(const Case& c, const StepTimeModel& model, const std::vector<Arrival>& arrivals) {
  Outcome out;
  Listed workload(arrivals);
  Log log(&out);
  int64_t in_system = 0;
  sim::SimulationConfig config;
  config.scheduler.preset = c.preset;
  config.scheduler.limits.unlimited_steps = true;
  config.scheduler.limits.max_num_seqs = c.max_num_seqs;
  config.scheduler.limits.max_model_len = c.max_model_len;
  config.scheduler.limits.blocks_total = c.blocks;
  config.scheduler.limits.block_size = c.block_size;
  config.scheduler.limits.token_budget = c.token_budget;
  if (c.count_in_system) {
    config.injected = [&config, &in_system] {
      core::InjectedChoices injected;
      injected.budget = std::make_unique<Counter>(core::MakeFixedBudget(config.scheduler.limits), &in_system);
      return injected;
    };
  }
  config.step_time = &model;
  config.scheduler.predictor = c.predictor;
  config.prefix_caching = false;
  config.swap_blocks = c.swap_blocks;
  config.concurrency = c.concurrency;
  config.default_max_tokens = c.max_model_len;
  config.observer = &log;
  config.on_step = [&](int32_t, const StepPlan& plan, TimeNs start_ns, TimeNs end_ns) {
    Step step{start_ns, end_ns, static_cast<int64_t>(plan.items.size()), plan.num_tokens, 0, in_system};
    for (const StepItem& item : plan.items) step.sampled += item.sample ? 1 : 0;
    out.steps.push_back(step);
  };
  auto simulation = sim::Simulation::Create(config, &workload);
  if (!simulation.ok()) {
    out.error = simulation.status().ToString();
    return out;
  }
  if (const Status status = (*simulation)->Run(); !status.ok()) out.error = status.ToString();
  if (out.error.empty() && !(*simulation)->finished()) out.error = "the simulation ended with work left";
  out.stats = (*simulation)->Stats();
  for (const sim::StageFigures& stage : (*simulation)->executor(0).figures().stages) out.busy_ns += stage.busy_ns;
  return out;
}

Estimate BatchMeans(const std::vector<double>& values) {
  constexpr size_t kBatches = 40;
  constexpr double kStudent = 3.558;
  const size_t size = values.size() / kBatches;
  double sum = 0, squares = 0;
  for (size_t b = 0; b < kBatches; ++b) {
    double batch = 0;
    for (size_t i = b * size; i < (b + 1) * size; ++i) batch += values[i];
    batch /= static_cast<double>(size);
    sum += batch;
    squares += batch * batch;
  }
  const double mean = sum / kBatches;
  const double variance = (squares - kBatches * mean * mean) / (kBatches - 1);
  return {mean, kStudent * std::sqrt(variance / kBatches)};
}

}  // namespace tactus::theory
