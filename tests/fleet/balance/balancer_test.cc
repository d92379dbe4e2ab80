#include "fleet/balance/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tactus::fleet {
namespace {

std::unique_ptr<Balancer> Make(const std::string& name, uint64_t seed = 1) {
  const auto info = FindBalancer(name);
  EXPECT_TRUE(info.ok()) << info.status().ToString();
  return info.ok() ? (*info)->make(seed) : nullptr;
}

std::vector<ReplicaView> Loads(const std::vector<int32_t>& outstanding) {
  std::vector<ReplicaView> views;
  for (const int32_t n : outstanding) views.push_back({true, n, int64_t{n} * 100});
  return views;
}

// The view refers to `views`.
FleetView Of(const std::vector<ReplicaView>& views) {
  return {.replicas = views};
}

TEST(Balancers, UnknownNameErrorListsAllNames) {
  const auto made = FindBalancer("roundrobin");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().param(), "balancer");
  for (const BalancerInfo& b : Balancers())
    EXPECT_NE(made.status().message().find(b.name), std::string::npos) << b.name;
}

TEST(Balancers, RoundRobinCyclesThroughReadyReplicas) {
  auto balancer = Make("round-robin");
  auto views = Loads({9, 0, 0});
  std::vector<int32_t> picks;
  for (int i = 0; i < 4; ++i) picks.push_back(balancer->Pick({}, Of(views)));
  EXPECT_EQ(picks, (std::vector<int32_t>{0, 1, 2, 0}));
  views[1].ready = false;
  EXPECT_EQ(balancer->Pick({}, Of(views)), 2);
}

TEST(Balancers, LeastOutstandingPicksTheFewestAndSharesTies) {
  auto balancer = Make("least-outstanding");
  EXPECT_EQ(balancer->Pick({}, Of(Loads({3, 1, 2}))), 1);
  std::vector<int> picked(3);
  for (int i = 0; i < 30; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(Loads({0, 0, 0}))))];
  EXPECT_EQ(picked, (std::vector<int>{10, 10, 10}));
}

// After a pick, the next tie goes to the replica after it, even if the pick was not a tie; replicas that are not ready
// are skipped even when idle.
TEST(Balancers, LeastOutstandingSearchesFromItsLastPick) {
  auto balancer = Make("least-outstanding");
  EXPECT_EQ(balancer->Pick({}, Of(Loads({1, 0, 1, 1}))), 1);
  EXPECT_EQ(balancer->Pick({}, Of(Loads({0, 0, 0, 0}))), 2);
  EXPECT_EQ(balancer->Pick({}, Of(Loads({0, 0, 5, 5}))), 0);
  auto views = Loads({7, 0, 7, 7});
  views[1].ready = false;
  EXPECT_EQ(balancer->Pick({}, Of(views)), 2);
}

// The first drawn of two equally loaded replicas is picked: all are equally likely.
TEST(Balancers, PowerOfTwoSharesTiesEvenly) {
  auto balancer = Make("p2c", 11);
  const auto views = Loads({3, 3, 3, 3});
  std::vector<int> picked(views.size());
  for (int i = 0; i < 20000; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(views)))];
  for (const int n : picked) EXPECT_NEAR(n, 5000, 5 * 62);
}

// Replicas that are not ready are never drawn; the others are drawn equally often.
TEST(Balancers, RandomBalancersDrawOnlyReadyReplicas) {
  for (const char* name : {"random", "p2c"}) {
    auto balancer = Make(name, 5);
    auto views = Loads({3, 3, 3, 3});
    views[0].ready = views[2].ready = false;
    std::vector<int> picked(views.size());
    for (int i = 0; i < 20000; ++i) {
      const int32_t at = balancer->Pick({}, Of(views));
      ASSERT_TRUE(at == 1 || at == 3) << name << " picked " << at;
      ++picked[static_cast<size_t>(at)];
    }
    EXPECT_NEAR(picked[1], 10000, 5 * 71) << name;
  }
}

// The emptiest of n is among the two with probability 2 / n; the fullest would have to be drawn twice, which cannot
// happen.
TEST(Balancers, PowerOfTwoNeverPicksTheFullestAndPicksTheEmptiestWheneverDrawn) {
  auto balancer = Make("p2c", 7);
  const auto views = Loads({5, 4, 3, 2, 1});
  std::vector<int> picked(views.size());
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(views)))];
  EXPECT_EQ(picked[0], 0);
  EXPECT_NEAR(picked[4], kDraws * 2.0 / 5, 5 * 70);  // five standard deviations
  EXPECT_TRUE(std::is_sorted(picked.begin(), picked.end()));
}

TEST(Balancers, RandomIsEvenAndFollowsItsSeed) {
  auto a = Make("random", 3), b = Make("random", 3), c = Make("random", 4);
  const auto views = Loads({100, 0, 0, 0});
  std::vector<int> picked(4);
  int differ = 0;
  for (int i = 0; i < 20000; ++i) {
    const int32_t at = a->Pick({}, Of(views));
    ++picked[static_cast<size_t>(at)];
    EXPECT_EQ(at, b->Pick({}, Of(views)));
    differ += at != c->Pick({}, Of(views));
  }
  for (const int n : picked) EXPECT_NEAR(n, 5000, 5 * 62);
  EXPECT_GT(differ, 10000);
}

TEST(Balancers, AllPickNoneIfNoneIsReadyAndTheOnlyReadyOne) {
  for (const BalancerInfo& info : Balancers()) {
    auto balancer = info.make(1);
    auto views = Loads({1, 2, 3, 4});
    for (ReplicaView& v : views) v.ready = false;
    EXPECT_EQ(balancer->Pick({}, Of(views)), -1) << info.name;
    views[2].ready = true;
    for (int i = 0; i < 8; ++i) EXPECT_EQ(balancer->Pick({}, Of(views)), 2) << info.name;
  }
}

}  // namespace
}  // namespace tactus::fleet
