#include "sim/sim_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "results/obs/run_result.h"

namespace tactus::sim {
namespace {

double SecondsSince(TimeNs begin_ns, Clock& clock) {
  return static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
}

// The cost of all devices over the whole run per million tokens at `tokens_per_s`; null without a price.
Json CostPerMillion(const SimOptions& o, const SimSetup& setup, const RunResult& run,
                    std::optional<double> tokens_per_s) {
  if (o.device_hour_price <= 0 || setup.cost == nullptr || tokens_per_s.value_or(0) <= 0) return nullptr;
  const auto& scaling = run.simulated->scaling;
  const double replicas = scaling ? scaling->mean_replicas : static_cast<double>(o.replicas);
  const double price_per_s = o.device_hour_price * static_cast<double>(o.tp * o.pp) * replicas / 3600;
  return price_per_s / *tokens_per_s * 1e6;
}

SimReport MakeReport(const SimOptions& o, const SimSetup& setup, RunResult run, const std::string& scheduler,
                     double wall_s) {
  if (o.rate > 0) run.request_rate_asked = o.rate;
  if (o.concurrency > 0) run.concurrency = o.concurrency;
  Json j = results::RunJson(run);
  j["workload"] = o.workload;
  j["scheduler"] = scheduler;
  j["cost"] = setup.cost_text;
  const cost::StepSpread& spread = setup.config.step_spread;
  j["step_noise"] =
      spread.any() ? Json{{"with_prompts", spread.with_prompts}, {"decodes_only", spread.decodes_only}} : Json(nullptr);
  j["devices"] = setup.cost != nullptr ? Json(o.tp * o.pp * setup.config.replicas) : Json(nullptr);
  const auto prompt_rate = run.input_token_throughput(), output_rate = run.output_token_throughput();
  j["cost_per_million_tokens"] = CostPerMillion(o, setup, run, prompt_rate.value_or(0) + output_rate.value_or(0));
  j["cost_per_million_output_tokens"] = CostPerMillion(o, setup, run, output_rate);
  j["kv_blocks"] = setup.config.scheduler.limits.blocks_total;
  j["max_model_len"] = setup.config.scheduler.limits.max_model_len;
  j["seed"] = o.seed;
  j["wall_s"] = wall_s;
  j["steps_per_wall_second"] = wall_s > 0 ? Json(static_cast<double>(run.engine->steps) / wall_s) : Json(nullptr);
  SimReport report;
  report.run = std::move(run);
  report.json = std::move(j);
  return report;
}

Result<SimReport> RunOne(const SimOptions& options, const SimSetup& setup, Clock& clock, const SimWatch& watch) {
  TACTUS_ASSIGN_OR_RETURN(const auto sim, Simulation::Create(setup.config, setup.workload.get()));
  if (watch.begun) watch.begun(sim->Describe());
  const TimeNs begin_ns = clock.NowNs();
  TACTUS_RETURN_IF_ERROR(sim->Run(watch.run));
  SimReport report = MakeReport(options, setup, sim->Outcome(), sim->Describe(), SecondsSince(begin_ns, clock));
  report.finished = sim->finished();
  report.progress = sim->progress();
  return report;
}

Result<SimReport> RunSearch(const SimOptions& options, const SimSetup& setup, Clock& clock, const SimWatch& watch) {
  const TimeNs begin_ns = clock.NowNs();
  OracleOptions oracle;
  oracle.without = setup.oracle_without;
  oracle.threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  const SimulationJob job{setup.config, setup.open_workload};
  TACTUS_ASSIGN_OR_RETURN(OracleResult best, RunOracle(job, oracle, watch.search));
  SimReport report =
      MakeReport(options, setup, std::move(best.run), "oracle: " + best.from, SecondsSince(begin_ns, clock));
  Json presets = Json::object();
  for (const auto& [name, goodput] : best.presets) presets[name] = goodput ? Json(*goodput) : Json(nullptr);
  const ObjectiveCounts& counts = report.run.objectives;
  report.json["oracle"] = {{"from", best.from},
                           {"without", setup.oracle_without},
                           {"presets", std::move(presets)},
                           {"swaps_tried", best.swaps_tried},
                           {"swaps_kept", best.swaps_kept},
                           {"kept", counts.kept},
                           {"upper_bound", best.most_kept ? Json(*best.most_kept) : Json(nullptr)}};
  report.text = fmt::format(
      "\nthe best: {}\nwithin all their objectives: {} of {} requests; {}\n", best.from, counts.kept, counts.stated,
      best.most_kept ? fmt::format("no schedule can serve more than {} within objectives", *best.most_kept)
                     : fmt::format("no upper bound is known: {}", best.unbounded));
  return report;
}

}  // namespace

Result<SimReport> RunSetup(const SimOptions& options, SimSetup* setup, Clock& clock, const SimWatch& watch) {
  setup->config.stopwatch = &clock;
  return setup->oracle ? RunSearch(options, *setup, clock, watch) : RunOne(options, *setup, clock, watch);
}

Status CheckCompleted(const RunResult& run) {
  if (run.completed > 0) return Status();
  const int64_t counted = run.failed + run.rejected;
  if (counted == 0) {
    return InvalidArgument(
        "no request arrived in the measured part of the run: shorten --warmup or lengthen the load (--requests)");
  }
  return InvalidArgument(fmt::format("none of {} requests completed: {} rejected, {} failed{}{}", counted, run.rejected,
                                     run.failed,
                                     run.first_rejection.empty() ? "" : "; the first: ", run.first_rejection));
}

}  // namespace tactus::sim
