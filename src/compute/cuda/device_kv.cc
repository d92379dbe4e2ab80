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

DeviceKv::Group& DeviceKv::GroupOf(int64_t bytes) {
  const auto at = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.bytes == bytes; });
  return at != groups_.end() ? *at : groups_.emplace_back(Group{.bytes = bytes});
}

// visit(bytes of a part, the address in `layers_` of its pages) for all parts, layer after layer.
template <class Visit>
void DeviceKv::ForLayerParts(const ModelConfig& config, Visit visit) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const AttentionBlock* const a = AttentionOf(config.layers[l]);
    if (a == nullptr || !a->stores_kv()) continue;
    KvPages& pages = layers_[l];
    const int64_t half = HalfBytes(*a, pages.type, pages.block_size);
    const int64_t scales = ScaleBytes(*a, pages.type, pages.block_size);
    visit(half, &pages.k);
    if (scales > 0) visit(scales, reinterpret_cast<void**>(&pages.k_scales));
    visit(half, &pages.v);
    if (scales > 0) visit(scales, reinterpret_cast<void**>(&pages.v_scales));
  }
}

Result<std::unique_ptr<DeviceKv>> DeviceKv::Create(const ModelConfig& config, KvType type, int64_t blocks,
                                                   int64_t host_blocks, int32_t block_size) {
  std::unique_ptr<DeviceKv> kv(new DeviceKv());
  kv->block_bytes_ = KvBlockBytes(config, type, block_size);
  kv->blocks_ = blocks;
  for (const Layer& layer : config.layers) {
    KvPages& pages = kv->layers_.emplace_back();
    pages.type = type;
    pages.block_size = block_size;
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr || !a->stores_kv()) continue;
    pages.blocks = blocks;
    pages.kv_heads = static_cast<int32_t>(a->kv_heads);
    pages.head_dim = static_cast<int32_t>(a->head_dim);
  }
  kv->ForLayerParts(config, [&](int64_t bytes, void**) { ++kv->GroupOf(bytes).parts; });
  int64_t offset = 0;
  for (Group& g : kv->groups_) {
    g.offset = offset;
    offset += g.parts * g.bytes;
    TACTUS_ASSIGN_OR_RETURN(g.memory, DeviceMemory::Allocate(g.parts * blocks * g.bytes, "KV"));
  }
  std::vector<int64_t> placed(kv->groups_.size());
  kv->ForLayerParts(config, [&](int64_t bytes, void** pages) {
    Group& g = kv->GroupOf(bytes);
    int64_t& parts = placed[static_cast<size_t>(&g - kv->groups_.data())];
    *pages = g.memory.as<>() + parts++ * blocks * bytes;
  });
  if (host_blocks > 0) {
    TACTUS_ASSIGN_OR_RETURN(kv->host_, PinnedMemory::Allocate(host_blocks * kv->block_bytes_));
  }
  return kv;
}

void DeviceKv::ToHost(Stream& s, BlockId block, std::byte* to) const {
  for (const Group& g : groups_) {
    s.GatherToHost(to + g.offset, g.memory.as<>() + block * g.bytes, blocks_ * g.bytes, g.bytes, g.parts);
  }
}

void DeviceKv::SwapOut(Stream& s, BlockId block, BlockId host_block) {
  ToHost(s, block, host_.as<>() + host_block * block_bytes_);
}

void DeviceKv::SwapIn(Stream& s, BlockId host_block, BlockId block) {
  const std::byte* const from = host_.as<>() + host_block * block_bytes_;
  for (const Group& g : groups_) {
    s.ScatterToDevice(g.memory.as<>() + block * g.bytes, blocks_ * g.bytes, from + g.offset, g.bytes, g.parts);
  }
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
  ToHost(s, block, to);
  s.Synchronize();
}

void DeviceKv::WriteHost(BlockId host_block, const std::byte* from) {
  std::memcpy(host_.as<>() + host_block * block_bytes_, from, static_cast<size_t>(block_bytes_));
}

}  // namespace tactus::compute::cuda
