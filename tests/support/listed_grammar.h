// A grammar that accepts the outputs of a list, for tests that need a grammar with obvious states.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/token_grammar.h"

namespace tactus::test {

class ListedGrammar final : public TokenGrammar {
 public:
  // `end` is allowed after a whole output, and is the only choice unless a longer output begins with it.
  // `tells_forced`: Forced returns tokens; otherwise none.
  ListedGrammar(int64_t vocab_size, TokenId end, std::vector<std::vector<TokenId>> answers, bool tells_forced = true)
      : vocab_size_(vocab_size), end_(end), answers_(std::move(answers)), tells_forced_(tells_forced) {}

  std::unique_ptr<GrammarState> Start() const override { return std::make_unique<State>(*this); }
  int64_t vocab_size() const override { return vocab_size_; }
  int live_states() const { return live_states_; }

 private:
  class State final : public GrammarState {
   public:
    explicit State(const ListedGrammar& grammar) : grammar_(grammar) { ++grammar_.live_states_; }
    ~State() override { --grammar_.live_states_; }

    bool FillMask(std::span<uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), 0);
      const std::vector<TokenId> next = Next(so_far_);
      for (const TokenId t : next) mask[static_cast<size_t>(t) / 32] |= uint32_t{1} << (t % 32);
      return !next.empty();
    }
    bool Accept(TokenId token) override {
      if (CountValid({&token, 1}) == 0) return false;
      so_far_.push_back(token);
      return true;
    }
    int32_t CountValid(std::span<const TokenId> tokens) override {
      std::vector<TokenId> text = so_far_;
      for (size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<TokenId> next = Next(text);
        if (std::find(next.begin(), next.end(), tokens[i]) == next.end()) return static_cast<int32_t>(i);
        text.push_back(tokens[i]);
      }
      return static_cast<int32_t>(tokens.size());
    }
    void Forced(int32_t most, std::vector<TokenId>* tokens) override {
      tokens->clear();
      if (!grammar_.tells_forced_) return;
      std::vector<TokenId> text = so_far_;
      for (int32_t i = 0; i < most; ++i) {
        const std::vector<TokenId> next = Next(text);
        if (next.size() != 1 || next[0] == grammar_.end_) return;
        tokens->push_back(next[0]);
        text.push_back(next[0]);
      }
    }

   private:
    std::vector<TokenId> Next(const std::vector<TokenId>& text) const {
      std::vector<TokenId> next;
      if (!text.empty() && text.back() == grammar_.end_) return {grammar_.end_};
      for (const std::vector<TokenId>& answer : grammar_.answers_) {
        if (answer.size() < text.size() || !std::equal(text.begin(), text.end(), answer.begin())) continue;
        const TokenId token = answer.size() == text.size() ? grammar_.end_ : answer[text.size()];
        if (std::find(next.begin(), next.end(), token) == next.end()) next.push_back(token);
      }
      return next;
    }

    const ListedGrammar& grammar_;
    std::vector<TokenId> so_far_;
  };

  const int64_t vocab_size_;
  const TokenId end_;
  const std::vector<std::vector<TokenId>> answers_;
  const bool tells_forced_;
  mutable std::atomic<int> live_states_{0};
};

}  // namespace tactus::test
