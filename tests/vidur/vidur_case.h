// The data of a run of the Vidur simulator, as in its logs and rules: requests, parameters, step rows, request rows.
// Plain data, shared by the rules' replay (vidur_replay.h) and the run in our engine (vidur_engine.h). See
// bench/validate/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tactus::vidur {

enum class Policy : uint8_t { kSarathi, kVllm, kOrca };

struct Rules {
  Policy policy = Policy::kSarathi;
  int32_t chunk = 512;                 // sarathi: token budget of a step
  int32_t max_tokens_in_batch = 4096;  // vllm: (prompts x longest prompt) of a step
  int64_t blocks = 27904;
  int32_t block_size = 16;
  int32_t batch_cap = 128;            // sequences
  double watermark = 0.01;            // share of the blocks, rounded down; orca has none
  int32_t max_request_tokens = 4096;  // orca reserves this much

  int64_t watermark_blocks() const {
    return policy == Policy::kOrca ? 0 : static_cast<int64_t>(watermark * static_cast<double>(blocks));
  }
  int32_t blocks_for(int32_t tokens) const { return (tokens + block_size - 1) / block_size; }
  // Orca: limited by slots of the longest request.
  int32_t max_running() const {
    const int64_t slots = blocks / blocks_for(max_request_tokens);
    return policy == Policy::kOrca && slots < batch_cap ? static_cast<int32_t>(slots) : batch_cap;
  }
};

struct TraceRequest {
  double arrival_s = 0;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
};

struct Share {  // of a prompt in a step
  int32_t id = 0, context = 0, chunk = 0;
  bool operator==(const Share&) const = default;
};
struct Restart {
  int32_t id = 0, processed = 0;  // tokens, including the newest
  bool decoding = true;           // false: preempted in the middle of its prompt
  bool operator==(const Restart&) const = default;
};

struct StepRow {
  double start_s = 0, end_s = 0;
  int32_t sequences = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0, decode_context_sum = 0, decode_id_sum = 0;
  int64_t blocks_used = 0, waiting = 0;
  std::vector<Share> prefills;     // in batch order
  std::vector<Restart> restarted;  // in order
};

struct RequestRow {
  double scheduled_s = -1, first_token_s = -1, completed_s = -1;
  int32_t restarts = 0, tokens_emitted = 0;
};

struct Log {
  std::vector<StepRow> steps;
  std::vector<RequestRow> requests;  // by id
  // The rules did something that a correct engine cannot do (preempted a sequence in mid-prefill, or restarted it in
  // the step that preempted it): the rows before that step are complete, later ones are missing.
  bool left_scope = false;
};

std::string Describe(const StepRow& row);

struct Difference {
  std::string first;            // the first difference, both sides; empty: none
  double max_time_error_s = 0;  // over all starts and ends of the compared rows
  int64_t rows_compared = 0;
  bool ok(double tolerance_s) const { return first.empty() && max_time_error_s <= tolerance_s; }
};
// Compares every column of every row: integers exactly, times by the largest difference.
Difference Compare(const Log& expected, const Log& actual);

}  // namespace tactus::vidur
