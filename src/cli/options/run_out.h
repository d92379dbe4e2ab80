// `--run-out`: the run file that a command writes (results/obs/run_file.h).
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
            {.help = "run file with the result, requests, steps and time series of this run, for `tactus report`"});
    v.Field("run-interval", interval, {.unit = "duration", .help = "interval of the run file's time series"});
  }
};

// `--timeseries`, of a command that makes one run: its time series in the result, and in the run file too.
struct Timeseries {
  DurationText interval{0};

  template <class V>
  void VisitFields(V& v) {
    v.Field("timeseries", interval,
            {.unit = "duration",
             .choices = "none",
             .help = "what happened in each interval of this length: after the result's table, and as `timeseries` in "
                     "the result's JSON object; beside --run-out also the run file's interval"});
  }
};

// Where the result wants a time series: sets the run file's interval by it. Null: it does not. kInvalidArgument: an
// interval that is out of range, or that --run-interval contradicts.
Result<std::unique_ptr<results::KeptSeries>> KeepSeries(const Timeseries& timeseries, RunOut* out);

// What OpenRunFile would refuse, without beginning the file.
Status CheckRunOut(const RunOut& out);

// The file begun, with the options of `line` except secret ones. Null: none is asked for. kInvalidArgument: an interval
// that is out of range; kDataLoss: the file cannot be made.
Result<std::unique_ptr<results::RunFileWriter>> OpenRunFile(const RunOut& out, const CommandLine& line,
                                                            results::RunFileWriter::WhenBehind when_behind);
// The same for an engine's run, which never waits for the disk.
Result<std::unique_ptr<core::RunRecorder>> OpenEngineRecorder(const RunOut& out, const CommandLine& line, Clock& clock);

}  // namespace tactus::cli
