// Who may hold how many connections. Beyond the limits a few more places let a client say one thing: a probe is
// answered there, everything else is told that the server is full. Io thread only.
//
// Invariant: at most max_connections + kProbePlaces places are taken; no client has more than its share of either kind.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace tactus::http {

constexpr int64_t kProbePlaces = 256;
constexpr int64_t kProbePlacesPerClient = kProbePlaces / 4;

enum class Place { kServed, kProbeOnly, kNone };

class ConnectionPlaces {
 public:
  ConnectionPlaces(int64_t max_connections, int64_t max_per_client)
      : max_connections_(max_connections), max_per_client_(max_per_client) {}

  Place Enter(const std::string& client);
  // Gives back what Enter gave.
  void Leave(const std::string& client, Place place);
  // Which limit sent this client to kProbeOnly or kNone: its own, or everybody's.
  bool ClientIsFull(const std::string& client) const;

 private:
  struct Counts {
    int64_t served = 0, probe_only = 0;
  };
  const int64_t max_connections_, max_per_client_;
  Counts all_;
  std::unordered_map<std::string, Counts> clients_;
};

// The key under which an address is counted: an IPv6 client owns all of its /64, an IPv4 address written as IPv6 is
// that IPv4 address.
std::string ClientKey(const std::string& address);

}  // namespace tactus::http
