#include "hub/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/input_file.h"
#include "base/output_file.h"
#include "hub/file_names.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr int64_t kMostReferenceBytes = 1024;
constexpr int64_t kMostIndexBytes = int64_t{256} << 20;

std::string FolderName(const std::string& repository) {
  std::string name(kPrefix);
  for (const char c : repository) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The files below a folder, as paths relative to it.
std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error, ignored;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (fs::is_regular_file(it->path(), ignored)) files.push_back(it->path().lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

RepositoryFolder::RepositoryFolder(std::string cache, std::string repository)
    : cache_(std::move(cache)), repository_(std::move(repository)), path_(cache_ + "/" + FolderName(repository_)) {}

std::string RepositoryFolder::Blob(const std::string& hash) const {
  return path_ + "/blobs/" + hash;
}
std::string RepositoryFolder::Partial(const std::string& hash) const {
  return Blob(hash) + ".tactus";
}
std::string RepositoryFolder::LockFolder() const {
  return cache_ + "/.locks/" + FolderName(repository_);
}
std::string RepositoryFolder::Lock(const std::string& hash) const {
  return LockFolder() + "/" + hash + ".lock";
}
std::string RepositoryFolder::Snapshot(const std::string& commit) const {
  return path_ + "/snapshots/" + commit;
}
std::string RepositoryFolder::File(const std::string& commit, const std::string& file) const {
  return Snapshot(commit) + "/" + file;
}

std::vector<std::string> RepositoryFolder::Commits() const {
  return NamesIn(path_ + "/snapshots");
}

std::vector<std::string> RepositoryFolder::References() const {
  return FilesBelow(path_ + "/refs");
}

std::string RepositoryFolder::CommitOf(const std::string& revision) const {
  const std::string path = path_ + "/refs/" + revision;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return IsHex(revision, 40) ? revision : "";
  const auto text = ReadInputFile(path, kMostReferenceBytes);
  if (!text.ok()) return "";
  const std::string commit = text->substr(0, text->find_first_of(" \r\n"));
  return IsSafePath(commit) ? commit : "";
}

std::vector<RepositoryFile> RepositoryFolder::Files(const std::string& commit) const {
  std::vector<RepositoryFile> files;
  std::error_code error;
  for (const std::string& file : FilesBelow(Snapshot(commit))) {
    const auto bytes = static_cast<int64_t>(fs::file_size(File(commit, file), error));
    files.push_back({file, error ? -1 : bytes, ""});
  }
  return files;
}

Status RepositoryFolder::Link(const std::string& commit, const std::string& file, const std::string& hash) const {
  const fs::path link = File(commit, file);
  const auto fault = [&link](const std::string& why) {
    return DataLoss(fmt::format("cannot make the link {}: {}. HF_HUB_CACHE names another folder", link.string(), why));
  };
  std::error_code error;
  fs::create_directories(link.parent_path(), error);
  if (error) return fault(error.message());
  const std::string target = fs::path(Blob(hash)).lexically_relative(link.parent_path()).string();
  // Renamed into place, so that another process never finds the path without a link.
  const std::string beside = fmt::format("{}.tactus.{}", link.string(), getpid());
  fs::remove(beside, error);
  if (symlink(target.c_str(), beside.c_str()) != 0) return fault(std::strerror(errno));
  fs::rename(beside, link, error);
  if (!error) return Status();
  const std::string why = error.message();
  fs::remove(beside, error);
  return fault(why);
}

Status RepositoryFolder::SetReference(const std::string& revision, const std::string& commit) const {
  if (revision == commit || CommitOf(revision) == commit) return Status();
  const fs::path path = path_ + "/refs/" + revision;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (ReplaceFile(path.string(), commit, "").ok()) return Status();
  return DataLoss(
      fmt::format("cannot write {}: {}. HF_HUB_CACHE names another folder", path.string(), std::strerror(errno)));
}

Status AddWeightsOfIndex(const RepositoryFolder& folder, const std::string& commit, ModelFiles* model) {
  if (model->index.empty()) return Status();
  const std::string path = folder.File(commit, model->index);
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostIndexBytes));
  TACTUS_ASSIGN_OR_RETURN(model->weights, WeightsOfIndex(text, path));
  return Status();
}

std::vector<RepositoryFolder> RepositoriesOf(const std::string& cache) {
  std::vector<RepositoryFolder> repositories;
  for (const std::string& name : NamesIn(cache)) {
    if (!name.starts_with(kPrefix)) continue;
    std::string repository = name.substr(kPrefix.size());
    if (const size_t dashes = repository.find("--"); dashes != std::string::npos) repository.replace(dashes, 2, "/");
    repositories.emplace_back(cache, repository);
  }
  return repositories;
}

}  // namespace tactus::hub
