// tactus-tools: the program that `tactus` executes for commands that are not needed for serving.
#include <cstdio>
#include <string_view>

#include "cli/commands/commands.h"
#include "cli/options/program.h"

namespace tactus::cli {
namespace {

struct Tool {
  const char* name;
  int (*run)(const Args&);
};

constexpr Tool kTools[] = {
    {"route", RouteCommand},     {"bench", BenchCommand},   {"sim", SimCommand}, {"fit", FitCommand},
    {"explain", ExplainCommand}, {"report", ReportCommand}, {"top", TopCommand},
};

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Tool& tool : kTools) {
    if (name != tool.name) continue;
    BeginCommand(tool.name, tool.run == RouteCommand);
    return tool.run(Args(argv + 2, argv + argc));
  }
  std::fprintf(stderr, "tactus-tools: this program is started by `tactus`; `tactus --help` lists the commands\n");
  return kExitUsage;
}

}  // namespace
}  // namespace tactus::cli

int main(int argc, char** argv) {
  return tactus::cli::RunProgram([argc, argv] { return tactus::cli::Main(argc, argv); });
}
