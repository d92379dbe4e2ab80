// The rules compiled last, so that a schema that comes again is compiled once. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "base/token_grammar.h"
#include "tactus/request.h"

namespace tactus::grammar {

class RuleCache {
 public:
  // Keeps at most this number of rules, and rules of at most this number of bytes together.
  RuleCache(int64_t most_rules, int64_t most_bytes) : most_rules_(most_rules), most_bytes_(most_bytes) {}

  std::shared_ptr<const TokenGrammar> Find(const OutputRule& rule);  // null: it is not kept
  // `bytes`: of its text and of what is compiled.
  void Keep(const OutputRule& rule, std::shared_ptr<const TokenGrammar> grammar, int64_t bytes);

 private:
  struct Entry {
    OutputRule rule;
    std::shared_ptr<const TokenGrammar> grammar;
    int64_t bytes;
  };
  std::list<Entry>::iterator Place(const OutputRule& rule);

  const int64_t most_rules_, most_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // last used first; few enough to look through, and texts mostly differ in length
  int64_t bytes_ = 0;
};

}  // namespace tactus::grammar
