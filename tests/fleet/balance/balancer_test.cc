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

// For the time of one call.
FleetView Of(const std::vector<ReplicaView>& views) {
  return {.replicas = views};
}

TEST(Balancers, AnUnknownNameListsTheKnownOnes) {
  const auto made = FindBalancer("roundrobin");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().param(), "balancer");
  for (const BalancerInfo& b : Balancers())
    EXPECT_NE(made.status().message().find(b.name), std::string::npos) << b.name;
}

TEST(Balancers, RoundRobinGoesRoundAndSkipsWhatIsNotReady) {
  auto balancer = Make("round-robin");
  auto views = Loads({9, 0, 0});
  std::vector<int32_t> picks;
  for (int i = 0; i < 4; ++i) picks.push_back(balancer->Pick({}, Of(views)));
  EXPECT_EQ(picks, (std::vector<int32_t>{0, 1, 2, 0}));
  views[1].ready = false;
  EXPECT_EQ(balancer->Pick({}, Of(views)), 2);
}

TEST(Balancers, LeastOutstandingTakesTheFewestAndSharesTies) {
  auto balancer = Make("least-outstanding");
  EXPECT_EQ(balancer->Pick({}, Of(Loads({3, 1, 2}))), 1);
  std::vector<int> picked(3);
  for (int i = 0; i < 30; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(Loads({0, 0, 0}))))];
  EXPECT_EQ(picked, (std::vector<int>{10, 10, 10}));
}

// After a pick the next tie goes to whoever comes after it, also where the pick was no tie; what is not ready is passed
// over however empty it is.
TEST(Balancers, LeastOutstandingGoesOnAfterItsLastPick) {
  auto balancer = Make("least-outstanding");
  EXPECT_EQ(balancer->Pick({}, Of(Loads({1, 0, 1, 1}))), 1);
  EXPECT_EQ(balancer->Pick({}, Of(Loads({0, 0, 0, 0}))), 2);
  EXPECT_EQ(balancer->Pick({}, Of(Loads({0, 0, 5, 5}))), 0);
  auto views = Loads({7, 0, 7, 7});
  views[1].ready = false;
  EXPECT_EQ(balancer->Pick({}, Of(views)), 2);
}

// Of two that are equally loaded the first drawn is taken: all are as likely.
TEST(Balancers, PowerOfTwoSharesTies) {
  auto balancer = Make("p2c", 11);
  const auto views = Loads({3, 3, 3, 3});
  std::vector<int> picked(views.size());
  for (int i = 0; i < 20000; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(views)))];
  for (const int n : picked) EXPECT_NEAR(n, 5000, 5 * 62);
}

// Replicas that are not ready are never drawn, and the others as often as each other.
TEST(Balancers, DrawsAreAmongTheReady) {
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

// The emptiest of n is among the two with chance 2 / n, the fullest is chosen only if it were drawn twice: never.
TEST(Balancers, PowerOfTwoNeverTakesTheFullestAndTakesTheEmptiestAsOftenAsItIsDrawn) {
  auto balancer = Make("p2c", 7);
  const auto views = Loads({5, 4, 3, 2, 1});
  std::vector<int> picked(views.size());
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++picked[static_cast<size_t>(balancer->Pick({}, Of(views)))];
  EXPECT_EQ(picked[0], 0);
  EXPECT_NEAR(picked[4], kDraws * 2.0 / 5, 5 * 70);  // five deviations
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

TEST(Balancers, NobodyReadyIsNobodyAndOneReadyIsThatOne) {
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
