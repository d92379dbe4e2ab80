// When a fleet grows and shrinks, and which replica is started or drained.
#include "fleet/balance/scaling.h"

#include <gtest/gtest.h>

namespace tactus::fleet {
namespace {

constexpr auto kOff = ReplicaStanding::kOff, kStarting = ReplicaStanding::kStarting, kOn = ReplicaStanding::kOn,
               kDraining = ReplicaStanding::kDraining;

// A replica with ten running sequences; `freeness`: free KV tokens for each.
ReplicaView Free(int64_t freeness, int32_t running = 10) {
  ReplicaView r;
  r.running = r.outstanding_requests = running;
  r.free_kv_tokens = freeness * running;
  return r;
}

ScalingOptions Options() {
  return {.least = 1, .start_below = 10, .drain_above = 60, .after_ns = 10 * kSecond, .starting_ns = 30 * kSecond};
}

std::vector<ReplicaStanding> Standings(const Scaler& scaler, int32_t replicas) {
  std::vector<ReplicaStanding> all;
  for (int32_t i = 0; i < replicas; ++i) all.push_back(scaler.standing(i));
  return all;
}
using Standing = std::vector<ReplicaStanding>;

TEST(Scaler, StartsAReplicaWhenTheMeanWasLowForTheGivenTime) {
  Scaler scaler(Options(), 3);
  const std::vector<ReplicaView> low = {Free(9), Free(0, 0), Free(0, 0)}, enough = {Free(10), Free(0, 0), Free(0, 0)};
  EXPECT_EQ(Standings(scaler, 3), (Standing{kOn, kOff, kOff}));
  scaler.Look(low, 0);
  scaler.Look(low, 9 * kSecond);
  scaler.Look(enough, 9 * kSecond + 1);
  scaler.Look(low, 10 * kSecond);
  scaler.Look(low, 19 * kSecond);
  EXPECT_EQ(Standings(scaler, 3), (Standing{kOn, kOff, kOff})) << "a break restarts the time";
  scaler.Look(low, 20 * kSecond);
  EXPECT_EQ(Standings(scaler, 3), (Standing{kOn, kStarting, kOff}));
  EXPECT_EQ(std::vector<int32_t>(scaler.changed().begin(), scaler.changed().end()), (std::vector<int32_t>{1}));
  scaler.Look(low, 49 * kSecond);
  EXPECT_EQ(Standings(scaler, 3), (Standing{kOn, kStarting, kOff})) << "no other replica starts during a start";
  scaler.Look(low, 50 * kSecond);
  EXPECT_EQ(scaler.standing(1), kOn);
  EXPECT_EQ(scaler.started(), 1);
}

TEST(Scaler, TheMeanIsOverReplicasThatAcceptRequests) {
  Scaler scaler({.least = 2, .start_below = 10, .drain_above = 60}, 3);
  scaler.Look(std::vector<ReplicaView>{Free(0), Free(19), Free(0, 0)}, 0);
  EXPECT_EQ(scaler.standing(2), kOn) << "9.5 tokens on average; without a start-up time it is on at once";
  Scaler other({.least = 2, .start_below = 10, .drain_above = 60}, 3);
  other.Look(std::vector<ReplicaView>{Free(0), Free(20), Free(-5000)}, 0);
  EXPECT_EQ(other.standing(2), kOff) << "10 tokens on average: a replica that is off does not count";
}

TEST(Scaler, DrainsTheReplicaWithTheFewestRunningDownToTheMinimum) {
  ScalingOptions options = Options();
  options.least = 2;
  options.starting_ns = 0;
  options.after_ns = 0;
  Scaler scaler(options, 4);
  const std::vector<ReplicaView> low(4, Free(1));
  scaler.Look(low, 0);
  scaler.Look(low, 1);
  ASSERT_EQ(Standings(scaler, 4), (Standing{kOn, kOn, kOn, kOn}));
  std::vector<ReplicaView> high = {Free(61), Free(61, 4), Free(61), Free(61, 5)};
  scaler.Look(high, 2);
  EXPECT_EQ(Standings(scaler, 4), (Standing{kOn, kDraining, kOn, kOn}));
  EXPECT_EQ(scaler.draining(), (std::vector<bool>{false, true, false, false}));
  scaler.Look(high, 3);
  EXPECT_EQ(Standings(scaler, 4), (Standing{kOn, kDraining, kOn, kDraining}));
  scaler.Look(high, 4);
  EXPECT_EQ(Standings(scaler, 4), (Standing{kOn, kDraining, kOn, kDraining})) << "two always stay";
  high[3].outstanding_requests = 0;
  scaler.Look(high, 5);
  EXPECT_EQ(Standings(scaler, 4), (Standing{kOn, kDraining, kOn, kOff})) << "nothing is left there";
  EXPECT_EQ(scaler.drained(), 2);
}

TEST(Scaler, ADrainingReplicaReturnsBeforeAnotherOneStarts) {
  ScalingOptions options = Options();
  options.after_ns = 0;
  Scaler scaler(options, 3);
  const std::vector<ReplicaView> low(3, Free(1)), high(3, Free(100));
  scaler.Look(low, 0);
  scaler.Look(low, 30 * kSecond);  // on; and the third starts
  scaler.Look(high, 60 * kSecond);
  ASSERT_EQ(Standings(scaler, 3), (Standing{kOn, kOn, kDraining}));
  scaler.Look(low, 61 * kSecond);
  EXPECT_EQ(Standings(scaler, 3), (Standing{kOn, kOn, kOn})) << "at once: its model is loaded";
  EXPECT_EQ(scaler.started(), 2);
}

TEST(Scaler, CountsReplicaTimeFromStartToEnd) {
  ScalingOptions options = Options();
  options.after_ns = 0;
  Scaler scaler(options, 2);
  const std::vector<ReplicaView> low(2, Free(1)), high(2, Free(100)), gone = {Free(100), Free(0, 0)};
  scaler.Look(low, 10 * kSecond);
  scaler.Look(high, 40 * kSecond);  // on, and drained
  ASSERT_EQ(scaler.standing(1), kDraining);
  scaler.Look(gone, 50 * kSecond);
  ASSERT_EQ(scaler.standing(1), kOff);
  EXPECT_EQ(scaler.UsedNs(0, 100 * kSecond), 140 * kSecond);
  EXPECT_EQ(scaler.UsedNs(20 * kSecond, 45 * kSecond), 50 * kSecond);
}

}  // namespace
}  // namespace tactus::fleet
