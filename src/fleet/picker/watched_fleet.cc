#include "fleet/picker/watched_fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/thread_role.h"

namespace tactus::fleet {
namespace {

// "1.2.3.4:80" or "[::1]:80".
bool HasIp(std::string_view address) {
  if (!address.empty() && address[0] == '[') return true;
  const std::string_view host = address.substr(0, address.rfind(':'));
  int numbers = 0;
  for (size_t at = 0; at <= host.size(); ++numbers) {
    const size_t end = std::min(host.find('.', at), host.size());
    unsigned number = 256;
    const auto [stop, error] = std::from_chars(host.data() + at, host.data() + end, number);
    if (error != std::errc() || stop != host.data() + end || number > 255) return false;
    at = end + 1;
  }
  return numbers == 4;
}

constexpr char kWantsIp[] = "a gateway needs IP addresses; use the replica's, or --replicas-dns for all of a name";

}  // namespace

Result<std::unique_ptr<WatchedFleet>> WatchedFleet::Create(const FleetOptions& options, Clock& clock, Log log) {
  std::unique_ptr<WatchedFleet> fleet(new WatchedFleet(std::move(log)));
  TACTUS_ASSIGN_OR_RETURN(fleet->watch_, FleetWatch::Create(options, clock, fleet->loop_, fleet->log_));
  TACTUS_ASSIGN_OR_RETURN(fleet->discovery_, Discovery::Create(options, fleet->loop_, *fleet->watch_, fleet->log_));
  const std::vector<Endpoint> known = fleet->watch_->Endpoints();
  if (known.empty() && options.replicas_file.empty() && options.replicas_dns.empty()) {
    return InvalidArgument(
        "--replicas is empty; use URLs such as http://10.0.0.1:8000, or --replicas-file or --replicas-dns", "replicas");
  }
  for (const Endpoint& e : known) {
    if (HasIp(e.address)) continue;
    const char* option = options.replicas_file.empty() ? "replicas" : "replicas-file";
    return InvalidArgument(fmt::format("--{}: '{}': {}", option, e.url, kWantsIp), option);
  }
  fleet->thread_ = std::thread([loop = &fleet->loop_] {
    SetThreadRole(ThreadRole::kService, "fleet");
    loop->Run();
  });
  return fleet;
}

WatchedFleet::~WatchedFleet() {
  loop_.Stop();
  if (thread_.joinable()) thread_.join();
  discovery_.reset();
  watch_.reset();
}

std::optional<Picked> WatchedFleet::Pick(const RouteRequest& request, std::span<const std::string> subset,
                                         std::span<const int32_t> excluded) {
  std::vector<int32_t> left_out(excluded.begin(), excluded.end());
  for (;;) {
    auto picked = watch_->Pick(request, subset, left_out);
    if (!picked) return std::nullopt;
    if (HasIp(picked->address)) return picked;
    watch_->Ended(picked->pick, -1);
    SayNoIp(picked->url);
    left_out.push_back(picked->replica);
  }
}

void WatchedFleet::Answered(int32_t replica, bool well) {
  if (well) {
    watch_->Succeeded(replica);
  } else {
    watch_->Failed(replica);
  }
}

std::vector<Endpoint> WatchedFleet::Endpoints() const {
  std::vector<Endpoint> endpoints = watch_->Endpoints();
  for (Endpoint& e : endpoints) e.ready = e.ready && HasIp(e.address);
  return endpoints;
}

void WatchedFleet::SayNoIp(const std::string& url) {
  {
    std::lock_guard lock(mutex_);
    if (std::find(named_.begin(), named_.end(), url) != named_.end()) return;
    named_.push_back(url);
  }
  log_(fmt::format("{}: gets no requests: {}", url, kWantsIp));
}

}  // namespace tactus::fleet
