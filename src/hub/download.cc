#include "hub/download.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "hub/file_download.h"
#include "hub/size_text.h"

namespace tactus::hub {
namespace {

constexpr DurationNs kProgressTime = kSecond / 10;

using Files = std::vector<std::unique_ptr<FileDownload>>;

// The bytes that a partial file has on disk: it is sparse.
int64_t AllocatedBytes(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

Status CheckSpace(const std::vector<Download>& downloads) {
  int64_t missing = 0;
  for (const Download& d : downloads) missing += std::max<int64_t>(0, d.bytes - AllocatedBytes(d.partial));
  const std::string folder = std::filesystem::path(downloads.front().path).parent_path().string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return DataLoss(fmt::format("cannot make {}: {}. HF_HUB_CACHE names another folder", folder, error.message()));
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return Status();
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (missing <= free) return Status();
  return Status(
      StatusCode::kResourceExhausted,
      fmt::format("{} are missing, and the disk of {} has {} left. Free some space (tactus models rm), or set "
                  "HF_HUB_CACHE to a folder on another disk",
                  SizeText(missing), folder, SizeText(free)));
}

Progress ProgressOf(const Files& files) {
  Progress progress;
  bool working = false;
  for (const auto& file : files) {
    progress.done_bytes += file->done_bytes();
    progress.kept_bytes += file->kept_bytes();
    if (file->total_bytes() < 0 || progress.total_bytes < 0) {
      progress.total_bytes = -1;
    } else {
      progress.total_bytes += file->total_bytes();
    }
    working = working || (!file->done() && !file->waiting());
    progress.waiting = progress.waiting || file->waiting();
  }
  progress.waiting = progress.waiting && !working;
  return progress;
}

// The first error of a file.
Status StatusOf(const Files& files) {
  for (const auto& file : files) {
    if (!file->status().ok()) return file->status();
  }
  return Status();
}

}  // namespace

Status DownloadAll(std::vector<Download> downloads, Transfers& transfers, const Events& events) {
  if (downloads.empty()) return Status();
  TACTUS_RETURN_IF_ERROR(CheckSpace(downloads));
  Files files;
  for (Download& download : downloads)
    files.push_back(std::make_unique<FileDownload>(std::move(download), transfers, events));
  const auto most = static_cast<size_t>(transfers.settings().connections);
  const auto done = [](const auto& file) { return file->done(); };
  const auto behind = [](const auto& file) { return file->behind(); };
  TimeNs next_progress = 0;
  while (StatusOf(files).ok() && !std::all_of(files.begin(), files.end(), done)) {
    for (const auto& file : files) {
      while (transfers.running() < most && file->StartNext()) {
      }
    }
    transfers.Work(std::any_of(files.begin(), files.end(), behind) ? kMillisecond : kProgressTime);
    for (const auto& file : files) file->Advance();
    if (const TimeNs now = transfers.clock().NowNs(); now >= next_progress) {
      events.progress(ProgressOf(files));
      next_progress = now + kProgressTime;
    }
  }
  transfers.StopAll();
  events.progress(ProgressOf(files));
  for (const auto& file : files) file->Save();
  return StatusOf(files);
}

}  // namespace tactus::hub
