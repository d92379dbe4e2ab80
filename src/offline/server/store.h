// The folder of a server's files and batches: a database of what is known of them, and a file for each content.
//
//   FOLDER/batches.db     this database; who has it open has the folder
//   FOLDER/files/ID       a file's content; results of a batch too, which grow there before they are a file
//   FOLDER/uploads/ID     what is being uploaded; removed at start
//   FOLDER/jobs/ID        the state of a batch's job (offline/job/job.h); removed when the batch has ended
//
// Thread rule: any thread; one lock, under which the disk is written. Invariants: what a function has returned from
// survives the end of the process and of the machine. A file's content is complete and on the disk before its row is. A
// file that a batch which has not ended reads is not deleted. What lies in the folder and belongs to no row is removed
// when it is opened.
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
  // Makes the folder where it is absent. kUnavailable: another server has it. kDataLoss: it cannot be written, or its
  // database is another program's or damaged.
  static Result<std::unique_ptr<Store>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // Of this folder, so that owners are known by a digest of their keys.
  const Hash128& secret() const { return secret_; }
  std::string FilePath(std::string_view id) const { return folder_ + "/files/" + std::string(id); }
  std::string UploadPath(std::string_view id) const { return folder_ + "/uploads/" + std::string(id); }
  std::string JobPath(std::string_view id) const { return folder_ + "/jobs/" + std::string(id); }

  // --- Files ---
  Status AddFile(const FileRow& file);
  Result<std::optional<FileRow>> FindFile(std::string_view owner, std::string_view id);
  // `purpose` empty: of any. kInvalidArgument: no such `after`.
  Result<Listed<FileRow>> ListFiles(std::string_view owner, std::string_view purpose, const Page& page);
  // Of all owners, whose time is up and which no batch reads.
  Result<std::vector<FileRow>> ExpiredFiles(int64_t now_s);
  // What was deleted; nothing: there is no such file. kInvalidArgument: a batch reads it.
  Result<std::optional<FileRow>> DeleteFile(std::string_view owner, std::string_view id);
  struct Usage {
    std::string owner;
    int64_t files = 0, bytes = 0;
  };
  Result<std::vector<Usage>> Usages();

  // --- Batches ---
  // kNotFound: its input is not there; the one is looked up and the other added under one lock.
  Status AddBatch(const BatchRow& batch);
  Status UpdateBatch(const BatchRow& batch);
  // The row of a batch that has ended, and those of the files that it leaves, or none of them.
  Status EndBatch(const BatchRow& batch, const std::vector<FileRow>& files);
  Result<std::optional<BatchRow>> FindBatch(std::string_view owner, std::string_view id);
  Result<Listed<BatchRow>> ListBatches(std::string_view owner, const Page& page);
  Result<std::vector<BatchRow>> OpenBatches();  // that have not ended, the oldest first
  Result<std::vector<int64_t>> CountByState();  // kBatchStates of them

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
