// Prefix cache keys of the KV blocks of simulated requests. There is no text to hash, but the workload states which
// requests share text. Blocks of a conversation have the same key as prompt and as generated text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "sim/workload/workload.h"
#include "tactus/engine.h"

namespace tactus::sim {

// The owner of a block's text beyond the part that the request shares with others.
struct TextOwner {
  bool conversation = false;
  int64_t id = 0;  // the conversation, else the request's index
};
// Whether another request may have a block with the same key.
bool SharesText(const WorkloadRequest& request);
TextOwner OwnerOf(const WorkloadRequest& request);
Hash128 OwnBlockKey(const TextOwner& owner, int64_t block);

// Keys of the prompt's full blocks. A block is shared only if all its tokens are.
void AppendPromptKeys(const WorkloadRequest& request, int32_t prompt_tokens, int32_t block_size,
                      std::vector<Hash128>* keys);

// Owners of live requests by handle: open addressing, linear probing, at most half full.
class OwnerTable {
 public:
  OwnerTable();
  void Add(RequestHandle handle, const TextOwner& owner);  // precondition: handle is not 0 and not in the table
  const TextOwner& Find(RequestHandle handle) const;       // precondition: in the table
  void Remove(RequestHandle handle);                       // no effect if absent

 private:
  struct Entry {
    RequestHandle handle = 0;  // 0: empty
    TextOwner owner;
  };
  size_t Home(RequestHandle handle) const { return (handle * 0x9e3779b97f4a7c15ULL >> 20) & (entries_.size() - 1); }
  void Grow();

  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace tactus::sim
