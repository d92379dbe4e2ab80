// What is read from a request's body: model, size and keys of its prompt.
#include "gateway/request_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tactus::gateway {
namespace {

constexpr Hash128 kSecret{1, 2};
constexpr size_t kPiece = static_cast<size_t>(kPieceTokens) * kBytesPerToken;

std::string Chat(const std::vector<std::string>& texts, const std::string& model = "m") {
  std::string body = fmt::format("{{\"model\": \"{}\", \"messages\": [", model);
  for (size_t i = 0; i < texts.size(); ++i) {
    body += fmt::format("{}{{\"role\": \"user\", \"content\": \"{}\"}}", i > 0 ? ", " : "", texts[i]);
  }
  return body + "], \"max_tokens\": 5}";
}

size_t Common(const RequestView& a, const RequestView& b) {
  size_t same = 0;
  while (same < std::min(a.keys.size(), b.keys.size()) && a.keys[same] == b.keys[same]) ++same;
  return same;
}

TEST(RequestView, ReadsModelAndSizeOfEveryForm) {
  const std::string text(4000, 'x');
  const auto view = [](const std::string& body) { return ViewRequest(body, kSecret); };
  EXPECT_EQ(view(Chat({text})).model, "m");
  EXPECT_NEAR(view(Chat({text})).prompt_tokens, 1000, 4);
  EXPECT_NEAR(view("{\"prompt\": \"" + text + "\"}").prompt_tokens, 1000, 4);
  EXPECT_NEAR(view("{\"prompt\": [\"" + text + "\", \"" + text + "\"]}").prompt_tokens, 2000, 4);
  EXPECT_NEAR(view("{\"messages\": [{\"content\": [{\"type\": \"text\", \"text\": \"" + text + "\"}]}]}").prompt_tokens,
              1000, 4);
  EXPECT_EQ(view("{\"prompt\": [5, 6, 70000]}").prompt_tokens, 3) << "token ids count as one each";
  EXPECT_EQ(view("{\"model\": \"a\"}").prompt_tokens, 0);
  EXPECT_EQ(view("{\"metadata\": {\"prompt\": \"" + text + "\"}}").prompt_tokens, 0) << "not the request's prompt";
}

TEST(RequestView, PromptsThatBeginAlikeHaveKeysThatBeginAlike) {
  const std::string shared(10 * kPiece, 's');
  const RequestView a = ViewRequest(Chat({shared, std::string(3 * kPiece, 'a')}), kSecret);
  const RequestView b = ViewRequest(Chat({shared, std::string(3 * kPiece, 'b')}), kSecret);
  EXPECT_EQ(a.keys.size(), 13u);
  EXPECT_EQ(Common(a, b), 10u);
  // The same later on is not the same prompt.
  const RequestView c = ViewRequest(Chat({"other" + shared, std::string(3 * kPiece, 'a')}), kSecret);
  EXPECT_EQ(Common(a, c), 0u);
  EXPECT_NE(a.keys.back(), c.keys.back());
}

TEST(RequestView, KeysDependOnSecretModelAndBoundaries) {
  const std::string text(4 * kPiece, 't');
  const RequestView a = ViewRequest(Chat({text}), kSecret);
  ASSERT_EQ(a.keys.size(), 4u);
  EXPECT_EQ(Common(a, ViewRequest(Chat({text}), kSecret)), 4u);
  EXPECT_EQ(Common(a, ViewRequest(Chat({text}), {3, 4})), 0u);
  EXPECT_EQ(Common(a, ViewRequest(Chat({text}, "other"), kSecret)), 0u);
  const auto pair = [](const std::string& x, const std::string& y) {
    return ViewRequest("{\"prompt\": [\"" + x + "\", \"" + y + "\"]}", kSecret).keys;
  };
  EXPECT_NE(pair("ab", std::string(kPiece, 'c')), pair("a", "b" + std::string(kPiece, 'c')));
}

TEST(RequestView, WhatIsNoJsonCountsByItsSize) {
  for (const std::string& body : {std::string("{\"prompt\": \"" + std::string(400, 'x')), std::string(412, '\xff'),
                                  std::string(412, '['), std::string("")}) {
    const RequestView view = ViewRequest(body, kSecret);
    EXPECT_EQ(view.prompt_tokens, static_cast<int32_t>((body.size() + 3) / 4));
    EXPECT_TRUE(view.keys.empty());
    EXPECT_TRUE(view.model.empty());
  }
  EXPECT_EQ(ViewOfLength(-1).prompt_tokens, 0);
  EXPECT_EQ(ViewOfLength(int64_t{1} << 60).prompt_tokens, std::numeric_limits<int32_t>::max());
}

TEST(RequestView, DepthCostsNoStack) {
  const std::string body = "{\"messages\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_EQ(ViewRequest(body, kSecret).prompt_tokens, 0);
}

}  // namespace
}  // namespace tactus::gateway
