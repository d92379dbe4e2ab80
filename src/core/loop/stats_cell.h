// A few counters that any thread may read as one consistent set: a sequence lock over relaxed atomics. One writer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tactus/engine.h"

namespace tactus::core {

class StatsCell {
 public:
  void Write(const EngineStats& stats) {
    const auto* from = reinterpret_cast<const char*>(&stats);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Each word is a release store, so that no reader sees a new word under an old, even version.
    for (size_t i = 0; i < kWords; ++i, from += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, from, sizeof(word));
      words_[i].store(word, std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  EngineStats Read() const {
    uint64_t raw[kWords];
    for (;;) {
      const uint64_t before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) raw[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_acquire) == before) break;
    }
    EngineStats stats;
    std::memcpy(&stats, raw, sizeof(raw));
    return stats;
  }

 private:
  static_assert(std::is_trivially_copyable_v<EngineStats> && sizeof(EngineStats) % sizeof(uint64_t) == 0);
  static constexpr size_t kWords = sizeof(EngineStats) / sizeof(uint64_t);
  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace tactus::core
