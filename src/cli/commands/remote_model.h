// Models that a command names and that are not on this machine: finds them in the hub's cache or downloads them, with
// progress on standard error. Main thread.
#pragma once

#include <optional>
#include <string>

#include "cli/options/start_log.h"
#include "hub/fetch.h"
#include "hub/remote_name.h"
#include "hub/settings.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::cli {

// Whether the text names a remote model. Errors of the environment count as no.
bool IsRemote(const std::string& model);
// The remote model that a text names, also by a built-in name. Nothing: it is a local model, or none. kNotFound: it
// looks like a remote name and is none, with what it may have meant.
Result<std::optional<hub::RemoteName>> RemoteModel(const std::string& model, const hub::Settings& settings);

// Fetches with progress. `update`: asks for the newest commit, and warns of a model that cannot be loaded instead of
// refusing it.
Result<hub::Fetched> FetchModel(const hub::RemoteName& name, const hub::Settings& settings, bool update, StartLog* log);

// Replaces remote names of the model and the draft model by paths, and gives the model its own name for clients.
Status FetchModels(EngineOptions* options, StartLog* log);
// The path of a model: as compute::ResolveModel, after a fetch where it is remote.
Result<std::string> LocalModel(const std::string& model);

}  // namespace tactus::cli
