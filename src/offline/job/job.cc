#include "offline/job/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <tuple>

#include "base/printable.h"
#include "base/rng.h"
#include "base/system_random.h"
#include "offline/job/job_line.h"

namespace tactus::offline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSettingPrefix = "setting.";

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::path left = fs::weakly_canonical(a, error), right = fs::weakly_canonical(b, error);
  return a == b || (!left.empty() && left == right) || fs::equivalent(a, b, error);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Status Remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? DataLoss(fmt::format("cannot remove '{}': {}", path, error.message())) : Status();
}

// Endings of the files that SQLite may have left beside a state file.
constexpr const char* kBesideState[] = {"", "-journal", "-wal", "-shm"};

}  // namespace

Job::Job(JobFiles files, JobOptions options) : files_(std::move(files)), options_(std::move(options)) {
  // Ids of longer lines are not read, so that duplicates of them are not detected.
  options_.settings.emplace_back("max-line", std::to_string(options_.most_line_bytes));
}

Result<std::unique_ptr<Job>> Job::Open(const JobFiles& files, const JobOptions& options) {
  std::unique_ptr<Job> job(new Job(files, options));
  TACTUS_RETURN_IF_ERROR(job->CheckFiles());
  TACTUS_ASSIGN_OR_RETURN(job->input_, JobInput::Open(files.input, job->RoomToUnpack(), options.progress));
  const bool state_is_there = Exists(files.state);
  if (options.overwrite && state_is_there) {
    // Opened to check that it is a job's state, and that no other process uses it.
    TACTUS_RETURN_IF_ERROR(JobStore::Open(files.state).status());
  }
  if (options.overwrite) {
    // The state is removed last: the rest of a partly removed job is then refused, not used for another job.
    TACTUS_RETURN_IF_ERROR(Remove(files.output));
    TACTUS_RETURN_IF_ERROR(Remove(files.errors));
    for (const char* end : kBesideState) TACTUS_RETURN_IF_ERROR(Remove(files.state + end));
  } else if (!state_is_there) {
    for (const std::string& path : {files.output, files.errors}) {
      if (!Exists(path)) continue;
      return InvalidArgument(
          fmt::format(
              "'{}' exists but belongs to no job that can be resumed ('{}' does not exist); choose another file, or "
              "start again with --overwrite, which removes it",
              path, files.state),
          "output");
    }
  }
  TACTUS_ASSIGN_OR_RETURN(job->store_, JobStore::Open(files.state));
  job->resumed_ = job->store_->counts().done() > 0;
  TACTUS_RETURN_IF_ERROR(job->resumed_ ? job->Resume() : job->Begin());
  TACTUS_RETURN_IF_ERROR(job->OpenResults());
  return job;
}

UnpackRoom Job::RoomToUnpack() const {
  std::error_code error;
  return {fs::absolute(files_.state, error).parent_path().string(), options_.most_bytes};
}

Status Job::CheckFiles() const {
  const std::pair<const char*, const std::string*> named[] = {{"the input", &files_.input},
                                                              {"--output", &files_.output},
                                                              {"--errors", &files_.errors},
                                                              {"--job", &files_.state}};
  for (size_t i = 0; i < std::size(named); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!SameFile(*named[i].second, *named[k].second)) continue;
      return InvalidArgument(fmt::format("{} and {} are the same file, '{}'; choose two files", named[k].first,
                                         named[i].first, *named[i].second));
    }
  }
  std::error_code error;
  for (size_t i = 1; i < std::size(named); ++i) {
    if (fs::is_directory(*named[i].second, error)) {
      return InvalidArgument(fmt::format("{} '{}' is a folder; choose a file", named[i].first, *named[i].second));
    }
    if (fs::exists(*named[i].second, error) && !fs::is_regular_file(*named[i].second, error)) {
      return InvalidArgument(
          fmt::format("{} '{}' is not a regular file, and a resumed job cuts off unrecorded results; choose a file",
                      named[i].first, *named[i].second));
    }
    const fs::path parent = fs::path(*named[i].second).parent_path();
    if (!parent.empty()) fs::create_directories(parent, error);
  }
  return Status();
}

// Result files are cut to their recorded length: only files of this job may be cut. They are identified by their path
// relative to the state, so that all of them can be moved together.
Status Job::CheckResults() {
  const std::tuple<const char*, const std::string*, const char*> results[] = {
      {"output", &files_.output, "output-bytes"}, {"errors", &files_.errors, "errors-bytes"}};
  for (const auto& [name, path, bytes_name] : results) {
    TACTUS_ASSIGN_OR_RETURN(const auto recorded, store_->Get(std::string(name) + "-file"));
    TACTUS_ASSIGN_OR_RETURN(const int64_t bytes, store_->GetNumber(bytes_name));
    std::error_code error;
    const auto size = static_cast<int64_t>(fs::file_size(*path, error));
    if (error || size <= bytes || !recorded || *recorded == BesideState(*path)) continue;
    return InvalidArgument(
        fmt::format("'{}' has {} bytes, but the job in '{}' has written {} to '{}': it is another file and is not "
                    "changed; pass the job's own --{}, or start again with --overwrite, which removes it",
                    *path, size, files_.state, bytes, *recorded, name),
        name);
  }
  return Status();
}

std::string Job::BesideState(const std::string& path) const {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(fs::absolute(files_.state, error), error).parent_path();
  return fs::weakly_canonical(fs::absolute(path, error), error).lexically_relative(folder).string();
}

// Also for a job that was begun and has no result yet: its earlier settings need not match.
Status Job::Begin() {
  TACTUS_ASSIGN_OR_RETURN(const bool begun, store_->Indexed());
  if (begun) TACTUS_RETURN_IF_ERROR(CheckResults());
  for (const std::string& path : {files_.output, files_.errors}) {
    // A state without an index is from a run that ended while reading the input, before it created these files.
    if (begun || !Exists(path)) continue;
    return InvalidArgument(
        fmt::format("'{}' exists but the job in '{}' has not begun; choose another file, or start again "
                    "with --overwrite, which removes both",
                    path, files_.state),
        "output");
  }
  TACTUS_ASSIGN_OR_RETURN(const Hash128 random, SystemRandom());
  id_ = fmt::format("{:012x}", random.low >> 16);
  seed_ = options_.seed != 0 ? options_.seed : random.high;
  Status status = store_->BeginIndex();
  if (status.ok()) status = Index().status();
  if (status.ok()) return status;
  // Indexing failed: leave no files behind.
  store_.reset();
  for (const std::string& path : {files_.output, files_.errors}) {
    if (begun) (void)Remove(path);
  }
  for (const char* end : kBesideState) (void)Remove(files_.state + end);
  return status;
}

// One transaction: an unfinished index is rolled back.
Result<std::string> Job::Index() {
  const auto add = [this](LinePlace place, std::string_view text) {
    const bool whole = place.bytes <= options_.most_line_bytes;
    if (whole && IsBlankLine(text)) return Status();  // neither a request nor an error: files may end with one
    if (options_.most_lines > 0 && store_->counts().lines >= options_.most_lines) {
      return InvalidArgument(
          fmt::format("the input has more than {} lines, the limit of a batch; divide it", options_.most_lines),
          "lines");
    }
    JobLine line;
    // Faults of a line are reported when it runs.
    if (whole) (void)ParseLine(text, place.number, &line);
    return store_->AddLine(&place, line.custom_id);
  };
  TACTUS_ASSIGN_OR_RETURN(std::string hash, input_->Scan(options_.most_line_bytes, add, options_.progress));
  if (store_->counts().lines == 0)
    return InvalidArgument(fmt::format("'{}' has no lines; add at least one request", files_.input), "input");
  TACTUS_RETURN_IF_ERROR(store_->Set("input", files_.input));
  TACTUS_RETURN_IF_ERROR(store_->Set("input-bytes", std::to_string(input_->bytes())));
  TACTUS_RETURN_IF_ERROR(store_->Set("input-hash", hash));
  TACTUS_RETURN_IF_ERROR(store_->Set("id", id_));
  TACTUS_RETURN_IF_ERROR(store_->Set("seed", std::to_string(seed_)));
  TACTUS_RETURN_IF_ERROR(store_->Set("output-file", BesideState(files_.output)));
  TACTUS_RETURN_IF_ERROR(store_->Set("errors-file", BesideState(files_.errors)));
  for (const auto& [name, value] : options_.settings) TACTUS_RETURN_IF_ERROR(store_->Set(kSettingPrefix + name, value));
  TACTUS_RETURN_IF_ERROR(store_->EndIndex());
  return hash;
}

Status Job::Resume() {
  TACTUS_ASSIGN_OR_RETURN(const auto input, store_->Get("input"));
  TACTUS_ASSIGN_OR_RETURN(const int64_t bytes, store_->GetNumber("input-bytes"));
  TACTUS_ASSIGN_OR_RETURN(const auto hash, store_->Get("input-hash"));
  TACTUS_ASSIGN_OR_RETURN(const auto id, store_->Get("id"));
  TACTUS_ASSIGN_OR_RETURN(const auto seed, store_->Get("seed"));
  if (!input || !hash || !id || !seed)
    return DataLoss(fmt::format("'{}' is damaged: a field is missing", files_.state));
  id_ = *id;
  std::from_chars(seed->data(), seed->data() + seed->size(), seed_);
  bool same = input_->bytes() == bytes;
  if (same) {
    // Before the hash, which reads all of the input.
    TACTUS_RETURN_IF_ERROR(CompareSettings(options_.settings));
    TACTUS_ASSIGN_OR_RETURN(const std::string now, input_->Hash(options_.progress));
    same = now == *hash;
  }
  if (!same && SameFile(*input, files_.input)) {
    return InvalidArgument(
        fmt::format("'{}' has changed since its job began ({} bytes then, {} now); restore it, or start again "
                    "with --overwrite, which removes the results",
                    files_.input, bytes, input_->bytes()),
        "input");
  }
  if (!same) {
    return InvalidArgument(
        fmt::format("'{}' is the job of another input, '{}'; choose another --output, or start again with --overwrite, "
                    "which removes its results",
                    files_.state, *input),
        "input");
  }
  TACTUS_RETURN_IF_ERROR(CheckResults());
  return CheckSettings(options_.settings);
}

Status Job::CheckSettings(const JobSettings& settings) {
  TACTUS_RETURN_IF_ERROR(CompareSettings(settings));
  std::lock_guard lock(mutex_);
  for (const auto& [name, value] : settings) {
    TACTUS_ASSIGN_OR_RETURN(const auto stored, store_->Get(kSettingPrefix + name));
    if (!stored) TACTUS_RETURN_IF_ERROR(store_->Set(kSettingPrefix + name, value));
  }
  return Status();
}

Status Job::CompareSettings(const JobSettings& settings) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, value] : settings) {
    TACTUS_ASSIGN_OR_RETURN(const auto stored, store_->Get(kSettingPrefix + name));
    if (stored && *stored != value) {
      return InvalidArgument(
          fmt::format("the job in '{}' began with {} '{}', but this run has '{}', which changes answers; run it as "
                      "before, or start again with --overwrite, which removes its results",
                      files_.state, name, Printable(*stored), Printable(value)),
          name);
    }
  }
  return Status();
}

Status Job::OpenResults() {
  TACTUS_ASSIGN_OR_RETURN(const int64_t output_bytes, store_->GetNumber("output-bytes"));
  TACTUS_ASSIGN_OR_RETURN(const int64_t errors_bytes, store_->GetNumber("errors-bytes"));
  TACTUS_ASSIGN_OR_RETURN(output_, ResultFile::Open(files_.output, output_bytes));
  TACTUS_ASSIGN_OR_RETURN(errors_, ResultFile::Open(files_.errors, errors_bytes));
  return Status();
}

uint64_t Job::SeedOf(int64_t line, size_t prompt) const {
  const auto number = static_cast<uint64_t>(line);
  const auto bits = Philox4x32(
      {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)},
      {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(prompt), 0xba7c});
  return static_cast<uint64_t>(bits[1]) << 32 | bits[0];
}

JobCounts Job::counts() const {
  std::lock_guard lock(mutex_);
  return store_->counts();
}

Result<JobTokens> Job::tokens() {
  std::lock_guard lock(mutex_);
  return store_->Tokens();
}

Result<std::vector<LinePlace>> Job::Waiting(int64_t after, int64_t most) {
  std::lock_guard lock(mutex_);
  return store_->Waiting(after, most);
}

Result<LinePlace> Job::WaitingLine(int64_t number) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<LinePlace> found, Waiting(number - 1, 1));
  if (found.size() == 1 && found[0].number == number) return found[0];
  return Internal(fmt::format("line {} of '{}' does not wait for a result", number, files_.input));
}

Result<std::vector<LineState>> Job::Lines(int64_t after, int64_t most) {
  std::lock_guard lock(mutex_);
  return store_->Lines(after, most);
}

Status Job::SetCut(const ShardCut& cut) {
  std::lock_guard lock(mutex_);
  return store_->SetCut(cut);
}

std::string Job::cut() const {
  std::lock_guard lock(mutex_);
  const auto cut = store_->Get("cut");
  return cut.ok() ? cut->value_or("") : "";
}

Status Job::Commit(const std::vector<LineResult>& results) {
  if (input_->Changed()) {
    return DataLoss(
        fmt::format("'{}' was modified while the job ran; restore it and run again, or start "
                    "again with --overwrite",
                    files_.input));
  }
  std::lock_guard lock(mutex_);
  const int64_t output_before = output_.bytes(), errors_before = errors_.bytes();
  std::vector<StoredResult> stored;
  std::string texts[2];
  for (const LineResult& r : results) {
    std::string& text = texts[r.ok ? 0 : 1];
    const int64_t offset = (r.ok ? output_before : errors_before) + static_cast<int64_t>(text.size());
    stored.push_back({r.line, r.ok, offset, static_cast<int64_t>(r.text.size()), r.prompt_tokens, r.output_tokens});
    text += r.text;
  }
  Status status = output_.Append(texts[0]);
  if (status.ok()) status = errors_.Append(texts[1]);
  if (status.ok()) status = store_->Commit(stored, output_.bytes(), errors_.bytes());
  if (!status.ok()) CutToRecorded();
  return status;
}

// Uses the state's lengths, since it may have recorded a group although it reported an error. If they cannot be read,
// the next run cuts.
void Job::CutToRecorded() {
  const auto output = store_->GetNumber("output-bytes"), errors = store_->GetNumber("errors-bytes");
  if (!output.ok() || !errors.ok()) return;
  output_.CutTo(*output);
  errors_.CutTo(*errors);
}

}  // namespace tactus::offline
