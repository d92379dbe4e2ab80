// Rooms: host blocks reserved for a sequence that another engine sends, from its first KV block to its arrival. Room
// ids are consecutive, so that a replay assigns the same. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/loop/transfer.h"

namespace tactus::core {

class ImportRooms {
 public:
  explicit ImportRooms(KvCache* kv) : kv_(*kv) {}

  // Adds `count` blocks to room `*id`; 0: creates a room. False: too few free host blocks, or no such room; nothing
  // changed.
  bool Reserve(ImportId* id, int32_t count, std::vector<BlockId>* added) {
    const auto room = *id == 0 ? rooms_.end() : rooms_.find(*id);
    if (*id != 0 && room == rooms_.end()) return false;
    added->clear();
    if (!kv_.ReserveHost(count, added)) return false;
    if (*id == 0) *id = ++last_;
    std::vector<BlockId>& blocks = rooms_[*id];
    blocks.insert(blocks.end(), added->begin(), added->end());
    return true;
  }
  bool Drop(ImportId id) {
    const auto room = rooms_.find(id);
    if (room == rooms_.end()) return false;
    kv_.ReturnHost(room->second);
    rooms_.erase(room);
    return true;
  }
  // Removes the room, returns its first `count` blocks and frees the others. Empty: it has fewer, or there is no such
  // room.
  std::vector<BlockId> Take(ImportId id, int32_t count) {
    const auto room = rooms_.find(id);
    if (room == rooms_.end() || static_cast<int32_t>(room->second.size()) < count) return {};
    std::vector<BlockId> blocks = std::move(room->second);
    rooms_.erase(room);
    kv_.ReturnHost(std::span(blocks).subspan(static_cast<size_t>(count)));
    blocks.resize(static_cast<size_t>(count));
    return blocks;
  }

 private:
  KvCache& kv_;
  std::map<ImportId, std::vector<BlockId>> rooms_;
  ImportId last_ = 0;
};

}  // namespace tactus::core
