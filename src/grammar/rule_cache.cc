#include "grammar/rule_cache.h"

#include <algorithm>
#include <utility>

namespace tactus::grammar {
namespace {

int64_t Bytes(const OutputRule& rule) {
  return static_cast<int64_t>(rule.text.size());
}

}  // namespace

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

void RuleCache::Keep(const OutputRule& rule, std::shared_ptr<const TokenGrammar> grammar) {
  const std::lock_guard lock(mutex_);
  if (Place(rule) != entries_.end()) return;  // another thread was first
  bytes_ += Bytes(rule);
  entries_.push_front({rule, std::move(grammar)});
  while (static_cast<int64_t>(entries_.size()) > most_rules_ || bytes_ > most_bytes_) {
    bytes_ -= Bytes(entries_.back().rule);
    entries_.pop_back();
  }
}

}  // namespace tactus::grammar
