// The folder of a server's files and batches: a database of their metadata, and a file for each content.
//
//   FOLDER/batches.db     this database; who has it open has the folder
//   FOLDER/files/ID       a file's content; results of a batch too, which grow there before they are a file
//   FOLDER/uploads/ID     what is being uploaded; removed at start
//   FOLDER/jobs/ID        the state of a batch's job (offline/job/job.h); removed when the batch has ended
//
// Thread rule: any thread; one lock, held during disk writes. Invariants: an operation that has returned survives a
// crash of the process and of the machine. A file's content is complete and synced before its row is written. A file
// that an unfinished batch reads is not deleted. Files in the folder without a row are removed when it is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "offline/job/sqlite.h"
#include "offline/server/rows.h"
#include "tactus/status.h"

namespace tactus::offline {

// `prefix` and 32 hexadecimal digits that cannot be guessed.
Result<std::string> NewId(const char* prefix);

class Store {
 public:
  // Creates the folder if missing. kUnavailable: another server uses it. kDataLoss: it cannot be written, or its
  // database belongs to another program or is damaged.
  static Result<std::unique_ptr<Store>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // Secret of this folder, used to identify owners by a digest of their keys.
  const Hash128& secret() const { return secret_; }
  std::string FilePath(std::string_view id) const { return folder_ + "/files/" + std::string(id); }
  std::string UploadPath(std::string_view id) const { return folder_ + "/uploads/" + std::string(id); }
  std::string JobPath(std::string_view id) const { return folder_ + "/jobs/" + std::string(id); }

  // --- Files ---
  Status AddFile(const FileRow& file);
  Result<std::optional<FileRow>> FindFile(std::string_view owner, std::string_view id);
  // `purpose` empty: any. kInvalidArgument: no such `after`.
  Result<Listed<FileRow>> ListFiles(std::string_view owner, std::string_view purpose, const Page& page);
  // Expired files of all owners that no unfinished batch reads.
  Result<std::vector<FileRow>> ExpiredFiles(int64_t now_s);
  // Returns the deleted row; none: there is no such file. kInvalidArgument: a batch reads it.
  Result<std::optional<FileRow>> DeleteFile(std::string_view owner, std::string_view id);
  struct Usage {
    std::string owner;
    int64_t files = 0, bytes = 0;
  };
  Result<std::vector<Usage>> Usages();

  // --- Batches ---
  // kNotFound: its input does not exist; the check and the insertion happen under one lock.
  Status AddBatch(const BatchRow& batch);
  Status UpdateBatch(const BatchRow& batch);
  // Writes the row of a batch that has ended and those of its result files, or none of them.
  Status EndBatch(const BatchRow& batch, const std::vector<FileRow>& files);
  Result<std::optional<BatchRow>> FindBatch(std::string_view owner, std::string_view id);
  Result<Listed<BatchRow>> ListBatches(std::string_view owner, const Page& page);
  Result<std::vector<BatchRow>> OpenBatches();  // not ended, the oldest first
  Result<std::vector<int64_t>> CountByState();  // kBatchStates values

 private:
  explicit Store(std::string folder) : folder_(std::move(folder)) {}
  Status MakeFolders() const;
  Status Prepare();
  Status CheckNothingIsThere() const;
  Status RemoveStrays();
  Result<int64_t> NumberOf(const char* table, std::string_view owner, const std::string& after);
  Status WriteFile(const FileRow& file);
  Status WriteBatch(const BatchRow& batch);
  Result<int64_t> Changes();

  const std::string folder_;
  Hash128 secret_;
  std::mutex mutex_;
  std::unique_ptr<Database> database_;
};

}  // namespace tactus::offline
