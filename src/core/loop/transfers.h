// Carries out what is asked of KV that moves in and out (transfer.h). A paused sequence counts as in a step
// in flight, so that no policy needs to know of it; a sequence that comes is one that was swapped out (LiveRequests).
//
// Commands take effect in the pass that drains them, in order, after its arrivals and cancels; what they did is told to
// the tap, so that a replay does the same. Reading blocks decides nothing: it is done when the pass has submitted its
// step, and no pass reads more than a bounded slice. Thread rule: engine thread only.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "core/loop/import_rooms.h"
#include "core/loop/live_requests.h"
#include "core/loop/step_loop.h"
#include "core/loop/steps_in_flight.h"

namespace tactus::core {

class Transfers {
 public:
  // All outlive it. `copies_wait`: whether copies of a plan without items wait for the next step.
  Transfers(const LoopContext& context, LiveRequests* live, ImportRooms* rooms, const StepsInFlight* steps,
            std::function<bool()> copies_wait);

  void Take(TransferCommand command);
  // After commands: reserves host blocks for those that wait for them, the oldest first. False: for none.
  bool ReserveForWaiting();
  // After results, before planning: lets go of paused sequences that have ended, and answers what has become ready.
  // False: nothing of it was to be done.
  bool Settle();
  // After planning. False: there was nothing to read.
  bool Read();
  // At most so many blocks that are new in the prefix cache and wanted, as many as one pass may read. Also when no pass
  // runs any more.
  TransferAnswer ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted);
  bool any_paused() const { return !paused_.empty(); }
  int64_t blocks_read() const { return blocks_read_; }

 private:
  struct Paused {
    RequestHandle handle = 0;
    SlotId slot = kNoSlot;
    std::function<void(TransferAnswer answer)> answer;  // empty: it has been told
  };
  struct Reserved {
    StepId after = -1;  // that step has to end first
    TransferAnswer answer;
    std::function<void(TransferAnswer answer)> tell;
  };

  void Pause(TransferCommand* command);
  void End(TransferCommand* command);
  void Reserve(TransferCommand* command);
  void Withdraw(RequestHandle handle);
  TransferAnswer NoRoomFor(const TransferCommand& command) const;
  bool TryReserve(TransferCommand* command);  // false: not so many are free; nothing changed
  Result<SlotId> Find(RequestHandle handle) const;
  bool ReadOne(TransferCommand* command);
  std::vector<Paused>::iterator FindPaused(RequestHandle handle);
  void Fetched(const TransferCommand& command);
  bool AnswerEntered();
  void Tell(const TransferCommand& command) const;

  const StepLoopParts& parts_;
  LiveRequests& live_;
  ImportRooms& rooms_;
  const StepsInFlight& steps_;
  const std::function<bool()> copies_wait_;
  std::vector<Paused> paused_;
  std::vector<Reserved> reserved_;             // not answered yet
  std::deque<TransferCommand> wait_for_room_;  // kReserve of requests that wait for their KV
  std::optional<TransferCommand> read_entered_;
  std::deque<TransferCommand> reads_;
  int64_t blocks_read_ = 0;
};

}  // namespace tactus::core
