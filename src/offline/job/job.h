// A job: an input of requests, an output and an error file, and the state that ties them together, so that a run that
// was ended at any moment goes on where it was. Results are written to their file, are on the disk, and are then
// recorded in the state; what was written and not recorded is cut off when the job is opened again. So a line has its
// result exactly once, whatever happens between the two. (Results inside the state file would need no order of writing,
// but would be written twice, and could not be read before the end.)
//
// Thread rule: any thread; one lock. Read waits for no write.
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
  std::string errors;  // lines that could not be taken, or failed
  std::string state;
};

// What answers depend on beside the input, by name: a job goes on with the same only.
using JobSettings = std::vector<std::pair<std::string, std::string>>;

struct JobOptions {
  bool overwrite = false;  // begins anew, whatever is there
  int64_t most_line_bytes = int64_t{16} << 20;
  int64_t most_lines = 0;  // an input of more is refused; 0: any number
  int64_t most_bytes = 0;  // of a gzipped input's content; 0: any number
  JobSettings settings;
  uint64_t seed = 0;            // of requests that state none; 0: drawn when the job begins, and kept
  JobInput::Progress progress;  // of reading the input
};

struct LineResult {
  int64_t line = 0;
  bool ok = false;                               // goes to the output; else to the error file
  std::string text;                              // with its line feed
  int64_t prompt_tokens = 0, output_tokens = 0;  // of an answer
};

class Job {
 public:
  // Begins the job, or goes on with one that has results. kInvalidArgument, with the fix: files that are there without
  // a state, a state of another input or of other settings, an input without lines. kUnavailable: another run works on
  // it, or the input cannot be opened at the moment. kCancelled: `progress` said so.
  static Result<std::unique_ptr<Job>> Open(const JobFiles& files, const JobOptions& options);

  // Holds further settings against the state's; one that the state does not know is recorded.
  Status CheckSettings(const JobSettings& settings);

  const JobFiles& files() const { return files_; }
  int64_t most_line_bytes() const { return options_.most_line_bytes; }
  int64_t input_bytes() const { return input_->bytes(); }  // of its content
  const std::string& id() const { return id_; }            // drawn when it began
  // Of a request that states none: the same in every run of the job.
  uint64_t SeedOf(int64_t line, size_t prompt) const;
  JobCounts counts() const;
  Result<JobTokens> tokens();
  bool resumed() const { return resumed_; }

  // At most so many lines without a result, from the first after line `after` on.
  Result<std::vector<LinePlace>> Waiting(int64_t after, int64_t most);
  // This one, which has none. kInternal: it has.
  Result<LinePlace> WaitingLine(int64_t number);
  // At most so many lines, whatever their state, from the first after line `after` on.
  Result<std::vector<LineState>> Lines(int64_t after, int64_t most);
  // Of a job in shards: the lines that are left to the others, once. They wait no more and count for nothing.
  Status SetCut(const ShardCut& cut);
  std::string cut() const;  // names what all shards do; empty: it is not cut
  Result<std::string> Read(const LinePlace& place) const { return input_->Read(place); }

  // Writes the results and records them, or none of them. kDataLoss: a full disk, or an input that has changed.
  Status Commit(const std::vector<LineResult>& results);

 private:
  Job(JobFiles files, JobOptions options);
  UnpackRoom RoomToUnpack() const;  // beside the state, where results go too
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
  JobOptions options_;  // constant once made
  std::unique_ptr<JobInput> input_;
  bool resumed_ = false;
  std::string id_;
  uint64_t seed_ = 0;

  mutable std::mutex mutex_;
  std::unique_ptr<JobStore> store_;
  ResultFile output_, errors_;
};

}  // namespace tactus::offline
