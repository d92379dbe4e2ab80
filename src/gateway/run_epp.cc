#include "gateway/run_epp.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "base/system_random.h"
#include "gateway/picker.h"
#include "gateway/picker_server.h"
#include "gateway/replica_probe.h"

namespace tactus::gateway {
namespace {

// SIGTERM and SIGINT, blocked and waited for on this thread.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // True: one came within a tenth of a second.
  bool Wait() {
    const timespec pause{0, 100'000'000};
    return sigtimedwait(&set_, nullptr, &pause) > 0;
  }

 private:
  sigset_t set_{}, before_{};
};

}  // namespace

Status RunEpp(const EppOptions& options, const std::function<void(std::string_view line)>& log) {
  signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  Clock& clock = SystemClock();
  TACTUS_ASSIGN_OR_RETURN(const Hash128 secret, SystemRandom());
  TACTUS_ASSIGN_OR_RETURN(auto source,
                          ReplicaProbe::Create(options.replicas, options.balancer, options.poll_interval.ns, clock));
  Picker picker(*source,
                {.max_body_bytes = options.max_body.bytes,
                 .max_body_total_bytes = options.max_body_total.bytes,
                 .max_requests_per_replica = options.max_requests_per_replica,
                 .fallbacks = options.fallbacks,
                 .secret = secret},
                clock);
  TACTUS_ASSIGN_OR_RETURN(auto server, PickerServer::Start(options, picker, *source, clock));
  log(fmt::format("listening on {}: grpc {}, health {}, metrics {}", options.host, server->grpc_port(),
                  server->health_port(), server->metrics_port()));
  while (!signals.Wait()) {
  }
  log(fmt::format("stopping: no new streams; {} to finish within {} ms", picker.streams(),
                  options.shutdown_timeout.ns / kMillisecond));
  std::atomic<bool> stopped{false};
  std::thread stopper([&] {
    server->Stop(options.shutdown_timeout.ns);
    stopped.store(true);
  });
  while (!stopped.load()) {
    if (signals.Wait()) _exit(1);
  }
  stopper.join();
  log("stopped");
  return Status();
}

}  // namespace tactus::gateway
