// A job: an input of requests, an output and an error file, and the state that ties them together, so that a run that
// was ended at any moment can be resumed. Results are written to their file, synced, and then recorded in the state;
// results written but not recorded are cut off when the job is opened again. So a line has its result exactly once,
// even after a crash between the two. (Results inside the state file would need no order of writing, but would be
// written twice, and could not be read before the end.)
//
// Thread rule: any thread; one lock. Read does not wait for writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "offline/job/job_input.h"
#include "offline/job/job_store.h"
#include "offline/job/result_file.h"
#include "tactus/status.h"

namespace tactus::offline {

struct JobFiles {
  std::string input, output;
  std::string errors;  // lines that were refused or failed
  std::string state;
};

// What answers depend on besides the input, by name: a job can be resumed only with equal settings.
using JobSettings = std::vector<std::pair<std::string, std::string>>;

struct JobOptions {
  bool overwrite = false;  // removes existing files and starts again
  int64_t most_line_bytes = int64_t{16} << 20;
  int64_t most_lines = 0;  // an input with more lines is refused; 0: any number
  int64_t most_bytes = 0;  // of a gzipped input's content; 0: any number
  JobSettings settings;
  uint64_t seed = 0;            // of requests without one; 0: drawn when the job begins, and stored
  JobInput::Progress progress;  // of reading the input
};

struct LineResult {
  int64_t line = 0;
  bool ok = false;                               // written to the output; otherwise to the error file
  std::string text;                              // including its line feed
  int64_t prompt_tokens = 0, output_tokens = 0;  // of an answer
};

class Job {
 public:
  // Begins the job, or resumes one that has results. kInvalidArgument, with the fix: result files without a state, a
  // state of another input or other settings, an input without lines. kUnavailable: another run uses the job, or the
  // input cannot be opened now. kCancelled: `progress` returned false.
  static Result<std::unique_ptr<Job>> Open(const JobFiles& files, const JobOptions& options);

  // Compares further settings with the state's; one that the state does not have is recorded.
  Status CheckSettings(const JobSettings& settings);

  const JobFiles& files() const { return files_; }
  int64_t most_line_bytes() const { return options_.most_line_bytes; }
  int64_t input_bytes() const { return input_->bytes(); }  // of its content
  const std::string& id() const { return id_; }            // drawn when the job began
  // The seed of a request without one: the same in every run of the job.
  uint64_t SeedOf(int64_t line, size_t prompt) const;
  JobCounts counts() const;
  Result<JobTokens> tokens();
  bool resumed() const { return resumed_; }

  // At most `most` lines without a result, in order, after line `after`.
  Result<std::vector<LinePlace>> Waiting(int64_t after, int64_t most);
  // This line, which has no result. kInternal: it has one.
  Result<LinePlace> WaitingLine(int64_t number);
  // At most `most` lines in any state, in order, after line `after`.
  Result<std::vector<LineState>> Lines(int64_t after, int64_t most);
  // Call once for a sharded job: marks the lines of other shards. They no longer wait and are not counted.
  Status SetCut(const ShardCut& cut);
  std::string cut() const;  // hash of all shards' lines; empty: the job is not sharded
  Result<std::string> Read(const LinePlace& place) const { return input_->Read(place); }

  // Writes the results and records them, or none of them. kDataLoss: a full disk, or an input that has changed.
  Status Commit(const std::vector<LineResult>& results);

 private:
  Job(JobFiles files, JobOptions options);
  UnpackRoom RoomToUnpack() const;  // beside the state, where results are written too
  Status CheckFiles() const;
  Status Begin();
  Status Resume();
  Status CompareSettings(const JobSettings& settings);  // records nothing
  Result<std::string> Index();
  Status CheckResults();
  std::string BesideState(const std::string& path) const;
  Status OpenResults();
  void CutToRecorded();

  const JobFiles files_;
  JobOptions options_;  // constant after construction
  std::unique_ptr<JobInput> input_;
  bool resumed_ = false;
  std::string id_;
  uint64_t seed_ = 0;

  mutable std::mutex mutex_;
  std::unique_ptr<JobStore> store_;
  ResultFile output_, errors_;
};

}  // namespace tactus::offline
