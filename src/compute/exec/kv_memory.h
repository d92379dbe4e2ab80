// The bytes of a paged KV cache: one anonymous mapping, [layer][K, V][num_blocks][kernels::KvBlockBytes]. What is
// inside a block is the kernels' business, which block belongs to whom is core/kv's. Pages are touched as blocks are
// first used. The swap space of sequences that are swapped out is another one of these.
//
// Thread rule: as the layers' readers and writers agree; this only owns.
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
  // dtype: kBF16, kF32 or kInt8. kResourceExhausted with the size and `flag`, which asked for it, when the system
  // refuses.
  // `huge_pages`: asked for. Not for memory that is only copied to and from: a block has parts in as many pages as
  // there are layers, and the first would have the system clear all of those while it is waited for.
  static Result<std::unique_ptr<KvMemory>> Create(const ModelConfig& config, DType dtype, int64_t num_blocks,
                                                  int32_t block_size, const char* flag = "kv-cache-memory",
                                                  bool huge_pages = true);
  ~KvMemory();
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  std::span<const KvLayer> layers() const { return layers_; }
  int64_t bytes() const { return bytes_; }

  // Copies a block, every layer and head, K and V, within this memory or to another of the same model and format.
  // Always whole: positions lie between each other in the kernels' layout, and those not yet in use are written before
  // they are read.
  void CopyBlock(BlockId from, BlockId to) { CopyBlockTo(this, from, to); }
  void CopyBlockTo(KvMemory* other, BlockId from, BlockId to) const;

  // A block as bytes, layer after layer, K before V: what another memory of the same model and format understands.
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
