#include <fmt/format.h>
#include <signal.h>

#include <atomic>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/memory_shortage.h"
#include "base/printable.h"
#include "base/shortage.h"
#include "fleet/router/router_server.h"
#include "http/serving_process.h"

namespace tactus::fleet {
namespace {

constexpr DurationNs kFindReplicasNs = kSecond;  // the line at the start waits up to this time for ready replicas
constexpr DurationNs kFlushNs = 5 * kSecond;     // for clients to read the errors that end their answers

// The replicas that were found, and an example request.
std::string FoundText(const RouterServer& server, const RouterOptions& options, const std::string& url) {
  const int64_t all = server.replicas(), ready = server.ready_replicas();
  if (ready == 0) return fmt::format("none of {} replicas is ready yet", all);
  return fmt::format("{} by {} of {} replicas - try: curl {}/v1/chat/completions{} --json '{}'",
                     Printable(server.model()), ready, all, url,
                     options.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'",
                     R"({"messages": [{"role": "user", "content": "Hello"}]})");
}

Status Run(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder) {
  signal(SIGPIPE, SIG_IGN);
  http::StopSignals signals(log);
  http::RaiseFileLimit(options.max_connections, kFilesPerConnection, log);
  std::atomic<bool> started{options.verbose};
  const auto told = [&](std::string_view line) {
    if (started.load() || line.starts_with("warning: ")) log(line);
  };
  TACTUS_ASSIGN_OR_RETURN(const auto server, RouterServer::Listen(options, SystemClock(), told, recorder));
  const std::string url = http::UrlOf(options.host, server->port());
  if (!http::IsLoopback(options.host) && options.api_key.empty())
    log(fmt::format("warning: {} is reachable from other machines and needs no key; set --api-key", url));
  WaitForMemoryWhereNeeded(SystemClock());
  const NeedsMemory needs_memory;
  signals.Serving();
  bool stop = false;
  const TimeNs until_ns = SystemClock().NowNs() + kFindReplicasNs;
  const auto all_ready = [&] { return server->replicas() > 0 && server->ready_replicas() == server->replicas(); };
  while (!stop && !all_ready() && SystemClock().NowNs() < until_ns) stop = signals.WaitFor(20 * kMillisecond);
  bool said = server->ready_replicas() > 0;
  log(fmt::format("routing on {} ({}): {}", url, options.fleet.balancer, FoundText(*server, options, url)));
  started.store(true);
  while (!stop) {
    stop = signals.WaitFor(100 * kMillisecond);
    KeepMemoryInReserve();
    if (stop || said || server->ready_replicas() == 0) continue;
    try {
      log(fmt::format("ready: {} on {}", Printable(server->model()), url));
      said = true;
    } catch (const std::bad_alloc&) {  // logged in the next round
    }
  }
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

Status RunRouter(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder) {
  TACTUS_RETURN_IF_ERROR(RouterServer::Check(options));
  const RouterOptions fitted = FittedToMemory(options, AvailableMemoryBytes(), log);
  return CatchShortage([&] { return Run(fitted, log, recorder); }, "--max-body-total", nullptr);
}

}  // namespace tactus::fleet
