// `tactus sim`: simulates a workload on a model, devices and a scheduler, with the real engine on a virtual clock.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/commands/papers_text.h"
#include "cli/commands/sim_commands.h"
#include "cli/commands/sim_replay.h"
#include "cli/options/command_options.h"
#include "cli/options/interrupt.h"
#include "cli/options/progress_line.h"
#include "cli/search/sim_cases.h"
#include "core/predict/predictor.h"
#include "cost/cost_model.h"
#include "fleet/balance/balancer.h"
#include "results/obs/run_result.h"
#include "sim/sim_run.h"

namespace tactus::cli {
namespace {

int FailSim(const Status& status, int code) {
  return FailOf("sim", status, code);
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
  list["schedulers"] = Section(core::Presets());
  for (const core::SearchInfo& search : core::Searches()) list["schedulers"][search.name] = search.help;
  list["order"] = Section(core::Values(core::Choice::kOrder));
  list["admission"] = Section(core::Values(core::Choice::kAdmission));
  list["composition"] = Section(core::Values(core::Choice::kComposition));
  list["budget"] = Section(core::Values(core::Choice::kBudget));
  list["preemption"] = Section(core::Values(core::Choice::kPreemption));
  list["gate"] = Section(core::Values(core::Choice::kGate));
  list["speculation"] = {{"none", "no speculation: one token per sequence and step"},
                         {"ngram", "drafts from the text itself, accepted with probability --draft-acceptance"},
                         {"draft", "drafts of a smaller model, whose time is not simulated"}};
  list["predictors"] = Section(core::Predictors());
  list["balancers"] = Section(fleet::Balancers());
  list["workloads"] = Section(sim::KnownWorkloads());
  return list;
}

int PrintList(bool json) {
  const Json list = KnownNames();
  if (json) {
    std::printf("%s\n", list.dump().c_str());
    return kExitOk;
  }
  for (const auto& [section, entries] : list.items()) {
    std::printf("%s\n", section.c_str());
    for (const auto& [name, help] : entries.items())
      std::printf("  %-24s %s\n", name.c_str(), help.get<std::string>().c_str());
  }
  return kExitOk;
}

int Write(const SimCommandOptions& options, const sim::SimReport& report, const results::KeptSeries* series) {
  if (!options.json) std::printf("%s%s", results::RunTable(report.run).c_str(), report.text.c_str());
  if (!options.json && series != nullptr) std::printf("\n%s", series->Table().c_str());
  const Status written = WriteResult(report.json, options.json, options.output);
  return written.ok() ? kExitOk : FailSim(written, kExitFailed);
}

int CodeOf(const RunResult& run) {
  const Status completed = sim::CheckCompleted(run);
  return completed.ok() ? kExitOk : FailSim(completed, kExitFailed);
}

int RunOne(const SimCommandOptions& options, const CommandLine& line, sim::SimSetup* setup) {
  RunOut run_out = options.run_out;
  const auto series = KeepSeries(options.timeseries, &run_out);
  if (!series.ok()) return FailSim(series.status(), ExitCodeOf(series.status()));
  auto file = OpenRunFile(run_out, line, results::RunFileWriter::WhenBehind::kWait);
  if (!file.ok()) return FailSim(file.status(), ExitCodeOf(file.status()));
  std::optional<core::RunRecorder> recorder;
  if (*file != nullptr || *series != nullptr)
    setup->config.recorder = &recorder.emplace(std::move(*file), 0, series->get());
  std::optional<ProgressLine> progress;
  sim::SimWatch watch;
  watch.begun = [&progress](const std::string& scheduler) {
    std::fprintf(stderr, "scheduler %s\n", scheduler.c_str());
    progress.emplace(SystemClock());
  };
  watch.run = [&progress](const sim::SimProgress& p) {
    progress->Show(p.ended, p.total, "requests",
                   fmt::format("{} steps, {:.0f} s simulated", p.steps, static_cast<double>(p.now_ns) * 1e-9));
    return InterruptCount() == 0;
  };
  auto report = sim::RunSetup(options.sim, setup, SystemClock(), watch);
  if (!report.ok()) return FailSim(report.status(), progress ? kExitFailed : ExitCodeOf(report.status()));
  const sim::SimProgress& p = report->progress;
  progress->End();
  if (recorder) {
    const std::string result = report->json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (const Status written = recorder->Close(result); !written.ok()) return FailSim(written, kExitFailed);
  }
  if (*series != nullptr) report->json["timeseries"] = (*series)->ToJson();
  if (const int code = Write(options, *report, series->get()); code != kExitOk) return code;
  if (report->finished) return CodeOf(report->run);
  std::fprintf(stderr, "tactus sim: interrupted after %lld of %lld requests, %.1f s of simulated time\n",
               static_cast<long long>(p.ended), static_cast<long long>(p.total), static_cast<double>(p.now_ns) * 1e-9);
  return kExitInterrupted;
}

int RunSearch(const SimCommandOptions& options, sim::SimSetup* setup) {
  ProgressLine progress(SystemClock());
  sim::SimWatch watch;
  watch.search = [&](const sim::OracleProgress& p) {
    std::string more = fmt::format("best goodput {:.3f} requests/s", p.best_goodput);
    if (p.bound.most_rounds > 0)
      more += fmt::format(", upper bound: round {} of at most {}", p.bound.round + 1, p.bound.most_rounds);
    progress.Show(p.runs, p.total, "runs of the oracle", more);
    return InterruptCount() == 0;
  };
  const auto report = sim::RunSetup(options.sim, setup, SystemClock(), watch);
  progress.End();
  if (!report.ok())
    return FailSim(report.status(),
                   report.status().code() == StatusCode::kCancelled ? kExitInterrupted : ExitCodeOf(report.status()));
  if (const int code = Write(options, *report, nullptr); code != kExitOk) return code;
  return InterruptCount() > 0 ? kExitInterrupted : CodeOf(report->run);
}

// Runs the simulation with several seeds: each metric's mean and confidence interval.
int RunOverSeeds(const SimCommandOptions& options) {
  if (const Status status = CheckForMany(options); !status.ok()) return FailSim(status, ExitCodeOf(status));
  CatchInterrupt();
  std::fprintf(stderr, "%lld runs on %d threads\n", static_cast<long long>(options.seeds), ThreadsOf(options));
  const auto sets = RunSeeds({{"", options.sim}}, options.seeds, ThreadsOf(options));
  if (!sets.ok()) {
    const bool cancelled = sets.status().code() == StatusCode::kCancelled;
    return FailSim(sets.status(), cancelled ? kExitInterrupted : ExitCodeOf(sets.status()));
  }
  const Json json = RunSetJson(sets->front());
  if (!options.json) std::printf("%s", RunSetTable(json).c_str());
  const Status written = WriteResult(json, options.json, options.output);
  return written.ok() ? kExitOk : FailSim(written, kExitFailed);
}

}  // namespace

int SimCommand(const Args& args) {
  static constexpr std::pair<std::string_view, int (*)(const Args&)> kCommands[] = {
      {"capacity", SimCapacityCommand}, {"sweep", SimSweepCommand}, {"compare", SimCompareCommand},
      {"step", SimStepCommand},         {"chunk", SimChunkCommand},
  };
  for (const auto& [name, command] : kCommands) {
    if (!args.empty() && args[0] == name) return command(Args(args.begin() + 1, args.end()));
  }
  SimCommandOptions options;
  CommandLine line = SimLine(&options);
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.list) return PrintList(options.json);
  if (options.print_papers) {
    const std::string_view text = PapersText();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  if (options.seeds > 1) return RunOverSeeds(options);
  if (options.replay.empty() && options.times == "model") {
    return FailSim(InvalidArgument("--times model needs a recorded run: name it with --replay"), kExitUsage);
  }
  if (!options.replay.empty() && options.times != "model" && !options.sim.steps_out.empty()) {
    return FailSim(InvalidArgument("--steps-out compares measured with predicted step times: add --times model"),
                   kExitUsage);
  }
  if (!options.replay.empty() && options.sim.step_noise != "none") {
    return FailSim(
        InvalidArgument(fmt::format("--step-noise {} applies to simulated steps only: a replay uses recorded step "
                                    "times, or those of the model with --times model; leave it out",
                                    Printable(options.sim.step_noise))),
        kExitUsage);
  }
  if (!options.run_out.path.empty() && core::FindSearch(options.sim.scheduler) != nullptr) {
    return FailSim(InvalidArgument("--run-out records one simulated run, and this scheduler makes many: use it in a "
                                   "run of the scheduler that the result names"),
                   kExitUsage);
  }
  if (options.timeseries.interval.ns != 0 && core::FindSearch(options.sim.scheduler) != nullptr) {
    return FailSim(InvalidArgument("--timeseries describes one simulated run, and this scheduler makes many: use it in "
                                   "a run of the scheduler that the result names"),
                   kExitUsage);
  }
  if (const Status status = CheckApart({{"run-out", options.run_out.path},
                                        {"steps-out", options.sim.steps_out},
                                        {"requests-out", options.sim.requests_out},
                                        {"trace-out", options.sim.trace_out},
                                        {"replay", options.replay},
                                        {"output", options.output}});
      !status.ok())
    return FailSim(status, kExitUsage);
  for (const auto& [path, option] :
       {std::pair{&options.sim.steps_out, "steps-out"}, std::pair{&options.sim.requests_out, "requests-out"},
        std::pair{&options.sim.trace_out, "trace-out"}, std::pair{&options.output, "output"}}) {
    if (path->empty()) continue;
    // Only the result file's folder is created.
    std::error_code error;
    const auto folder = std::filesystem::absolute(*path, error).parent_path();
    if (path != &options.output && !std::filesystem::is_directory(folder, error)) {
      return FailSim(InvalidArgument(fmt::format("cannot write --{} '{}': '{}' is not a folder; create it first",
                                                 option, Printable(*path), Printable(folder.string())),
                                     option),
                     kExitUsage);
    }
    if (const Status status = CheckWritable(*path, option); !status.ok()) return FailSim(status, kExitFailed);
  }
  if (const Status status = CheckRunOut(options.run_out); !status.ok()) return FailSim(status, ExitCodeOf(status));
  if (!options.replay.empty()) {
    const sim::SimOptions& o = options.sim;
    RunOut run_out = options.run_out;
    const auto series = KeepSeries(options.timeseries, &run_out);
    if (!series.ok()) return FailSim(series.status(), ExitCodeOf(series.status()));
    auto run_file = OpenRunFile(run_out, line, results::RunFileWriter::WhenBehind::kWait);
    if (!run_file.ok()) return FailSim(run_file.status(), ExitCodeOf(run_file.status()));
    return SimReplay({options.replay, options.times, o.cost == "auto" ? "" : o.cost, o.model, o.device, o.tp,
                      options.json, options.output, o.steps_out},
                     std::move(*run_file), series->get());
  }
  auto setup = SetUp(options.sim);
  if (!setup.ok()) return FailSim(setup.status(), ExitCodeOf(setup.status()));
  for (const std::string& note : setup->notes) std::fprintf(stderr, "%s\n", note.c_str());
  CatchInterrupt();
  return setup->oracle ? RunSearch(options, &*setup) : RunOne(options, line, &*setup);
}

}  // namespace tactus::cli
