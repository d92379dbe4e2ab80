#include <fmt/format.h>
#include <signal.h>

#include "base/clock.h"
#include "base/shortage.h"
#include "http/serving_process.h"
#include "router/router_server.h"

namespace tactus::router {
namespace {

constexpr DurationNs kFlushNs = 5 * kSecond;  // for the clients to take what ends their answers

Status Run(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder) {
  if (options.host.empty()) {
    return InvalidArgument("--host is empty; give an address such as 127.0.0.1, or 0.0.0.0 to listen on every network",
                           "host");
  }
  signal(SIGPIPE, SIG_IGN);
  http::StopSignals signals;
  http::RaiseFileLimit(2 * options.max_connections, log);  // each has one to a replica
  TACTUS_ASSIGN_OR_RETURN(const auto server, RouterServer::Listen(options, SystemClock(), log, recorder));
  const std::string url = http::UrlOf(options.host, server->port());
  if (!http::IsLoopback(options.host) && options.api_key.empty())
    log(fmt::format("warning: {} is reachable from other machines and asks for no key; set --api-key", url));
  log(fmt::format("routing on {} ({})", url, options.fleet.balancer));
  signals.Serving();
  bool said = false;
  while (!signals.WaitFor(100 * kMillisecond)) {
    if (!said && server->ready_replicas() > 0) log(fmt::format("ready: {}", url));
    said |= server->ready_replicas() > 0;
  }
  server->StopAdmission();
  log(fmt::format("stopping: no new requests; {} to finish within {} ms", server->in_flight(),
                  options.shutdown_timeout.ns / kMillisecond));
  if (!server->WaitUntilIdle(options.shutdown_timeout.ns)) {
    log(fmt::format("{} requests were cut off by --shutdown-timeout", server->in_flight()));
    server->CutOff();
    if (!server->WaitUntilIdle(kFlushNs)) log("some clients did not take their answers in time");
  }
  log("stopped");
  return Status();
}

}  // namespace

Status RunRouter(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder) {
  return CatchShortage([&] { return Run(options, log, recorder); });
}

}  // namespace tactus::router
