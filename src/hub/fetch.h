// From the name of a remote model to its files on this machine: finds it in the cache, or downloads what is missing.
// One thread; several processes may fetch the same model at once.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "hub/download.h"
#include "hub/remote_name.h"
#include "hub/settings.h"
#include "tactus/status.h"

namespace tactus::hub {

struct FetchOptions {
  // Asks the hub for the newest commit of the revision. False: a complete model in the cache is used without a request.
  bool update = false;
  // Gets the folder with config.json before the weights are downloaded; an error ends the fetch. May be empty.
  std::function<Status(const std::string& folder)> before_weights;
  Events events;
};

struct Fetched {
  std::string path;    // to load: a folder or a GGUF file
  std::string commit;  // empty: of a URL
  int64_t bytes = 0;   // of the model's files
  int64_t downloaded_bytes = 0;
};

// Errors as DownloadAll, repository.h and choose_files.h.
Result<Fetched> Fetch(const RemoteName& name, const Settings& settings, Clock& clock, const FetchOptions& options);

// The model in the cache, complete, without a request. kNotFound: it is not there, or a part is missing.
Result<Fetched> FindCached(const RemoteName& name, const Settings& settings);

}  // namespace tactus::hub
