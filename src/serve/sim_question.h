// Questions to the simulator about this server: what would other settings have given, which load can it hold. A
// question becomes a command of `tactus sim` or `tactus sim capacity`, so that the page and the command line run the
// same code. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/engine.h"
#include "tactus/options.h"
#include "tactus/past_request.h"
#include "tactus/status.h"

namespace tactus::serve {

// What a server's simulations have in common.
struct SimBasis {
  std::string step_times;  // a file
  int64_t max_model_len = 0, kv_blocks = 0;
  SchedulingOptions options;
  std::vector<PastRequest> past;
};

struct SimCommand {
  std::vector<std::string> args;  // as after `tactus`
  std::string load;               // the text of the file ChildRun::kInput; empty: none is read
  bool negative_result = false;   // ChildRun::negative_result
  std::string step_times = {};    // the server's file among `args`
};

// A field of a question.
struct SimField {
  const char* name;
  const char* what;
  enum class Kind { kText, kNumber, kWhole } kind = Kind::kNumber;
  double least = 0, most = 0;  // of a number
};
// Those of POST /capacity, or of POST /simulate.
std::span<const SimField> SimFields(bool capacity);

struct WhatIfQuestion {
  SimCommand same, changed;  // the recorded load as it was, and with the question's changes
};
// The body of POST /simulate. kInvalidArgument: an unknown field or a wrong value. kUnavailable: no step times, or no
// request has ended in the last ten minutes.
Result<WhatIfQuestion> ParseWhatIf(std::string_view body, const SimBasis& basis);

struct CapacityQuestion {
  SimCommand command;
  double rate = 0;  // the asked load, requests/s
};
// The body of POST /capacity. Without lengths and without a trace the recorded load counts, without a rate the recorded
// one.
Result<CapacityQuestion> ParseCapacity(std::string_view body, const SimBasis& basis);

// Figures of what happened, with the names of the result object; null: no request.
std::string HappenedText(const std::vector<PastRequest>& past);
// The figures of a result object that /simulate shows. kDataLoss: not one.
Result<std::string> FiguresText(std::string_view result);
// The answer of /capacity from what `tactus sim capacity --json` prints. kDataLoss: no result. kInvalidArgument:
// nothing could be simulated.
Result<std::string> CapacityText(std::string_view result, const CapacityQuestion& question);
// The command as a user would type it. Files of the server have their names without the folder, which may name a user.
std::string CommandText(const SimCommand& command);
// The error of a child that ran this command, with the same names of files. Trouble with the server's step times is
// kInternal: no other question would help.
Status ErrorOf(const Status& failed, const SimCommand& command);

}  // namespace tactus::serve
