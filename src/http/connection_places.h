// Who may hold how many connections. Beyond the limits a few more places let a client say one thing: a probe is
// answered there, everything else is told that the server is full. Io thread only.
//
// Invariant: at most max_connections + probe_places places are taken; no client has more than its share of either kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace tactus::http {

// Sockets that a server may hold beyond max_connections, while it tells their clients so: half of them wait for what
// they ask (probes are answered), half to be closed. Fewer where descriptors are few.
constexpr int64_t kPlacesBeyondLimit = 512;
constexpr int64_t kProbePlaces = kPlacesBeyondLimit / 2;
constexpr int64_t kProbePlacesPerClient = kProbePlaces / 4;

// What the file descriptors of a process allow: connections, and places for clients that are refused.
struct ConnectionRoom {
  int64_t connections = 0, beyond = kPlacesBeyondLimit;
  bool less = false;  // than was wanted
};
// `files`: descriptors that the process may have. Each connection takes `files_each`.
ConnectionRoom RoomWithin(int64_t files, int64_t connections, int64_t files_each);
// Descriptors that make RoomWithin give all connections that are wanted.
int64_t FilesFor(int64_t connections, int64_t files_each);

enum class Place { kServed, kProbeOnly, kNone };

class ConnectionPlaces {
 public:
  // A quarter of the places for probes is one client's at most.
  ConnectionPlaces(int64_t max_connections, int64_t max_per_client, int64_t probe_places = kProbePlaces)
      : max_connections_(max_connections),
        max_per_client_(max_per_client),
        max_probes_(probe_places),
        max_probes_per_client_(std::max<int64_t>(1, probe_places / 4)) {}

  Place Enter(const std::string& client);
  // Gives back what Enter gave.
  void Leave(const std::string& client, Place place);
  // Which limit sent this client to kProbeOnly or kNone: its own, or everybody's.
  bool ClientIsFull(const std::string& client) const;

 private:
  struct Counts {
    int64_t served = 0, probe_only = 0;
  };
  const int64_t max_connections_, max_per_client_, max_probes_, max_probes_per_client_;
  Counts all_;
  std::unordered_map<std::string, Counts> clients_;
};

// The key under which an address is counted: an IPv6 client owns all of its /64, an IPv4 address written as IPv6 is
// that IPv4 address.
std::string ClientKey(const std::string& address);

}  // namespace tactus::http
