// Limits on connections, in total and per client. Beyond them a few more places let a client send one request: a probe
// is answered, any other request gets the error that the server is full. Io thread only.
//
// Invariant: at most max_connections + probe_places places are taken; no client has more than its share of either kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace tactus::http {

// Sockets that a server may have beyond max_connections, to refuse their clients: half of them wait for a request
// (probes are answered), half wait to be closed. Fewer if descriptors are scarce.
constexpr int64_t kPlacesBeyondLimit = 512;
constexpr int64_t kProbePlaces = kPlacesBeyondLimit / 2;
constexpr int64_t kProbePlacesPerClient = kProbePlaces / 4;

// The numbers that the file descriptors of a process allow: connections, and places for refused clients.
struct ConnectionRoom {
  int64_t connections = 0, beyond = kPlacesBeyondLimit;
  bool less = false;  // fewer connections than requested
};
// `files`: descriptors that the process may have. Each connection needs `files_each`.
ConnectionRoom RoomWithin(int64_t files, int64_t connections, int64_t files_each);
// The descriptors for which RoomWithin allows all `connections`.
int64_t FilesFor(int64_t connections, int64_t files_each);

enum class Place { kServed, kProbeOnly, kNone };

class ConnectionPlaces {
 public:
  // One client gets at most a quarter of the places for probes.
  ConnectionPlaces(int64_t max_connections, int64_t max_per_client, int64_t probe_places = kProbePlaces)
      : max_connections_(max_connections),
        max_per_client_(max_per_client),
        max_probes_(probe_places),
        max_probes_per_client_(std::max<int64_t>(1, probe_places / 4)) {}

  Place Enter(const std::string& client);
  // Gives back the place of Enter.
  void Leave(const std::string& client, Place place);
  // Whether this client's own limit is reached; otherwise kProbeOnly or kNone came from the total limit.
  bool ClientIsFull(const std::string& client) const;

 private:
  struct Counts {
    int64_t served = 0, probe_only = 0;
  };
  const int64_t max_connections_, max_per_client_, max_probes_, max_probes_per_client_;
  Counts all_;
  std::unordered_map<std::string, Counts> clients_;
};

// The key under which an address is counted: one IPv6 /64 is one client, and an IPv4 address written as IPv6 is that
// IPv4 address.
std::string ClientKey(const std::string& address);

}  // namespace tactus::http
