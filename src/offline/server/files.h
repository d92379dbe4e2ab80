// The files that clients upload and that batches produce: written in pieces, counted against quotas, deleted when they
// expire.
//
// Thread rule: any thread; everything except stats() may wait for the disk. A Draft is used by one thread at a time,
// and is destroyed before its Files. Invariants: an unfinished file leaves nothing behind. The bytes that clients have
// stored and are storing never exceed the quotas; results of batches count against them and are never refused, but no
// batch is accepted from an owner without room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "offline/server/rows.h"
#include "offline/server/store.h"
#include "tactus/status.h"

namespace tactus::offline {

using UnixClock = std::function<int64_t()>;  // seconds

struct FileLimits {
  int64_t file_bytes = int64_t{4} << 30;
  int64_t all_bytes = int64_t{64} << 30;    // of all owners
  int64_t owner_bytes = int64_t{64} << 30;  // of one owner
  int64_t owner_files = 10'000;
};

class Files {
 public:
  // `store` outlives this.
  Files(Store* store, FileLimits limits, UnixClock clock);
  // Counts the stored files. Call once, before any other call.
  Status CountStored();

  class Draft {
   public:
    ~Draft();
    // kTooLarge: above a limit, which it names. kResourceExhausted: the disk is full. After an error nothing more is
    // written.
    Status Write(std::string_view bytes);
    // Syncs the file to the disk and makes it visible. `live_s` 0: until it is deleted.
    Result<FileRow> Finish(std::string_view name, int64_t live_s);

   private:
    friend class Files;
    Draft(Files* files, std::string owner, std::string id);
    Files& files_;
    const std::string owner_, id_, path_;
    int fd_ = -1;
    int64_t bytes_ = 0;
  };
  // `announced_bytes`: minimum length of the file, as far as it is known.
  Result<std::unique_ptr<Draft>> Begin(const std::string& owner, int64_t announced_bytes);

  // kNotFound; kInvalidArgument as from Store::DeleteFile.
  Status Delete(const std::string& owner, const std::string& id);
  void DeleteExpired();
  // Call before a batch is accepted, whose results will belong to `owner`: kTooLarge if no further file would be
  // accepted.
  Status CheckRoomForResults(const std::string& owner);
  // Counts a result file of a batch that has ended.
  void Count(const FileRow& result);

  struct Stats {
    int64_t files = 0, bytes = 0;  // stored
    int64_t writing_bytes = 0;     // of drafts, so far
  };
  Stats stats() const;
  const FileLimits& limits() const { return limits_; }

 private:
  struct Held {
    int64_t files = 0, drafts = 0, bytes = 0, writing_bytes = 0;
  };
  Status CheckRoom(const Held& own, int64_t bytes) const;  // with the mutex held
  Status Take(const std::string& owner, int64_t bytes);
  void GiveBack(const std::string& owner, int64_t bytes);
  void Forget(const FileRow& file);

  Store& store_;
  const FileLimits limits_;
  const UnixClock clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Held> held_;  // by owner
  Held all_;
};

// Reduces a client's file name to the last part of a path, as valid UTF-8 without control characters, at most 255
// bytes.
std::string FileName(std::string_view given);

}  // namespace tactus::offline
