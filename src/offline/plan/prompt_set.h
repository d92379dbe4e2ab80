// The prompts of a job as stored by the planner: lengths and rolling keys, no tokens. The key of a position is a hash
// of all tokens up to it, so two prompts with the same key at position n have the same first n tokens (except for
// 64-bit collisions, which make a plan slightly worse and change no result). A key is kept for every `key_tokens`
// positions, never including the last prompt token: this is what a KV cache with such blocks can share.
//
// Memory: the keys, and kPlannerBytesPerPrompt for the prompt's record and all later planning. Above the limit every
// other key is dropped, which halves them; the tree then resolves shared prefixes in steps twice as long.
//
// Thread rule: one thread. Deterministic.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.h"
#include "base/units.h"
#include "offline/plan/chunked.h"
#include "tactus/status.h"

namespace tactus::offline {

// Properties of a request besides its prompt.
struct RequestTraits {
  int32_t max_output_tokens = 16;
  bool output_is_known = false;  // it generates exactly max_output_tokens (ignore_eos)
  uint32_t group = 0;            // requests of different groups share nothing (adapter, cache salt, kind of task)
};

inline constexpr int32_t kFinestKeyTokens = 16;
// A prompt's record, its part of the tree, and all that planning adds; tests/offline/plan measures it.
inline constexpr int64_t kPlannerBytesPerPrompt = 224;

// Peak bytes of planning: for `prompts` prompts of `tokens` tokens in all, with a key for every key_tokens of them.
int64_t PlannerMemory(int64_t prompts, int64_t tokens, int32_t key_tokens = kFinestKeyTokens);

class PromptSet {
 public:
  // `memory_limit_bytes`: limit on PlannerMemory; 0: none. `key_tokens`: of the finest keys; the block size of AddKeys.
  explicit PromptSet(int64_t memory_limit_bytes = 0, int32_t key_tokens = kFinestKeyTokens);

  // Adds a request: its index is the number of those before it. Fails if prompts do not fit the limit even without
  // keys; the set is then unchanged.
  Status Add(std::span<const TokenId> prompt, const RequestTraits& traits);
  // The same with the keys of its blocks of the finest size, each a hash of all tokens up to its end
  // (core/kv/block_key.h). Missing keys share nothing; keys that include the last token are ignored.
  Status AddKeys(std::span<const Hash128> keys, int32_t prompt_tokens, const RequestTraits& traits);

  int32_t size() const { return static_cast<int32_t>(records_.size()); }
  int32_t prompt_tokens(int32_t i) const { return At(i).prompt_tokens; }
  int32_t max_output_tokens(int32_t i) const { return At(i).max_output_tokens; }
  bool output_is_known(int32_t i) const { return At(i).output_is_known != 0; }
  uint32_t group(int32_t i) const { return At(i).group; }
  // Number of leading keys that both have: key_tokens() tokens each. -1: different groups.
  int32_t SharedKeys(int32_t a, int32_t b) const;
  // A total order in which prompts that share a prefix are neighbours.
  bool SortsBefore(int32_t a, int32_t b) const;

  int32_t key_tokens() const { return key_tokens_; }  // of the keys that are kept
  bool coarsened() const { return key_tokens_ > finest_; }
  int64_t total_prompt_tokens() const { return total_prompt_tokens_; }
  int64_t bytes() const { return static_cast<int64_t>(keys_.bytes() + records_.bytes()); }  // currently allocated
  int64_t planner_bytes() const;  // PlannerMemory of the present contents
  // Call when the tree has been built. SharedKeys must not be called after this.
  void DropKeys() { keys_.Truncate(0); }

 private:
  struct Record {
    int64_t first_key = 0;
    int32_t prompt_tokens = 0;
    int32_t max_output_tokens : 31 = 0;
    uint32_t output_is_known : 1 = 0;
    uint32_t group = 0;
    int32_t num_keys = 0;
  };

  const Record& At(int32_t i) const { return records_[static_cast<size_t>(i)]; }
  uint64_t KeyAt(const Record& r, int32_t i) const { return keys_[static_cast<size_t>(r.first_key + i)]; }
  Status Begin(int64_t prompt_tokens, const RequestTraits& traits, Record* record) const;
  // Stores the record and the keys that were added for it, or removes them again.
  Status Finish(Record record);
  void Coarsen();

  const int64_t memory_limit_bytes_;
  const int32_t finest_;
  int32_t key_tokens_;
  int64_t total_prompt_tokens_ = 0;
  Chunked<uint64_t> keys_;
  Chunked<Record> records_;
};

}  // namespace tactus::offline
