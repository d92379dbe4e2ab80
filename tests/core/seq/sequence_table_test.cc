#include "core/seq/sequence_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tactus::core {
namespace {

SequenceSpec Spec(int32_t prompt, int32_t output) {
  SequenceSpec spec;
  spec.prompt_tokens = prompt;
  spec.max_output_tokens = output;
  return spec;
}

TEST(SequenceTable, LengthsFollowChunksAndDecodes) {
  SequenceTable t(4);
  const auto& c = t.columns();
  const SlotId s = t.Add(Spec(10, 3), 5);
  EXPECT_EQ(c.state[s], SeqState::kWaiting);
  EXPECT_EQ(t.waiting().size(), 1u);

  t.Admit(s, 4);  // four positions were cached
  EXPECT_EQ(c.state[s], SeqState::kPrefill);
  EXPECT_EQ(c.Pending(s), 6);
  t.PlanItem(s, 3, false, 0, false);
  EXPECT_EQ(t.num_prefilling(), 1);
  EXPECT_FALSE(c.Plannable(s));
  EXPECT_EQ(c.computed_planned[s], 7);
  EXPECT_EQ(c.computed_committed[s], 4);
  t.CommitItem(s, 3, 0);
  EXPECT_EQ(c.flight[s], FlightState::kIdle);

  t.PlanItem(s, 3, true, 1, false);  // the last chunk: planning it ends the prefill
  EXPECT_EQ(c.state[s], SeqState::kDecode);
  EXPECT_EQ(t.num_prefilling(), 0);
  EXPECT_EQ(c.known_planned[s], 11);
  EXPECT_EQ(c.known_committed[s], 10);
  t.CommitItem(s, 3, 1);
  EXPECT_EQ(c.Pending(s), 1);
  EXPECT_EQ(t.CheckIntegrity(), "");

  t.Finish(s);
  t.Compact();
  EXPECT_TRUE(t.running().empty());
  t.Free(s);
  EXPECT_EQ(t.free_slots(), 4);
  EXPECT_EQ(t.CheckIntegrity(), "");
}

TEST(SequenceTable, PendingIsZeroWhenLastTokenIsInFlight) {
  SequenceTable t(1);
  const auto& c = t.columns();
  const SlotId s = t.Add(Spec(2, 2), 0);
  t.Admit(s, 0);
  t.PlanItem(s, 2, true, 0, true);
  EXPECT_TRUE(c.Plannable(s));  // chainable: its next input is on the device
  EXPECT_EQ(c.Pending(s), 1);
  t.PlanItem(s, 1, true, 1, true);
  EXPECT_EQ(c.Pending(s), 0);  // both of its two output tokens are in flight
  EXPECT_EQ(t.items_in_flight(s), 2);
  EXPECT_EQ(t.last_step(s), 1);
}

TEST(SequenceTable, PreemptionDropsPlannedWorkAndCountsRecomputedTokens) {
  SequenceTable t(2);
  const auto& c = t.columns();
  const SlotId s = t.Add(Spec(4, 10), 0);
  t.Admit(s, 0);
  t.PlanItem(s, 4, true, 0, true);
  t.PlanItem(s, 1, true, 1, true);
  t.CommitItem(s, 4, 1);
  const uint32_t epoch = t.epoch(s);
  t.Preempt(s, 77);
  EXPECT_NE(t.epoch(s), epoch);  // the item still in flight is stale
  EXPECT_EQ(c.state[s], SeqState::kWaiting);
  EXPECT_EQ(c.flight[s], FlightState::kInFlight);
  EXPECT_EQ(c.known_planned[s], 5);
  EXPECT_EQ(c.computed_planned[s], 0);
  EXPECT_EQ(c.queued_ns[s], 77);
  EXPECT_EQ(c.preemptions[s], 1);
  t.DropItem(s);
  EXPECT_EQ(c.flight[s], FlightState::kIdle);
  t.Compact();
  t.Admit(s, 1);
  EXPECT_EQ(c.goal_tokens[s], 5);
  EXPECT_EQ(t.recomputed_tokens(s), 3);  // four were computed, one was found in the cache
  EXPECT_EQ(t.CheckIntegrity(), "");
}

// Lost positions count when they are computed again, once, and without those kept in host memory.
TEST(SequenceTable, RecomputedTokensAreCountedOnce) {
  SequenceTable t(1);
  const SlotId s = t.Add(Spec(8, 4), 0);
  t.Admit(s, 0);
  t.PlanItem(s, 8, true, 0, false);
  t.CommitItem(s, 8, 1);
  t.Preempt(s, 1);
  t.Admit(s, 0);
  EXPECT_EQ(t.recomputed_tokens(s), 8);
  t.Preempt(s, 2);  // before it has computed a token: nothing is lost
  t.Admit(s, 0);
  EXPECT_EQ(t.recomputed_tokens(s), 8);
  t.PlanItem(s, 9, true, 1, false);
  t.CommitItem(s, 9, 1);
  t.Preempt(s, 3, 7);  // seven positions are in host memory
  EXPECT_EQ(t.columns().computed_committed[s], 7);
  EXPECT_EQ(t.columns().computed_planned[s], 7);
  t.Admit(s, 7);
  EXPECT_EQ(t.recomputed_tokens(s), 8 + 2);
  t.Preempt(s, 4);
  t.Admit(s, 9);  // more is found than was lost
  EXPECT_EQ(t.recomputed_tokens(s), 8 + 2);
}

// A reused slot has no state of its previous sequence.
TEST(SequenceTable, ReusedSlotHasNoStateOfItsPredecessor) {
  struct Note {
    int64_t rank;
  };
  NoteLayout layout;
  const NoteColumn<Note> note = layout.Column<Note>();
  SequenceTable t(1, layout.stride());
  const auto& c = t.columns();
  SequenceSpec spec = Spec(8, 4);
  spec.prompt_logprobs = true;
  spec.priority = 3;
  const SlotId s = t.Add(spec, 5);
  note.At(t.notes(), s).rank = 7;
  t.Admit(s, 0);
  t.PlanItem(s, 8, true, 0, false);
  t.CommitItem(s, 8, 1);
  t.Preempt(s, 6);
  EXPECT_EQ(note.At(t.notes(), s).rank, 7) << "notes survive a preemption";
  t.Admit(s, 0);
  const uint32_t epoch = t.epoch(s);
  t.Finish(s);
  t.Compact();
  t.Free(s);
  ASSERT_EQ(t.Add(Spec(3, 2), 9), s);
  EXPECT_EQ(note.At(t.notes(), s).rank, 0);
  EXPECT_EQ(c.preemptions[s], 0);
  EXPECT_EQ(t.recomputed_tokens(s), 0);
  EXPECT_EQ(c.queued_ns[s], 9);
  EXPECT_EQ(c.priority[s], 0);
  EXPECT_EQ(c.prompt_logprobs[s], 0);
  EXPECT_EQ(c.known_committed[s], 3);
  EXPECT_EQ(c.computed_committed[s], 0);
  EXPECT_NE(t.epoch(s), epoch) << "items of the previous sequence are stale";
  t.Admit(s, 0);
  EXPECT_EQ(t.recomputed_tokens(s), 0);
  EXPECT_EQ(t.CheckIntegrity(), "");
}

// A sibling is held until choice 0 has computed the prompt; then it enters the queue with that time and its fork
// source.
TEST(SequenceTable, SiblingIsHeldUntilItCanFork) {
  SequenceTable t(2);
  const SlotId first = t.Add(Spec(8, 4), 0);
  SequenceSpec held = Spec(8, 4);
  held.held = true;
  const SlotId sibling = t.Add(held, 0);
  EXPECT_EQ(t.num_held(), 1);
  EXPECT_EQ(t.waiting().size(), 1u);
  t.Unhold(sibling, first, 42);
  EXPECT_EQ(t.num_held(), 0);
  EXPECT_EQ(t.waiting().size(), 2u);
  EXPECT_EQ(t.columns().fork_from[sibling], first);
  EXPECT_EQ(t.columns().queued_ns[sibling], 42);
  t.Admit(sibling, 7);
  t.Preempt(sibling, 50);
  EXPECT_EQ(t.columns().fork_from[sibling], kNoSlot) << "it has its own output tokens now";
  EXPECT_EQ(t.columns().queued_ns[sibling], 50);
  EXPECT_EQ(t.CheckIntegrity(), "");
}

// Removing a sequence from the middle of the queue keeps all others in it.
TEST(SequenceTable, WaitingListSurvivesRemovalFromItsMiddle) {
  SequenceTable t(5);
  std::vector<SlotId> s;
  for (int i = 0; i < 5; ++i) s.push_back(t.Add(Spec(4, 4), 0));
  t.Admit(s[1], 0);
  EXPECT_EQ(t.CheckIntegrity(), "");
  t.Finish(s[4]);
  EXPECT_EQ(t.CheckIntegrity(), "");
  t.Admit(s[0], 0);
  std::vector<SlotId> left(t.waiting().begin(), t.waiting().end());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<SlotId>{s[2], s[3]}));
}

// After a rollback with nothing in flight a sequence can be planned at once; a decode whose prompt is computed stays
// one.
TEST(SequenceTable, RolledBackDecodeCanBePlannedAtOnce) {
  SequenceTable t(1);
  const auto& c = t.columns();
  const SlotId s = t.Add(Spec(4, 4), 0);
  t.Admit(s, 0);
  t.PlanItem(s, 4, true, 0, false);
  t.CommitItem(s, 4, 1);
  t.PlanItem(s, 1, true, 1, true);
  t.DropItem(s);
  t.RollBackPlanned(s);
  EXPECT_EQ(c.state[s], SeqState::kDecode);
  EXPECT_EQ(c.flight[s], FlightState::kIdle);
  EXPECT_EQ(t.num_prefilling(), 0);
  EXPECT_EQ(c.Pending(s), 1);
  EXPECT_EQ(t.CheckIntegrity(), "");
}

TEST(SequenceTable, RollBackReturnsToPrefill) {
  SequenceTable t(1);
  const auto& c = t.columns();
  const SlotId s = t.Add(Spec(8, 4), 0);
  t.Admit(s, 0);
  t.PlanItem(s, 8, true, 0, true);
  t.PlanItem(s, 1, true, 1, true);
  t.CommitItem(s, 5, 0);  // five of eight positions were accepted
  t.RollBackPlanned(s);
  EXPECT_EQ(c.state[s], SeqState::kPrefill);
  EXPECT_EQ(t.num_prefilling(), 1);
  EXPECT_EQ(c.computed_planned[s], 5);
  EXPECT_EQ(c.known_planned[s], 8);
  EXPECT_FALSE(c.Plannable(s));  // until the stale item has ended
  t.DropItem(s);
  EXPECT_EQ(c.Pending(s), 3);
}

TEST(SequenceTable, RunningListsKeepTheirOrders) {
  SequenceTable t(4);
  std::vector<SlotId> s;
  for (int i = 0; i < 4; ++i) s.push_back(t.Add(Spec(1, 5), 0));
  t.Admit(s[2], 0);
  t.Admit(s[0], 0);
  t.Admit(s[3], 0);
  t.Admit(s[1], 0);
  EXPECT_EQ(std::vector<SlotId>(t.running().begin(), t.running().end()), (std::vector<SlotId>{s[2], s[0], s[3], s[1]}));
  EXPECT_EQ(std::vector<SlotId>(t.running_by_arrival().begin(), t.running_by_arrival().end()), s);
  t.Finish(s[0]);
  t.Preempt(s[3], 0);
  t.Compact();
  EXPECT_EQ(std::vector<SlotId>(t.running().begin(), t.running().end()), (std::vector<SlotId>{s[2], s[1]}));
  EXPECT_EQ(std::vector<SlotId>(t.running_by_arrival().begin(), t.running_by_arrival().end()),
            (std::vector<SlotId>{s[1], s[2]}));
  EXPECT_EQ(t.CheckIntegrity(), "");
}

TEST(SequenceTable, ChangesListTransitionsInOrder) {
  SequenceTable t(3);
  const SlotId a = t.Add(Spec(1, 1), 0);
  SequenceSpec held = Spec(1, 1);
  held.held = true;
  const SlotId b = t.Add(held, 0);  // hidden from policies
  t.Admit(a, 0);
  t.Unhold(b, a, 3);
  t.Finish(b);
  t.Finish(a);
  std::vector<std::pair<SlotId, ChangeKind>> got;
  for (const SequenceChange& c : t.changes()) got.emplace_back(c.slot, c.kind);
  EXPECT_EQ(got, (std::vector<std::pair<SlotId, ChangeKind>>{{a, ChangeKind::kQueued},
                                                             {a, ChangeKind::kAdmitted},
                                                             {b, ChangeKind::kQueued},
                                                             {b, ChangeKind::kUnqueued},
                                                             {a, ChangeKind::kFinished}}));
}

TEST(SequenceTableDeathTest, IllegalTransitionsAbort) {
  SequenceTable t(1);
  const SlotId s = t.Add(Spec(4, 1), 0);
  EXPECT_DEATH(t.Preempt(s, 0), "broken invariant");
  EXPECT_DEATH(t.Free(s), "broken invariant");
  EXPECT_DEATH(t.Add(Spec(1, 1), 0), "broken invariant");
}

}  // namespace
}  // namespace tactus::core
