// Ends of sequences by stop ids and stop strings combined with min_tokens, at every position and of several lengths.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/loop/harness.h"

namespace tactus::core {
namespace {

using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

constexpr int64_t kLength = 24;

Request Plain() {
  Request r = MakeRequest(Tokens(3, 9), kLength);
  r.stop.ignore_eos = true;
  return r;
}

// The harness spells token t as the letter 'a' + t % 26.
std::string Spelled(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId t : tokens) text.push_back(static_cast<char>('a' + t % 26));
  return text;
}

// A stop string ends the output at the first token after min_tokens that completes it; it may begin before.
TEST(Stops, StopStringCountsWhereItEnds) {
  const HarnessConfig config;
  const std::vector<TokenId> full = ExpectedOutput(config.executor, Plain(), 0, {});
  const std::string text = Spelled(full);
  int across = 0;
  for (size_t begin = 0; begin < text.size(); begin += 2) {
    for (size_t length = 1; length <= 5 && begin + length <= text.size(); length += 2) {
      Harness h(config);
      std::vector<std::pair<RequestHandle, int64_t>> runs;
      Request r = Plain();
      r.stop.stop = {"ZZ", text.substr(begin, length)};
      for (int64_t min_tokens = 0; min_tokens <= kLength; min_tokens += min_tokens < 3 ? 1 : 2) {
        r.stop.min_tokens = min_tokens;
        runs.emplace_back(h.MustSubmit(r), min_tokens);
      }
      ASSERT_EQ(h.Run(), "");
      for (const auto& [handle, min_tokens] : runs) {
        SCOPED_TRACE(::testing::Message() << text << ", stop '" << r.stop.stop[1] << "', min_tokens " << min_tokens);
        size_t end = 0;
        for (size_t at = text.find(r.stop.stop[1]); at != std::string::npos; at = text.find(r.stop.stop[1], at + 1)) {
          if (static_cast<int64_t>(at + length) <= min_tokens) continue;
          end = at + length;
          across += static_cast<int64_t>(at) < min_tokens && length > 1;
          break;
        }
        const auto& out = h.outputs()[handle].choices[0];
        ASSERT_EQ(out.tokens.size(), end > 0 ? end : full.size());
        ASSERT_EQ(out.finish, end > 0 ? FinishReason::kStop : FinishReason::kLength);
        ASSERT_EQ(out.stop_string, end > 0 ? 1 : -1);
      }
    }
  }
  EXPECT_GT(across, 20);  // matches that began before min_tokens and ended after
}

TEST(Stops, StopIdCountsAfterMinTokens) {
  const HarnessConfig config;
  const std::vector<TokenId> full = ExpectedOutput(config.executor, Plain(), 0, {});
  for (int64_t min_tokens = 0; min_tokens <= kLength; ++min_tokens) {
    Harness h(config);
    Request r = Plain();
    r.stop.stop_token_ids = {full[5]};
    r.stop.stop = {"ZZ"};
    r.stop.min_tokens = min_tokens;
    const RequestHandle handle = h.MustSubmit(r);
    ASSERT_EQ(h.Run(), "");
    size_t end = 0;
    for (size_t i = 0; i < full.size() && end == 0; ++i) {
      if (full[i] == full[5] && static_cast<int64_t>(i) >= min_tokens) end = i + 1;
    }
    const auto& out = h.outputs()[handle].choices[0];
    EXPECT_EQ(out.tokens.size(), end > 0 ? end : full.size()) << "min_tokens " << min_tokens;
    EXPECT_EQ(out.finish, end > 0 ? FinishReason::kStop : FinishReason::kLength) << "min_tokens " << min_tokens;
    EXPECT_EQ(out.stop_string, -1);
  }
}

}  // namespace
}  // namespace tactus::core
