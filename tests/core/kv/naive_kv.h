// A reimplementation of KvCache that is simple enough to be obviously right: maps, sets and linear searches, no linked
// lists, no counters.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/units.h"

namespace tactus::core {

class NaiveKv {
 public:
  NaiveKv(int64_t total, int32_t block_size, bool caching, int64_t host_total = 0)
      : total_(total), b_(block_size), caching_(caching), host_total_(host_total) {}

  struct Block {
    int users = 0;
    bool has_key = false;
    Hash128 key;
    StepId computed_by = -1;
    StepId busy_until = -1;
    int64_t unused_since = -1;  // time (order) at which it became reusable
    int64_t released_at = -1;
  };
  struct Slot {
    const std::vector<Hash128>* keys = nullptr;
    std::vector<int> table;
    int64_t reserved = 0;
    int marked = 0, keyed = 0;
    int32_t saved = 0;  // tokens in host memory
  };

  int64_t Blocks(int64_t tokens) const { return (tokens + b_ - 1) / b_; }
  int64_t Free() const { return total_ - static_cast<int64_t>(blocks_.size()); }
  int64_t Cached() const {
    return std::count_if(blocks_.begin(), blocks_.end(), [&](const auto& e) { return IsCached(e.second); });
  }
  int64_t InUse() const {
    return std::count_if(blocks_.begin(), blocks_.end(), [](const auto& e) { return e.second.users > 0; });
  }
  int64_t Reserved() const {
    int64_t sum = 0;
    for (const auto& [id, slot] : slots_) sum += slot.reserved;
    return sum;
  }
  int64_t Available() const { return Free() + Cached() - Reserved(); }

  void Bind(SlotId s, const std::vector<Hash128>* keys) { slots_[s] = Slot{keys, {}, 0, 0, 0, 0}; }
  void Unbind(SlotId s) { slots_.erase(s); }

  int MatchBlocks(SlotId s, int32_t prompt) const {
    const Slot& slot = slots_.at(s);
    int n = 0;
    if (slot.saved > 0) prompt = slot.saved + 1;
    if (!caching_ || slot.keys == nullptr) return 0;
    while (n < (prompt - 1) / b_ && n < static_cast<int>(slot.keys->size()) && tree_.count((*slot.keys)[n]) > 0) ++n;
    return n;
  }
  int32_t Peek(SlotId s, int32_t prompt) const {
    return slots_.at(s).saved > 0 ? slots_.at(s).saved : MatchBlocks(s, prompt) * b_;
  }
  int64_t StartCost(SlotId s, int32_t prompt, int32_t cover, int32_t reserve) const {
    const int m = MatchBlocks(s, prompt);
    int64_t pinned = 0;
    for (int i = 0; i < m; ++i) pinned += IsCached(blocks_.at(tree_.at((*slots_.at(s).keys)[i]).front()));
    return pinned + std::max<int64_t>({Blocks(cover), Blocks(slots_.at(s).saved), Blocks(reserve), m}) - m;
  }
  // Host blocks that the plan of step `read_by_` swaps in stay taken until the next plan.
  int64_t HostUsed() const {
    int64_t sum = 0;
    for (const auto& [id, slot] : slots_) sum += Blocks(slot.saved);
    return sum;
  }
  bool SwapOut(SlotId s, int32_t computed, StepId step) {
    const int64_t reading = read_by_ == step ? read_ : 0;
    if (computed == 0 || HostUsed() + reading + Blocks(computed) > host_total_) return false;
    Release(s, -1);
    slots_[s].saved = computed;
    return true;
  }
  void DropSwapped(SlotId s) { slots_[s].saved = 0; }
  // -1: shortage
  int32_t Start(SlotId s, int32_t prompt, int32_t cover, int32_t reserve, SlotId fork, StepId step) {
    Slot& slot = slots_[s];
    if (fork == kNoSlot) {
      if (StartCost(s, prompt, cover, reserve) > Available()) return -1;
      const int m = MatchBlocks(s, prompt);
      const int32_t saved = slot.saved;
      for (int i = 0; i < m; ++i) Share(&slot, tree_.at((*slot.keys)[i]).front());
      slot.marked = slot.keyed = m;
      Grow(&slot, Blocks(std::max(cover, saved)));
      slot.reserved = std::max<int64_t>(0, Blocks(reserve) - static_cast<int64_t>(slot.table.size()));
      if (saved > 0) {
        slot.saved = 0;
        if (read_by_ != step) read_ = 0;
        read_by_ = step;
        read_ += Blocks(saved) - m;
        for (; slot.marked < saved / b_; ++slot.marked) blocks_[slot.table[slot.marked]].computed_by = step;
        EnterTree(&slot);
        return saved;
      }
      return m * b_;
    }
    const int full = (prompt - 1) / b_;
    if (std::max<int64_t>({Blocks(cover), Blocks(reserve), Blocks(prompt - 1)}) - full > Available()) return -1;
    for (int i = 0; i < full; ++i) Share(&slot, slots_.at(fork).table[i]);
    slot.marked = full;
    while (slot.keyed < full && blocks_.at(slot.table[slot.keyed]).has_key) ++slot.keyed;
    Grow(&slot, std::max(Blocks(cover), Blocks(prompt - 1)));
    slot.reserved = std::max<int64_t>(0, Blocks(reserve) - static_cast<int64_t>(slot.table.size()));
    return prompt - 1;
  }
  bool Extend(SlotId s, int32_t tokens) {
    Slot& slot = slots_[s];
    const int64_t need = std::max<int64_t>(0, Blocks(tokens) - static_cast<int64_t>(slot.table.size()));
    const int64_t drawn = std::min(need, slot.reserved);
    if (need - drawn > Available()) return false;
    slot.reserved -= drawn;
    Grow(&slot, Blocks(tokens));
    return true;
  }
  void MarkPending(SlotId s, int32_t tokens, StepId step) {
    Slot& slot = slots_[s];
    for (; slot.marked < tokens / b_; ++slot.marked) blocks_[slot.table[slot.marked]].computed_by = step;
    EnterTree(&slot);
  }
  void Release(SlotId s, StepId last_step) {
    Slot& slot = slots_[s];
    EnterTree(&slot);
    for (size_t i = slot.table.size(); i > 0; --i) {
      const int id = slot.table[i - 1];
      Block& block = blocks_[id];
      block.busy_until = std::max({block.busy_until, last_step, block.computed_by});
      if (block.has_key) {
        Block& first = blocks_[tree_[block.key].front()];  // a node is busy at least as long as its children
        first.busy_until = std::max(first.busy_until, block.busy_until);
      }
      if (--block.users > 0) continue;
      block.released_at = ++time_;
      if (block.has_key && tree_[block.key].size() > 1) Unfile(id);  // another sequence holds the same block
      Reuse(id);
    }
    slot.table.clear();
    slot.reserved = slot.marked = slot.keyed = 0;
  }
  void StepEnded(StepId step) {
    ended_ = step;
    std::vector<std::pair<int64_t, int>> order;
    for (const auto& [id, block] : blocks_) {
      if (block.users == 0 && block.busy_until <= ended_ && block.unused_since < 0)
        order.push_back({block.released_at, id});
    }
    std::sort(order.begin(), order.end());
    for (const auto& [at, id] : order) Reuse(id);
  }
  int64_t evictions = 0;

 private:
  bool IsCached(const Block& block) const { return block.users == 0 && block.busy_until <= ended_; }

  void Share(Slot* slot, int id) {
    slot->table.push_back(id);
    ++blocks_[id].users;
    blocks_[id].unused_since = -1;
  }
  void Grow(Slot* slot, int64_t blocks) {
    while (static_cast<int64_t>(slot->table.size()) < blocks) {
      if (Free() == 0) {
        EvictOne();
        ++evictions;
      }
      blocks_[next_] = Block{};
      Share(slot, next_++);
    }
  }
  void EvictOne() {
    int oldest = -1;
    for (const auto& [id, block] : blocks_) {
      if (IsCached(block) && (oldest < 0 || block.unused_since < blocks_[oldest].unused_since)) oldest = id;
    }
    Unfile(oldest);
    blocks_.erase(oldest);
  }
  void Reuse(int id) {  // precondition: no user
    Block& block = blocks_[id];
    if (block.busy_until > ended_) return;
    if (!block.has_key)
      blocks_.erase(id);
    else
      block.unused_since = ++time_;
  }
  void Unfile(int id) {
    Block& block = blocks_[id];
    std::vector<int>& twins = tree_[block.key];
    if (twins.front() == id && twins.size() > 1)
      blocks_[twins[1]].busy_until = std::max(blocks_[twins[1]].busy_until, block.busy_until);
    twins.erase(std::find(twins.begin(), twins.end(), id));
    if (twins.empty()) tree_.erase(block.key);
    block.has_key = false;
  }
  void EnterTree(Slot* slot) {
    if (!caching_ || slot->keys == nullptr) return;
    while (slot->keyed < slot->marked && slot->keyed < static_cast<int>(slot->keys->size())) {
      const int id = slot->table[slot->keyed];
      const Hash128 key = (*slot->keys)[slot->keyed++];
      if (blocks_[id].has_key) continue;
      if (tree_.count(key) > 0 && blocks_[tree_[key].front()].users == 0) {  // the live block replaces the unused owner
        const int old = tree_[key].front();
        blocks_[id].busy_until = std::max(blocks_[id].busy_until, blocks_[old].busy_until);
        Unfile(old);
        blocks_[old].unused_since = -1;
        Reuse(old);
      }
      if (tree_.count(key) > 0) {
        Block& first = blocks_[tree_[key].front()];
        first.busy_until = std::max(first.busy_until, blocks_[id].busy_until);
      }
      blocks_[id].has_key = true;
      blocks_[id].key = key;
      tree_[key].push_back(id);
    }
  }

  const int64_t total_;
  const int32_t b_;
  const bool caching_;
  const int64_t host_total_;
  int64_t read_ = 0;
  StepId read_by_ = -1;
  int64_t time_ = 0;
  StepId ended_ = -1;
  int next_ = 0;
  std::map<int, Block> blocks_;               // all blocks that are not free
  std::map<Hash128, std::vector<int>> tree_;  // by key; matches return the first block
  std::map<SlotId, Slot> slots_;
};

}  // namespace tactus::core
