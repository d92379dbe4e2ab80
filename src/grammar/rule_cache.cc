#include "grammar/rule_cache.h"

#include <algorithm>
#include <utility>

namespace tactus::grammar {

std::list<RuleCache::Entry>::iterator RuleCache::Place(const OutputRule& rule) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.rule == rule; });
}

std::shared_ptr<const TokenGrammar> RuleCache::Find(const OutputRule& rule) {
  const std::lock_guard lock(mutex_);
  const auto place = Place(rule);
  if (place == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place);
  return place->grammar;
}

void RuleCache::Keep(const OutputRule& rule, std::shared_ptr<const TokenGrammar> grammar, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (Place(rule) != entries_.end()) return;  // another thread was first
  if (bytes > most_bytes_) return;            // it would push out all others
  bytes_ += bytes;
  entries_.push_front({rule, std::move(grammar), bytes});
  while (static_cast<int64_t>(entries_.size()) > most_rules_ || bytes_ > most_bytes_) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
}

}  // namespace tactus::grammar
