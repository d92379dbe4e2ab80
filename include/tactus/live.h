// What the engine does, as it happens: records of its steps, tokens and ended requests, for viewers (GET /events).
// Nothing is recorded without a watcher. A watcher that takes too seldom loses records; the engine never waits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "tactus/prefix_outline.h"
#include "tactus/request.h"
#include "tactus/timeline.h"

namespace tactus {

// A step that has ended. Times in nanoseconds by the engine's clock. The state (`running` and the following) is that of
// the pass before the one that saw its end.
struct LiveStep {
  int64_t step = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t predicted_ns = 0;   // its duration by the step-time model; 0: unknown
  int64_t budget_tokens = 0;  // the limit of its size
  int32_t decodes = 0, prompt_tokens = 0, preemptions = 0;
  bool ok = true;
  int64_t running = 0, waiting = 0, kv_blocks_in_use = 0, kv_blocks_cached = 0;
};

// The part of a step that computed a prompt: positions [first_position, first_position + tokens).
struct LiveChunk {
  int64_t step = 0;
  RequestHandle request = 0;
  int32_t choice = 0, first_position = 0, tokens = 0;
};

// A request's first choice has its first item in a step.
struct LiveStart {
  RequestHandle request = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
};

// Tokens of one choice from one step. The first came `gap_ns` after the token before it, or after the request's
// arrival; the others came with it.
struct LiveTokens {
  RequestHandle request = 0;
  int32_t choice = 0;
  int32_t count = 0;   // tokens in this record
  int32_t tokens = 0;  // of the choice so far, these included
  bool first = false;  // includes the choice's first token
  int64_t gap_ns = 0;
};

// All choices of a request have ended.
struct LiveEnd {
  RequestHandle request = 0;
  FinishReason finish = FinishReason::kNone;
  bool refused = false;  // by the gate
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, preemptions = 0;
  int32_t gaps = 0, late_gaps = 0;  // late: longer than its TBT objective
  int64_t ttft_ns = -1;             // -1: no token came
  int64_t e2e_ns = 0, longest_gap_ns = 0;
  std::array<Miss, kNumObjectives> misses;
};

using LiveRecord = std::variant<LiveStep, LiveChunk, LiveStart, LiveTokens, LiveEnd>;

// One watcher, whose calls do not overlap; any thread.
class LiveFeed {
 public:
  virtual ~LiveFeed() = default;
  // Starts or stops recording. What was not taken before a start is dropped.
  virtual void Watch(bool on) = 0;
  // Appends the records since the last call, oldest first, and returns how many were lost since then.
  virtual int64_t Take(std::vector<LiveRecord>* records) = 0;
  // The prefix tree after the first step that ended since the call before; nothing: no step has. Each call asks for the
  // next one.
  virtual std::optional<PrefixOutline> TakePrefixes() = 0;
  // The requests that have not ended, as of the last pass; waits for no step.
  virtual std::vector<RequestHandle> LiveRequests() const { return {}; }
};

}  // namespace tactus
