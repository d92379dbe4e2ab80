#include "compute/exec/kv_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tactus::compute {

Result<std::unique_ptr<KvMemory>> KvMemory::Create(const ModelConfig& config, DType dtype, int64_t num_blocks,
                                                   int32_t block_size, const char* flag, bool huge_pages) {
  if (num_blocks < 1 || block_size < 1) {
    return InvalidArgument("KV memory of " + std::to_string(num_blocks) + " blocks of " + std::to_string(block_size) +
                               " tokens holds nothing: raise --" + flag,
                           flag);
  }
  std::vector<KvLayer> layers;
  std::vector<int64_t> halves;  // bytes of one layer's K, as many as of its V
  int64_t bytes = 0;
  for (const Layer& layer : config.layers) {
    const AttentionBlock* attention = AttentionOf(layer);
    layers.push_back({nullptr, nullptr, dtype, block_size});
    halves.push_back(0);
    if (attention == nullptr || !attention->stores_kv()) continue;
    layers.back().kv_heads = static_cast<int32_t>(attention->kv_heads);
    layers.back().head_dim = static_cast<int32_t>(attention->head_dim);
    int64_t half = RowBytes(dtype, attention->head_dim) + (dtype == DType::kInt8 ? 4 : 0);
    for (int64_t n : {attention->kv_heads, int64_t{block_size}, num_blocks}) {
      if (__builtin_mul_overflow(half, n, &half)) half = -1;
    }
    if (half <= 0 || __builtin_add_overflow(bytes, half, &bytes) || __builtin_add_overflow(bytes, half, &bytes)) {
      return InvalidArgument("the size of " + std::to_string(num_blocks) + " KV blocks overflows: lower --" + flag,
                             flag);
    }
    halves.back() = half;
  }
  void* mapping = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Status(StatusCode::kResourceExhausted,
                  "the system refuses " + std::to_string(bytes) + " bytes of KV memory (" + std::strerror(errno) +
                      "): lower --" + flag,
                  flag);
  }
#ifdef MADV_HUGEPAGE
  // Advice only: refusal changes speed alone.
  (void)madvise(mapping, static_cast<size_t>(bytes), huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
  std::unique_ptr<KvMemory> memory(new KvMemory());
  memory->mapping_ = mapping;
  memory->bytes_ = bytes;
  auto* next = static_cast<std::byte*>(mapping);
  for (size_t l = 0; l < layers.size(); ++l) {
    layers[l].k = next;
    layers[l].v = next + halves[l];
    next += 2 * halves[l];
  }
  memory->layers_ = std::move(layers);
  return memory;
}

KvMemory::~KvMemory() {
  if (mapping_ != nullptr) munmap(mapping_, static_cast<size_t>(bytes_));
}

void KvMemory::CopyBlockTo(KvMemory* other, BlockId from, BlockId to) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const KvLayer &source = layers_[l], &target = other->layers_[l];
    const int64_t block = KvBlockBytes(source);
    for (const auto& [read, write] : {std::pair(source.k, target.k), std::pair(source.v, target.v)}) {
      std::memcpy(static_cast<std::byte*>(write) + to * block, static_cast<const std::byte*>(read) + from * block,
                  static_cast<size_t>(block));
    }
  }
}

int64_t KvMemory::block_bytes() const {
  int64_t bytes = 0;
  for (const KvLayer& layer : layers_) bytes += 2 * KvBlockBytes(layer);
  return bytes;
}

void KvMemory::ReadBlock(BlockId block, std::byte* to) const {
  for (const KvLayer& layer : layers_) {
    const int64_t bytes = KvBlockBytes(layer);
    for (const void* part : {layer.k, layer.v}) {
      std::memcpy(to, static_cast<const std::byte*>(part) + block * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  }
}

void KvMemory::WriteBlock(BlockId block, const std::byte* from) {
  for (const KvLayer& layer : layers_) {
    const int64_t bytes = KvBlockBytes(layer);
    for (void* part : {layer.k, layer.v}) {
      std::memcpy(static_cast<std::byte*>(part) + block * bytes, from, static_cast<size_t>(bytes));
      from += bytes;
    }
  }
}

}  // namespace tactus::compute
