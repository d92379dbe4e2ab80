// Which prefixes replicas have in their caches, as far as can be told from what was routed to them: a replica has the
// blocks of a prompt until as many other tokens as its KV memory holds were routed there after it. So nothing is asked
// of replicas, and an index of any age is right but for what they compute besides.
//
// Thread rule: one thread. Memory: an entry for each block and replica, at most twice as many as are valid.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace tactus::fleet {

class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t replicas) : replicas_(static_cast<size_t>(replicas)) {}

  void Add() { replicas_.emplace_back(); }
  // Tokens that it keeps; less than before: what it had is gone (it was started anew).
  void SetCapacity(int32_t replica, int64_t kv_tokens);
  // Forgets what the replica had: it is another process now.
  void Clear(int32_t replica);
  void Routed(int32_t replica, std::span<const Hash128> keys, int32_t block_size, int32_t prompt_tokens);

  struct Match {
    int32_t blocks = 0;             // of the prompt, from its beginning on
    std::vector<int32_t> replicas;  // that have these, ascending; all others have fewer
  };
  // Looks at a few depths, not at all blocks: whoever has a block has those before it.
  void Longest(std::span<const Hash128> keys, Match* match) const;
  // Blocks of the prompt that the replica has.
  int32_t BlocksOf(int32_t replica, std::span<const Hash128> keys) const;
  size_t size() const { return entries_; }

 private:
  struct Holder {
    int32_t replica = 0;
    int64_t at_tokens = 0;  // that had been routed there, this prompt's included
  };
  static bool Before(const Holder& h, int32_t replica) { return h.replica < replica; }
  struct Replica {
    int64_t capacity = 0, routed = 0;
    int64_t since = 0;  // what was routed before is gone
  };
  struct KeyHash {
    size_t operator()(const Hash128& key) const { return key.low; }
  };

  bool Valid(const Holder& h) const {
    const Replica& r = replicas_[static_cast<size_t>(h.replica)];
    return h.at_tokens > r.since && r.routed - h.at_tokens < r.capacity;
  }
  bool AnyHas(const Hash128& key) const;
  // Drops what is not valid any more, when that may be half of all.
  void Purge();

  std::vector<Replica> replicas_;
  std::unordered_map<Hash128, std::vector<Holder>, KeyHash> holders_;  // by replica, ascending
  size_t entries_ = 0, purge_at_ = 4096;
};

}  // namespace tactus::fleet
