#include "serve/run_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/fleet_secret.h"
#include "base/shortage.h"
#include "http/server.h"
#include "serve/access.h"
#include "serve/api_server.h"

namespace tactus {
namespace {

constexpr DurationNs kFlushNs = 5 * kSecond;               // after the last token: for the clients to take their bytes
constexpr int64_t kImportSpaceBytes = int64_t{256} << 20;  // where --swap-space says none
constexpr int64_t kOtherFiles = 128 + http::kPlacesBeyondLimit;  // weights, logs, listener, refusals, ...

// Waits for SIGTERM and SIGINT on a thread of its own. The second one ends the process, and so does the first while
// there is nothing to finish.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    thread_ = std::thread([this] { Watch(); });
  }
  ~StopSignals() {
    quit_.store(true);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void Serving() { serving_.store(true); }
  // True: a signal came.
  bool WaitFor(DurationNs time_ns) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::nanoseconds(time_ns), [this] { return stop_; });
  }

 private:
  void Watch() {
    int received = 0;
    while (!quit_.load()) {
      const timespec pause{0, 100'000'000};
      if (sigtimedwait(&set_, nullptr, &pause) < 0) continue;  // EAGAIN, EINTR
      if (!serving_.load()) _exit(0);
      if (++received == 2) _exit(1);
      std::lock_guard lock(mutex_);
      stop_ = true;
      came_.notify_all();
    }
  }

  sigset_t set_{}, before_{};
  std::atomic<bool> quit_{false}, serving_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  bool stop_ = false;
  std::thread thread_;
};

// Every connection is a file: asks for as many as the options may need.
void RaiseFileLimit(int64_t connections, const Engine::Progress& log) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(connections + kOtherFiles);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur < wanted) {
    log(fmt::format(
        "warning: {} open files allowed, {} connections need {}; raise 'ulimit -n' or lower --max-connections",
        limit.rlim_cur, connections, wanted));
  }
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Status Run(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
           const Engine::Progress& progress, std::optional<RunResult>* result) {
  if (options.host.empty()) {
    return InvalidArgument("--host is empty; give an address such as 127.0.0.1, or 0.0.0.0 to listen on every network",
                           "host");
  }
  TACTUS_RETURN_IF_ERROR(serve::CheckKeyClasses(options.api_key, options.api_key_class, engine_options.slo_class));
  const Engine::Progress log = progress ? progress : [](std::string_view) {};
  signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  RaiseFileLimit(options.max_connections, log);
  Clock& clock = SystemClock();
  TACTUS_ASSIGN_OR_RETURN(auto server, serve::ApiServer::Listen(options, clock, log));
  const bool v6 = options.host.find(':') != std::string::npos;
  const std::string url = fmt::format("http://{}{}{}:{}", v6 ? "[" : "", options.host, v6 ? "]" : "", server->port());
  if (!IsLoopback(options.host) && options.api_key.empty()) {
    log(fmt::format("warning: {} is reachable from other machines and asks for no key; set --api-key", url));
  }
  log(fmt::format("listening on {} (loading)", url));
  EngineOptions planned = engine_options;
  if (!options.kv_secret_file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(planned.kv_secret, ReadFleetSecret(options.kv_secret_file));
    if (planned.swap_space.bytes == 0) {
      planned.swap_space.bytes = kImportSpaceBytes;
      log(fmt::format("fleet: {} MiB of memory for sequences that come from other replicas (--swap-space)",
                      kImportSpaceBytes >> 20));
    }
  }
  planned.front_end_bytes = options.FrontEndBytes();
  TACTUS_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, factory(planned, log));
  // The server goes before the engine that it refers to.
  std::unique_ptr<serve::ApiServer> owned = std::move(server);
  owned->SetEngine(engine.get(), engine_options);
  if (const BodyLimits bodies = options.BodiesWithin(engine->model().front_end_bytes);
      bodies.max_body_bytes < options.max_body.bytes) {
    log(fmt::format(
        "warning: memory is short: a request's body may have {} bytes instead of {}, all together {} instead of {} "
        "(--max-body, --max-body-total); lower --kv-cache-memory, or allow this process more memory",
        bodies.max_body_bytes, options.max_body.bytes, bodies.max_body_total_bytes, options.max_body_total.bytes));
  }
  signals.Serving();
  log(fmt::format("ready: {} on {}", engine->model().name, url));

  bool healthy = true;
  while (healthy && !signals.WaitFor(100 * kMillisecond)) healthy = engine->Stats().healthy;
  owned->StopAdmission();
  const int64_t running = engine->Stats().running + engine->Stats().waiting;
  log(fmt::format("{}: no new requests; {} to finish within {} ms", healthy ? "stopping" : "the engine failed", running,
                  options.shutdown_timeout.ns / kMillisecond));
  const DurationNs time_ns = healthy ? options.shutdown_timeout.ns : 0;
  const TimeNs stopped_ns = clock.NowNs();
  const int64_t cut_off = engine->Drain(time_ns);
  owned->FinishParsing(std::max<DurationNs>(0, time_ns - (clock.NowNs() - stopped_ns)));
  if (cut_off > 0) log(fmt::format("{} requests were cut off by --shutdown-timeout", cut_off));
  if (!owned->WaitUntilIdle(kFlushNs)) log("some clients did not take their answers in time");
  if (result != nullptr) *result = engine->Outcome();
  owned.reset();
  const Status closed = engine->Close();
  if (!healthy) {
    if (!closed.ok()) log(closed.message());
    return Internal("the engine failed three steps in a row");
  }
  TACTUS_RETURN_IF_ERROR(closed);
  log("stopped");
  return Status();
}

}  // namespace

Status RunServer(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
                 const Engine::Progress& progress, std::optional<RunResult>* result) {
  return CatchShortage([&] { return Run(engine_options, options, factory, progress, result); });
}

}  // namespace tactus
