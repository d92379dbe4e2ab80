#include "language/grammar/rule_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tactus::language {

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
  if (Place(rule) != entries_.end()) return;  // another thread has stored it
  if (bytes > most_bytes_) return;            // it would evict all others
  bytes_ += bytes;
  entries_.push_front({rule, std::move(grammar), bytes});
  while (static_cast<int64_t>(entries_.size()) > most_rules_ || bytes_ > most_bytes_) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
}

std::list<RuleCache::Refusal>::iterator RuleCache::RefusalOf(const OutputRule& rule) {
  return std::find_if(refused_.begin(), refused_.end(), [&](const Refusal& one) { return one.rule == rule; });
}

void RuleCache::Drop(std::list<Refusal>::iterator refusal) {
  refused_bytes_ -= refusal->rule.text.size();
  refused_.erase(refusal);
}

std::optional<Status> RuleCache::FindRefused(const OutputRule& rule) {
  const std::lock_guard lock(mutex_);
  const auto place = RefusalOf(rule);
  if (place == refused_.end()) return std::nullopt;
  const Status why = place->why;
  refused_.splice(refused_.begin(), refused_, place);
  if (++place->answers == kMostAnswers) Drop(place);
  return why;
}

void RuleCache::KeepRefused(const OutputRule& rule, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (RefusalOf(rule) != refused_.end()) return;
  refused_.push_front({rule, why});
  refused_bytes_ += rule.text.size();
  while (refused_.size() > kMostRefused || refused_bytes_ > kMostRefusedBytes) Drop(std::prev(refused_.end()));
}

}  // namespace tactus::language
