// The paged K and V of all layers on the device, and the host's memory for blocks of swapped-out sequences. As
// KvMemory (compute/exec/kv_memory.h) on a CPU.
//
// A block has parts: K of a layer, its scales, V, its scales. Parts of one size are a group, whose memory is one piece:
// [parts, blocks, bytes]. So a block is swapped by one copy per group; most models have one. A block as bytes has its
// parts group after group, in a group layer after layer.
#pragma once

#include <span>
#include <vector>

#include "base/step.h"
#include "compute/config/config.h"
#include "compute/cuda/kernels/rope_store.h"
#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda {

int64_t KvBlockBytes(const ModelConfig& config, KvType type, int32_t block_size);

class DeviceKv {
 public:
  static Result<std::unique_ptr<DeviceKv>> Create(const ModelConfig& config, KvType type, int64_t blocks,
                                                  int64_t host_blocks, int32_t block_size);
  std::span<const KvPages> layers() const { return layers_; }
  int64_t block_bytes() const { return block_bytes_; }

  // Enqueue copies of whole blocks, in the order of the calls.
  void SwapOut(Stream& s, BlockId block, BlockId host_block);
  void SwapIn(Stream& s, BlockId host_block, BlockId block);
  // `pairs` [n, 2] on the device and on the host: (from, to). Later copies of the list may depend on earlier ones.
  void Copy(Stream& s, const int32_t* pairs, std::span<const BlockCopy> copies);

  // Wait for the copy. No step in flight uses the block.
  void Read(Stream& s, BlockId block, std::byte* to) const;
  void WriteHost(BlockId host_block, const std::byte* from);

 private:
  struct Group {
    DeviceMemory memory;
    int64_t bytes = 0, parts = 0;
    int64_t offset = 0;  // of its parts among a block's bytes
  };
  DeviceKv() = default;
  Group& GroupOf(int64_t bytes);
  template <class Visit>
  void ForLayerParts(const ModelConfig& config, Visit visit);
  void ToHost(Stream& s, BlockId block, std::byte* to) const;

  std::vector<KvPages> layers_;
  std::vector<Group> groups_;
  PinnedMemory host_;
  int64_t block_bytes_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace tactus::compute::cuda
