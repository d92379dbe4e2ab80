// The bytes of a paged KV cache: one anonymous mapping, [layer][K, V][num_blocks][kernels::KvBlockBytes]. The kernels
// define a block's contents; core/kv decides which sequence uses which block. Pages are touched as blocks are first
// used. The swap space for swapped-out sequences is a second KvMemory.
//
// Thread rule: readers and writers of the layers synchronise themselves; this class only owns the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "compute/config/config.h"
#include "compute/kernels/ops.h"

namespace tactus::compute {

class KvMemory {
 public:
  // dtype: kBF16, kF32 or kInt8. kResourceExhausted, with the size and `flag` (the option that sized the memory), when
  // the system refuses.
  // `huge_pages`: requests huge pages. Not for memory that is only copied to and from: a block has parts in as many
  // pages as there are layers, and the first copy would wait until the system has cleared all of them.
  static Result<std::unique_ptr<KvMemory>> Create(const ModelConfig& config, DType dtype, int64_t num_blocks,
                                                  int32_t block_size, const char* flag = "kv-cache-memory",
                                                  bool huge_pages = true);
  ~KvMemory();
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  std::span<const KvLayer> layers() const { return layers_; }
  int64_t bytes() const { return bytes_; }

  // Copies a whole block, every layer and head, K and V, within this memory or to another of the same model and format.
  // The kernels' layout interleaves positions, so no part can be copied alone; unused positions are written before they
  // are read.
  void CopyBlock(BlockId from, BlockId to) { CopyBlockTo(this, from, to); }
  void CopyBlockTo(KvMemory* other, BlockId from, BlockId to) const;

  // A block as bytes, layer after layer, K before V; valid for any memory of the same model and format.
  int64_t block_bytes() const;
  void ReadBlock(BlockId block, std::byte* to) const;
  void WriteBlock(BlockId block, const std::byte* from);

 private:
  KvMemory() = default;
  std::vector<KvLayer> layers_;
  void* mapping_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tactus::compute
