// Reads run files (results/obs/run_file.h) row by row: memory does not grow with the run. Damaged and hostile files are
// errors that name the faulty part. Caller's thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "results/obs/run_file.h"
#include "tactus/status.h"

namespace tactus::results {

// Receives every row in file order; each table's rows keep their order. Texts are valid during the call.
class RunVisitor {
 public:
  virtual ~RunVisitor() = default;
  virtual void Request(const RunRequest&) {}
  virtual void Step(const RunStep&) {}
  virtual void Interval(const RunInterval&) {}
};

struct RunFile {
  RunAbout about;
  Json result;  // the result object; null: the recording was not closed
  std::array<int64_t, kNumRunFileTables> rows{};
  bool complete() const { return !result.is_null(); }
};

// kNotFound, kInvalidArgument: no such file, not a run file, of another version, or an empty run. kDataLoss: damaged. A
// file that ends early is not an error: its rows count, and the run is not complete. `run` is filled while reading;
// `about` before the first row.
Status ReadRunFile(const std::string& path, RunVisitor* visitor, RunFile* run);

}  // namespace tactus::results
