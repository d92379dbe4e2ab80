// What a run file says of one request: its phases and what its replica's steps were meanwhile, its longest gap and what
// was computed in it, how it stands among the others, and the objectives that it stated. Caller's thread.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "tactus/status.h"

namespace tactus::results {

// Whether a file is a zip archive, as run files are; false also where it cannot be read.
bool IsArchive(const std::string& path);

// `id`: the request's number in the run, or the id of its client; the last of those where there are several. As
// ReadRunFile; kNotFound also where the run has no such request.
Result<Json> RequestStory(const std::string& path, const std::string& id);
// The same for people.
std::string StoryTable(const Json& story);

}  // namespace tactus::results
