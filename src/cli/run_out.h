// `--run-out`: the run file that a command writes (obs/run_file.h).
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "cli/option_binding.h"
#include "loop/run_recorder.h"
#include "obs/run_file.h"

namespace tactus::cli {

struct RunOut {
  std::string path;
  DurationText interval{kSecond};

  template <class V>
  void VisitFields(V& v) {
    v.Field("run-out", path,
            {.help = "run file with the result, requests, steps and time series of this run, for `tactus report`"});
    v.Field("run-interval", interval, {.unit = "duration", .help = "interval of the run file's time series"});
  }
};

// The file begun, with the options of `line` except secret ones. Null: none is asked for. kInvalidArgument: an interval
// that is out of range; kDataLoss: the file cannot be made.
Result<std::unique_ptr<RunFileWriter>> OpenRunFile(const RunOut& out, const CommandLine& line,
                                                   RunFileWriter::WhenBehind when_behind);
// The same for an engine's run, which never waits for the disk.
Result<std::unique_ptr<RunRecorder>> OpenEngineRecorder(const RunOut& out, const CommandLine& line, Clock& clock);

}  // namespace tactus::cli
