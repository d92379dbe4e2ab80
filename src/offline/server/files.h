// The files that clients upload and that batches leave: written piece by piece, counted against quotas, deleted when
// their time is up.
//
// Thread rule: any thread; everything but stats() may wait for the disk. One Draft is one thread's at a time, and ends
// before its Files. Invariants: a file that is not finished leaves nothing behind. What clients have stored and are
// storing never passes the quotas; results of batches count in them and are never refused for them, but no batch is
// taken from those that have no room left.
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
  int64_t owner_bytes = int64_t{64} << 30;  // of one
  int64_t owner_files = 10'000;
};

class Files {
 public:
  // `store` outlives it.
  Files(Store* store, FileLimits limits, UnixClock clock);
  // Counts what is stored. Once, before anything else.
  Status CountStored();

  class Draft {
   public:
    ~Draft();
    // kTooLarge: beyond a limit, which it names. kResourceExhausted: the disk is full. Nothing is written after that.
    Status Write(std::string_view bytes);
    // On the disk, and a file from now on. `live_s` 0: until it is deleted.
    Result<FileRow> Finish(std::string_view name, int64_t live_s);

   private:
    friend class Files;
    Draft(Files* files, std::string owner, std::string id);
    Files& files_;
    const std::string owner_, id_, path_;
    int fd_ = -1;
    int64_t bytes_ = 0;
  };
  // `announced_bytes`: how long it will be at least, as far as that is known.
  Result<std::unique_ptr<Draft>> Begin(const std::string& owner, int64_t announced_bytes);

  // kNotFound; kInvalidArgument as Store::DeleteFile.
  Status Delete(const std::string& owner, const std::string& id);
  void DeleteExpired();
  // Before a batch is taken, whose results will be this owner's: kTooLarge where no file more would be.
  Status CheckRoomForResults(const std::string& owner);
  // The results of a batch, which are files from now on.
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

// What a client may call its file: the last part of a path, valid UTF-8 without control characters, at most 255 bytes.
std::string FileName(std::string_view given);

}  // namespace tactus::offline
