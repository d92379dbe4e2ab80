// The hub's cache as huggingface_hub lays it out, shared with it: below models--org--name the contents by hash (blobs),
// the commit of each branch (refs), and links to the contents by commit and path (snapshots). Reads the file system on
// each call; no state.
#pragma once

#include <string>
#include <vector>

#include "hub/choose_files.h"
#include "tactus/status.h"

namespace tactus::hub {

class RepositoryFolder {
 public:
  RepositoryFolder(std::string cache, std::string repository);

  const std::string& path() const { return path_; }
  const std::string& repository() const { return repository_; }
  std::string Blob(const std::string& hash) const;
  std::string Partial(const std::string& hash) const;  // with a suffix that other tools leave alone
  std::string LockFolder() const;
  std::string Lock(const std::string& hash) const;
  std::string Snapshot(const std::string& commit) const;
  std::string File(const std::string& commit, const std::string& file) const;

  std::vector<std::string> Commits() const;  // with a snapshot
  // Branches and tags with a recorded commit.
  std::vector<std::string> References() const;
  // The commit of a branch or tag, or the revision itself if it is a commit; empty: not recorded.
  std::string CommitOf(const std::string& revision) const;
  // The files of a snapshot whose contents are there.
  std::vector<RepositoryFile> Files(const std::string& commit) const;

  // Gives a blob its path in a snapshot. kDataLoss: the link cannot be made.
  Status Link(const std::string& commit, const std::string& file, const std::string& hash) const;
  Status SetReference(const std::string& revision, const std::string& commit) const;

 private:
  std::string cache_, repository_, path_;
};

// Adds the weights that the index of a model in a snapshot names, if it has one. Errors as WeightsOfIndex, and of
// reading.
Status AddWeightsOfIndex(const RepositoryFolder& folder, const std::string& commit, ModelFiles* model);

// The repositories of a cache, by name.
std::vector<RepositoryFolder> RepositoriesOf(const std::string& cache);

}  // namespace tactus::hub
