// `tactus serve`: parses options and runs serve/run_server.h.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/changed_options.h"
#include "cli/options/command_options.h"
#include "cli/options/start_log.h"
#include "compute/model/catalog.h"
#include "core/sched/scheduler.h"
#include "engine/create_engine.h"
#include "engine/start/check_model.h"
#include "engine/start/check_options.h"
#include "http/server_log.h"
#include "serve/run_server.h"

namespace tactus::cli {
namespace {

std::string SchedulerHelp() {
  std::string text =
      "\nSchedulers (--scheduler), each a combination of five choices that can be replaced one by one:\n";
  for (const auto& p : core::Presets()) {
    text += fmt::format("  {:<24}  {} ({}, {}, {}, {}, {})\n", p.name, p.help, p.order, p.admission, p.composition,
                        p.budget, p.preemption);
  }
  const std::pair<const char*, core::Choice> choices[] = {{"--order", core::Choice::kOrder},
                                                          {"--admission", core::Choice::kAdmission},
                                                          {"--composition", core::Choice::kComposition},
                                                          {"--budget", core::Choice::kBudget},
                                                          {"--preemption", core::Choice::kPreemption},
                                                          {"--gate", core::Choice::kGate}};
  for (const auto& [flag, choice] : choices) {
    text += "\n" + std::string(flag) + ":\n";
    for (const auto& value : core::Values(choice)) {
      text += fmt::format("  {:<24}  {}\n", value.name, value.help);
    }
  }
  return text;
}

// Reports errors of the model's files before weights are read.
Status CheckModelOf(const EngineOptions& options) {
  if (IsRemote(options.model)) return Status();  // not downloaded for a start that fails
  TACTUS_ASSIGN_OR_RETURN(const std::string path, compute::ResolveModel(options.model));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  return engine::CheckStart(options, description, SystemClock());
}

// Checks flags and files to be written.
Status CheckBeforeModel(const ServeCommandOptions& options) {
  TACTUS_RETURN_IF_ERROR(CheckServeOptions(options.engine, options.serve));
  TACTUS_RETURN_IF_ERROR(CheckApart({{"run-out", options.run_out.path}, {"trace-out", options.engine.trace_out}}));
  TACTUS_RETURN_IF_ERROR(engine::CheckOptions(options.engine));
  return CheckRunOut(options.run_out);
}

// The options of a reload, from the arguments of the command.
Result<http::ProcessParts::Reread> Reread(const Args& args, const std::string& before) {
  ServeCommandOptions fresh;
  CommandLine line = ServeLine(&fresh);
  TACTUS_RETURN_IF_ERROR(line.Read(args));
  TACTUS_ASSIGN_OR_RETURN(const std::string after, line.ConfigText());
  return http::ProcessParts::Reread{.api_key = fresh.serve.api_key,
                                    .api_key_class = fresh.serve.api_key_class,
                                    .slo_class = fresh.engine.slo_class,
                                    .admin_key = {},
                                    .restart = ChangedOptions(before, after, {"api-key-class", "slo-class"})};
}

int FailServe(const Status& status) {
  std::fprintf(stderr, "tactus serve: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;  // as in `tactus sim`
}

}  // namespace

int ServeCommand(const Args& args) {
  ServeCommandOptions options;
  EngineOptions& engine = options.engine;
  CommandLine line = ServeLine(&options);
  line.Details(SchedulerHelp());
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (const core::SearchInfo* search = core::FindSearch(engine.scheduler); search != nullptr) {
    std::fprintf(
        stderr,
        "tactus serve: --scheduler %s needs all requests in advance and exists only in simulation ('tactus sim')\n",
        search->name);
    return kExitUsage;
  }
  if (const Status status = CheckBeforeModel(options); !status.ok()) return FailServe(status);
  std::unique_ptr<core::RunRecorder> recorder;  // opened late: a start that fails on port or model keeps an older file
  std::optional<RunResult> result;
  const auto before = line.ConfigText();
  auto opened = before.ok() ? http::ServerLog::Open(options.serve.log)
                            : Result<std::unique_ptr<http::ServerLog>>(before.status());
  if (!opened.ok()) return FailServe(opened.status());
  http::ServerLog& file = **opened;
  options.serve.verbose = options.serve.verbose || file.shows(http::LogLevel::kDebug);
  StartLog log(options.serve.verbose, &file);
  const http::ProcessParts parts{.log = &file, .reread = [&] { return Reread(args, *before); }};
  Status status = RunServer(
      engine, options.serve,
      [&](const EngineOptions& o, const Engine::Progress&) -> Result<std::unique_ptr<Engine>> {
        EngineOptions local = o;
        TACTUS_RETURN_IF_ERROR(FetchModels(&local, &log));
        TACTUS_RETURN_IF_ERROR(compute::ResolveModel(local.model).status());
        TACTUS_ASSIGN_OR_RETURN(recorder, OpenEngineRecorder(options.run_out, line, SystemClock()));
        return engine::CreateEngine(local, [&log](std::string_view text) { log.Detail(text); },
                                    {.clock = &SystemClock(), .recorder = recorder.get()});
      },
      [&log](std::string_view text) { log.Line(text); },
      options.json || !options.run_out.path.empty() ? &result : nullptr, parts);
  if (status.code() == StatusCode::kUnavailable) {
    // The port is taken, which is detected before anything slow. A faulty model is reported first because another port
    // would not help.
    const Status model = CheckModelOf(engine);
    if (!model.ok() && model.message() != status.message())
      status = Status(model.code(), fmt::format("{}; also, {}", model.message(), status.message()), model.param());
  }
  if (result && recorder != nullptr) {
    const Status written = recorder->Close(ToJson(*result));
    if (status.ok()) status = written;
  }
  if (result && options.json) std::printf("%s\n", ToJson(*result).c_str());
  if (status.ok()) return kExitOk;
  if (file.to_file()) file.Write(http::LogLevel::kError, status.message());
  return FailServe(status);
}

}  // namespace tactus::cli
