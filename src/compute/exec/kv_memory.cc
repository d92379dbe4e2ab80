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
  int64_t half = RowBytes(dtype, config.head_dim) + (dtype == DType::kInt8 ? 4 : 0);  // of one layer: K or V
  for (int64_t n : {config.num_kv_heads, int64_t{block_size}, num_blocks}) {
    if (__builtin_mul_overflow(half, n, &half)) half = -1;
  }
  int64_t bytes = 0;
  if (half <= 0 || __builtin_mul_overflow(half, 2 * config.num_layers, &bytes)) {
    return InvalidArgument("the size of " + std::to_string(num_blocks) + " KV blocks overflows: lower --" + flag, flag);
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
  for (int64_t l = 0; l < config.num_layers; ++l) {
    memory->layers_.push_back({next, next + half, dtype, block_size, static_cast<int32_t>(config.num_kv_heads),
                               static_cast<int32_t>(config.head_dim)});
    next += 2 * half;
  }
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
  return layers_.empty() ? 0 : 2 * static_cast<int64_t>(layers_.size()) * KvBlockBytes(layers_[0]);
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
