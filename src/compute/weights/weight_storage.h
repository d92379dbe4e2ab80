// The memory behind a ModelWeights: the mapped files, and zero-filled anonymous pages for converted, dequantised or
// generated data. Filled by one thread while loading, immutable afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compute/weights/mapped_file.h"

namespace tactus::compute {

class WeightStorage {
 public:
  WeightStorage() = default;
  ~WeightStorage();
  WeightStorage(const WeightStorage&) = delete;
  WeightStorage& operator=(const WeightStorage&) = delete;

  // Aligned to 64 bytes; null when the system refuses.
  std::byte* Allocate(int64_t bytes);
  // A separate mapping, aligned to 2 MiB, that requests huge pages and interleaves memory nodes; null when the system
  // refuses.
  std::byte* AllocateHuge(int64_t bytes);
  void Keep(std::shared_ptr<const MappedFile> file) { files_.push_back(std::move(file)); }

 private:
  struct Region {
    std::byte* data;
    size_t size, used;
  };
  std::vector<Region> regions_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

// Bytes of the mapping around `data` that are in huge pages; 0 where the system does not report it. Tests pass another
// file.
int64_t HugePageBytes(const void* data, const char* smaps = "/proc/self/smaps");

}  // namespace tactus::compute
