#include "fleet/balance/rebalance.h"

#include <algorithm>

namespace tactus::fleet {

double Freeness(int64_t free_kv_tokens, int32_t sequences) {
  const auto free = static_cast<double>(free_kv_tokens);
  return free < 0 ? free : free / std::max(1, sequences);
}

double FreenessOf(const ReplicaView& replica) {
  return Freeness(replica.free_kv_tokens, replica.running);
}

std::vector<MovePair> PairReplicas(std::span<const ReplicaView> replicas, const std::vector<bool>& draining,
                                   const RebalanceOptions& options) {
  struct Place {
    double freeness = 0;
    int32_t replica = 0;
  };
  std::vector<Place> senders, takers;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaView& r = replicas[i];
    const auto replica = static_cast<int32_t>(i);
    const bool leaves = i < draining.size() && draining[i];
    const double freeness = FreenessOf(r);
    if (leaves) {
      // Freeness of minus infinity: replicas with the most running sequences first.
      if (r.running > 0) senders.push_back({-1e18 - static_cast<double>(r.running), replica});
    } else if (r.ready && freeness > options.take_above) {
      takers.push_back({freeness, replica});
    } else if (r.running > 1 && freeness < options.send_below) {
      senders.push_back({freeness, replica});
    }
  }
  const bool drains = std::any_of(senders.begin(), senders.end(), [](const Place& p) { return p.freeness < -1e17; });
  if (drains && takers.empty()) {
    for (size_t i = 0; i < replicas.size(); ++i) {
      const ReplicaView& r = replicas[i];
      const bool leaves = i < draining.size() && draining[i];
      if (r.ready && !leaves && r.free_kv_tokens > 0) takers.push_back({FreenessOf(r), static_cast<int32_t>(i)});
    }
  }
  const auto least_first = [](const Place& a, const Place& b) {
    return a.freeness != b.freeness ? a.freeness < b.freeness : a.replica < b.replica;
  };
  std::sort(senders.begin(), senders.end(), least_first);
  std::sort(takers.begin(), takers.end(), [](const Place& a, const Place& b) {
    return a.freeness != b.freeness ? a.freeness > b.freeness : a.replica < b.replica;
  });
  std::vector<MovePair> pairs;
  for (size_t i = 0; i < takers.size(); ++i) {
    const auto sender =
        std::find_if(senders.begin(), senders.end(), [&](const Place& s) { return s.replica != takers[i].replica; });
    if (sender == senders.end()) break;
    pairs.push_back({sender->replica, takers[i].replica});
    senders.erase(sender);
  }
  return pairs;
}

int32_t ChooseToMove(std::span<const MovableSequence> sequences, int64_t room_tokens) {
  int32_t best = -1;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const MovableSequence& s = sequences[i];
    if (s.tokens > room_tokens) continue;
    if (best >= 0) {
      const MovableSequence& b = sequences[static_cast<size_t>(best)];
      if (s.priority < b.priority || (s.priority == b.priority && s.tokens >= b.tokens)) continue;
    }
    best = static_cast<int32_t>(i);
  }
  return best;
}

}  // namespace tactus::fleet
