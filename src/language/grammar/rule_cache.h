// Caches the rules compiled last, so that a repeated schema is compiled once, and those refused last, so that a
// repeated one costs no trial. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "base/token_grammar.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::language {

class RuleCache {
 public:
  // Keeps at most `most_rules` rules of at most `most_bytes` bytes in total.
  RuleCache(int64_t most_rules, int64_t most_bytes) : most_rules_(most_rules), most_bytes_(most_bytes) {}

  std::shared_ptr<const TokenGrammar> Find(const OutputRule& rule);  // null: not cached
  // `bytes`: of its text and its compiled form.
  void Keep(const OutputRule& rule, std::shared_ptr<const TokenGrammar> grammar, int64_t bytes);

  // A refusal is returned kMostAnswers times; then the rule is tried again, as the machine may have been busy.
  static constexpr int kMostAnswers = 16;
  static constexpr size_t kMostRefused = 64;
  static constexpr size_t kMostRefusedBytes = size_t{2} << 20;  // of their texts
  std::optional<Status> FindRefused(const OutputRule& rule);
  void KeepRefused(const OutputRule& rule, const Status& why);

 private:
  struct Entry {
    OutputRule rule;
    std::shared_ptr<const TokenGrammar> grammar;
    int64_t bytes;
  };
  struct Refusal {
    OutputRule rule;
    Status why;
    int answers = 0;
  };
  std::list<Entry>::iterator Place(const OutputRule& rule);
  std::list<Refusal>::iterator RefusalOf(const OutputRule& rule);
  void Drop(std::list<Refusal>::iterator refusal);

  const int64_t most_rules_, most_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // last used first; few enough for a linear search, and texts mostly differ in length
  int64_t bytes_ = 0;
  std::list<Refusal> refused_;  // last used first
  size_t refused_bytes_ = 0;
};

}  // namespace tactus::language
