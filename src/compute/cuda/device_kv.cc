#include "compute/cuda/device_kv.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tactus::compute::cuda {
namespace {

// Bytes of one layer's K in a block, without scales.
int64_t HalfBytes(const AttentionBlock& a, KvType type, int32_t block_size) {
  return a.kv_heads * block_size * a.head_dim * SizeOf(type);
}
int64_t ScaleBytes(const AttentionBlock& a, KvType type, int32_t block_size) {
  return type == KvType::kInt8 ? a.kv_heads * block_size * 4 : 0;
}

}  // namespace

int64_t KvBlockBytes(const ModelConfig& config, KvType type, int32_t block_size) {
  int64_t bytes = 0;
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr || !a->stores_kv()) continue;
    bytes += 2 * (HalfBytes(*a, type, block_size) + ScaleBytes(*a, type, block_size));
  }
  return bytes;
}

Result<std::unique_ptr<DeviceKv>> DeviceKv::Create(const ModelConfig& config, KvType type, int64_t blocks,
                                                   int64_t host_blocks, int32_t block_size) {
  std::unique_ptr<DeviceKv> kv(new DeviceKv());
  kv->block_bytes_ = KvBlockBytes(config, type, block_size);
  for (const Layer& layer : config.layers) {
    KvPages& pages = kv->layers_.emplace_back();
    pages.type = type;
    pages.block_size = block_size;
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr || !a->stores_kv()) continue;
    pages.blocks = blocks;
    pages.kv_heads = static_cast<int32_t>(a->kv_heads);
    pages.head_dim = static_cast<int32_t>(a->head_dim);
    const auto add = [&](int64_t block_part) -> Result<std::byte*> {
      TACTUS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(block_part * blocks, "KV"));
      auto* const base = memory.as<>();
      kv->memory_.push_back(std::move(memory));
      kv->parts_.push_back({base, block_part});
      return base;
    };
    const int64_t half = HalfBytes(*a, type, block_size), scales = ScaleBytes(*a, type, block_size);
    for (const bool is_k : {true, false}) {
      TACTUS_ASSIGN_OR_RETURN(std::byte* const values, add(half));
      (is_k ? pages.k : pages.v) = values;
      if (scales == 0) continue;
      TACTUS_ASSIGN_OR_RETURN(std::byte* const at, add(scales));
      (is_k ? pages.k_scales : pages.v_scales) = reinterpret_cast<float*>(at);
    }
  }
  if (host_blocks > 0) {
    TACTUS_ASSIGN_OR_RETURN(kv->host_, PinnedMemory::Allocate(host_blocks * kv->block_bytes_));
  }
  return kv;
}

// visit(part of the block on the device, its offset among the block's bytes)
template <class Visit>
void DeviceKv::ForParts(Visit visit) const {
  int64_t offset = 0;
  for (const Part& part : parts_) {
    visit(part, offset);
    offset += part.bytes;
  }
}

void DeviceKv::SwapOut(Stream& s, BlockId block, BlockId host_block) {
  std::byte* const to = host_.as<>() + host_block * block_bytes_;
  ForParts(
      [&](const Part& part, int64_t offset) { s.CopyToHost(to + offset, part.base + block * part.bytes, part.bytes); });
}

void DeviceKv::SwapIn(Stream& s, BlockId host_block, BlockId block) {
  const std::byte* const from = host_.as<>() + host_block * block_bytes_;
  ForParts([&](const Part& part, int64_t offset) {
    s.CopyToDevice(part.base + block * part.bytes, from + offset, part.bytes);
  });
}

// One launch copies blocks in any order, so a copy that depends on an earlier one begins a new launch.
void DeviceKv::Copy(Stream& s, const int32_t* pairs, std::span<const BlockCopy> copies) {
  size_t begin = 0;
  const auto run = [&](size_t end) {
    for (const KvPages& pages : layers_) {
      if (pages.k != nullptr) CopyPages(s, pairs + 2 * begin, static_cast<int64_t>(end - begin), pages);
    }
    begin = end;
  };
  for (size_t i = 0; i < copies.size(); ++i) {
    const bool depends = std::any_of(
        copies.begin() + static_cast<std::ptrdiff_t>(begin), copies.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const BlockCopy& c) { return c.to == copies[i].from || c.to == copies[i].to || c.from == copies[i].to; });
    if (depends) run(i);
  }
  if (!copies.empty()) run(copies.size());
}

void DeviceKv::Read(Stream& s, BlockId block, std::byte* to) const {
  ForParts(
      [&](const Part& part, int64_t offset) { s.CopyToHost(to + offset, part.base + block * part.bytes, part.bytes); });
  s.Synchronize();
}

void DeviceKv::WriteHost(BlockId host_block, const std::byte* from) {
  std::memcpy(host_.as<>() + host_block * block_bytes_, from, static_cast<size_t>(block_bytes_));
}

}  // namespace tactus::compute::cuda
