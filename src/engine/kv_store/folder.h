// The folder of --kv-cache-dir: whose it is, what the keys in it come from, and what files it has.
//
//   kv-cache                 format, secret, and the lock of the process that uses the folder
//   IDENTITY/about           what the blocks of this subfolder need to be of use: model, numerics, program
//   IDENTITY/NNNNNNNN.index  records of a segment (segment.h)
//   IDENTITY/NNNNNNNN.blocks its blocks
//
// All is readable by the owner alone: blocks tell what was asked, and who knows the secret could make prompts that
// collide. Nothing else in the folder is touched. Thread rule: one thread.
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
  // Makes the folder, and the secret, where there are none. Holds the lock until it is destroyed. kInvalidArgument
  // (param kv-cache-dir) says what is wrong and what to do: no folder, not writable, not empty and not one of ours, of
  // another format, damaged, open to others, in use by another process.
  static Result<std::unique_ptr<KvFolder>> Open(const std::string& path);
  ~KvFolder();
  KvFolder(const KvFolder&) = delete;
  KvFolder& operator=(const KvFolder&) = delete;

  const std::string& path() const { return path_; }
  const Hash128& secret() const { return secret_; }  // drawn once, and the same at every start

  struct SegmentFiles {
    std::string stem;       // path without ".index" and ".blocks"
    std::string subfolder;  // IDENTITY
    int64_t bytes = 0;      // of both
    int64_t used_ns = 0;    // when the index was touched last, by the file system's clock
  };
  // Of all identities, the one that was not used for longest first.
  Result<std::vector<SegmentFiles>> Segments() const;
  // Free bytes of the disk; -1: not known.
  int64_t FreeBytes() const;
  // The subfolder of what needs this to be of use; made where there is none.
  Result<std::string> Subfolder(const std::string& identity) const;

 private:
  KvFolder() = default;
  std::string path_;
  Hash128 secret_;
  int lock_ = -1;
};

// Removes the files of a segment. False: they are still there.
bool RemoveSegment(const std::string& stem);

}  // namespace tactus::engine
