// Pairs of replicas that move sequences, and the choice of the sequence.
#include "fleet/balance/rebalance.h"

#include <gtest/gtest.h>

namespace tactus::fleet {
namespace {

ReplicaView Replica(int32_t running, int64_t free_kv_tokens, bool ready = true) {
  ReplicaView r;
  r.ready = ready;
  r.running = running;
  r.free_kv_tokens = free_kv_tokens;
  r.kv_tokens = 100000;
  return r;
}

TEST(Rebalance, TheLeastFreeReplicasSendToTheFreest) {
  // Freeness 10, 5000, 30, 300, 100.
  const std::vector<ReplicaView> replicas = {Replica(10, 100), Replica(1, 5000), Replica(10, 300), Replica(10, 3000),
                                             Replica(10, 1000)};
  EXPECT_EQ(PairReplicas(replicas, {}), (std::vector<MovePair>{{0, 1}, {2, 3}}));
}

TEST(Rebalance, NoReplicaSendsIfAllHaveEnoughMemoryOrNoneHasRoom) {
  const std::vector<ReplicaView> calm = {Replica(10, 2000), Replica(10, 90000)};
  EXPECT_TRUE(PairReplicas(calm, {}).empty());
  const std::vector<ReplicaView> full = {Replica(10, 10), Replica(10, 500)};
  EXPECT_TRUE(PairReplicas(full, {}).empty());
  EXPECT_TRUE(PairReplicas({}, {}).empty());
}

TEST(Rebalance, AReplicaWhoseQueueDoesNotFitSends) {
  const std::vector<ReplicaView> replicas = {Replica(5, -4000), Replica(5, 20000)};
  EXPECT_EQ(PairReplicas(replicas, {}), (std::vector<MovePair>{{0, 1}}));
}

TEST(Rebalance, ASingleSequenceDoesNotMove) {
  const std::vector<ReplicaView> replicas = {Replica(1, 5), Replica(0, 20000)};
  EXPECT_TRUE(PairReplicas(replicas, {}).empty()) << "it would have no more room per sequence elsewhere";
}

TEST(Rebalance, AMemoryShortageIsNotDividedBySequences) {
  EXPECT_EQ(FreenessOf(Replica(10, 3000)), 300);
  EXPECT_EQ(FreenessOf(Replica(10, -3000)), -3000) << "a tenth of it would make the longest batch the freest";
  const std::vector<ReplicaView> replicas = {Replica(40, -4000), Replica(5, -3000), Replica(5, 20000)};
  EXPECT_EQ(PairReplicas(replicas, {}), (std::vector<MovePair>{{0, 2}}));
}

TEST(Rebalance, ADrainedReplicaSendsEverything) {
  const std::vector<ReplicaView> replicas = {Replica(1, 90000), Replica(9, 1000), Replica(2, 800)};
  EXPECT_EQ(PairReplicas(replicas, {true, false, false}), (std::vector<MovePair>{{0, 2}}))
      << "a draining replica comes before those short of memory";
  EXPECT_TRUE(PairReplicas(replicas, {true, true, true}).empty()) << "no replica can receive anything";
  const std::vector<ReplicaView> empty = {Replica(0, 90000), Replica(9, 9000)};
  EXPECT_TRUE(PairReplicas(empty, {true, false}).empty()) << "it has nothing left to send";
}

TEST(Rebalance, AReplicaThatIsNotReadyReceivesNothing) {
  const std::vector<ReplicaView> replicas = {Replica(10, 10), Replica(1, 90000, false)};
  EXPECT_TRUE(PairReplicas(replicas, {}).empty());
}

TEST(Rebalance, TheLeastImportantSequenceMovesAndOfThoseTheShortest) {
  const std::vector<MovableSequence> sequences = {{1, 0, 10}, {2, 5, 900}, {3, 5, 400}, {4, 5, 400}, {5, 1, 20}};
  EXPECT_EQ(ChooseToMove(sequences, 1000), 2);
  EXPECT_EQ(ChooseToMove(sequences, 400), 2);
  EXPECT_EQ(ChooseToMove(sequences, 399), 4) << "a sequence that does not fit there stays, whatever its priority";
  EXPECT_EQ(ChooseToMove(sequences, 5), -1);
  EXPECT_EQ(ChooseToMove({}, 1000), -1);
}

}  // namespace
}  // namespace tactus::fleet
