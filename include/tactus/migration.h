// Moves running sequences between engines: the KV of a sequence is read in rounds while it continues decoding; then it
// is paused, the rest is read, and the other engine continues it. Its tokens are those of a sequence that stayed.
// docs/concepts/migration.md has the order of the calls, and the protocol that `tactus serve` speaks over it.
//
// Only requests with one choice and without prompt logprobs can move. Any thread; calls wait for a pass of the engine,
// at most `timeout_ns`, then return kDeadlineExceeded.
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
  std::string model;        // the served name: part of the KV identity
  std::string fingerprint;  // of weights, program, kernels and arithmetic, which tokens depend on
  std::string kv_dtype;     // "bf16"
  int32_t block_size = 0;   // tokens
  int64_t block_bytes = 0;  // of a KV block, all layers
};
// kInvalidArgument names the field that differs, with both values.
Status CheckSameFormat(const MigrationFormat& here, const MigrationFormat& there);

// A sequence between two of its steps, without its KV. Times are ages, since each engine has its own clock; -1: not yet
// happened.
struct MovingSequence {
  Request request;  // with its seed; it arrived `age_ns` ago
  std::vector<TokenId> output;
  std::vector<std::vector<TokenLogprob>> logprobs;  // of `output`, to repeat to the new sink; may be empty
  int32_t computed_tokens = 0;                      // leading positions whose KV it holds; 0: it waits and holds none
  int64_t age_ns = 0, scheduled_age_ns = -1, first_token_age_ns = -1, last_token_age_ns = 0;
  int64_t longest_gap_ns = 0, longest_gap_end_age_ns = 0;
  int32_t late_gaps = 0, cached_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};

class MigrationPort {
 public:
  virtual ~MigrationPort() = default;
  virtual const MigrationFormat& format() const = 0;

  // --- Out of this engine ---
  struct KvBytes {
    int32_t blocks = 0;
    std::string bytes;
  };
  // The computed ones among blocks [first_block, first_block + blocks), at most some MiB of them; may be none yet. Of a
  // paused sequence also the last, partial block.
  virtual Result<KvBytes> Read(RequestHandle handle, int32_t first_block, int32_t blocks, int64_t timeout_ns) = 0;
  // Plans no step for the sequence until Resume or Leave. After an error it is not paused. kNotFound: it has ended.
  virtual Result<MovingSequence> Pause(RequestHandle handle, int64_t timeout_ns) = 0;
  virtual void Resume(RequestHandle handle) = 0;
  // Ends the sequence here: its sink receives kMigrated without text, and OnDone. kNotFound: it has ended otherwise.
  virtual Status Leave(RequestHandle handle, int64_t timeout_ns) = 0;

  // --- Into this engine ---
  // Reserves host memory (--swap-space) for `blocks` more blocks of a sequence, in `reservation`, or in a new one if
  // that is 0. Returns the reservation's number. kResourceExhausted names the memory that is short. After
  // kDeadlineExceeded the reservation no longer exists.
  virtual Result<uint64_t> Reserve(uint64_t reservation, int32_t blocks, int64_t timeout_ns) = 0;
  // Writes bytes of whole blocks. kInvalidArgument: outside the reservation. One thread at a time per reservation.
  virtual Status Write(uint64_t reservation, int32_t first_block, std::string_view bytes) = 0;
  // Takes over the sequence and its reservation; `reservation` 0: it has no KV. Its sink receives the tokens so far
  // again, then those that follow. After an error the reservation still exists.
  virtual Result<RequestHandle> Arrive(uint64_t reservation, MovingSequence sequence,
                                       std::shared_ptr<ResponseSink> sink) = 0;
  virtual void DropReservation(uint64_t reservation) = 0;
};

}  // namespace tactus
