// Identities of the KV blocks of simulated requests: there is no text to hash, but who shares what is known. Blocks of
// a conversation are the same whether they were a prompt or generated.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "sim/workload.h"
#include "tactus/engine.h"

namespace tactus::sim {

// Whose text a block holds once it is beyond what the request shares with others.
struct TextOwner {
  bool conversation = false;
  int64_t id = 0;  // of the conversation, else the request's index
};
// Whether another request may hold a block of the same key.
bool SharesText(const WorkloadRequest& request);
TextOwner OwnerOf(const WorkloadRequest& request);
Hash128 OwnBlockKey(const TextOwner& owner, int64_t block);

// Keys of the prompt's full blocks. A block is shared if all of it is.
void AppendPromptKeys(const WorkloadRequest& request, int32_t prompt_tokens, int32_t block_size,
                      std::vector<Hash128>* keys);

// Owners of live requests by handle: open addressing, linear probing, at most half full.
class OwnerTable {
 public:
  OwnerTable();
  void Add(RequestHandle handle, const TextOwner& owner);  // precondition: handle is not 0 and not there
  const TextOwner& Find(RequestHandle handle) const;       // precondition: there
  void Remove(RequestHandle handle);                       // no effect when not there

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
