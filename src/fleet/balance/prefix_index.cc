#include "fleet/balance/prefix_index.h"

#include <algorithm>

namespace tactus::fleet {

void PrefixIndex::SetCapacity(int32_t replica, int64_t kv_tokens) {
  Replica& r = replicas_[static_cast<size_t>(replica)];
  if (kv_tokens < r.capacity) Clear(replica);
  r.capacity = kv_tokens;
}

void PrefixIndex::Clear(int32_t replica) {
  Replica& r = replicas_[static_cast<size_t>(replica)];
  r.since = r.routed;
}

void PrefixIndex::Routed(int32_t replica, std::span<const Hash128> keys, int32_t block_size, int32_t prompt_tokens) {
  Replica& r = replicas_[static_cast<size_t>(replica)];
  // Tokens found in its cache take no further memory.
  r.routed += std::max(0, prompt_tokens - BlocksOf(replica, keys) * block_size);
  ++r.routed;  // orders prompts even if everything is shared
  for (const Hash128& key : keys) {
    std::vector<Holder>& holders = holders_[key];
    const auto at = std::lower_bound(holders.begin(), holders.end(), replica, Before);
    if (at != holders.end() && at->replica == replica) {
      at->at_tokens = r.routed;
      continue;
    }
    holders.insert(at, {replica, r.routed});
    ++entries_;
  }
  if (entries_ >= purge_at_) Purge();
}

void PrefixIndex::Purge() {
  entries_ = 0;
  for (auto it = holders_.begin(); it != holders_.end();) {
    std::erase_if(it->second, [&](const Holder& h) { return !Valid(h); });
    entries_ += it->second.size();
    it = it->second.empty() ? holders_.erase(it) : std::next(it);
  }
  purge_at_ = std::max<size_t>(4096, 2 * entries_);
}

bool PrefixIndex::AnyHas(const Hash128& key) const {
  const auto found = holders_.find(key);
  return found != holders_.end() &&
         std::any_of(found->second.begin(), found->second.end(), [&](const Holder& h) { return Valid(h); });
}

namespace {

// The number of leading elements for which `has` is true, by binary search: they must precede all others.
template <class Has>
int32_t CountFirst(int32_t count, Has has) {
  int32_t low = 0, high = count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    (has(middle) ? low = middle + 1 : high = middle);
  }
  return low;
}

}  // namespace

void PrefixIndex::Longest(std::span<const Hash128> keys, Match* match) const {
  match->replicas.clear();
  match->blocks =
      CountFirst(static_cast<int32_t>(keys.size()), [&](int32_t i) { return AnyHas(keys[static_cast<size_t>(i)]); });
  if (match->blocks == 0) return;
  for (const Holder& h : holders_.at(keys[static_cast<size_t>(match->blocks - 1)])) {
    if (Valid(h)) match->replicas.push_back(h.replica);
  }
}

int32_t PrefixIndex::BlocksOf(int32_t replica, std::span<const Hash128> keys) const {
  return CountFirst(static_cast<int32_t>(keys.size()), [&](int32_t i) {
    const auto found = holders_.find(keys[static_cast<size_t>(i)]);
    if (found == holders_.end()) return false;
    const auto at = std::lower_bound(found->second.begin(), found->second.end(), replica, Before);
    return at != found->second.end() && at->replica == replica && Valid(*at);
  });
}

}  // namespace tactus::fleet
