// Host blocks reserved for a sequence that another engine sends, from its first KV block to its arrival, and for
// prompts that are read from disk. The ids are consecutive, so that a replay assigns the same. Thread rule: engine
// thread only.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/loop/transfer.h"

namespace tactus::core {

class ImportReservations {
 public:
  explicit ImportReservations(KvCache* kv) : kv_(*kv) {}

  // Adds `count` blocks to reservation `*id`; 0: creates one and sets `*id`. False: too few free host blocks, or no
  // such reservation; nothing changed.
  bool Reserve(ImportId* id, int32_t count, std::vector<BlockId>* added) {
    const auto reservation = *id == 0 ? reservations_.end() : reservations_.find(*id);
    if (*id != 0 && reservation == reservations_.end()) return false;
    added->clear();
    if (!kv_.ReserveHost(count, added)) return false;
    if (*id == 0) *id = ++last_;
    std::vector<BlockId>& blocks = reservations_[*id];
    blocks.insert(blocks.end(), added->begin(), added->end());
    return true;
  }
  bool Drop(ImportId id) {
    const auto reservation = reservations_.find(id);
    if (reservation == reservations_.end()) return false;
    kv_.ReturnHost(reservation->second);
    reservations_.erase(reservation);
    return true;
  }
  // Removes the reservation, returns its first `count` blocks and frees the others. Empty: it has fewer, or there is no
  // such reservation.
  std::vector<BlockId> Take(ImportId id, int32_t count) {
    const auto reservation = reservations_.find(id);
    if (reservation == reservations_.end() || static_cast<int32_t>(reservation->second.size()) < count) return {};
    std::vector<BlockId> blocks = std::move(reservation->second);
    reservations_.erase(reservation);
    kv_.ReturnHost(std::span(blocks).subspan(static_cast<size_t>(count)));
    blocks.resize(static_cast<size_t>(count));
    return blocks;
  }

 private:
  KvCache& kv_;
  std::map<ImportId, std::vector<BlockId>> reservations_;
  ImportId last_ = 0;
};

}  // namespace tactus::core
