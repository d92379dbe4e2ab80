#include "offline/job/end_job.h"

#include <filesystem>
#include <optional>

#include "offline/job/job_line.h"
#include "offline/job/result_file.h"

namespace tactus::offline {
namespace {

constexpr int64_t kFailedGroupLines = 256;

// None: the state is missing, incomplete or does not fit the files.
Result<std::optional<LeftResults>> ByState(const JobFiles& files) {
  std::error_code error;
  if (!std::filesystem::exists(files.state, error)) return std::optional<LeftResults>();
  const auto store = JobStore::Open(files.state);
  if (store.status().code() == StatusCode::kUnavailable) return store.status();
  if (!store.ok()) return std::optional<LeftResults>();
  const auto indexed = (*store)->Indexed();
  const auto output_bytes = (*store)->GetNumber("output-bytes"), errors_bytes = (*store)->GetNumber("errors-bytes");
  const auto tokens = (*store)->Tokens();
  if (!indexed.ok() || !*indexed || !output_bytes.ok() || !errors_bytes.ok() || !tokens.ok())
    return std::optional<LeftResults>();
  for (const auto& [path, bytes] : {std::pair(files.output, *output_bytes), std::pair(files.errors, *errors_bytes)}) {
    if (!ResultFile::Open(path, bytes).ok()) return std::optional<LeftResults>();
  }
  return std::optional<LeftResults>({(*store)->counts(), *tokens});
}

// Counts the complete lines of a file of results and cuts off the rest.
Result<int64_t> CountLines(const std::string& path, const JobInput::Progress& progress) {
  auto file = JobInput::Open(path);
  if (file.status().code() == StatusCode::kNotFound) return 0;
  if (!file.ok()) return file.status();
  int64_t lines = 0, whole_bytes = 0;
  const auto add = [&](LinePlace place, std::string_view) {
    const int64_t end = place.offset + place.bytes + 1;
    if (end > (*file)->bytes()) return Status();
    whole_bytes = end;
    ++lines;
    return Status();
  };
  TACTUS_RETURN_IF_ERROR((*file)->Scan(0, add, progress).status());
  TACTUS_RETURN_IF_ERROR(ResultFile::Open(path, whole_bytes).status());
  return lines;
}

}  // namespace

Status EndWaiting(Job* job, std::string_view code, const std::string& message, const std::function<bool()>& go_on) {
  for (int64_t last = 0;;) {
    TACTUS_ASSIGN_OR_RETURN(const std::vector<LinePlace> places, job->Waiting(last, kFailedGroupLines));
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

Result<LeftResults> KeepResults(const JobFiles& files, const JobInput::Progress& progress) {
  TACTUS_ASSIGN_OR_RETURN(const std::optional<LeftResults> known, ByState(files));
  if (known) return *known;
  LeftResults left;
  TACTUS_ASSIGN_OR_RETURN(left.counts.out, CountLines(files.output, progress));
  TACTUS_ASSIGN_OR_RETURN(left.counts.errors, CountLines(files.errors, progress));
  left.counts.lines = left.counts.done();
  return left;
}

}  // namespace tactus::offline
