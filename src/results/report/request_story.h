// One request of a run file: its phases and the steps of its replica during them, its longest gap and the work computed
// in it, its rank among the other requests, and its objectives. Caller's thread.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "tactus/status.h"

namespace tactus::results {

// Whether a file is a zip archive, as run files are; false also if it cannot be read.
bool IsArchive(const std::string& path);

// `id`: the request's number in the run, or its client's id (the last match). Errors as in ReadRunFile; kNotFound also
// if the run has no such request.
Result<Json> RequestStory(const std::string& path, const std::string& id);
// The same as text.
std::string StoryTable(const Json& story);

}  // namespace tactus::results
