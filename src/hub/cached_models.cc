#include "hub/cached_models.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "hub/cache.h"
#include "hub/choose_files.h"
#include "hub/fetch.h"
#include "hub/file_lock.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

void AddUse(const std::string& path, FileUse* use) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return;
  use->bytes += info.st_size;
  use->last_used_s = std::max<int64_t>(use->last_used_s, info.st_atim.tv_sec);
}

// The revision by which a commit is named: main, another branch or tag, or itself.
std::string RevisionOf(const RepositoryFolder& folder, const std::string& commit) {
  std::string found = commit;
  for (const std::string& reference : folder.References()) {
    if (folder.CommitOf(reference) != commit) continue;
    if (reference == "main") return reference;
    if (found == commit) found = reference;
  }
  return found;
}

bool HasAllWeights(const RepositoryFolder& folder, const std::string& commit, ModelFiles* model) {
  if (!AddWeightsOfIndex(folder, commit, model).ok()) return false;
  std::error_code error;
  return std::all_of(model->weights.begin(), model->weights.end(),
                     [&](const std::string& file) { return fs::exists(folder.File(commit, file), error); });
}

void AddSnapshot(const RepositoryFolder& folder, const std::string& commit, std::vector<CachedModel>* models) {
  RemoteName name;
  name.repository = folder.repository();
  name.revision = RevisionOf(folder, commit);
  const std::vector<RepositoryFile> files = folder.Files(commit);
  std::vector<ListedChoice> choices = AllModels(files);
  for (ListedChoice& choice : choices) {
    name.selector = choice.selector;
    CachedModel model{name.Text(), commit, choice.files.format, folder.Snapshot(commit), {}};
    if (!choice.files.load.empty()) model.path = folder.File(commit, choice.files.load);
    if (!HasAllWeights(folder, commit, &choice.files)) model.format = "incomplete";
    for (const auto* paths : {&choice.files.texts, &choice.files.weights}) {
      for (const std::string& file : *paths) AddUse(folder.File(commit, file), &model.use);
    }
    models->push_back(std::move(model));
  }
  if (!choices.empty()) return;
  CachedModel other{name.Text(), commit, "other", folder.Snapshot(commit), {}};
  for (const RepositoryFile& file : files) {
    AddUse(folder.File(commit, file.path), &other.use);
    if (file.path == "config.json") other.format = "incomplete";
  }
  models->push_back(std::move(other));
}

Status NotInCache(const std::string& name, const Settings& settings) {
  return NotFound(
      fmt::format("{} is not in the cache {}; 'tactus models list' shows the models there", name, settings.cache),
      "model");
}

// The locks of all files of a repository, so that no other process is downloading one.
Result<std::vector<std::unique_ptr<FileLock>>> LockAll(const RepositoryFolder& folder) {
  std::vector<std::unique_ptr<FileLock>> locks;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder.LockFolder(), error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    TACTUS_ASSIGN_OR_RETURN(auto lock, FileLock::Try(it->path().string()));
    if (lock == nullptr) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("hf:{} is being downloaded by another process: stop it first", folder.repository()));
    }
    locks.push_back(std::move(lock));
  }
  return locks;
}

int64_t RemoveTree(const fs::path& path) {
  int64_t bytes = 0;
  std::error_code error, ignored;
  const auto add = [&bytes](const fs::path& file) {
    struct stat info = {};
    if (lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += int64_t{info.st_blocks} * 512;
  };
  add(path);
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error))
    add(it->path());
  fs::remove_all(path, ignored);
  return bytes;
}

// The names of the blobs that links of any snapshot lead to.
std::set<std::string> UsedBlobs(const RepositoryFolder& folder) {
  std::set<std::string> used;
  std::error_code error, ignored;
  for (auto it = fs::recursive_directory_iterator(folder.path() + "/snapshots", error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const fs::path target = fs::read_symlink(it->path(), ignored);
    if (!ignored) used.insert(target.filename().string());
  }
  return used;
}

int64_t RemoveUnusedBlobs(const RepositoryFolder& folder) {
  const std::set<std::string> used = UsedBlobs(folder);
  std::vector<fs::path> unused;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder.path() + "/blobs", error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (used.count(it->path().filename().string()) == 0) unused.push_back(it->path());
  }
  int64_t bytes = 0;
  for (const fs::path& blob : unused) bytes += RemoveTree(blob);
  return bytes;
}

// Removes a snapshot, the branches and tags that lead to it, and the contents that only it used.
int64_t RemoveSnapshot(const RepositoryFolder& folder, const std::string& commit) {
  std::error_code error;
  const int64_t bytes = RemoveTree(folder.Snapshot(commit));
  for (const std::string& reference : folder.References()) {
    if (folder.CommitOf(reference) == commit) fs::remove(folder.path() + "/refs/" + reference, error);
  }
  return bytes + RemoveUnusedBlobs(folder);
}

}  // namespace

FileUse UseOf(const std::string& path) {
  FileUse use;
  std::error_code error, ignored;
  if (!fs::is_directory(path, error)) {
    AddUse(path, &use);
    return use;
  }
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (fs::is_regular_file(it->path(), ignored)) AddUse(it->path().string(), &use);
  }
  return use;
}

std::vector<CachedModel> ListCached(const Settings& settings) {
  std::vector<CachedModel> models;
  for (const RepositoryFolder& folder : RepositoriesOf(settings.cache)) {
    for (const std::string& commit : folder.Commits()) AddSnapshot(folder, commit, &models);
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return models;
}

Result<int64_t> RemoveCached(const RemoteName& name, const Settings& settings) {
  if (name.repository.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const Fetched found, FindCached(name, settings));
    return RemoveTree(fs::path(found.path).parent_path());
  }
  const RepositoryFolder folder(settings.cache, name.repository);
  std::error_code error;
  if (!fs::exists(folder.path(), error)) return NotInCache("hf:" + name.repository, settings);
  TACTUS_ASSIGN_OR_RETURN(const auto locks, LockAll(folder));
  const bool whole = name.selector.empty() && name.revision == "main";
  const std::string commit = folder.CommitOf(name.revision);
  int64_t bytes = 0;
  if (!whole) {
    if (commit.empty() || !fs::exists(folder.Snapshot(commit), error)) return NotInCache(name.Text(), settings);
    if (!name.selector.empty()) {
      TACTUS_ASSIGN_OR_RETURN(const ModelFiles model, ChooseFiles(folder.Files(commit), name.selector, name.Text()));
      for (const std::string& file : model.weights) fs::remove(folder.File(commit, file), error);
      if (!model.index.empty()) fs::remove(folder.File(commit, model.index), error);
    }
    const bool empty = name.selector.empty() || AllModels(folder.Files(commit)).empty();
    bytes = empty ? RemoveSnapshot(folder, commit) : RemoveUnusedBlobs(folder);
  }
  if (whole || folder.Commits().empty()) bytes += RemoveTree(folder.path()) + RemoveTree(folder.LockFolder());
  return bytes;
}

}  // namespace tactus::hub
