#include "serve/run_server.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <new>
#include <sstream>

#include "api/chat/chat_style.h"
#include "base/clock.h"
#include "base/fleet_secret.h"
#include "base/memory_shortage.h"
#include "base/shortage.h"
#include "http/access.h"
#include "http/request_reports.h"
#include "http/server_log.h"
#include "http/service_manager.h"
#include "http/serving_process.h"
#include "http/traces.h"
#include "serve/api_server.h"
#include "serve/step_watchdog.h"

namespace tactus {
namespace {

constexpr DurationNs kFlushNs = 5 * kSecond;               // after the last token, for clients to receive their bytes
constexpr int64_t kImportSpaceBytes = int64_t{256} << 20;  // default without --swap-space

// "ready: NAME on URL", with an example command.
std::string ReadyLine(const Engine& engine, const ServeOptions& options, const std::string& url) {
  const ModelInfo& model = engine.model();
  std::string names = model.name;
  for (size_t i = 0; i < model.other_names.size(); ++i)
    names += (i == 0 ? " (also " : ", ") + model.other_names[i] + (i + 1 == model.other_names.size() ? ")" : "");
  const std::string key = options.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  const bool chats = !model.chat_template.empty();
  return fmt::format("ready: {} on {} - try: curl {}/v1/{}{} --json '{}'", names, url, url,
                     chats ? "chat/completions" : "completions", key,
                     chats ? R"({"messages": [{"role": "user", "content": "Hello"}]})" : R"({"prompt": "Hello"})");
}

// What is served and within which limits, a fact per line. The whole start is in the details (--verbose).
void LogFacts(const Engine& engine, const EngineOptions& options, const Engine::Progress& log) {
  const ModelInfo& model = engine.model();
  const EngineStats stats = engine.Stats();
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30); };
  const bool on_cpu = model.device.empty() || model.device.starts_with("cpu");
  log(fmt::format("model: {}, {:.1f} M parameters, weights {}{}", model.architecture,
                  static_cast<double>(model.num_parameters) * 1e-6, model.weight_format,
                  on_cpu ? "" : ", on " + model.device));
  log(fmt::format("memory: up to {:.2f} GiB for weights, KV cache and requests", gib(model.memory_bytes)));
  log(fmt::format("KV cache: {} tokens; longest context {} tokens", stats.kv_blocks_total * stats.block_size,
                  model.max_model_len));
  log(fmt::format("scheduler: {}, at most {} tokens per step", options.scheduler, stats.step_tokens));
}

// Applies what may change while the server runs.
void Reload(const EngineOptions& engine_options, const http::ProcessParts& parts, Engine* engine,
            serve::ApiServer* server, const http::Log& log) {
  std::vector<std::pair<const char*, Status>> done;
  if (parts.log != nullptr) done.emplace_back("the log", parts.log->Reopen());
  done.emplace_back("certificates", server->ReloadTls());
  std::vector<std::string> restart;
  if (parts.reread) {
    const auto fresh = parts.reread();
    Status keys = fresh.status(), classes = fresh.status();
    if (fresh.ok()) {
      classes = fresh->slo_class.empty() && engine_options.slo_class.empty()
                    ? Status()
                    : engine->SetServiceClasses(fresh->slo_class);
      keys = http::CheckApiKeys(fresh->api_key);
      if (keys.ok()) keys = http::CheckKeyClasses(fresh->api_key, fresh->api_key_class, engine_options.slo_class);
      if (keys.ok()) keys = server->SetKeys(fresh->api_key, fresh->api_key_class);
      restart = fresh->restart;
    }
    done.emplace_back("keys", keys);
    done.emplace_back("classes", classes);
  }
  http::LogReload(done, restart, log);
}

// Looks for a stuck step, and tells server and log.
void LookAtSteps(const Engine& engine, const ServeOptions& options, TimeNs now_ns, serve::StepWatchdog* watchdog,
                 serve::ApiServer* server, const http::Log& log) {
  const auto line = watchdog->Look(engine.Stats(), now_ns);
  if (!line) return;
  server->SetStuck(watchdog->stuck());  // before the line, whose readers may ask /health
  log(*line);
  if (!watchdog->stuck()) return;
  std::istringstream steps(engine.LastSteps());
  for (std::string step; std::getline(steps, step);) log("ended before: " + step);
  if (!options.step_watchdog_exit) return;
  log("error: the process ends (--step-watchdog-exit)");
  http::EndNow();
}

Status Run(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
           const Engine::Progress& progress, std::optional<RunResult>* result, const http::ProcessParts& parts) {
  TACTUS_RETURN_IF_ERROR(CheckServeOptions(engine_options, options));
  const Engine::Progress log = progress ? progress : [](std::string_view) {};
  const auto detail = [&](std::string_view text) {
    if (options.verbose) log(text);
  };
  signal(SIGPIPE, SIG_IGN);
  http::StopSignals signals(log);
  http::RaiseFileLimit(options.max_connections, 1, log);
  Clock& clock = SystemClock();
  http::ServiceManager manager(clock);
  std::unique_ptr<http::TraceExporter> traces;
  if (!options.otlp_traces_endpoint.empty()) {
    TACTUS_ASSIGN_OR_RETURN(traces, http::TraceExporter::Start(options.otlp_traces_endpoint, "tactus-serve", clock));
  }
  const http::RequestReports reports(options.access_log ? parts.log : nullptr, traces.get());
  TACTUS_ASSIGN_OR_RETURN(auto server,
                          serve::ApiServer::Listen(options, clock, log, reports.any() ? &reports : nullptr));
  const std::string url = http::UrlOf(options.host, server->port(), !options.tls_cert.empty());
  http::WarnIfOpen(options, url, log);
  detail(fmt::format("listening on {} (loading)", url));
  EngineOptions planned = engine_options;
  if (!options.kv_secret_file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(planned.kv_secret, ReadFleetSecret(options.kv_secret_file));
    if (planned.swap_space.bytes == 0) {
      planned.swap_space.bytes = kImportSpaceBytes;
      detail(fmt::format("fleet: {} MiB of memory for sequences that come from other replicas (--swap-space)",
                         kImportSpaceBytes >> 20));
    }
  }
  planned.front_end_bytes = options.FrontEndBytes();
  TACTUS_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, factory(planned, log));
  // Declared after the engine, so that the server is destroyed first.
  std::unique_ptr<serve::ApiServer> owned = std::move(server);
  owned->SetEngine(engine.get(), engine_options);
  if (const BodyLimits bodies = options.BodiesWithin(engine->model().front_end_bytes);
      bodies.max_body_bytes < options.max_body.bytes) {
    log(ShortMemoryText(options.Bodies(), bodies) + "; lower --kv-cache-memory, or allow this process more memory");
  }
  WaitForMemoryWhereNeeded(clock);
  const NeedsMemory needs_memory;
  signals.Serving();
  LogFacts(*engine, engine_options, log);
  log(ReadyLine(*engine, options, url));
  const std::string state = fmt::format("serving {} on {}", engine->model().name, url);
  manager.Ready(state);

  serve::StepWatchdog watchdog(options.step_watchdog, options.step_watchdog_least.ns);
  bool healthy = true, reload = false;
  while (healthy && !signals.WaitFor(100 * kMillisecond)) {
    KeepMemoryInReserve();
    reload = signals.TakeReload() || reload;
    if (reload) {
      try {
        manager.Reloading();
        Reload(engine_options, parts, engine.get(), owned.get(), log);
        manager.Ready(state);
        reload = false;
      } catch (const std::bad_alloc&) {  // again in the next round
      }
    }
    healthy = engine->Stats().healthy;
    LookAtSteps(*engine, options, clock.NowNs(), &watchdog, owned.get(), log);
    if (!watchdog.stuck()) manager.Alive();
    for (const std::string& line : engine->TakeWarnings()) log("warning: " + line);
    if (traces != nullptr) {
      if (const std::string line = traces->TakeWarning(); !line.empty()) log("warning: " + line);
    }
  }
  manager.Stopping();
  owned->StopAdmission();
  if (watchdog.stuck()) {
    log("error: a step is stuck, so that no running request can end: the process ends at once");
    http::EndNow();
  }
  const int64_t running = engine->Stats().running + engine->Stats().waiting;
  log(fmt::format("{}: no new requests; {} to finish within {} ms", healthy ? "stopping" : "the engine failed", running,
                  options.shutdown_timeout.ns / kMillisecond));
  const DurationNs time_ns = healthy ? options.shutdown_timeout.ns : 0;
  const TimeNs stopped_ns = clock.NowNs();
  const int64_t cut_off = engine->Drain(time_ns);
  owned->FinishParsing(std::max<DurationNs>(0, time_ns - (clock.NowNs() - stopped_ns)));
  if (cut_off > 0) log(fmt::format("{} requests were cut off by --shutdown-timeout", cut_off));
  if (!owned->WaitUntilIdle(kFlushNs)) log("some clients did not receive their answers in time");
  if (result != nullptr) *result = engine->Outcome();
  owned.reset();
  const Status failure = engine->Failure();
  const Status closed = engine->Close();
  if (!healthy) {
    if (!closed.ok()) log(closed.message());
    return Internal(failure.ok() ? "the engine failed three steps in a row" : failure.message());
  }
  TACTUS_RETURN_IF_ERROR(closed);
  log("stopped");
  return Status();
}

}  // namespace

Status CheckServeOptions(const EngineOptions& engine_options, const ServeOptions& options) {
  TACTUS_RETURN_IF_ERROR(http::CheckKeyClasses(options.api_key, options.api_key_class, engine_options.slo_class));
  TACTUS_RETURN_IF_ERROR(api::CheckParserNames(options.tool_call_parser, options.reasoning_parser));
  return serve::ApiServer::Check(options);
}

Status RunServer(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
                 const Engine::Progress& progress, std::optional<RunResult>* result, const http::ProcessParts& parts) {
  return CatchShortage([&] { return Run(engine_options, options, factory, progress, result, parts); });
}

}  // namespace tactus
