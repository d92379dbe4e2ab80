// tactus-epp: the program that `tactus epp` executes.
#include "cli/commands/commands.h"
#include "cli/options/program.h"

int main(int argc, char** argv) {
  return tactus::cli::RunProgram([argc, argv] {
    tactus::cli::BeginCommand("epp", true);
    return tactus::cli::EppCommand(tactus::cli::Args(argv + 1, argv + argc));
  });
}
