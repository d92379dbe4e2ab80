// One segment of stored KV blocks: two files that only grow. STEM.blocks has the blocks one after the other, all of one
// size; STEM.index a header and a record for each of them, in the same order. A block is written before its record, so
// whatever a process was doing when it was killed, a record that is there has its block. After a power cut it may not:
// the record's check over the block's key and bytes is what decides.
//
// Nothing in the files is believed: sizes and counts come from the caller and the files' lengths, records and blocks
// have checks of 64 bits. Thread rule: Read on any thread, also beside Append; the rest one thread.
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
  Hash128 identity;         // of what the blocks are of
  Hash128 secret;           // of the records' checks
  int64_t block_bytes = 0;  // >= 1
};

inline constexpr int64_t kSegmentHeaderBytes = 64;
inline constexpr int64_t kSegmentRecordBytes = 40;

struct StoredBlock {
  Hash128 key;
  uint64_t check = 0;  // of the bytes
  int32_t place = 0;   // in its segment
};
uint64_t CheckOfBlock(const Hash128& key, const std::byte* bytes, int64_t size);

class Segment {
 public:
  // A new one. kDataLoss: it cannot be written.
  static Result<std::unique_ptr<Segment>> Create(const std::string& stem, const SegmentFormat& format);
  // One that is there, with its records. Cuts what a process left half written. `*dropped` counts records that are
  // damaged or whose block is not there. kDataLoss: its header is not that of such a segment. kNotFound: it was never
  // begun, as by a process that was killed there.
  static Result<std::unique_ptr<Segment>> Open(const std::string& stem, const SegmentFormat& format,
                                               std::vector<StoredBlock>* blocks, int64_t* dropped);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const std::string& stem() const { return stem_; }
  int32_t size() const { return size_; }  // places, those of damaged records too
  int64_t bytes() const { return kSegmentHeaderBytes + size_ * (kSegmentRecordBytes + format_.block_bytes); }

  // kDataLoss: nothing is added, as on a full disk.
  Result<StoredBlock> Append(const Hash128& key, const std::byte* bytes);
  // Fills block_bytes. False: what lies there is not the block.
  bool Read(const StoredBlock& block, std::byte* to) const;
  // Notes on the disk that it was used now.
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
