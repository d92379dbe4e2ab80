// Records every input of the step loop at the pass that drained it, for replay (core/trace/replay.h); the format is in
// trace_format.h. The engine thread encodes into memory; a separate thread writes the file.
//
// Thread rule: Create and Close on the owner's thread, everything else on the engine thread. The engine never waits for
// the disk: if more than 256 MiB are unwritten, the trace is cut off, and Close reports it.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/loop/tap.h"
#include "core/trace/trace_format.h"

namespace tactus::core {

class TraceWriter final : public LoopTap {
 public:
  // kInvalidArgument: the file cannot be created.
  static Result<std::unique_ptr<TraceWriter>> Create(const std::string& path, const TraceHeader& header);
  ~TraceWriter() override;  // closes and ignores errors

  // As in LoopTap. A pass without records is not written.
  void BeginPass(TimeNs now_ns) override;
  void Arrival(const PreparedRequest& request) override;
  void Predicted(int32_t tokens) override;
  void Imported(const ImportedSequence& sequence) override;
  void Cancel(RequestHandle handle) override;
  void Transferred(const TransferCommand& command) override;
  void Abort() override;
  void Stopped(int32_t item, int32_t token) override { stops_.push_back({item, token}); }
  void Key(RequestHandle handle, int32_t choice, int32_t block, const Hash128& key) override;
  void StepEnded(const StepPlan& plan, const StepResult& result, bool ok) override;
  void Drafted(const DraftTask& answered) override;
  void SchedulerAsked(std::span<const DurationNs> answers) override;
  void StepPlanned(const StepPlan& plan, uint64_t plan_hash) override;
  void EndPass() override;
  int64_t position() const override { return handed_over_ + static_cast<int64_t>(buffer_.size()); }

  // Writes the rest. kDataLoss: the trace is incomplete (disk full or too slow).
  Status Close() override;

 private:
  TraceWriter() = default;
  void Touch();
  void HandOver();
  void Write();

  struct Stop {
    int32_t item;
    int32_t token;
  };
  TraceBytes buffer_;  // engine thread
  std::vector<Stop> stops_;
  TimeNs pass_ns_ = 0, last_pass_ns_ = 0, last_hand_over_ns_ = 0;
  bool in_pass_ = false;
  int64_t handed_over_ = 0;  // bytes, to the writer thread

  std::FILE* file_ = nullptr;  // writer thread
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<TraceBytes> full_;
  std::vector<TraceBytes> spare_;
  size_t backlog_bytes_ = 0;
  bool closing_ = false;
  bool truncated_ = false;
  bool failed_ = false;
  std::thread thread_;
};

// Records a replica in a file; `started_with`: the effective configuration, as free text.
TapFactory RecordTo(std::string path, std::string started_with = {});

}  // namespace tactus::core
