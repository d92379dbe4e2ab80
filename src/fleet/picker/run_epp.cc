#include "fleet/picker/run_epp.h"

#include <fmt/format.h>
#include <signal.h>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/memory_shortage.h"
#include "base/shortage.h"
#include "base/system_random.h"
#include "fleet/picker/picker.h"
#include "fleet/picker/picker_server.h"
#include "fleet/picker/watched_fleet.h"
#include "fleet/router/quiet_start.h"
#include "http/access.h"
#include "http/service_manager.h"
#include "http/serving_process.h"

namespace tactus::fleet {
namespace {

void Reload(const EppOptions& options, http::ServerLog* file, WatchedFleet* fleet, PickerServer* server,
            const http::Log& log) {
  std::vector<std::pair<const char*, Status>> done;
  if (file != nullptr) done.emplace_back("the log", file->Reopen());
  if (!options.tls_cert.empty()) done.emplace_back("certificates", server->ReloadTls());
  done.emplace_back("certificates for replicas", fleet->ReloadTls());
  http::LogReload(done, {}, log);
  if (const std::string warning = server->TlsWarning(); !warning.empty()) log("warning: " + warning);
}

Status Run(const EppOptions& options, const WatchedFleet::Log& log, http::ServerLog* file) {
  signal(SIGPIPE, SIG_IGN);
  http::StopSignals signals(log);
  http::RaiseFileLimit(PickerServer::kMostConnections, 1, log);
  Clock& clock = SystemClock();
  http::ServiceManager manager(clock);
  TACTUS_ASSIGN_OR_RETURN(const Hash128 secret, SystemRandom());
  QuietStart start(options.verbose, clock, log);
  TACTUS_ASSIGN_OR_RETURN(const auto fleet, WatchedFleet::Create(options.fleet, clock,
                                                                 [&start](std::string_view line) { start.Log(line); }));
  Picker picker(*fleet,
                {.max_body_bytes = options.max_body.bytes,
                 .max_body_total_bytes = options.max_body_total.bytes,
                 .max_requests_per_replica = options.max_requests_per_replica,
                 .fallbacks = options.fallbacks,
                 .body_timeout_ns = options.body_timeout.ns,
                 .secret = secret},
                clock);
  TACTUS_ASSIGN_OR_RETURN(const auto server, PickerServer::Start(options, picker, *fleet, clock));
  WaitForMemoryWhereNeeded(clock);
  const NeedsMemory needs_memory;
  signals.Serving();
  const auto replicas = [&fleet] { return static_cast<int64_t>(fleet->Endpoints().size()); };
  bool stop = start.AwaitReplicas(signals, [&] { return replicas() > 0 && fleet->ready() == replicas(); });
  log(fmt::format("picking ({}) on {}: grpc {}, health {}, metrics {}; {} of {} replicas are ready",
                  options.fleet.balancer, options.host, server->grpc_port(), server->health_port(),
                  server->metrics_port(), fleet->ready(), replicas()));
  start.End();
  const std::string state = fmt::format("picking on {}: grpc {}", options.host, server->grpc_port());
  manager.Ready(state);
  while (!stop) {
    stop = signals.WaitFor(kSecond);
    KeepMemoryInReserve();
    manager.Alive();
    if (!signals.TakeReload()) continue;
    manager.Reloading();
    Reload(options, file, fleet.get(), server.get(), log);
    manager.Ready(state);
  }
  manager.Stopping();
  log(fmt::format("stopping: no new streams; {} to finish within {} ms", picker.streams(),
                  options.shutdown_timeout.ns / kMillisecond));
  if (!server->Stop(options.shutdown_timeout.ns)) log("the remaining streams were cut off by --shutdown-timeout");
  log("stopped");
  return Status();
}

}  // namespace

Status RunEpp(const EppOptions& options, const std::function<void(std::string_view line)>& log, http::ServerLog* file) {
  TACTUS_RETURN_IF_ERROR(http::CheckBodyLimits(options.max_body.bytes, options.max_body_total.bytes));
  const EppOptions fitted = FittedToMemory(options, AvailableMemoryBytes(), log);
  return CatchShortage([&] { return Run(fitted, log, file); }, "--max-body-total", nullptr);
}

}  // namespace tactus::fleet
