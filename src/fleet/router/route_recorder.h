// Records in a run file what a router observes of forwarded requests: times of arrival and of answers, and how they
// ended. An event of a stream counts as a token if usage does not state the number. Delays at a replica and objectives
// are recorded by the replica.
//
// Thread rule: the io thread, and Close after the last call. Memory does not grow with the run.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "results/obs/run_file.h"
#include "results/obs/run_result.h"
#include "results/obs/run_series.h"

namespace tactus::fleet {

class RouteRecorder {
 public:
  // Times in the file count from `origin_ns`.
  RouteRecorder(std::unique_ptr<results::RunFileWriter> file, TimeNs origin_ns);

  // A request in progress. The recorder stores nothing of it.
  struct Seen {
    int64_t number = -1;  // -1: it is not recorded
    TimeNs arrival_ns = 0, first_ns = -1, last_ns = -1;
    DurationNs longest_gap_ns = 0;
    int64_t gaps = 0;
  };
  struct End {
    enum class How : uint8_t { kCompleted, kFailed, kCancelled, kRejected } how = How::kCancelled;
    int32_t replica = -1;                          // that answered; -1: none
    int64_t prompt_tokens = 0, output_tokens = 0;  // 0: not known
  };
  Seen Arrived(TimeNs now_ns);
  void Told(int64_t events, TimeNs now_ns, Seen* seen);
  void Ended(const Seen& seen, const End& end, std::string_view id, TimeNs now_ns);

  // kDataLoss: the file is incomplete.
  Status Close();

 private:
  const std::unique_ptr<results::RunFileWriter> file_;
  const TimeNs origin_ns_;
  int64_t requests_ = 0;
  results::RunSeries series_;
  results::RunAccumulator run_;
};

}  // namespace tactus::fleet
