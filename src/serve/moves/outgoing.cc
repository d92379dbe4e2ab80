#include "serve/moves/outgoing.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/on_exit.h"
#include "serve/moves/migration_text.h"

namespace tactus::serve {
namespace {

constexpr int32_t kMostRounds = 8;
constexpr int32_t kSpareBlocks = 8;  // blocks that the sequence may fill before it is paused
constexpr int32_t kFewBlocks = 2;    // a round with at most this many new blocks is the last

class Outgoing {
 public:
  Outgoing(Generation& generation, MigrationPort& port, FleetPeer& peer, DurationNs timeout_ns, Clock& clock)
      : generation_(generation), port_(port), peer_(peer), timeout_ns_(timeout_ns), clock_(clock) {}

  Result<Moved> Go() {
    TACTUS_ASSIGN_OR_RETURN(handle_, generation_.MovableHandle(timeout_ns_));
    Json begin = JsonOf(port_.format());
    begin["kind"] = "begin";
    begin["version"] = kMigrationVersion;
    begin["blocks"] = static_cast<int64_t>(generation_.extent().tokens) / port_.format().block_size + kSpareBlocks;
    const auto begun = peer_.Send(MessageOf(begin));
    if (!begun.ok()) return OfAll(begun.status());
    TACTUS_ASSIGN_OR_RETURN(import_, TextMember(*begun, "import"));
    auto moved = Move();
    if (!moved.ok() && moved.status().code() != StatusCode::kDeadlineExceeded) Drop();
    return moved;
  }

 private:
  // `begin` contains nothing of this sequence, so its failure holds for every sequence.
  static Status OfAll(const Status& why) {
    const bool says_so = why.code() == StatusCode::kUnauthenticated || why.code() == StatusCode::kDeadlineExceeded;
    return says_so ? why : Status(StatusCode::kUnavailable, why.message());
  }

  Result<Moved> Move() {
    while (moved_.rounds < kMostRounds) {
      ++moved_.rounds;
      TACTUS_ASSIGN_OR_RETURN(const int32_t found, Ship());
      if (found <= kFewBlocks) break;
    }
    const TimeNs paused_ns = clock_.NowNs();
    TACTUS_ASSIGN_OR_RETURN(const MovingSequence moving, port_.Pause(handle_, timeout_ns_));
    OnExit resume([this] { Resume(); });
    const Status arrived = Finish(moving);
    moved_.paused_ns = clock_.NowNs() - paused_ns;
    if (!arrived.ok()) return arrived;
    // The sink must know where the sequence continues before it receives the sequence's end.
    generation_.MovedTo(peer_.url(), moved_.ticket);
    const Status left = port_.Leave(handle_, timeout_ns_);
    resume.Cancel();
    if (!left.ok()) return left;  // the request was cancelled meanwhile: no client will request it there
    return moved_;
  }

  // Sends all blocks that exist by now. Returns their number.
  Result<int32_t> Ship() {
    const auto at_once = static_cast<int32_t>(std::max<int64_t>(1, kMessageBytes / port_.format().block_bytes));
    int32_t found = 0;
    for (;;) {
      TACTUS_ASSIGN_OR_RETURN(const auto kv, port_.Read(handle_, sent_, at_once, timeout_ns_));
      if (kv.blocks == 0) return found;
      Json head = {{"kind", "blocks"}, {"import", import_}, {"first_block", sent_}, {"blocks", kv.blocks}};
      TACTUS_ASSIGN_OR_RETURN([[maybe_unused]] const Json taken, peer_.Send(MessageOf(head, kv.bytes)));
      sent_ += kv.blocks;
      found += kv.blocks;
      moved_.blocks += kv.blocks;
      moved_.bytes += static_cast<int64_t>(kv.bytes.size());
    }
  }

  Status Finish(MovingSequence moving) {
    TACTUS_ASSIGN_OR_RETURN([[maybe_unused]] const int32_t rest, Ship());
    const int32_t needed = (moving.computed_tokens + port_.format().block_size - 1) / port_.format().block_size;
    // A sequence that was preempted meanwhile has no KV: the destination computes it again.
    if (sent_ != needed) moving.computed_tokens = 0;
    TACTUS_ASSIGN_OR_RETURN(moving.logprobs, generation_.LogprobsOf(moving.output.size(), timeout_ns_));
    const Generation::Origin origin = generation_.origin();
    Json head = {{"kind", "finish"},
                 {"import", import_},
                 {"sequence", JsonOf(moving)},
                 {"api", origin.api},
                 {"request_id", origin.request_id},
                 {"created", origin.created},
                 {"client", origin.client},
                 {"owner", origin.owner},
                 {"explained", origin.explained}};
    TACTUS_ASSIGN_OR_RETURN(const Json finished, peer_.Send(MessageOf(head, origin.body)));
    TACTUS_ASSIGN_OR_RETURN(moved_.ticket, TextMember(finished, "ticket"));
    return Status();
  }

  void Resume() noexcept {
    try {
      port_.Resume(handle_);
    } catch (...) {  // no memory: the sequence stays paused until its request times out
    }
  }

  void Drop() {
    const Json head = {{"kind", "drop"}, {"import", import_}};
    (void)peer_.Send(MessageOf(head));  // if it does not arrive, the import expires there
  }

  Generation& generation_;
  MigrationPort& port_;
  FleetPeer& peer_;
  const DurationNs timeout_ns_;
  Clock& clock_;
  RequestHandle handle_ = 0;
  std::string import_;
  int32_t sent_ = 0;  // blocks sent
  Moved moved_;
};

}  // namespace

Result<Moved> MoveAway(Generation& generation, MigrationPort& port, FleetPeer& peer, DurationNs timeout_ns,
                       Clock& clock) {
  return Outgoing(generation, port, peer, timeout_ns, clock).Go();
}

}  // namespace tactus::serve
