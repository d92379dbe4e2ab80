// `tactus sim --replay FILE --times recorded|model`.
#pragma once

#include <memory>

#include "cli/commands/commands.h"
#include "results/obs/kept_series.h"
#include "results/obs/run_file.h"

namespace tactus::cli {

struct SimReplayOptions {
  std::string file, times = "recorded";
  std::string cost;           // file of `tactus profile`; empty: its default file for the recorded model
  std::string model, device;  // or the cost model for these
  int64_t tp = 1;
  bool json = false;
  std::string output;     // file for the JSON object; empty: none
  std::string steps_out;  // CSV of every step, measured and predicted; empty: none
};

// `run_file` and `series` (either may be null) get the recorded run or, with --times model, the predicted one.
int SimReplay(const SimReplayOptions& options, std::unique_ptr<results::RunFileWriter> run_file,
              results::KeptSeries* series);

}  // namespace tactus::cli
