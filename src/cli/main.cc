// `tactus <command> [arguments]`: the table of commands.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/options/nearest.h"
#include "cli/options/program.h"
#include "tactus/version.h"

namespace tactus::cli {
namespace {

struct Command {
  const char* name;
  int (*run)(const Args&);  // null: a command of tactus-tools
  const char* summary;
  bool serves = false;
};

constexpr Command kCommands[] = {
    {"serve", ServeCommand, "serve one model over an OpenAI-compatible API", true},
    {"route", nullptr, "balance requests over replicas of a model"},
    {"run", RunCommand, "chat with a model in the terminal, or answer one prompt"},
    {"batch", BatchCommand, "answer a file of requests at full throughput"},
    {"epp", ExecEpp, "pick replicas for a gateway (Envoy, Kubernetes)"},
    {"profile", ProfileCommand, "measure a model's step times on this machine"},
    {"doctor", DoctorCommand, "measure this machine, and say what costs speed"},
    {"pull", PullCommand, "download a model, or its newest version"},
    {"models", ModelsCommand, "list, inspect, convert or remove the models on this machine"},
    {"tokenize", TokenizeCommand, "print the tokens of a text"},
    {"template", TemplateCommand, "render a conversation with a chat template"},
    {"bench", nullptr, "load-test an OpenAI-compatible server"},
    {"sim", nullptr, "simulate a workload on given devices under a given scheduler"},
    {"fit", nullptr, "find how many concurrent requests a device serves within objectives"},
    {"top", nullptr, "show what a server or a router does, as it happens"},
    {"explain", nullptr, "explain the latency of a recorded request"},
    {"report", nullptr, "show recorded runs as a page with pictures"},
    {"completion", CompletionCommand, "print a script that completes commands and options in a shell"},
    {"version", VersionCommand, "print version and build"},
};

void PrintUsage(std::FILE* out) {
  std::fprintf(
      out,
      "Tactus serves large language models, and simulates serving them.\n\nusage: tactus <command> [arguments]\n\n");
  for (const Command& c : kCommands) std::fprintf(out, "  %-10s %s\n", c.name, c.summary);
  std::fprintf(out, "\n'tactus <command> --help' lists its options.\n");
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    PrintUsage(stderr);
    return kExitUsage;
  }
  std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(stdout);
    return kExitOk;
  }
  if (name == "--version") name = "version";
  for (const Command& c : kCommands) {
    if (name != c.name) continue;
    BeginCommand(c.name, c.serves);
    return c.run != nullptr ? c.run(Args(argv + 2, argv + argc)) : ExecTools(Args(argv + 1, argv + argc));
  }
  for (const char* of_sim : {"capacity", "sweep", "compare", "step"}) {
    if (name != of_sim) continue;
    std::fprintf(stderr, "tactus: unknown command '%s'; it is 'tactus sim %s'\n", of_sim, of_sim);
    return kExitUsage;
  }
  std::vector<std::string> known;
  for (const Command& c : kCommands) known.emplace_back(c.name);
  if (const std::string nearest = Nearest(argv[1], known); !nearest.empty()) {
    std::fprintf(stderr, "tactus: unknown command '%s'; did you mean '%s'? 'tactus --help' lists the commands\n",
                 argv[1], nearest.c_str());
    return kExitUsage;
  }
  std::fprintf(stderr, "tactus: unknown command '%s'; the commands are:", argv[1]);
  for (const Command& c : kCommands) std::fprintf(stderr, " %s", c.name);
  std::fprintf(stderr, "\n");
  return kExitUsage;
}

}  // namespace

std::vector<const char*> CommandNames() {
  std::vector<const char*> names;
  for (const Command& c : kCommands) names.push_back(c.name);
  return names;
}

int VersionCommand(const Args& args) {
  if (!args.empty()) {
    std::fprintf(stderr, "tactus version: unexpected argument '%s'; it takes none\n", args[0].c_str());
    return kExitUsage;
  }
  std::printf("tactus %s (%s)\n", Version(), BuildInfo().c_str());
  return kExitOk;
}

}  // namespace tactus::cli

int main(int argc, char** argv) {
  return tactus::cli::RunProgram([argc, argv] { return tactus::cli::Main(argc, argv); });
}
