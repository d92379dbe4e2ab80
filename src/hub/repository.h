// A repository on the hub: its revisions, its files and their hashes. One thread.
#pragma once

#include <string>
#include <vector>

#include "hub/choose_files.h"
#include "hub/remote_name.h"
#include "hub/transfers.h"
#include "tactus/status.h"

namespace tactus::hub {

struct Revision {
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepositoryFile> files;
};

// Errors of this file name the repository, what the hub answered and what to do: kNotFound (no such repository,
// revision or file), kUnauthenticated (a token is missing, wrong or without access), kTooManyRequests, kUnavailable (no
// connection, faults of the hub after all tries), kDataLoss (an answer that is not the hub's).
Result<Revision> FindRevision(const RemoteName& name, Transfers& transfers);

// Asks for size and hash of a file that the listing lacks.
Status CompleteFile(const RemoteName& name, const std::string& commit, Transfers& transfers, RepositoryFile* file);

// The URL of a file's content.
std::string ContentUrl(const Settings& settings, const std::string& repository, const std::string& commit,
                       const std::string& path);

// The error of an answer to a request for `what`, "hf:org/name" or one of its files. `repository` is empty for a URL.
Status FaultOf(const Answer& answer, const std::string& what, const std::string& repository, const Settings& settings);

}  // namespace tactus::hub
