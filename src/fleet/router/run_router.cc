#include <fmt/format.h>
#include <signal.h>

#include <new>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/memory_shortage.h"
#include "base/printable.h"
#include "base/shortage.h"
#include "fleet/router/quiet_start.h"
#include "fleet/router/router_server.h"
#include "http/request_reports.h"
#include "http/server_log.h"
#include "http/service_manager.h"
#include "http/serving_process.h"
#include "http/traces.h"

namespace tactus::fleet {
namespace {

constexpr DurationNs kFlushNs = 5 * kSecond;  // for clients to read the errors that end their answers

// The replicas that were found, and an example request.
std::string FoundText(const RouterServer& server, const RouterOptions& options, const std::string& url) {
  const int64_t all = server.replicas(), ready = server.ready_replicas();
  if (ready == 0) return fmt::format("none of {} replicas is ready yet", all);
  return fmt::format("{} by {} of {} replicas - try: curl {}/v1/chat/completions{} --json '{}'",
                     Printable(server.model()), ready, all, url,
                     options.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'",
                     R"({"messages": [{"role": "user", "content": "Hello"}]})");
}

void Reload(const http::ProcessParts& parts, RouterServer* server, const http::Log& log) {
  std::vector<std::pair<const char*, Status>> done;
  if (parts.log != nullptr) done.emplace_back("the log", parts.log->Reopen());
  done.emplace_back("certificates", server->ReloadTls());
  std::vector<std::string> restart;
  if (parts.reread) {
    const auto fresh = parts.reread();
    done.emplace_back("keys", fresh.ok() ? server->SetKeys(fresh->api_key, fresh->admin_key) : fresh.status());
    if (fresh.ok()) restart = fresh->restart;
  }
  http::LogReload(done, restart, log);
}

Status Run(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder,
           const http::ProcessParts& parts) {
  signal(SIGPIPE, SIG_IGN);
  http::StopSignals signals(log);
  http::RaiseFileLimit(options.max_connections, kFilesPerConnection, log);
  QuietStart start(options.verbose, SystemClock(), log);
  const auto fleet_log = [&start](std::string_view line) { start.Log(line); };
  http::ServiceManager manager(SystemClock());
  std::unique_ptr<http::TraceExporter> traces;
  if (!options.otlp_traces_endpoint.empty()) {
    TACTUS_ASSIGN_OR_RETURN(traces,
                            http::TraceExporter::Start(options.otlp_traces_endpoint, "tactus-route", SystemClock()));
  }
  const http::RequestReports reports(options.access_log ? parts.log : nullptr, traces.get());
  TACTUS_ASSIGN_OR_RETURN(const auto server, RouterServer::Listen(options, SystemClock(), fleet_log, recorder,
                                                                  reports.any() ? &reports : nullptr));
  const std::string url = http::UrlOf(options.host, server->port(), !options.tls_cert.empty());
  http::WarnIfOpen(options, url, log);
  WaitForMemoryWhereNeeded(SystemClock());
  const NeedsMemory needs_memory;
  signals.Serving();
  bool stop = start.AwaitReplicas(
      signals, [&] { return server->replicas() > 0 && server->ready_replicas() == server->replicas(); });
  bool said = server->ready_replicas() > 0;
  log(fmt::format("routing on {} ({}): {}", url, options.fleet.balancer, FoundText(*server, options, url)));
  start.End();
  const std::string state = "routing on " + url;
  manager.Ready(state);
  bool reload = false;
  while (!stop) {
    stop = signals.WaitFor(100 * kMillisecond);
    KeepMemoryInReserve();
    manager.Alive();
    reload = signals.TakeReload() || reload;
    if (reload) {
      try {
        manager.Reloading();
        Reload(parts, server.get(), log);
        manager.Ready(state);
        reload = false;
      } catch (const std::bad_alloc&) {  // again in the next round
      }
    }
    if (traces != nullptr) {
      if (const std::string line = traces->TakeWarning(); !line.empty()) log("warning: " + line);
    }
    if (stop || said || server->ready_replicas() == 0) continue;
    try {
      log(fmt::format("ready: {} on {}", Printable(server->model()), url));
      said = true;
    } catch (const std::bad_alloc&) {  // logged in the next round
    }
  }
  manager.Stopping();
  server->StopAdmission();
  log(fmt::format("stopping: no new requests; {} to finish within {} ms", server->in_flight(),
                  options.shutdown_timeout.ns / kMillisecond));
  if (!server->WaitUntilIdle(options.shutdown_timeout.ns)) {
    log(fmt::format("{} requests were cut off by --shutdown-timeout", server->in_flight()));
    server->CutOff();
    if (!server->WaitUntilIdle(kFlushNs)) log("some clients did not receive their answers in time");
  }
  log("stopped");
  return Status();
}

}  // namespace

Status RunRouter(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder,
                 const http::ProcessParts& parts) {
  TACTUS_RETURN_IF_ERROR(RouterServer::Check(options));
  const RouterOptions fitted = FittedToMemory(options, AvailableMemoryBytes(), log);
  return CatchShortage([&] { return Run(fitted, log, recorder, parts); }, "--max-body-total", nullptr);
}

}  // namespace tactus::fleet
