// Ends a job before all of its lines have run: waiting lines get an error, so that each line still has one result. Also
// collects the results of a job that cannot be opened any more.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "offline/job/job.h"

namespace tactus::offline {

// The job must not be running. Fails like Job::Commit, or if the input cannot be read; recorded results stay, and the
// call may be repeated. `go_on` is called before each group of lines; false: kCancelled.
Status EndWaiting(Job* job, std::string_view code, const std::string& message, const std::function<bool()>& go_on = {});

struct LeftResults {
  JobCounts counts;
  JobTokens tokens;
};

// The results of a job that is not opened again: by its state, or if that is missing or damaged, by the lines of the
// files. An incomplete line at the end of a file is cut off. Fails if the files cannot be read or cut; kUnavailable,
// kCancelled as from Job::Open.
Result<LeftResults> KeepResults(const JobFiles& files, const JobInput::Progress& progress);

}  // namespace tactus::offline
