// Sequences that move between engines while they run: the KV of one is read out in rounds while it goes on decoding,
// then it is paused, the rest follows, and the other engine goes on with it. Its tokens are those of a sequence that
// stayed. docs/migration.md has the order of the calls, and the protocol that `tactus serve` speaks over it.
//
// Requests with one choice, and without logprobs of their prompt. Any thread; calls wait for a pass of the engine, at
// most `timeout_ns`, then kDeadlineExceeded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus {

// What two engines must have in common.
struct MigrationFormat {
  std::string model;        // its served name: part of the identity of KV
  std::string fingerprint;  // of weights, program, kernels and arithmetic, on which tokens depend
  std::string kv_dtype;     // "bf16"
  int32_t block_size = 0;   // tokens
  int64_t block_bytes = 0;  // of a KV block, all layers
};
// kInvalidArgument names the part that differs, with both values.
Status CheckSameFormat(const MigrationFormat& here, const MigrationFormat& there);

// A sequence between two of its steps, but for its KV. Times are ages, since engines have clocks of their own; -1: it
// has not happened.
struct MovingSequence {
  Request request;  // with its seed; its arrival is `age_ns`
  std::vector<TokenId> output;
  std::vector<std::vector<TokenLogprob>> logprobs;  // of `output`, for the sink that hears it again; may be empty
  int32_t computed_tokens = 0;                      // leading positions whose KV it holds; 0: it waits, and has none
  int64_t age_ns = 0, scheduled_age_ns = -1, first_token_age_ns = -1, last_token_age_ns = 0;
  int64_t longest_gap_ns = 0, longest_gap_end_age_ns = 0;
  int32_t late_gaps = 0, cached_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};

class MigrationPort {
 public:
  virtual ~MigrationPort() = default;
  virtual const MigrationFormat& format() const = 0;

  // --- Away from here ---
  struct KvBytes {
    int32_t blocks = 0;
    std::string bytes;
  };
  // Of blocks [first_block, first_block + blocks), those that are computed, at most some MiB of them; perhaps none yet.
  // Of a paused sequence also the last, partial one.
  virtual Result<KvBytes> Read(RequestHandle handle, int32_t first_block, int32_t blocks, int64_t timeout_ns) = 0;
  // Nothing of it is computed from now on until Resume or Leave. After an error it is not paused. kNotFound: it has
  // ended.
  virtual Result<MovingSequence> Pause(RequestHandle handle, int64_t timeout_ns) = 0;
  virtual void Resume(RequestHandle handle) = 0;
  // It ends here: its sink gets kMigrated, with no text, and OnDone. kNotFound: it has ended otherwise.
  virtual Status Leave(RequestHandle handle, int64_t timeout_ns) = 0;

  // --- To here ---
  // Host memory (--swap-space) for so many more blocks of a sequence; `room` 0: the first. Its number.
  // kResourceExhausted says which memory is short. After kDeadlineExceeded there is no such room any more.
  virtual Result<uint64_t> ReserveRoom(uint64_t room, int32_t blocks, int64_t timeout_ns) = 0;
  // Bytes of whole blocks. kInvalidArgument: outside the room. One thread at a time for one room.
  virtual Status Write(uint64_t room, int32_t first_block, std::string_view bytes) = 0;
  // Takes the sequence in, and the room with it; `room` 0: it has no KV. Its sink hears the tokens so far again, and
  // then those that follow. After an error the room is still there.
  virtual Result<RequestHandle> Arrive(uint64_t room, MovingSequence sequence, std::shared_ptr<ResponseSink> sink) = 0;
  virtual void DropRoom(uint64_t room) = 0;
};

}  // namespace tactus
