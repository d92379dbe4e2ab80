// Sequences that move between the replicas of a simulation, by the decisions of fleet/balance/rebalance.h and the
// commands of core/loop/transfer.h: what a fleet of servers does, with the time that the bytes take in the place of the
// bytes.
//
// A move has two rounds: all KV that is there, while the sequence goes on, and what it has computed since, while it is
// paused. Thread rule: the simulation's. Deterministic.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "core/loop/step_loop.h"
#include "fleet/balance/rebalance.h"
#include "sim/simulator.h"
#include "tactus/run_result.h"

namespace tactus::sim {

class Migrations {
 public:
  // What a move asks of the simulation. All by index of replica.
  struct Host {
    std::function<core::StepLoop&(int32_t replica)> loop;
    // It has something to do now.
    std::function<void(int32_t replica)> wake;
    // The sequence arrives: its request goes on there. Its handle there; 0: it was refused.
    std::function<RequestHandle(int32_t from, RequestHandle handle, int32_t to, core::ImportedSequence imported)>
        arrive;
  };

  Migrations(const SimulationConfig::Migration& config, int32_t block_size, Clock* clock, Host host)
      : config_(config), block_size_(block_size), clock_(*clock), host_(std::move(host)) {}

  // Begins a move for each pair of replicas that are to have one and are in none. `draining`: as PairReplicas.
  void Decide(std::span<const fleet::ReplicaView> replicas, const std::vector<bool>& draining);
  // Sequences that are on their way to the replica.
  int32_t Coming(int32_t replica) const;
  // Goes on with what is due.
  void AdvanceTo(TimeNs now_ns);
  TimeNs NextNs() const;

  using Figures = SimulatedFigures::Migrations;
  using Cause = int64_t Figures::*;  // why one stayed
  const Figures& figures() const { return figures_; }

 private:
  enum class Stage : uint8_t { kRoom, kFirstRound, kPausing, kLastRound, kOver };
  struct Move {
    int32_t from = 0, to = 0;
    RequestHandle handle = 0;  // there
    Stage stage = Stage::kRoom;
    TimeNs due_ns = kNever;
    core::ImportId import = 0;
    int32_t blocks = 0, tokens = 0;  // of the room; sent in the first round
    core::SequenceStanding standing;
  };
  void Begin(const fleet::MovePair& pair, int64_t room_tokens);
  void Go(Move* move);
  void GiveUp(Move* move, Cause why);
  DurationNs TimeOf(int64_t tokens) const;
  int32_t BlocksOf(int64_t tokens) const { return static_cast<int32_t>((tokens + block_size_ - 1) / block_size_); }

  const SimulationConfig::Migration config_;
  const int32_t block_size_;
  Clock& clock_;
  const Host host_;
  std::deque<Move> moves_;  // in order of their beginning; those that are over go from the front
  std::vector<core::StepLoop::RunningSequence> running_;  // scratch, as is the next
  std::vector<fleet::MovableSequence> movable_;
  Figures figures_;
};

}  // namespace tactus::sim
