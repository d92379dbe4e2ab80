#include "gateway/replica_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/thread_role.h"

namespace tactus::gateway {
namespace {

constexpr DurationNs kAnswerNs = kSecond;

}  // namespace

Result<std::unique_ptr<ReplicaProbe>> ReplicaProbe::Create(const std::vector<std::string>& urls,
                                                           const std::string& balancer, DurationNs interval_ns,
                                                           Clock& clock) {
  std::vector<Endpoint> endpoints;
  std::vector<http::Url> parsed;
  for (const std::string& list : urls) {
    for (size_t at = 0; at <= list.size();) {
      const size_t end = std::min(list.find(',', at), list.size());
      const std::string url = list.substr(at, end - at);
      at = end + 1;
      if (url.empty()) continue;
      const auto read = http::ParseUrl(url);
      if (!read.ok()) {
        return InvalidArgument(fmt::format("--replicas: '{}': {}", url, read.status().message()), "replicas");
      }
      const bool v6 = read->host.find(':') != std::string::npos;
      endpoints.push_back({.replica = static_cast<int32_t>(endpoints.size()),
                           .url = url,
                           .address = fmt::format("{}{}{}:{}", v6 ? "[" : "", read->host, v6 ? "]" : "", read->port)});
      parsed.push_back(*read);
    }
  }
  if (endpoints.empty())
    return InvalidArgument("--replicas is empty; give URLs such as http://10.0.0.1:8000", "replicas");
  auto fleet = route::Fleet::Create(static_cast<int32_t>(endpoints.size()), balancer, 1);
  if (!fleet.ok()) return InvalidArgument("--balancer: " + fleet.status().message(), "balancer");
  return std::unique_ptr<ReplicaProbe>(
      new ReplicaProbe(std::move(fleet).value(), std::move(endpoints), std::move(parsed), interval_ns, clock));
}

ReplicaProbe::ReplicaProbe(std::unique_ptr<route::Fleet> fleet, std::vector<Endpoint> endpoints,
                           std::vector<http::Url> urls, DurationNs interval_ns, Clock& clock)
    : urls_(std::move(urls)),
      interval_ns_(interval_ns),
      clock_(clock),
      fleet_(std::move(fleet)),
      endpoints_(std::move(endpoints)) {
  for (int32_t i = 0; i < fleet_->size(); ++i) fleet_->SetReady(i, false);
  thread_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "probe");
    AskAll();
  });
}

ReplicaProbe::~ReplicaProbe() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_came_.notify_all();
  thread_.join();
}

void ReplicaProbe::AskAll() {
  for (;;) {
    for (size_t i = 0; i < urls_.size(); ++i) {
      const bool ready = Asked(urls_[i]);
      std::lock_guard lock(mutex_);
      if (stop_) return;
      endpoints_[i].ready = ready;
      fleet_->SetReady(static_cast<int32_t>(i), ready);
    }
    std::unique_lock lock(mutex_);
    if (stop_came_.wait_for(lock, std::chrono::nanoseconds(interval_ns_), [this] { return stop_; })) return;
  }
}

bool ReplicaProbe::Asked(const http::Url& url) {
  for (const char* path : {"/ready", "/health"}) {
    const auto answer = http::Fetch(url, {.method = "GET", .path = path}, kAnswerNs, clock_);
    if (!answer.ok()) return false;
    if (answer->status != 404) return answer->status == 200;
  }
  return false;
}

std::optional<Picked> ReplicaProbe::Pick(const route::RouteRequest& request, std::span<const std::string> subset,
                                         std::span<const int32_t> excluded) {
  std::lock_guard lock(mutex_);
  const auto allowed = [&](const Endpoint& e) {
    return (subset.empty() || std::find(subset.begin(), subset.end(), e.address) != subset.end()) &&
           std::find(excluded.begin(), excluded.end(), e.replica) == excluded.end();
  };
  for (const Endpoint& e : endpoints_) fleet_->SetReady(e.replica, e.ready && allowed(e));
  const int32_t replica = fleet_->Route(request);
  if (replica < 0) return std::nullopt;
  const Endpoint& endpoint = endpoints_[static_cast<size_t>(replica)];
  const uint64_t ticket = next_ticket_++;
  tickets_[ticket] = replica;
  return Picked{.ticket = ticket, .replica = replica, .url = endpoint.url, .address = endpoint.address};
}

void ReplicaProbe::Ended(uint64_t ticket, int32_t prompt_tokens, int32_t output_tokens) {
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  fleet_->Ended(found->second, prompt_tokens, output_tokens);
  tickets_.erase(found);
}

std::vector<Endpoint> ReplicaProbe::Endpoints() const {
  std::lock_guard lock(mutex_);
  return endpoints_;
}

int64_t ReplicaProbe::ready() const {
  std::lock_guard lock(mutex_);
  return std::count_if(endpoints_.begin(), endpoints_.end(), [](const Endpoint& e) { return e.ready; });
}

}  // namespace tactus::gateway
