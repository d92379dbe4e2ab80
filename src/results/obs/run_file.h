// Run files: a run's result, requests, steps and time series in one file (format: docs/reference/run_files.md). A run
// file is a zip archive: `run.json`, then tables as CSV in numbered parts, then `result.json`. Each part is complete
// when written, so a recording needs little memory, and after a kill the file has all earlier parts but no
// `result.json`.
// Thread rule: one thread, which waits for the disk only if requested; the writer's own thread compresses and writes.
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
const char* RunFileTableName(RunFileTable table);  // "requests": also the folder of its parts
// Its columns in order, separated by commas.
const char* RunFileTableHeader(RunFileTable table);

// Describes a run; known at its start.
struct RunAbout {
  std::string command;                                       // "sim"
  std::string program;                                       // version of the writing program
  std::vector<std::pair<std::string, std::string>> options;  // all effective ones, named as on the command line
  std::vector<std::string> stated;                           // names of the options that differ from their default
  DurationNs interval_ns = kSecond;                          // of the time series
};

// All times count from the start of the run. -1: never, or unknown.
struct RunRequest {
  int64_t number = 0;   // from 0, unique in the run; -1: rejected before it had one
  std::string_view id;  // set by the client; may be empty
  int32_t replica = -1;
  TimeNs arrival_ns = 0, scheduled_ns = -1, first_token_ns = -1, done_ns = -1;
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;
  DurationNs longest_gap_ns = -1;
  int64_t preemptions = -1, recomputed_tokens = -1;
  std::string_view finish;  // FinishReasonName, "rejected" or "failed"
  std::string_view slo_class;
  Slo slo;
  // The cause of each missed objective; empty: met or not stated. "unknown" if the observer cannot determine it.
  std::array<std::string_view, kNumObjectives> missed_by;
};

struct RunStep {
  int32_t replica = 0;
  int64_t step = 0;
  TimeNs start_ns = 0, end_ns = 0;
  int64_t prompt_tokens = 0, prompts = 0, decodes = 0;  // prompt tokens computed, sequences with prompt tokens,
                                                        // sequences that decoded
  int64_t running = -1, waiting = -1;                   // sequences during the step
  double kv_used = -1;                                  // share of the KV blocks, 0 to 1
  int64_t preemptions = 0;
  DurationNs longest_gap_ns = -1;  // longest gap before a token of this step in its stream
};

struct RunInterval {
  TimeNs from_ns = 0;
  int64_t arrived = 0, completed = 0, failed = 0, rejected = 0;
  int64_t in_flight = 0;      // requests, at the interval's end
  int64_t output_tokens = 0;  // generated in the interval
  Summary ttft_ms, gap_ms;    // first tokens, and gaps between tokens, in the interval
};

class RunFileWriter {
 public:
  enum class WhenBehind : uint8_t {
    kWait,   // waits for the disk: for simulations
    kGiveUp  // gives up if more than 256 MiB of rows are unwritten: for a server's engine, which never waits
  };
  // Replaces an existing file. kDataLoss: the file cannot be created.
  static Result<std::unique_ptr<RunFileWriter>> Create(const std::string& path, const RunAbout& about,
                                                       WhenBehind when_behind);
  ~RunFileWriter();  // without Close, the file stays incomplete

  void Add(const RunRequest& request);
  void Add(const RunStep& step);
  void Add(const RunInterval& interval);

  // Writes the rest and the run's result object as JSON (docs/reference/api.md, "Result"); the file is then complete.
  // kDataLoss: the disk is full or was too slow.
  Status Close(const std::string& result_json);
  DurationNs interval_ns() const;

 private:
  struct Impl;
  explicit RunFileWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::results
