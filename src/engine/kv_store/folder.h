// The folder of --kv-cache-dir: its lock, the secret that its keys derive from, and its files.
//
//   kv-cache                 format, secret, and the lock of the process that uses the folder
//   IDENTITY/about           what the blocks of this subfolder depend on: model, numerics, program
//   IDENTITY/NNNNNNNN.index  records of a segment (segment.h)
//   IDENTITY/NNNNNNNN.blocks its blocks
//
// All files are readable by the owner only: blocks reveal prompts, and anyone with the secret could construct prompts
// whose keys collide. Nothing else in the folder is touched. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tactus/status.h"

namespace tactus::engine {

class KvFolder {
 public:
  // Creates the folder and the secret if they are missing. Holds the lock until destruction. kInvalidArgument (param
  // kv-cache-dir) states the fault and what to do: not a folder, not writable, neither empty nor a KV cache folder,
  // another format, damaged, open to other users, in use by another process.
  static Result<std::unique_ptr<KvFolder>> Open(const std::string& path);
  ~KvFolder();
  KvFolder(const KvFolder&) = delete;
  KvFolder& operator=(const KvFolder&) = delete;

  const std::string& path() const { return path_; }
  const Hash128& secret() const { return secret_; }  // drawn once; the same at every start

  struct SegmentFiles {
    std::string stem;       // path without ".index" and ".blocks"
    std::string subfolder;  // IDENTITY
    int64_t bytes = 0;      // of both files
    int64_t used_ns = 0;    // last use: the index's modification time, by the file system's clock
  };
  // Segments of all identities, least recently used first.
  Result<std::vector<SegmentFiles>> Segments() const;
  // Free bytes of the disk; -1: not known.
  int64_t FreeBytes() const;
  // The subfolder for this identity; created if missing.
  Result<std::string> Subfolder(const std::string& identity) const;

 private:
  KvFolder() = default;
  std::string path_;
  Hash128 secret_;
  int lock_ = -1;
};

// Removes the files of a segment. False: they still exist.
bool RemoveSegment(const std::string& stem);

}  // namespace tactus::engine
