#include "batch_run/end_job.h"

#include "batch_run/job_line.h"

namespace tactus::batch {
namespace {

constexpr int64_t kGroupLines = 256;

}  // namespace

Status EndWaiting(Job* job, std::string_view code, const std::string& message, const std::function<bool()>& go_on) {
  for (int64_t last = 0;;) {
    TACTUS_ASSIGN_OR_RETURN(const std::vector<LinePlace> places, job->Waiting(last, kGroupLines));
    if (places.empty()) return Status();
    if (go_on && !go_on()) return Status(StatusCode::kCancelled, "interrupted while the job was ended");
    last = places.back().number;
    std::vector<LineResult> results;
    for (const LinePlace& place : places) {
      JobLine line;
      if (place.bytes <= job->most_line_bytes()) {
        TACTUS_ASSIGN_OR_RETURN(const std::string text, job->Read(place));
        (void)ParseLine(text, place.number, &line);  // for its custom_id
      }
      results.push_back(
          {.line = place.number, .text = UnrunText({job->id(), place.number, line.custom_id}, code, message)});
    }
    TACTUS_RETURN_IF_ERROR(job->Commit(results));
  }
}

}  // namespace tactus::batch
