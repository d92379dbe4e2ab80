// The replica with the longest prefix of the prompt, so that it is computed once. It may have at most a quarter more
// prompt tokens in flight than the replicas' mean including this request (consistent hashing with bounded loads,
// Mirrokni et al., 2018): so a popular prefix spreads and makes no hot spot. Otherwise the least loaded replica.
#include <algorithm>

#include "fleet/balance/balancers.h"
#include "fleet/balance/prefix_index.h"

namespace tactus::fleet {
namespace {

constexpr double kMostOverMean = 1.25;

class PrefixAffinity final : public Balancer {
 public:
  int32_t Pick(const RouteRequest& request, const FleetView& fleet) override {
    int64_t ready = 0, outstanding = request.prompt_tokens;
    int32_t least = -1;
    for (size_t i = 0; i < fleet.replicas.size(); ++i) {
      if (!fleet.replicas[i].ready) continue;
      ++ready;
      outstanding += fleet.replicas[i].outstanding_tokens;
      least = Less(fleet, static_cast<int32_t>(i), least);
    }
    if (ready == 0 || fleet.prefixes == nullptr) return least;
    fleet.prefixes->Longest(request.keys, &match_);
    const double most = kMostOverMean * static_cast<double>(outstanding) / static_cast<double>(ready);
    int32_t best = -1;
    for (const int32_t i : match_.replicas) {
      const ReplicaView& r = fleet.replicas[static_cast<size_t>(i)];
      if (r.ready && static_cast<double>(r.outstanding_tokens + request.prompt_tokens) <=
                         std::max(most, 1.0 * request.prompt_tokens))
        best = Less(fleet, i, best);
    }
    return best >= 0 ? best : least;
  }

 private:
  // The one with fewer tokens in flight; the second one if equal. -1: no other.
  static int32_t Less(const FleetView& fleet, int32_t i, int32_t other) {
    if (other < 0) return i;
    const int64_t own = fleet.replicas[static_cast<size_t>(i)].outstanding_tokens;
    return own < fleet.replicas[static_cast<size_t>(other)].outstanding_tokens ? i : other;
  }

  PrefixIndex::Match match_;
};

}  // namespace

std::unique_ptr<Balancer> MakePrefixAffinity(uint64_t) {
  return std::make_unique<PrefixAffinity>();
}

}  // namespace tactus::fleet
