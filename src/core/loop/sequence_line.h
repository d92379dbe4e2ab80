// The records of core/loop/timelines.h for a request and each of its sequences. Plain data of fixed size, pooled and
// reused.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/units.h"
#include "core/loop/timelines.h"

namespace tactus::core {

// Begins at the end of the segment before, or at the arrival.
struct LineSegment {
  TimeNs until_ns = 0;
  int32_t steps = 0;
  Cause cause = Cause::kIntake;
  bool mixed = false;
};

struct SequenceLine {
  enum class Phase : uint8_t {
    kArriving,  // no plan has been made since its arrival
    kUnseen,    // waits, and no plan has considered it yet
    kWaiting,   // waits because of `open`
    kRunning,   // computes (`open`), or is left out of steps
    kEnded
  };

  RequestLine* request = nullptr;
  SequenceLine* next = nullptr;  // of the same request
  SlotId slot = kNoSlot;
  int32_t choice = 0;
  TimeNs arrival_ns = 0;
  TimeNs since_ns = 0;  // all time before it is accounted for
  StepId since_step = 0;
  Phase phase = Phase::kArriving;
  Cause open = Cause::kIntake;
  bool others_ahead = false;
  Cause left_out = Cause::kPassedOver;  // why step left_out_step has no item of it
  StepId left_out_step = -1;
  int32_t redo_until = 0;  // positions before it have been computed once already
  FinishReason finish = FinishReason::kNone;
  TimeNs first_token_ns = -1;
  DurationNs longest_gap_ns = 0;
  TimeNs longest_gap_end_ns = 0;
  int32_t generated = 0;
  DurationNs beside_others_ns = 0;
  std::array<DurationNs, kNumCauses> total_ns{};
  uint32_t num_segments = 0;
  std::array<LineSegment, Timelines::kMostSegments> segments;

  // Accounts the time from since_ns to `until_ns` to `cause`. `step`: the next step at `until_ns`.
  void Account(Cause cause, TimeNs until_ns, StepId step);
  // The time per cause within [from_ns, to_ns), from the segments.
  std::array<DurationNs, kNumCauses> Within(TimeNs from_ns, TimeNs to_ns) const;
  SequenceTimeline Show() const;

 private:
  void Compact();
};

struct RequestLine {
  RequestHandle handle = 0;
  std::string id, owner, slo_class;
  Slo slo;
  TimeNs arrival_ns = 0;
  int32_t prompt_tokens = 0;
  int32_t preemptions = 0;
  int32_t sequences = 0;
  bool ended = false;
  FinishReason finish = FinishReason::kNone;
  std::optional<CacheMatch> cache;
  size_t live_index = 0;
  SequenceLine* first = nullptr;
  SequenceLine* last = nullptr;

  std::array<Miss, kNumObjectives> Misses() const;
};

// The cause whose absence would reduce the excess over `objective_ns` most. Waiting costs its time, at most the excess.
// Computing costs only its own excess over the objective, because no request avoids it.
Miss MissOf(const std::array<DurationNs, kNumCauses>& spent_ns, DurationNs objective_ns);

}  // namespace tactus::core
