// Executes the commands for KV that moves in and out (transfer.h). A paused sequence counts as in flight, so that
// policies need no knowledge of it; a sequence migrated in enters like a swapped-out one (LiveRequests).
//
// Commands take effect in the pass that drains them, in order, after its arrivals and cancels. Their effects are
// reported to the tap, so that a replay repeats them. Reads affect no decision: they run after the pass has submitted
// its step, a bounded amount per pass. Thread rule: engine thread only.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "core/loop/import_reservations.h"
#include "core/loop/live_requests.h"
#include "core/loop/step_loop.h"
#include "core/loop/steps_in_flight.h"

namespace tactus::core {

class Transfers {
 public:
  // All arguments outlive it. `copies_wait`: whether copies of a plan without items wait for the next step.
  Transfers(const LoopContext& context, LiveRequests* live, ImportReservations* reservations,
            const StepsInFlight* steps, std::function<bool()> copies_wait);

  void Take(TransferCommand command);
  // After commands: runs waiting kReserve commands, oldest first. False: none was answered.
  bool ReserveForWaiting();
  // After results, before planning: drops paused sequences that have ended, and answers commands that have become
  // ready. False: there was nothing to do.
  bool Settle();
  // After planning: executes reads. False: there was nothing to read.
  bool Read();
  // Reads at most `blocks` blocks that are new in the prefix cache and pass the filter, within the limit of a pass.
  // Also allowed after the last pass.
  TransferAnswer ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted);
  bool any_paused() const { return !paused_.empty(); }
  int64_t blocks_read() const { return blocks_read_; }

 private:
  struct Paused {
    RequestHandle handle = 0;
    SlotId slot = kNoSlot;
    std::function<void(TransferAnswer answer)> answer;  // empty: it has been called
  };
  struct Reserved {
    StepId after = -1;  // answered after the end of this step
    TransferAnswer answer;
    std::function<void(TransferAnswer answer)> tell;
  };

  void Pause(TransferCommand* command);
  void End(TransferCommand* command);
  void Reserve(TransferCommand* command);
  void Withdraw(RequestHandle handle);
  TransferAnswer NoRoomFor(const TransferCommand& command) const;
  bool TryReserve(TransferCommand* command);  // false: too few are free; nothing changed
  Result<SlotId> Find(RequestHandle handle) const;
  bool ReadOne(TransferCommand* command);
  std::vector<Paused>::iterator FindPaused(RequestHandle handle);
  void Fetched(const TransferCommand& command);
  bool AnswerEntered();
  void Tell(const TransferCommand& command) const;

  const StepLoopParts& parts_;
  LiveRequests& live_;
  ImportReservations& reservations_;
  const StepsInFlight& steps_;
  const std::function<bool()> copies_wait_;
  std::vector<Paused> paused_;
  std::vector<Reserved> reserved_;             // to be answered
  std::deque<TransferCommand> wait_for_room_;  // kReserve of requests that wait for their KV
  std::optional<TransferCommand> read_entered_;
  std::deque<TransferCommand> reads_;
  int64_t blocks_read_ = 0;
};

}  // namespace tactus::core
