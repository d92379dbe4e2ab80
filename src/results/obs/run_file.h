// Run files: a run's result, its requests, its steps and its time series in one file, as docs/run_files.md has it. A
// run file is a zip archive: `run.json`, then tables as CSV in numbered parts, then `result.json`. A part is complete
// when it is written, so that a recording needs little memory and a killed one keeps what came before: it lacks its
// `result.json`.
//
// Thread rule: one thread, which never waits for the disk unless asked to; a thread of the writer's own compresses and
// writes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tactus/run_result.h"
#include "tactus/status.h"
#include "tactus/timeline.h"

namespace tactus::results {

inline constexpr const char* kRunFileFormat = "tactus-run";
inline constexpr int64_t kRunFileVersion = 1;

enum class RunFileTable : uint8_t { kRequests, kSteps, kTimeseries };
inline constexpr size_t kNumRunFileTables = 3;
const char* RunFileTableName(RunFileTable table);  // "requests": the folder of its parts
// Its columns in order.
const char* RunFileTableHeader(RunFileTable table);

// What a run was. Known when it begins.
struct RunAbout {
  std::string command;                                       // "sim"
  std::string program;                                       // version of the program that writes
  std::vector<std::pair<std::string, std::string>> options;  // all in force, as the command line has them
  std::vector<std::string> stated;                           // names of those that are not at their default
  DurationNs interval_ns = kSecond;                          // of the time series
};

// All times count from the run's beginning. -1: never, or not known.
struct RunRequest {
  int64_t number = 0;   // from 0, unique in the run; -1: it was refused before it had one
  std::string_view id;  // of the client; may be empty
  int32_t replica = -1;
  TimeNs arrival_ns = 0, scheduled_ns = -1, first_token_ns = -1, done_ns = -1;
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;
  DurationNs longest_gap_ns = -1;
  int64_t preemptions = -1, recomputed_tokens = -1;
  std::string_view finish;  // FinishReasonName, "rejected" or "failed"
  std::string_view slo_class;
  Slo slo;
  // Why each objective was missed; empty: it was kept or not stated. "unknown" where an observer cannot say.
  std::array<std::string_view, kNumObjectives> missed_by;
};

struct RunStep {
  int32_t replica = 0;
  int64_t step = 0;
  TimeNs start_ns = 0, end_ns = 0;
  int64_t prompt_tokens = 0, prompts = 0, decodes = 0;  // computed; sequences that computed prompts; that decoded
  int64_t running = -1, waiting = -1;                   // sequences, while it ran
  double kv_used = -1;                                  // share of the KV blocks, 0 to 1
  int64_t preemptions = 0;
  DurationNs longest_gap_ns = -1;  // between two tokens of one stream, of the tokens that it brought
};

struct RunInterval {
  TimeNs from_ns = 0;
  int64_t arrived = 0, completed = 0, failed = 0, rejected = 0;
  int64_t in_flight = 0;      // requests, at its end
  int64_t output_tokens = 0;  // that came in it
  Summary ttft_ms, gap_ms;    // of first tokens, and of gaps between tokens, that came in it
};

class RunFileWriter {
 public:
  enum class WhenBehind : uint8_t {
    kWait,   // for the disk: a simulation
    kGiveUp  // beyond 256 MiB of rows that are not written yet: what a server's engine does, which never waits
  };
  // kDataLoss: the file cannot be made. It replaces what was there.
  static Result<std::unique_ptr<RunFileWriter>> Create(const std::string& path, const RunAbout& about,
                                                       WhenBehind when_behind);
  ~RunFileWriter();  // without Close: the file is marked incomplete

  void Add(const RunRequest& request);
  void Add(const RunStep& step);
  void Add(const RunInterval& interval);

  // What is left, and the run's result object as JSON (docs/api.md, "Result"): the file is complete. kDataLoss: it is
  // not, because the disk is full or was too slow.
  Status Close(const std::string& result_json);
  DurationNs interval_ns() const;

 private:
  struct Impl;
  explicit RunFileWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::results
