// Records of the keys that entered the prefix tree and of those that were evicted from it. Nothing allocates after
// construction. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace tactus::core {

// A queue of the keys that entered the tree, oldest first. A full queue drops its oldest key.
class EnteredKeys {
 public:
  explicit EnteredKeys(size_t capacity) : keys_(capacity) {}  // 0: records nothing

  void Add(const Hash128& key) {
    if (keys_.empty()) return;
    if (count_ == keys_.size()) PopOldest();
    keys_[(begin_ + count_++) % keys_.size()] = key;
  }
  bool empty() const { return count_ == 0; }
  const Hash128& oldest() const { return keys_[begin_]; }
  void PopOldest() {
    begin_ = (begin_ + 1) % keys_.size();
    --count_;
  }

 private:
  std::vector<Hash128> keys_;  // `count_` entries from begin_ on, cyclic
  size_t begin_ = 0, count_ = 0;
};

// A filter of the last evicted keys: newer keys overwrite older ones.
class EvictedKeys {
 public:
  explicit EvictedKeys(size_t capacity) : parts_(capacity) {}  // 0: records nothing

  void Add(const Hash128& key) {
    if (!parts_.empty()) parts_[key.low % parts_.size()] = PartOf(key);
  }
  bool Has(const Hash128& key) const { return !parts_.empty() && parts_[key.low % parts_.size()] == PartOf(key); }

 private:
  static uint32_t PartOf(const Hash128& key) { return static_cast<uint32_t>(key.high) | 1; }  // not 0: no key

  std::vector<uint32_t> parts_;
};

}  // namespace tactus::core
