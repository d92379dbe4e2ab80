// The commands of the program, one file each. A command gets its arguments without the program's and the command's name
// and returns the exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted. Results go to stdout, progress and
// logs to stderr.
#pragma once

#include "cli/options/args.h"

namespace tactus::cli {

// The names of all commands, in the order of `tactus --help`.
std::vector<const char*> CommandNames();

int BatchCommand(const Args& args);
int CompletionCommand(const Args& args);
int DoctorCommand(const Args& args);
int EppCommand(const Args& args);
int ServeCommand(const Args& args);
int RouteCommand(const Args& args);
int RunCommand(const Args& args);
int ProfileCommand(const Args& args);
int PullCommand(const Args& args);
int ModelsCommand(const Args& args);
int TokenizeCommand(const Args& args);
int TemplateCommand(const Args& args);
int BenchCommand(const Args& args);
int ExplainCommand(const Args& args);
int FitCommand(const Args& args);
int ReportCommand(const Args& args);
int SimCommand(const Args& args);
int TopCommand(const Args& args);
int VersionCommand(const Args& args);

}  // namespace tactus::cli
