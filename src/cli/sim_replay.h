// `tactus sim --replay FILE --times recorded|model`.
#pragma once

#include "cli/commands.h"

namespace tactus::cli {

struct SimReplayOptions {
  std::string file, times = "recorded";
  std::string cost;           // a file of `tactus profile`; empty: where that command put it for the recorded model
  std::string model, device;  // or a cost model of these
  int64_t tp = 1;
  bool json = false;
  std::string output;     // of the JSON object; empty: none
  std::string steps_out;  // CSV of every step, measured and predicted; empty: none
};

int SimReplay(const SimReplayOptions& options);

}  // namespace tactus::cli
