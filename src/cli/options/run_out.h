// `--run-out`: the run file of a command (results/obs/run_file.h).
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "cli/options/option_binding.h"
#include "core/loop/run_recorder.h"
#include "results/obs/kept_series.h"
#include "results/obs/run_file.h"

namespace tactus::cli {

struct RunOut {
  std::string path;
  DurationText interval{kSecond};

  template <class V>
  void VisitFields(V& v) {
    v.Field("run-out", path,
            {.help = "write a run file with the result, requests, steps and time series, for `tactus report`"});
    v.Field("run-interval", interval, {.unit = "duration", .help = "interval of the run file's time series"});
  }
};

// `--timeseries`, for commands that make one run: its time series in the result and in the run file.
struct Timeseries {
  DurationText interval{0};

  template <class V>
  void VisitFields(V& v) {
    v.Field("timeseries", interval,
            {.unit = "duration",
             .choices = "none",
             .help = "report metrics per interval of this length, after the result's table and as `timeseries` in the "
                     "result's JSON object; with --run-out also the run file's interval"});
  }
};

// If --timeseries is set, sets the run file's interval to it and returns a series; null otherwise. kInvalidArgument:
// the interval is out of range or contradicts --run-interval.
Result<std::unique_ptr<results::KeptSeries>> KeepSeries(const Timeseries& timeseries, RunOut* out);

// Returns the errors of OpenRunFile without opening the file.
Status CheckRunOut(const RunOut& out);

// Opens the file and writes the options of `line` except secret ones. Null: not requested. kInvalidArgument: the
// interval is out of range; kDataLoss: the file cannot be created.
Result<std::unique_ptr<results::RunFileWriter>> OpenRunFile(const RunOut& out, const CommandLine& line,
                                                            results::RunFileWriter::WhenBehind when_behind);
// The same for the run of an engine, which never waits for the disk.
Result<std::unique_ptr<core::RunRecorder>> OpenEngineRecorder(const RunOut& out, const CommandLine& line, Clock& clock);

}  // namespace tactus::cli
