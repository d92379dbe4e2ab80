// The end of a job before all of its lines have run: those that wait get an error, so that each has one result still;
// or, of a job that cannot be opened any more, what it leaves.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "offline/job/job.h"

namespace tactus::offline {

// Nothing of the job may run meanwhile. Fails as Job::Commit does, or where the input cannot be read; what was recorded
// stays, and the rest may be ended again. `go_on` is asked before each group of lines; false: kCancelled.
Status EndWaiting(Job* job, std::string_view code, const std::string& message, const std::function<bool()>& go_on = {});

struct LeftResults {
  JobCounts counts;
  JobTokens tokens;
};

// Of a job that is not opened again: its results, by its state, or where that is gone or damaged by the lines of the
// files. Half a line at the end of a file is cut off. Fails where the files can be neither read nor cut; kUnavailable,
// kCancelled as Job::Open.
Result<LeftResults> KeepResults(const JobFiles& files, const JobInput::Progress& progress);

}  // namespace tactus::offline
