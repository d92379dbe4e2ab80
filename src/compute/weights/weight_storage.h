// The memory behind a ModelWeights: the mapped files, and zero-filled anonymous pages for what is converted,
// dequantised or made up. Filled by one thread while loading, immutable afterwards.
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
  // A mapping of its own, aligned to 2 MiB, which asks for huge pages, on all memory nodes in turn; null when the
  // system refuses.
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

// How much of the mapping that holds `data` lies in huge pages; 0 where the system does not say. Tests pass a file of
// their own.
int64_t HugePageBytes(const void* data, const char* smaps = "/proc/self/smaps");

}  // namespace tactus::compute
