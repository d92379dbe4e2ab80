#include "http/connection_places.h"

#include <arpa/inet.h>

#include <cstring>

namespace tactus::http {

namespace {
constexpr int64_t kOtherFiles = 128;  // weights, logs, stored files, listener, ...
}

int64_t FilesFor(int64_t connections, int64_t files_each) {
  return files_each * connections + kOtherFiles + kPlacesBeyondLimit;
}

ConnectionRoom RoomWithin(int64_t files, int64_t connections, int64_t files_each) {
  if (files >= FilesFor(connections, files_each)) return {.connections = connections};
  const int64_t left = files - std::min(kOtherFiles, files / 2);
  const int64_t beyond = std::clamp<int64_t>(left / 4, 2, kPlacesBeyondLimit);
  const int64_t most = std::max<int64_t>(1, (left - beyond) / files_each);
  return {.connections = std::min(connections, most), .beyond = beyond, .less = most < connections};
}

Place ConnectionPlaces::Enter(const std::string& client) {
  Counts& own = clients_[client];
  if (all_.served < max_connections_ && own.served < max_per_client_) {
    ++all_.served;
    ++own.served;
    return Place::kServed;
  }
  if (all_.probe_only < max_probes_ && own.probe_only < max_probes_per_client_) {
    ++all_.probe_only;
    ++own.probe_only;
    return Place::kProbeOnly;
  }
  if (own.served == 0 && own.probe_only == 0) clients_.erase(client);
  return Place::kNone;
}

void ConnectionPlaces::Leave(const std::string& client, Place place) {
  if (place == Place::kNone) return;
  const auto found = clients_.find(client);
  Counts& own = found->second;
  --(place == Place::kServed ? all_.served : all_.probe_only);
  --(place == Place::kServed ? own.served : own.probe_only);
  if (own.served == 0 && own.probe_only == 0) clients_.erase(found);
}

bool ConnectionPlaces::ClientIsFull(const std::string& client) const {
  const auto found = clients_.find(client);
  return found != clients_.end() && found->second.served >= max_per_client_;
}

std::string ClientKey(const std::string& address) {
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &v6) != 1) return address;
  char text[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
  std::memset(&v6.s6_addr[8], 0, 8);
  return std::string(inet_ntop(AF_INET6, &v6, text, sizeof text)) + "/64";
}

}  // namespace tactus::http
