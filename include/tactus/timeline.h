// Why a request was late: what it waited for and computed, from its arrival to its end, as a list of segments without
// gaps. Their lengths add up to its latency, to the nanosecond.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/request.h"

namespace tactus {

// What a sequence did, or waited for.
enum class Cause : uint8_t {
  kIntake,      // not yet known to the scheduler: its text was read and tokenised
  kInFlight,    // arrived during a step, waited for the next plan
  kQueue,       // the plan did not reach it: others were ahead
  kPlaces,      // all places (--max-num-seqs) were taken
  kBudget,      // the step had no tokens left
  kKv,          // there were no KV blocks for it
  kSibling,     // waited for its request's first choice to compute the prompt
  kPreempted,   // its KV had been taken; it waited to start again
  kPassedOver,  // held KV, but was left out of steps
  kPrefill,     // its prompt was computed
  kRecompute,   // KV that it had lost by preemption was computed again
  kDecode,      // its answer was generated
  kElsewhere,   // it was on another replica, before it moved here
  kDisk,        // waited for KV blocks of its prompt from --kv-cache-dir
};
inline constexpr size_t kNumCauses = 14;
// "queue", "passed_over": in JSON, metrics and docs/reference/api.md.
const char* CauseName(Cause cause);

// Why the cached part of a prompt ends where it does.
enum class CacheEnd : uint8_t {
  kPrompt,    // at the prompt's last whole block; its last token is always computed
  kUnknown,   // no earlier prompt with this adapter and cache_salt is known to continue like this
  kEvicted,   // it was cached, and has been evicted
  kDamaged,   // --kv-cache-dir has it, but it can no longer be read
  kNoRoom,    // --kv-cache-dir has more than is read for one prompt
  kLate,      // --kv-cache-dir has it, but it was not read in time
  kLogprobs,  // the prompt's logprobs are requested: all of it is computed
  kOff,       // --prefix-caching off
};
const char* CacheEndName(CacheEnd end);  // "end_of_prompt", "unknown": in JSON and docs/reference/api.md

// The cached part of a prompt when it was first computed, in tokens. The first uncached token is at position `tokens`.
struct CacheMatch {
  int32_t tokens = 0;
  int32_t disk_tokens = 0;  // of `tokens`, read from --kv-cache-dir
  CacheEnd end = CacheEnd::kUnknown;
};

enum class Objective : uint8_t { kTtft, kTbt, kJct };
inline constexpr size_t kNumObjectives = 3;
const char* ObjectiveName(Objective objective);  // "ttft"

// Whether a request missed an objective, and the cause without which it would have been least late.
struct Miss {
  bool missed = false;
  Cause cause = Cause::kIntake;
  int64_t cost_ns = 0;  // part of the delay beyond the objective due to that cause
};

// Times in nanoseconds since the request's arrival.
struct TimelineSegment {
  Cause cause = Cause::kIntake;
  bool mixed = false;  // several short segments merged; `cause` is the longest's
  int64_t from_ns = 0, to_ns = 0;
  int64_t steps = 0;  // steps that the engine began meanwhile
};

// The schedule of one choice.
struct SequenceTimeline {
  int32_t choice = 0;
  FinishReason finish = FinishReason::kNone;
  int32_t completion_tokens = 0;
  int64_t ttft_ns = -1;         // -1: no token yet
  int64_t end_ns = 0;           // its end, or the time up to which the schedule is known
  int64_t longest_gap_ns = -1;  // between two of its tokens; -1: it has fewer
  int64_t longest_gap_end_ns = 0;
  Cause longest_gap_cause = Cause::kDecode;  // the cause of most of it
  std::vector<TimelineSegment> segments;
  std::array<int64_t, kNumCauses> total_ns{};  // exact, also where segments are mixed
  int64_t prefill_beside_others_ns = 0;        // part of kPrefill that the steps spent on tokens of others
};

// The schedule of one request to the engine (one prompt).
struct RequestTimeline {
  RequestHandle handle = 0;
  std::string id;
  std::string owner;  // Request::owner
  std::string slo_class;
  bool ended = false;
  FinishReason finish = FinishReason::kNone;  // the worst of the choices
  int64_t arrival_ns = 0;                     // by the engine's clock
  int32_t prompt_tokens = 0;
  int32_t preemptions = 0;
  Slo slo;
  std::array<Miss, kNumObjectives> misses;  // of its stated objectives, so far
  std::optional<CacheMatch> cache;          // nullopt: it has not started
  std::vector<SequenceTimeline> sequences;  // by choice
};

// Whether `id` names one prompt of a request with several: "ID-0", "ID-1", ...
bool IsPromptOf(std::string_view id, std::string_view request_id);

// Selects by handle, for any owner; else the newest request with this id that `owner` sent, with all prompts of it.
struct TimelineQuery {
  RequestHandle handle = 0;
  std::string_view id, owner;
  int64_t arrival_ns = -1;  // with `id`: only those that arrived then
};

}  // namespace tactus
