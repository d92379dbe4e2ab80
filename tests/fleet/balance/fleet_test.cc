// The fleet's view of its replicas, and the balancers that use it.
#include "fleet/balance/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "base/rng.h"

namespace tactus::fleet {
namespace {

constexpr int32_t kBlock = 16;

Hash128 KeyOf(uint64_t prefix, uint64_t block) {
  return {MixHash(prefix, block), prefix};
}

std::vector<Hash128> Keys(uint64_t prefix, int32_t blocks) {
  std::vector<Hash128> keys;
  for (int32_t i = 0; i < blocks; ++i) keys.push_back(KeyOf(prefix, static_cast<uint64_t>(i)));
  return keys;
}

std::unique_ptr<Fleet> Make(int32_t replicas, const std::string& balancer) {
  auto made = Fleet::Create(replicas, balancer, 1);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// Equation 2 of the paper, computed by hand: a prompt of 1,000 tokens; means of 300 and 100 tokens.
TEST(Sal, PicksTheShortestEstimatedWait) {
  const auto pick = [](std::vector<ReplicaView> replicas) {
    return (*FindBalancer("sal"))
        ->make(1)
        ->Pick({.prompt_tokens = 1000}, {.replicas = replicas, .prompt_tokens = 300, .output_tokens = 100});
  };
  const auto replica = [](int32_t running, int64_t waiting, int64_t free) {
    return ReplicaView{.running = running, .waiting_tokens = waiting, .free_kv_tokens = free, .step_tokens = 500};
  };
  // Queues: (1500 + 1000) / 500 = 5 steps against (2000 + 1000) / 500 = 6.
  EXPECT_EQ(pick({replica(10, 2000, 5000), replica(10, 1500, 5000)}), 1);
  // Memory: 10 running sequences free 40 tokens per step, so (1000 - 720) / 40 = 7 steps against 6 of the queue.
  EXPECT_EQ(pick({replica(10, 1500, 720), replica(10, 2000, 5000)}), 1);
  // (1000 - 780) / 40 = 5.5 steps.
  EXPECT_EQ(pick({replica(10, 1500, 780), replica(10, 2000, 5000)}), 0);
  // If nothing runs, a prompt that does not fit never will; one that fits waits only for the queue.
  EXPECT_EQ(pick({replica(0, 0, 999), replica(10, 90'000, 5000)}), 1);
  EXPECT_EQ(pick({replica(0, 0, 1000), replica(10, 500, 5000)}), 0);
  // Queued requests will use more memory than is free: another 200 tokens must be freed.
  EXPECT_EQ(pick({replica(10, 1500, -200), replica(10, 13'900, 5000)}), 1) << "30 steps against 29.8";
}

TEST(Sal, TiesGoToTheFewestOutstandingTokens) {
  const auto sal = (*FindBalancer("sal"))->make(1);
  std::vector<ReplicaView> replicas(3);
  for (ReplicaView& r : replicas) r.free_kv_tokens = 1000, r.step_tokens = 100;
  replicas[0].outstanding_tokens = 5;
  replicas[1].outstanding_tokens = 3;
  replicas[2].outstanding_tokens = 4;
  EXPECT_EQ(sal->Pick({.prompt_tokens = 10}, {.replicas = replicas}), 1);
}

TEST(Llumnix, PicksTheFreestReplica) {
  const auto llumnix = (*FindBalancer("llumnix"))->make(1);
  std::vector<ReplicaView> replicas{{.outstanding_requests = 4, .free_kv_tokens = 400},
                                    {.outstanding_requests = 1, .free_kv_tokens = 150},
                                    {.outstanding_requests = 0, .free_kv_tokens = 120}};
  EXPECT_EQ(llumnix->Pick({}, {.replicas = replicas}), 1) << "100, 150 and 120 tokens for each in flight";
  replicas[1].free_kv_tokens = -1000;
  EXPECT_EQ(llumnix->Pick({}, {.replicas = replicas}), 2);
  // Where memory is short everywhere, the replica with the smallest shortage is picked; a shortage is not divided by
  // the number of requests.
  replicas = {{.outstanding_requests = 40, .free_kv_tokens = -8000},
              {.outstanding_requests = 10, .free_kv_tokens = -3000}};
  EXPECT_EQ(llumnix->Pick({}, {.replicas = replicas}), 1);
}

// Llumnix 4.4: a replica has one headroom, however many of its requests have high priority, until the last of them
// ends.
TEST(Fleet, ReservesHeadroomWhereHighPriorityRequestsRun) {
  const auto fleet = Make(2, "llumnix");
  fleet->SetHeadroom(3000);
  const auto tell = [&](int32_t high_priority) {
    for (const int32_t i : {0, 1})
      fleet->Told(
          i, {.running = 2, .free_kv_tokens = 5000, .kv_tokens = 9000, .high_priority = i == 0 ? high_priority : 0});
  };
  tell(1);
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 2000);
  EXPECT_EQ(fleet->view(1).free_kv_tokens, 5000);
  tell(2);
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 2000) << "together, not each";
  tell(0);
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 5000);
  // From the moment of routing, before the replica's next report.
  EXPECT_EQ(fleet->Route({.prompt_tokens = 10, .high_priority = true}), 0);
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 5000 - 10 - 3000);
  EXPECT_EQ(fleet->Route({.prompt_tokens = 10}), 1) << "others stay away";
  fleet->Routed(0, {.prompt_tokens = 10, .high_priority = true});
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 5000 - 20 - 3000);
  fleet->Routed(1, {.prompt_tokens = 10});
  EXPECT_EQ(fleet->view(1).free_kv_tokens, 5000 - 20) << "a request of normal priority reserves none";
}

// SAL 4.2: between two reports of a replica, requests routed there count as queued, and use its memory.
TEST(Fleet, CountsRequestsRoutedSinceTheLastReport) {
  const auto fleet = Make(2, "sal");
  const ReplicaState idle{
      .running = 1, .waiting_tokens = 0, .free_kv_tokens = 10'000, .kv_tokens = 12'000, .step_tokens = 100};
  fleet->Told(0, idle);
  fleet->Told(1,
              {.running = 1, .waiting_tokens = 250, .free_kv_tokens = 9000, .kv_tokens = 12'000, .step_tokens = 100});
  EXPECT_EQ(fleet->view(1).free_kv_tokens, 8750) << "less what its queue will use";
  std::vector<int32_t> picks;
  for (int i = 0; i < 6; ++i) picks.push_back(fleet->Route({.prompt_tokens = 100}));
  EXPECT_EQ(picks, (std::vector<int32_t>{0, 0, 0, 1, 0, 1})) << "100, 200 and 300 tokens wait there, then 350";
  EXPECT_EQ(fleet->view(0).waiting_tokens, 400);
  EXPECT_EQ(fleet->view(0).free_kv_tokens, 9600);
  EXPECT_EQ(fleet->view(0).outstanding_requests, 4);
  fleet->Ended(0, 100, 5);
  EXPECT_EQ(fleet->view(0).outstanding_tokens, 300);
  EXPECT_EQ(fleet->view(0).waiting_tokens, 400) << "no request counts as ended before the next report";
  fleet->Told(0, idle);
  EXPECT_EQ(fleet->view(0).waiting_tokens, 0);
  EXPECT_EQ(fleet->view(0).outstanding_tokens, 300);
}

// The cache model: each replica has a list of blocks, and drops the least recently used first.
TEST(PrefixIndex, MatchesSimulatedLruCaches) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Rng rng(seed);
    constexpr int32_t kReplicas = 3;
    PrefixIndex index(kReplicas);
    std::vector<int64_t> capacity, routed(kReplicas, 0);
    for (int32_t r = 0; r < kReplicas; ++r) {
      capacity.push_back(rng.UniformInt(200, 1500));
      index.SetCapacity(r, capacity.back());
    }
    std::map<std::pair<int32_t, Hash128>, int64_t> used;  // value: routed tokens at its last use
    const auto has = [&](int32_t r, const Hash128& key) {
      const auto at = used.find({r, key});
      return at != used.end() && routed[static_cast<size_t>(r)] - at->second < capacity[static_cast<size_t>(r)];
    };
    const auto blocks_of = [&](int32_t r, const std::vector<Hash128>& keys) {
      int32_t n = 0;
      while (n < static_cast<int32_t>(keys.size()) && has(r, keys[static_cast<size_t>(n)])) ++n;
      return n;
    };
    PrefixIndex::Match match;
    for (int i = 0; i < 400; ++i) {
      const auto keys = Keys(static_cast<uint64_t>(rng.UniformInt(0, 5)), static_cast<int32_t>(rng.UniformInt(0, 20)));
      int32_t most = 0;
      std::vector<int32_t> with_most;
      for (int32_t r = 0; r < kReplicas; ++r) {
        const int32_t n = blocks_of(r, keys);
        ASSERT_EQ(index.BlocksOf(r, keys), n) << "seed " << seed << " request " << i;
        if (n > most) with_most.clear();
        if (n >= most && n > 0) with_most.push_back(r);
        most = std::max(most, n);
      }
      index.Longest(keys, &match);
      ASSERT_EQ(match.blocks, most) << "seed " << seed << " request " << i;
      ASSERT_EQ(match.replicas, with_most);
      const auto r = static_cast<int32_t>(rng.UniformInt(0, kReplicas - 1));
      const auto prompt = static_cast<int32_t>(keys.size()) * kBlock + static_cast<int32_t>(rng.UniformInt(1, kBlock));
      const int32_t cached = blocks_of(r, keys);
      routed[static_cast<size_t>(r)] += std::max(0, prompt - cached * kBlock) + 1;
      for (const Hash128& key : keys) used[{r, key}] = routed[static_cast<size_t>(r)];
      index.Routed(r, keys, kBlock, prompt);
      if (rng.Uniform() < 0.01) {
        index.Clear(r);
        std::erase_if(used, [&](const auto& entry) { return entry.first.first == r; });
      }
    }
  }
}

TEST(PrefixIndex, ForgetsBlocksThatReplicasHaveDropped) {
  PrefixIndex index(2);
  index.SetCapacity(0, 10'000);
  index.SetCapacity(1, 10'000);
  for (uint64_t i = 0; i < 5000; ++i) index.Routed(static_cast<int32_t>(i % 2), Keys(i, 10), kBlock, 170);
  EXPECT_LE(index.size(), 4096u + 10) << "two replicas hold about 1,200 blocks";
}

// Ten prefixes, random requests: each replica has some of the prefixes, and loads are about equal.
TEST(PrefixAffinity, ConcentratesPrefixesWithoutAHotSpot) {
  const auto fleet = Make(4, "prefix-affinity");
  for (int32_t r = 0; r < 4; ++r) fleet->Told(r, {.free_kv_tokens = 100'000, .kv_tokens = 100'000, .step_tokens = 512});
  Rng rng(5);
  std::deque<std::pair<int32_t, int32_t>> live;
  std::map<std::pair<uint64_t, int32_t>, int> served;
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (int i = 0; i < 4000; ++i) {
    // Half of all requests use the first prefix.
    const auto prefix = static_cast<uint64_t>(rng.Uniform() < 0.5 ? 0 : rng.UniformInt(1, 9));
    const auto keys = Keys(prefix, 40);
    const int32_t at = fleet->Route({.prompt_tokens = 700, .keys = keys, .block_size = kBlock});
    ASSERT_GE(at, 0);
    live.push_back({at, 700});
    ++served[{prefix, at}];
    if (live.size() > 80) {
      fleet->Ended(live.front().first, live.front().second, 10);
      live.pop_front();
      for (int32_t r = 0; r < 4; ++r) {
        most = std::max(most, fleet->view(r).outstanding_tokens);
        least = std::min(least, fleet->view(r).outstanding_tokens);
      }
    }
  }
  EXPECT_LE(most, 1.25 * 81 * 700 / 4 + 700) << "no hot spot, even for a popular prefix";
  int homes = 0;  // of the nine rare prefixes: replicas that served at least a tenth of the prefix's requests
  for (uint64_t prefix = 1; prefix < 10; ++prefix) {
    int all = 0;
    for (int32_t r = 0; r < 4; ++r) all += served[{prefix, r}];
    for (int32_t r = 0; r < 4; ++r) homes += served[{prefix, r}] * 10 >= all;
  }
  EXPECT_LE(homes, 9 * 3) << "spread over all replicas there would be 36";
}

TEST(PrefixAffinity, FollowsThePrefixIfTheLoadAllows) {
  const auto fleet = Make(3, "prefix-affinity");
  for (int32_t r = 0; r < 3; ++r) fleet->Told(r, {.kv_tokens = 100'000});
  const auto a = Keys(1, 10), longer = Keys(1, 20), b = Keys(2, 10);
  const auto route = [&](const std::vector<Hash128>& keys, int32_t tokens) {
    const int32_t at = fleet->Route({.prompt_tokens = tokens, .keys = keys, .block_size = kBlock});
    fleet->Ended(at, tokens, 1);
    return at;
  };
  fleet->Routed(2, {.prompt_tokens = 170, .keys = longer, .block_size = kBlock});
  fleet->Ended(2, 170, 1);
  EXPECT_EQ(route(a, 170), 2) << "its prefix is there, though others are as idle";
  EXPECT_EQ(route(longer, 330), 2);
  EXPECT_EQ(route(b, 170), 0) << "no replica has it";
  fleet->SetReady(2, false);
  EXPECT_NE(route(a, 170), 2);
}

}  // namespace
}  // namespace tactus::fleet
