#include "compute/weights/weight_storage.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/huge_pages.h"

namespace tactus::compute {
namespace {

// The machine's memory nodes as bits, up to 64: "0-1,3" is 0b1011. Unreadable: one node.
uint64_t OnlineNodes() {
  std::ifstream in("/sys/devices/system/node/online");
  std::string text;
  if (!std::getline(in, text)) return 1;
  uint64_t nodes = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int first = 0, last = 0;
    const int fields = std::sscanf(text.substr(at, end - at).c_str(), "%d-%d", &first, &last);
    if (fields < 1 || first < 0) return 1;
    if (fields == 1) last = first;
    for (int node = first; node <= std::min(last, 63); ++node) nodes |= uint64_t{1} << node;
    at = end + 1;
  }
  return nodes;
}

// Every thread reads every weight once a step, so pages are interleaved over the nodes: each thread has the mean
// bandwidth, and no node's memory is the bottleneck. If the system refuses (as in some containers), pages lie where
// they were first touched.
void Interleave(void* data, size_t size) {
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of linux/mempolicy.h
  const uint64_t nodes = OnlineNodes();
  if ((nodes & (nodes - 1)) == 0) return;
  (void)syscall(SYS_mbind, data, size, kInterleave, &nodes, sizeof(nodes) * 8 + 1, 0u);
}

}  // namespace

WeightStorage::~WeightStorage() {
  for (const Region& region : regions_) munmap(region.data, region.size);
}

std::byte* WeightStorage::Allocate(int64_t bytes) {
  constexpr size_t kAlign = 64, kRegion = size_t{1} << 20;  // small tensors share a region
  const size_t size = (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
  if (regions_.empty() || regions_.back().size - regions_.back().used < size) {
    const size_t region_size = std::max(size, kRegion);
    void* data = mmap(nullptr, region_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    regions_.push_back({static_cast<std::byte*>(data), region_size, 0});
  }
  Region& region = regions_.back();
  std::byte* out = region.data + region.used;
  region.used += size;
  return out;
}

std::byte* WeightStorage::AllocateHuge(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  std::byte* data = MapHugePages(size);
  if (data == nullptr) return nullptr;
  Interleave(data, size);
  // Marked full, so that Allocate puts no small tensors into it.
  regions_.insert(regions_.begin(), Region{data, size, size});
  return data;
}

int64_t HugePageBytes(const void* data, const char* smaps) {
  std::ifstream maps(smaps);
  const auto address = reinterpret_cast<uintptr_t>(data);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = address >= begin && address < end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64 " kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace tactus::compute
