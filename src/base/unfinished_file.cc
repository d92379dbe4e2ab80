#include "base/unfinished_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace tactus {
namespace {

enum SlotState : int { kFree, kBeingFilled, kHeld };

struct UnfinishedSlot {
  std::atomic<int> state{kFree};
  char path[1024] = {};
};
static_assert(std::atomic<int>::is_always_lock_free);  // a handler reads it
std::array<UnfinishedSlot, 16> g_unfinished;

}  // namespace

UnfinishedFile::UnfinishedFile(const std::string& path) {
  if (path.size() >= sizeof UnfinishedSlot::path) return;
  for (size_t i = 0; i < g_unfinished.size() && slot_ < 0; ++i) {
    int free = kFree;
    if (!g_unfinished[i].state.compare_exchange_strong(free, kBeingFilled)) continue;
    std::memcpy(g_unfinished[i].path, path.c_str(), path.size() + 1);
    g_unfinished[i].state.store(kHeld);
    slot_ = static_cast<int>(i);
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (slot_ >= 0) g_unfinished[static_cast<size_t>(slot_)].state.store(kFree);
}

void RemoveUnfinishedFiles() {
  for (const UnfinishedSlot& slot : g_unfinished) {
    if (slot.state.load() == kHeld) (void)unlink(slot.path);
  }
}

}  // namespace tactus
