#include "fleet/picker/picker.h"

#include <fmt/format.h>

#include <algorithm>

namespace tactus::fleet {
namespace {

constexpr const char* kReasonNames[Refusal::kReasons] = {"none_ready",     "not_in_subset",    "too_many_requests",
                                                         "body_too_large", "bodies_too_large", "body_late"};
constexpr const char* kOutcomeNames[Picker::kOutcomes] = {"completed", "failed", "aborted", "unseen"};

std::string_view HostOf(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The replicas that the entries name: one by its address, or all at an IP.
std::vector<std::string> AddressesIn(const std::vector<std::string>& entries, const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> addresses;
  for (const Endpoint& endpoint : endpoints) {
    for (const std::string& entry : entries) {
      const std::string_view name = Trimmed(entry);
      if (name != endpoint.address && name != HostOf(endpoint.address)) continue;
      addresses.push_back(endpoint.address);
      break;
    }
  }
  return addresses;
}

}  // namespace

Picker::Picker(EndpointSource& source, const PickerOptions& options, Clock& clock)
    : source_(source),
      options_(options),
      clock_(clock),
      pick_seconds_({1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2}) {}

Choice Picker::Choose(const RequestView& view, const std::optional<std::vector<std::string>>& subset) {
  const TimeNs begin_ns = clock_.NowNs();
  std::vector<std::string> addresses;
  if (subset) {
    addresses = AddressesIn(*subset, source_.Endpoints());
    if (addresses.empty()) return {.refusal = Refuse(Refusal::Reason::kNotInSubset)};
  }
  const auto refuse = [this](Refusal::Reason reason) {
    outstanding_.fetch_sub(1);
    return Choice{.refusal = Refuse(reason)};
  };
  const int64_t outstanding = outstanding_.fetch_add(1) + 1;
  if (const int64_t most = options_.max_requests_per_replica; most > 0) {
    const int64_t ready = source_.ready();
    if (ready > 0 && outstanding > most * ready) return refuse(Refusal::Reason::kTooManyRequests);
  }
  const std::optional<Picked> picked = source_.Pick(view.Route(kBytesPerToken), addresses, {});
  if (!picked) return refuse(Refusal::Reason::kNoneReady);
  Choice choice{.pick = picked->pick,
                .replica = picked->replica,
                .address = picked->address,
                .destination = Destination(*picked, addresses)};
  const double seconds = static_cast<double>(clock_.NowNs() - begin_ns) / 1e9;
  std::lock_guard lock(mutex_);
  pick_seconds_.Observe(seconds);
  return choice;
}

std::string Picker::Destination(const Picked& picked, std::span<const std::string> subset) const {
  std::string destination = picked.address;
  if (options_.fallbacks == 0) return destination;
  // The following ones in the fleet's order, so that the requests of a failed replica spread over all others.
  const std::vector<Endpoint> endpoints = source_.Endpoints();
  const auto at =
      std::find_if(endpoints.begin(), endpoints.end(), [&](const Endpoint& e) { return e.address == picked.address; });
  const auto first = static_cast<size_t>(at - endpoints.begin());
  int64_t added = 0;
  for (size_t i = 1; i < endpoints.size() && added < options_.fallbacks; ++i) {
    const Endpoint& other = endpoints[(first + i) % endpoints.size()];
    const bool allowed = subset.empty() || std::find(subset.begin(), subset.end(), other.address) != subset.end();
    if (!other.ready || !allowed || other.address == picked.address) continue;
    destination += "," + other.address;
    ++added;
  }
  return destination;
}

bool Picker::Moved(const RequestView& view, const std::string& address, Choice* choice) {
  const std::optional<Picked> picked = source_.Pick(view.Route(kBytesPerToken), {&address, 1}, {});
  if (!picked) return false;
  source_.Ended(choice->pick, -1);
  choice->pick = picked->pick;
  choice->replica = picked->replica;
  choice->address = picked->address;
  moved_.fetch_add(1);
  return true;
}

void Picker::Ended(const Choice& choice, int32_t output_tokens, Outcome outcome) {
  source_.Ended(choice.pick, outcome == Outcome::kCompleted ? output_tokens : -1);
  outstanding_.fetch_sub(1);
  ended_[static_cast<size_t>(outcome)].fetch_add(1);
}

bool Picker::TakeRoom(int64_t bytes) {
  if (held_bytes_.fetch_add(bytes) + bytes <= options_.max_body_total_bytes) return true;
  held_bytes_.fetch_sub(bytes);
  return false;
}

Refusal Picker::Refuse(Refusal::Reason reason) {
  refused_[static_cast<size_t>(reason)].fetch_add(1);
  switch (reason) {
    case Refusal::Reason::kNoneReady:
      return {reason, 503, "no replica is ready; try again later"};
    case Refusal::Reason::kNotInSubset:
      return {reason, 503, "none of the endpoints that the gateway allows for this request is a replica of this fleet"};
    case Refusal::Reason::kTooManyRequests:
      return {reason, 429,
              fmt::format("{} requests are in flight, the limit is {} for each ready replica "
                          "(--max-requests-per-replica); try again later",
                          outstanding_.load(), options_.max_requests_per_replica)};
    case Refusal::Reason::kBodyTooLarge:
      return {
          reason, 413,
          fmt::format("the request's body is larger than {} bytes, the limit (--max-body)", options_.max_body_bytes)};
    case Refusal::Reason::kBodiesTooLarge:
      return {reason, 503,
              fmt::format("the gateway holds as many bytes of bodies as it may, {} (--max-body-total); try again later",
                          options_.max_body_total_bytes)};
    case Refusal::Reason::kBodyLate:
      return {reason, 408,
              fmt::format("the request's body did not arrive within {} ms (--body-timeout)",
                          options_.body_timeout_ns / kMillisecond)};
  }
  return {};
}

std::string Picker::MetricsText() const {
  results::PrometheusText text({});
  using Type = results::PrometheusText::Type;
  text.Gauge("tactus_epp_streams", "Requests whose streams are open.", static_cast<double>(streams_.load()));
  text.Gauge("tactus_epp_requests_in_flight", "Requests in flight at a replica.",
             static_cast<double>(outstanding_.load()));
  text.Gauge("tactus_epp_body_bytes", "Bytes of bodies held until they are complete.",
             static_cast<double>(held_bytes_.load()));
  text.Family("tactus_epp_refused_total", Type::kCounter, "Requests that the picker answered itself.");
  for (size_t i = 0; i < Refusal::kReasons; ++i) {
    text.Sample(static_cast<double>(refused_[i].load()), {{"reason", kReasonNames[i]}});
  }
  text.Family("tactus_epp_ended_total", Type::kCounter, "Requests that were sent to a replica and have ended.");
  for (size_t i = 0; i < kOutcomes; ++i) {
    text.Sample(static_cast<double>(ended_[i].load()), {{"outcome", kOutcomeNames[i]}});
  }
  text.Counter("tactus_epp_moved_total", "Requests that the data plane sent to another replica than the first choice.",
               static_cast<double>(moved_.load()));
  text.Family("tactus_epp_endpoint_ready", Type::kGauge, "Whether a replica accepts requests.");
  for (const Endpoint& endpoint : source_.Endpoints()) {
    text.Sample(endpoint.ready ? 1 : 0, {{"endpoint", endpoint.address}});
  }
  source_.AppendMetrics(&text);
  std::lock_guard lock(mutex_);
  text.Histogram("tactus_epp_pick_seconds", "Time to choose a replica.", pick_seconds_);
  return text.Take();
}

}  // namespace tactus::fleet
