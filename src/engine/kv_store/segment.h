// One segment of stored KV blocks: two files that only grow. STEM.blocks has the blocks in sequence, all of one size;
// STEM.index has a header and a record for each block, in the same order. A block is written before its record, so
// after a killed process every record has its block. After a power cut it may not: the record's check over the block's
// key and bytes decides.
//
// The files are not trusted: sizes and counts come from the caller and the files' lengths; records and blocks have
// 64-bit checks. Thread rule: Read on any thread, also during Append; the rest on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tactus/status.h"

namespace tactus::engine {

struct SegmentFormat {
  Hash128 identity;         // digest of what the blocks depend on (BlockStoreOptions)
  Hash128 secret;           // key of the records' checks
  int64_t block_bytes = 0;  // >= 1
};

inline constexpr int64_t kSegmentHeaderBytes = 64;
inline constexpr int64_t kSegmentRecordBytes = 40;

struct StoredBlock {
  Hash128 key;
  uint64_t check = 0;  // checksum of the key and bytes
  int32_t place = 0;   // index in its segment
};
uint64_t CheckOfBlock(const Hash128& key, const std::byte* bytes, int64_t size);

class Segment {
 public:
  // Creates a new segment. kDataLoss: it cannot be written.
  static Result<std::unique_ptr<Segment>> Create(const std::string& stem, const SegmentFormat& format);
  // Opens an existing segment and reads its records. Cuts off records and blocks that were written only in part.
  // `*dropped` counts records that are damaged or without a block. kDataLoss: its header does not match. kNotFound: it
  // is empty, as left by a process that was killed while creating it.
  static Result<std::unique_ptr<Segment>> Open(const std::string& stem, const SegmentFormat& format,
                                               std::vector<StoredBlock>* blocks, int64_t* dropped);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const std::string& stem() const { return stem_; }
  int32_t size() const { return size_; }  // blocks, including those with damaged records
  int64_t bytes() const { return kSegmentHeaderBytes + size_ * (kSegmentRecordBytes + format_.block_bytes); }

  // kDataLoss: nothing was added, as on a full disk.
  Result<StoredBlock> Append(const Hash128& key, const std::byte* bytes);
  // Fills block_bytes. False: the bytes on disk are not this block.
  bool Read(const StoredBlock& block, std::byte* to) const;
  // Records on the disk that the segment is used now.
  void Touch() const;

 private:
  Segment(std::string stem, const SegmentFormat& format) : stem_(std::move(stem)), format_(format) {}
  Status OpenFiles(int flags);

  const std::string stem_;
  const SegmentFormat format_;
  int index_ = -1, blocks_ = -1;
  int32_t size_ = 0;
};

}  // namespace tactus::engine
