// `tactus pull MODEL`: downloads a model, or its newest version, and prints its path.
#include <fmt/format.h>

#include <cstdio>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/option_binding.h"
#include "compute/model/catalog.h"
#include "hub/listed_models.h"

namespace tactus::cli {
namespace {

struct PullOptions {
  std::string model;
  int64_t connections = 8;
  bool json = false, list = false;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Download");
    v.Field("connections", connections,
            {.unit = "requests", .min = 1, .max = 64, .help = "number of parallel requests"});
    v.Field("list", list, {.help = "print the built-in names and what they stand for, and exit"});
    v.Field("json", json, {.help = "print one JSON object on stdout"});
  }
};

int ListBuiltIn() {
  std::printf("%-16s %-14s %s\n", "name", "memory from", "model");
  for (const hub::ListedModel& row : hub::ListedModels()) {
    const std::string memory = fmt::format("{:.0f} GiB", static_cast<double>(row.memory_bytes) / (1 << 30));
    std::printf("%-16s %-14s %s\n", row.name.c_str(), memory.c_str(), row.remote.Text().c_str());
  }
  return kExitOk;
}

Result<hub::Fetched> Pull(const PullOptions& options, std::string* name) {
  TACTUS_ASSIGN_OR_RETURN(hub::Settings settings, hub::SettingsFrom(hub::ProcessEnvironment));
  settings.connections = static_cast<int>(options.connections);
  TACTUS_ASSIGN_OR_RETURN(const auto remote, RemoteModel(options.model, settings));
  if (!remote) {
    TACTUS_ASSIGN_OR_RETURN(const std::string path, compute::ResolveModel(options.model));
    return InvalidArgument(fmt::format("'{}' is {} on this machine; a model to download is hf:org/name, the URL of a "
                                       ".gguf file or a name of `tactus pull --list`",
                                       options.model, path),
                           "model");
  }
  *name = remote->Text();
  StartLog log(false);
  return FetchModel(*remote, settings, true, &log);
}

}  // namespace

int PullCommand(const Args& args) {
  PullOptions options;
  CommandLine line("pull", "MODEL [options]", "Downloads a model, or its newest version, and prints its path.");
  line.Add(options);
  line.Positional("MODEL", &options.model, false,
                  "hf:org/name[@revision][:file or quantisation], the URL of a .gguf file, or a name of --list");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.list) return ListBuiltIn();
  if (options.model.empty()) {
    std::fprintf(stderr, "tactus pull: MODEL is missing, such as hf:org/name; --list prints the built-in names\n");
    return kExitUsage;
  }
  std::string name;
  const auto fetched = Pull(options, &name);
  if (!fetched.ok()) {
    std::fprintf(stderr, "tactus pull: %s\n", fetched.status().message().c_str());
    return fetched.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  const Json revision = fetched->commit.empty() ? Json(nullptr) : Json(fetched->commit);
  const Json out = {{"name", name},
                    {"path", fetched->path},
                    {"revision", revision},
                    {"size_bytes", fetched->bytes},
                    {"downloaded_bytes", fetched->downloaded_bytes}};
  std::printf("%s\n", options.json ? json_text::JsonText(out).c_str() : fetched->path.c_str());
  return kExitOk;
}

}  // namespace tactus::cli
