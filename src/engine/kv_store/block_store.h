// KV blocks on disk under a size limit (--kv-cache-dir; docs/prompt_cache.md): by key, in segments that only grow. What
// was not used for longest goes first, a segment at a time. A block that is damaged is not found; nothing else changes.
//
// Thread rule: any thread; Append is one thread's. No lock is held over anything that a file does: whoever asks Has
// does not wait for the disk.
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
  std::string identity;     // what a block needs to be of use: model, numerics, program; text, a line each
  int64_t block_bytes = 0;  // >= 1
  int64_t max_bytes = 0;    // of all files of the folder, those of other identities too
};

struct BlockStoreStats {
  int64_t blocks = 0;             // of this identity
  int64_t bytes = 0, limit = 0;   // of all files; what they may be
  int64_t read = 0, written = 0;  // counters since the start, in blocks
  int64_t evicted = 0;            // of this identity
  int64_t damaged = 0;            // found at the start or when they were read
  bool writing = true;            // false: the disk refused, or has too little room
};

class BlockStore {
 public:
  // Reads what is there. `say` gets lines for people: what there is, and what was left out and why; those that a user
  // should not miss begin with "warning: ". kInvalidArgument (param kv-cache-dir-size): too small, with the least.
  using Say = std::function<void(const std::string& line)>;
  static Result<std::unique_ptr<BlockStore>> Open(std::unique_ptr<KvFolder> folder, const BlockStoreOptions& options,
                                                  const Say& say);

  int64_t block_bytes() const { return options_.block_bytes; }
  bool Has(const Hash128& key) const;
  struct Match {
    int32_t blocks = 0;                 // leading ones that are there
    CacheEnd end = CacheEnd::kUnknown;  // kPrompt: all of them; kEvicted: the next one was there
  };
  // Counts as a use of those. Touches no file.
  Match Find(std::span<const Hash128> keys);
  // Notes on the disk which segments were used since the last call, for the order in which they go after a restart.
  void NoteUses();
  // Fills block_bytes(). False: it is not there, or damaged, which it says once (TakeWarnings) and then is not there.
  bool Read(const Hash128& key, std::byte* to);
  // What is there already stays. False: nothing is written from now on.
  bool Append(const Hash128& key, const std::byte* bytes);

  BlockStoreStats Stats() const;
  std::vector<std::string> TakeWarnings();

 private:
  using SegmentId = uint32_t;
  struct Held {
    std::string stem;
    int64_t bytes = 0;
    uint64_t used = 0;                 // when, in uses
    uint64_t noted = 0;                // which of them the file's time tells
    std::shared_ptr<Segment> segment;  // null: of another identity
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

  const std::unique_ptr<KvFolder> folder_;  // the lock
  const BlockStoreOptions options_;
  SegmentFormat format_;
  std::string subfolder_;
  int32_t places_of_segment_ = 1;

  mutable std::mutex mutex_;
  std::map<SegmentId, Held> segments_;
  std::unordered_map<Hash128, Place, KeyHash> index_;
  std::vector<uint64_t> forgotten_;  // of evicted keys; a newer one takes the place of an older one
  SegmentId last_id_ = kNone, active_ = kNone;
  uint32_t last_number_ = 0;  // in the name of a segment of ours
  uint64_t uses_ = 0;
  BlockStoreStats stats_;
  std::vector<std::string> warnings_;
};

}  // namespace tactus::engine
