// `tactus sim`: what a workload, a model, devices and a scheduler would give, by the engine itself on a virtual clock.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/printable.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/sim_replay.h"
#include "cost/cost_model.h"
#include "obs/run_result.h"
#include "predict/predictor.h"
#include "route/balancer.h"
#include "sim/oracle.h"

namespace tactus::cli {
namespace {

using Json = nlohmann::ordered_json;

int Fail(const Status& status, int code) {
  std::fprintf(stderr, "tactus sim: %s\n", status.message().c_str());
  return code;
}

// Wrong input is wrong usage; a file that cannot be read or written is a failure.
int CodeOf(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

// File names and the like need not be UTF-8; what is not is replaced.
std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Entries>
Json Section(const Entries& entries) {
  Json section = Json::object();
  for (const auto& e : entries) section[std::string(e.name)] = std::string(e.help);
  return section;
}

Json KnownNames() {
  Json list;
  list["models"] = Section(cost::KnownModels());
  list["devices"] = Section(cost::KnownDevices());
  list["schedulers"] = Section(sched::Presets());
  for (const sched::SearchInfo& search : sched::Searches()) list["schedulers"][search.name] = search.help;
  list["order"] = Section(sched::Values(sched::Choice::kOrder));
  list["admission"] = Section(sched::Values(sched::Choice::kAdmission));
  list["composition"] = Section(sched::Values(sched::Choice::kComposition));
  list["budget"] = Section(sched::Values(sched::Choice::kBudget));
  list["preemption"] = Section(sched::Values(sched::Choice::kPreemption));
  list["gate"] = Section(sched::Values(sched::Choice::kGate));
  list["predictors"] = Section(predict::Predictors());
  list["balancers"] = Section(route::Balancers());
  list["workloads"] = Section(KnownWorkloads());
  return list;
}

int PrintList(bool json) {
  const Json list = KnownNames();
  if (json) {
    std::printf("%s\n", JsonLine(list).c_str());
    return kExitOk;
  }
  for (const auto& [section, entries] : list.items()) {
    std::printf("%s\n", section.c_str());
    for (const auto& [name, help] : entries.items())
      std::printf("  %-24s %s\n", name.c_str(), help.get<std::string>().c_str());
  }
  return kExitOk;
}

// A bar on a terminal; else a line every ten seconds.
class Progress {
 public:
  explicit Progress(bool terminal)
      : terminal_(terminal), begin_ns_(SystemClock().NowNs()), next_ns_(begin_ns_ + kSecond / 5) {}

  bool Show(const SimProgress& p) {
    const TimeNs now = SystemClock().NowNs();
    if (now >= next_ns_) {
      next_ns_ = now + (terminal_ ? kSecond / 5 : 10 * kSecond);
      Draw(p, now);
    }
    return InterruptCount() == 0;
  }
  void End(const SimProgress& p) {
    if (drawn_ && terminal_) {
      Draw(p, SystemClock().NowNs());
      std::fprintf(stderr, "\n");
    }
  }
  double seconds() const { return static_cast<double>(SystemClock().NowNs() - begin_ns_) * 1e-9; }

 private:
  void Draw(const SimProgress& p, TimeNs now) {
    const double seconds = static_cast<double>(now - begin_ns_) * 1e-9;
    const std::string text = fmt::format("{}/{} requests, {} steps, {:.0f} s simulated in {:.1f} s", p.ended, p.total,
                                         p.steps, static_cast<double>(p.now_ns) * 1e-9, seconds);
    drawn_ = true;
    if (!terminal_) {
      std::fprintf(stderr, "%s\n", text.c_str());
      return;
    }
    constexpr int kWidth = 30;
    const int filled = p.total > 0 ? static_cast<int>(kWidth * p.ended / p.total) : 0;
    std::fprintf(stderr, "\r[%.*s%*s] %s ", filled, "##############################", kWidth - filled, "",
                 text.c_str());
  }

  const bool terminal_;
  const TimeNs begin_ns_;
  TimeNs next_ns_;
  bool drawn_ = false;
};

// The result, and what it is the result of.
struct Report {
  RunResult run;
  Json json;
};

Report MakeReport(const SimOptions& o, const SimSetup& setup, RunResult run, const std::string& scheduler,
                  double wall_s) {
  if (o.rate > 0) run.request_rate_asked = o.rate;
  if (o.concurrency > 0) run.concurrency = o.concurrency;
  Json j = RunJson(run);
  j["workload"] = o.workload;
  j["scheduler"] = scheduler;
  j["cost"] = setup.cost_text;
  const cost::StepSpread& spread = setup.config.step_spread;
  j["step_noise"] =
      spread.any() ? Json{{"with_prompts", spread.with_prompts}, {"decodes_only", spread.decodes_only}} : Json(nullptr);
  j["devices"] = setup.cost != nullptr ? Json(o.tp * o.pp * o.replicas) : Json(nullptr);
  j["kv_blocks"] = setup.config.scheduler.limits.blocks_total;
  j["max_model_len"] = setup.config.scheduler.limits.max_model_len;
  j["seed"] = o.seed;
  j["wall_s"] = wall_s;
  j["steps_per_wall_second"] = wall_s > 0 ? Json(static_cast<double>(run.engine->steps) / wall_s) : Json(nullptr);
  return {std::move(run), std::move(j)};
}

int Write(const SimCommandOptions& options, const Report& report) {
  if (options.json) {
    std::printf("%s\n", JsonLine(report.json).c_str());
  } else {
    std::printf("%s", RunTable(report.run).c_str());
  }
  if (options.output.empty()) return kExitOk;
  const Status written =
      ReplaceFile(options.output, report.json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", "output");
  return written.ok() ? kExitOk : Fail(written, kExitFailed);
}

// A run that has completed nothing says nothing of a scheduler.
int CodeOf(const RunResult& run) {
  if (run.completed > 0) return kExitOk;
  const int64_t counted = run.failed + run.rejected;
  if (counted == 0) {
    return Fail(InvalidArgument("no request arrived in the measured part of the run: give less --warmup or a longer "
                                "load (--requests)"),
                kExitFailed);
  }
  return Fail(
      InvalidArgument(fmt::format("none of {} requests completed: {} rejected, {} failed{}{}", counted, run.rejected,
                                  run.failed, run.first_rejection.empty() ? "" : "; the first: ", run.first_rejection)),
      kExitFailed);
}

int RunOne(const SimCommandOptions& options, const SimSetup& setup) {
  auto made = Simulation::Create(setup.config, setup.workload.get());
  if (!made.ok()) return Fail(made.status(), CodeOf(made.status()));
  Simulation& sim = **made;
  std::fprintf(stderr, "scheduler %s\n", sim.Describe().c_str());
  Progress progress(isatty(STDERR_FILENO) != 0);
  const Status run = sim.Run([&](const SimProgress& p) { return progress.Show(p); });
  progress.End(sim.progress());
  if (!run.ok()) return Fail(run, kExitFailed);
  const Report report = MakeReport(options.sim, setup, sim.Outcome(), sim.Describe(), progress.seconds());
  if (const int code = Write(options, report); code != kExitOk) return code;
  if (sim.finished()) return CodeOf(report.run);
  const SimProgress p = sim.progress();
  std::fprintf(stderr, "tactus sim: interrupted after %lld of %lld requests, %.1f s of simulated time\n",
               static_cast<long long>(p.ended), static_cast<long long>(p.total), static_cast<double>(p.now_ns) * 1e-9);
  return kExitInterrupted;
}

int RunSearch(const SimCommandOptions& options, const SimSetup& setup) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const TimeNs begin = SystemClock().NowNs();
  TimeNs next = begin + kSecond;
  OracleOptions oracle;
  oracle.threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  SimulationJob job{setup.config, setup.open_workload};
  auto best = RunOracle(job, oracle, [&](const OracleProgress& p) {
    if (const TimeNs now = SystemClock().NowNs(); now >= next) {
      next = now + (terminal ? kSecond : 10 * kSecond);
      std::fprintf(stderr, "%soracle: %lld of %lld runs, best goodput %.3f requests/s%s", terminal ? "\r" : "",
                   static_cast<long long>(p.runs), static_cast<long long>(p.total), p.best_goodput,
                   terminal ? " " : "\n");
    }
    return InterruptCount() == 0;
  });
  if (terminal) std::fprintf(stderr, "\n");
  if (!best.ok())
    return Fail(best.status(),
                best.status().code() == StatusCode::kCancelled ? kExitInterrupted : CodeOf(best.status()));
  Report report = MakeReport(options.sim, setup, best->run, "oracle: " + best->from,
                             static_cast<double>(SystemClock().NowNs() - begin) * 1e-9);
  Json presets = Json::object();
  for (const auto& [name, goodput] : best->presets) presets[name] = goodput ? Json(*goodput) : Json(nullptr);
  report.json["oracle"] = {{"from", best->from},
                           {"presets", std::move(presets)},
                           {"swaps_tried", best->swaps_tried},
                           {"swaps_kept", best->swaps_kept}};
  const int code = Write(options, report);
  if (code != kExitOk) return code;
  return InterruptCount() > 0 ? kExitInterrupted : CodeOf(report.run);
}

}  // namespace

int SimCommand(const Args& args) {
  if (!args.empty() && (args[0] == "capacity" || args[0] == "compare")) {
    return Fail(
        Unimplemented(fmt::format("'sim {}' is not built yet: run 'tactus sim --json' per {} and compare the results",
                                  args[0], args[0] == "capacity" ? "--rate" : "--scheduler")),
        kExitUsage);
  }
  SimCommandOptions options;
  CommandLine line = SimLine(&options);
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.list) return PrintList(options.json);
  if (options.replay.empty() && options.times == "model") {
    return Fail(InvalidArgument("--times model is for a recorded run: name it with --replay"), kExitUsage);
  }
  if (!options.replay.empty() && options.times != "model" && !options.sim.steps_out.empty()) {
    return Fail(InvalidArgument("--steps-out compares measured with predicted steps: add --times model"), kExitUsage);
  }
  if (!options.replay.empty() && options.sim.step_noise != "none") {
    return Fail(
        InvalidArgument(fmt::format("--step-noise {} is for simulated steps: a replay has the recorded ones, and with "
                                    "--times model it shows how far off the model itself is; leave it out",
                                    Printable(options.sim.step_noise))),
        kExitUsage);
  }
  if (!options.output.empty()) {
    if (const Status status = CheckWritable(options.output, "output"); !status.ok()) return Fail(status, kExitFailed);
  }
  if (!options.replay.empty()) {
    const SimOptions& o = options.sim;
    return SimReplay({options.replay, options.times, o.cost == "auto" ? "" : o.cost, o.model, o.device, o.tp,
                      options.json, options.output, o.steps_out});
  }
  auto setup = SetUp(options.sim);
  if (!setup.ok()) return Fail(setup.status(), CodeOf(setup.status()));
  for (const std::string& note : setup->notes) std::fprintf(stderr, "%s\n", note.c_str());
  setup->config.stopwatch = &SystemClock();
  CatchInterrupt();
  return setup->oracle ? RunSearch(options, *setup) : RunOne(options, *setup);
}

}  // namespace tactus::cli
