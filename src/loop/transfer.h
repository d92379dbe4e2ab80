// What the loop is asked by whoever moves sequences between engines, and what it answers. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus {

using ImportId = uint64_t;  // host blocks that are reserved for one sequence, of one loop; 0: none

// A sequence as it stands between two of its steps, but for its KV. Times are of the loop's clock.
struct SequenceStanding {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> output;  // generated so far; empty where tokens have no ids
  int32_t generated = 0;        // so many
  int32_t computed_tokens = 0;  // leading positions whose K and V it holds; 0: it waits
  TimeNs arrival_ns = 0;
  TimeNs scheduled_ns = 0;    // 0: never
  TimeNs first_token_ns = 0;  // 0: none yet
  TimeNs last_token_ns = 0;   // its arrival where none came
  DurationNs longest_gap_ns = 0;
  TimeNs longest_gap_end_ns = 0;
  int32_t late_gaps = 0;
  int32_t cached_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};

// What a sequence brings that has run elsewhere. Its first standing.computed_tokens positions lie in the host blocks of
// `import`, in order.
struct ImportedSequence {
  SequenceStanding standing;  // `request` may be null: the arrival has it
  ImportId import = 0;
  std::vector<Hash128> generated_keys;  // of full blocks beyond the prompt's; empty where nothing is shared
};

enum class TransferKind : uint8_t {
  kRead,     // the bytes of full blocks that are computed
  kPause,    // nobody plans it from now on; answered when no step in flight uses it, with its standing
  kResume,   // it goes on here
  kLeave,    // it ends here, as migrated
  kReserve,  // host blocks; answered when they may be written
  kDrop,     // they are free again
};

struct TransferAnswer {
  Status status;
  SequenceStanding standing;         // kPause
  std::vector<std::byte> bytes;      // kRead: of blocks [first_block, first_block + blocks)
  int32_t blocks = 0;                // that were read; 0: none is there yet
  ImportId import = 0;               // kReserve
  std::vector<BlockId> host_blocks;  // kReserve: those that were added
};

struct TransferCommand {
  TransferKind kind = TransferKind::kRead;
  RequestHandle handle = 0;  // of a request with one choice; kReserve and kDrop: none
  ImportId import = 0;       // kReserve: 0 begins one
  int32_t first_block = 0;   // kRead; of a paused sequence also the last, partial one
  int32_t blocks = 0;        // kRead: at most so many; kReserve: so many more
  // Called once on the engine thread, unless the loop ends before; must not block. May be empty.
  std::function<void(TransferAnswer answer)> answer;
};

}  // namespace tactus
