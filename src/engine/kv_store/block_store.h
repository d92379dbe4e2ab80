// KV blocks on disk under a size limit (--kv-cache-dir; docs/concepts/prompt_cache.md): by key, in segments that only
// grow. The least recently used segment is evicted first. A damaged block is treated as missing; nothing else changes.
//
// Thread rule: any thread; Append on one thread. No lock is held during file operations: Has does not wait for the
// disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_store/folder.h"
#include "engine/kv_store/segment.h"
#include "tactus/timeline.h"

namespace tactus::engine {

struct BlockStoreOptions {
  std::string identity;     // what the blocks depend on: model, numerics, program; text, a line each
  int64_t block_bytes = 0;  // >= 1
  int64_t max_bytes = 0;    // of all files of the folder, including those of other identities
};

struct BlockStoreStats {
  int64_t blocks = 0;             // of this identity
  int64_t bytes = 0, limit = 0;   // of all files; their limit
  int64_t read = 0, written = 0;  // counters since the start, in blocks
  int64_t evicted = 0;            // of this identity
  int64_t damaged = 0;            // found at the start or when they were read
  bool writing = true;            // false: a write failed, or the disk has too little room
};

class BlockStore {
 public:
  // Reads the existing segments. `say` receives lines for people: the blocks found, and the blocks skipped and why;
  // important lines begin with "warning: ". kInvalidArgument (param kv-cache-dir-size): too small; names the minimum.
  using Say = std::function<void(const std::string& line)>;
  static Result<std::unique_ptr<BlockStore>> Open(std::unique_ptr<KvFolder> folder, const BlockStoreOptions& options,
                                                  const Say& say);

  int64_t block_bytes() const { return options_.block_bytes; }
  bool Has(const Hash128& key) const;
  struct Match {
    int32_t blocks = 0;                 // leading blocks that are stored
    CacheEnd end = CacheEnd::kUnknown;  // kPrompt: all are stored; kEvicted: the next one was evicted
  };
  // Counts as a use of the found blocks. Accesses no file.
  Match Find(std::span<const Hash128> keys);
  // Records on the disk which segments were used since the last call, to keep the eviction order after a restart.
  void NoteUses();
  // Fills block_bytes(). False: the block is missing, or damaged; damage is reported once (TakeWarnings), then it is
  // missing.
  bool Read(const Hash128& key, std::byte* to);
  // A key that is already stored is left as it is. False: no further blocks are written.
  bool Append(const Hash128& key, const std::byte* bytes);

  BlockStoreStats Stats() const;
  std::vector<std::string> TakeWarnings();

 private:
  using SegmentId = uint32_t;
  struct Held {
    std::string stem;
    int64_t bytes = 0;
    uint64_t used = 0;                 // time of the last use, in uses
    uint64_t noted = 0;                // the value of `used` at the last update of the file's time
    std::shared_ptr<Segment> segment;  // null: the segment has another identity
    std::vector<Hash128> keys;
  };
  struct Place {
    SegmentId segment = 0;
    StoredBlock block;
  };
  struct KeyHash {
    size_t operator()(const Hash128& key) const { return key.low; }
  };
  static constexpr SegmentId kNone = 0;

  BlockStore(std::unique_ptr<KvFolder> folder, const BlockStoreOptions& options);
  Status Load(const Say& say);
  Status SetLimit(const Say& say);
  int64_t BlockAndRecord() const { return options_.block_bytes + kSegmentRecordBytes; }
  Status Write(const Hash128& key, const std::byte* bytes);
  std::vector<Held> MakeRoom(int64_t bytes);
  void Remove(std::vector<Held> victims);
  void Warn(std::string line);
  uint64_t& Forgotten(const Hash128& key) { return forgotten_[key.low % forgotten_.size()]; }

  const std::unique_ptr<KvFolder> folder_;  // holds the lock
  const BlockStoreOptions options_;
  SegmentFormat format_;
  std::string subfolder_;
  int32_t places_of_segment_ = 1;

  mutable std::mutex mutex_;
  std::map<SegmentId, Held> segments_;
  std::unordered_map<Hash128, Place, KeyHash> index_;
  std::vector<uint64_t> forgotten_;  // `high` of evicted keys; a newer one replaces an older one
  SegmentId last_id_ = kNone, active_ = kNone;
  uint32_t last_number_ = 0;  // in the file names of this identity's segments
  uint64_t uses_ = 0;
  BlockStoreStats stats_;
  std::vector<std::string> warnings_;
};

}  // namespace tactus::engine
