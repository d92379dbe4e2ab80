#include "sim/workload/prompt_keys.h"

#include "base/check.h"
#include "sim/workload/trace_file.h"

namespace tactus::sim {
namespace {

enum class Text : uint64_t { kRequest = 1, kConversation = 2, kPrefix = 3, kHashId = 4 };

// Steele et al., "Fast splittable pseudorandom number generators" (OOPSLA 2014): the finaliser, a bijection.
uint64_t Scramble(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

Hash128 KeyOf(Text text, int64_t id, int64_t block) {
  const uint64_t a = Scramble(static_cast<uint64_t>(id) * 8 + static_cast<uint64_t>(text));
  const uint64_t b = Scramble(static_cast<uint64_t>(block) + 0x9e3779b97f4a7c15ULL);
  return {Scramble(a + b), Scramble(a ^ (b << 1 | b >> 63))};
}

}  // namespace

bool SharesText(const WorkloadRequest& r) {
  return r.conversation >= 0 || r.prefix_id >= 0 || !r.block_ids.empty();
}

TextOwner OwnerOf(const WorkloadRequest& r) {
  return r.conversation >= 0 ? TextOwner{true, r.conversation} : TextOwner{false, r.index};
}

Hash128 OwnBlockKey(const TextOwner& owner, int64_t block) {
  return KeyOf(owner.conversation ? Text::kConversation : Text::kRequest, owner.id, block);
}

void AppendPromptKeys(const WorkloadRequest& r, int32_t prompt_tokens, int32_t block_size, std::vector<Hash128>* keys) {
  const TextOwner owner = OwnerOf(r);
  const int32_t blocks = prompt_tokens / block_size;
  keys->reserve(static_cast<size_t>(blocks));
  for (int32_t b = 0; b < blocks; ++b) {
    const int64_t last = int64_t{b + 1} * block_size - 1;  // the block's last token
    const auto hash_block = static_cast<size_t>(last / kHashBlockTokens);
    if (hash_block < r.block_ids.size()) {
      // A trace's hash id depends on the whole text before it, so the id of a block's end identifies all of it.
      keys->push_back(KeyOf(Text::kHashId, r.block_ids[hash_block], b));
    } else if (r.prefix_id >= 0 && r.prefix_id != r.conversation && last < r.shared_tokens) {
      keys->push_back(KeyOf(Text::kPrefix, r.prefix_id, b));
    } else {
      keys->push_back(OwnBlockKey(owner, b));
    }
  }
}

OwnerTable::OwnerTable() : entries_(64) {}

void OwnerTable::Add(RequestHandle handle, const TextOwner& owner) {
  if (2 * (size_ + 1) > entries_.size()) Grow();
  size_t at = Home(handle);
  while (entries_[at].handle != 0) at = (at + 1) & (entries_.size() - 1);
  entries_[at] = {handle, owner};
  ++size_;
}

const TextOwner& OwnerTable::Find(RequestHandle handle) const {
  size_t at = Home(handle);
  while (entries_[at].handle != handle) {
    TACTUS_CHECK(entries_[at].handle != 0);
    at = (at + 1) & (entries_.size() - 1);
  }
  return entries_[at].owner;
}

void OwnerTable::Remove(RequestHandle handle) {
  const size_t mask = entries_.size() - 1;
  size_t hole = Home(handle);
  while (entries_[hole].handle != handle) {
    if (entries_[hole].handle == 0) return;
    hole = (hole + 1) & mask;
  }
  // Close the hole: move entries back that probing could no longer reach.
  for (size_t at = (hole + 1) & mask; entries_[at].handle != 0; at = (at + 1) & mask) {
    if (((at - Home(entries_[at].handle)) & mask) >= ((at - hole) & mask)) {
      entries_[hole] = entries_[at];
      hole = at;
    }
  }
  entries_[hole] = Entry();
  --size_;
}

void OwnerTable::Grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  size_ = 0;
  for (const Entry& e : old) {
    if (e.handle != 0) Add(e.handle, e.owner);
  }
}

}  // namespace tactus::sim
