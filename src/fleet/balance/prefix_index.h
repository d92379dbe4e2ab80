// Estimates which prefixes replicas have in their caches from the requests routed to them: a replica has the blocks of
// a prompt until as many other tokens as its KV memory holds were routed to it afterwards. So replicas are not polled,
// and the index is right except for requests from elsewhere.
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
  // Tokens that the replica's cache holds; a smaller value than before clears it (the replica was restarted).
  void SetCapacity(int32_t replica, int64_t kv_tokens);
  // Forgets the replica's prefixes: it is a new process.
  void Clear(int32_t replica);
  void Routed(int32_t replica, std::span<const Hash128> keys, int32_t block_size, int32_t prompt_tokens);

  struct Match {
    int32_t blocks = 0;             // leading blocks of the prompt
    std::vector<int32_t> replicas;  // with these blocks, ascending; all others have fewer
  };
  // Binary search, not a look at all blocks: a replica that has a block has all blocks before it.
  void Longest(std::span<const Hash128> keys, Match* match) const;
  // Blocks of the prompt that the replica has.
  int32_t BlocksOf(int32_t replica, std::span<const Hash128> keys) const;
  size_t size() const { return entries_; }

 private:
  struct Holder {
    int32_t replica = 0;
    int64_t at_tokens = 0;  // total routed to it, including this prompt
  };
  static bool Before(const Holder& h, int32_t replica) { return h.replica < replica; }
  struct Replica {
    int64_t capacity = 0, routed = 0;
    int64_t since = 0;  // everything routed before is gone
  };
  struct KeyHash {
    size_t operator()(const Hash128& key) const { return key.low; }
  };

  bool Valid(const Holder& h) const {
    const Replica& r = replicas_[static_cast<size_t>(h.replica)];
    return h.at_tokens > r.since && r.routed - h.at_tokens < r.capacity;
  }
  bool AnyHas(const Hash128& key) const;
  // Drops invalid entries, when they may be half of all.
  void Purge();

  std::vector<Replica> replicas_;
  std::unordered_map<Hash128, std::vector<Holder>, KeyHash> holders_;  // by replica, ascending
  size_t entries_ = 0, purge_at_ = 4096;
};

}  // namespace tactus::fleet
