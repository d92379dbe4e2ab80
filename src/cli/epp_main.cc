// tactus-epp: what `tactus epp` becomes.
#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "cli/standard_streams.h"

int main(int argc, char** argv) {
  tactus::cli::OpenStandardStreams();
  int code = tactus::cli::kExitFailed;
  try {
    code = tactus::cli::EppCommand(tactus::cli::Args(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tactus epp: internal error: %s\n", e.what());
  }
  const bool written = tactus::cli::FinishStandardOutput();
  return code == tactus::cli::kExitOk && !written ? tactus::cli::kExitFailed : code;
}
