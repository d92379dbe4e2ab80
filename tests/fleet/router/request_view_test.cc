#include "fleet/router/request_view.h"

#include <gtest/gtest.h>

namespace tactus::fleet {
namespace {

const Hash128 kSecret{1, 2};

std::string Chat(const std::string& first, const std::string& second) {
  return R"({"model":"m","stream":true,"messages":[{"role":"user","content":")" + first +
         R"("},{"role":"user","content":")" + second + R"("}]})";
}

size_t Shared(const RequestView& a, const RequestView& b) {
  size_t n = 0;
  while (n < a.keys.size() && n < b.keys.size() && a.keys[n] == b.keys[n]) ++n;
  return n;
}

TEST(RequestViewTest, KeysMatchAsFarAsPromptsMatch) {
  const std::string common(3000, 'x');
  const RequestView a = ViewRequest(Chat(common, "one" + std::string(1000, 'y')), kSecret);
  const RequestView b = ViewRequest(Chat(common, "two" + std::string(1000, 'y')), kSecret);
  EXPECT_EQ(a.model, "m");
  EXPECT_TRUE(a.stream);
  EXPECT_EQ(Shared(a, b), 3000u / kChunkBytes);
  EXPECT_EQ(a.keys.size(), static_cast<size_t>(a.prompt_bytes) / kChunkBytes);
  // A longer conversation begins with the shorter one.
  const RequestView one = ViewRequest(R"({"messages":[{"role":"user","content":")" + common + R"("}]})", kSecret);
  EXPECT_EQ(Shared(a, one), 3000u / kChunkBytes);
}

TEST(RequestViewTest, KeysOfOtherApisMatchAsFarAsConversationsMatch) {
  const std::string common(3000, 'x');
  for (const auto& [before, list] : {std::pair("instructions", "input"), std::pair("system", "messages")}) {
    const std::string head = std::string("{\"") + list + R"(":[{"role":"user","content":")" + common;
    const std::string tail = std::string(R"("}],")") + before + R"(":"be brief"})";
    const RequestView a = ViewRequest(head + "one" + std::string(1000, 'y') + tail, kSecret);
    const RequestView b = ViewRequest(head + "two" + std::string(1000, 'y') + tail, kSecret);
    EXPECT_GE(Shared(a, b), 3000u / kChunkBytes) << list;
    EXPECT_LT(Shared(a, b), a.keys.size());
    const RequestView other = ViewRequest(head + std::string("\"}]}"), kSecret);
    EXPECT_EQ(Shared(a, other), 0u) << before << " precedes the conversation";
  }
}

TEST(RequestViewTest, SecretSaltAndToolsChangeTheKeys) {
  const std::string text(1000, 'x');
  const RequestView plain = ViewRequest(R"({"prompt":")" + text + "\"}", kSecret);
  ASSERT_EQ(plain.keys.size(), 1000u / kChunkBytes);
  EXPECT_EQ(Shared(plain, ViewRequest(R"({"prompt":")" + text + "\"}", {1, 3})), 0u);
  EXPECT_EQ(Shared(plain, ViewRequest(R"({"cache_salt":"s","prompt":")" + text + "\"}", kSecret)), 0u);
  const RequestView chat = ViewRequest(R"({"messages":[")" + text + "\"]}", kSecret);
  EXPECT_EQ(Shared(chat, ViewRequest(R"({"tools":[1],"messages":[")" + text + "\"]}", kSecret)), 0u);
}

TEST(RequestViewTest, CountsTokenIdsAndEstimatesText) {
  const RequestView ids = ViewRequest(R"({"prompt":[1,2,3,4,5]})", kSecret);
  EXPECT_EQ(ids.Route(4).prompt_tokens, 5);
  const RequestView text = ViewRequest(R"({"prompt":")" + std::string(1000, 'x') + "\"}", kSecret);
  EXPECT_EQ(text.Route(4).prompt_tokens, 250);
  EXPECT_EQ(text.Route(5).prompt_tokens, 200);
  EXPECT_EQ(text.Route(4).block_size, kChunkBytes / 4);
}

TEST(RequestViewTest, InvalidRequestsHaveNoPrompt) {
  for (const char* body : {"", "{", "[]", "5", "{\"prompt\":null}", "{\"messages\":{}}", "{\"messages\":[]}", "\xff"}) {
    const RequestView view = ViewRequest(body, kSecret);
    EXPECT_TRUE(view.keys.empty()) << body;
    EXPECT_EQ(view.Route(4).prompt_tokens, 1) << body;
  }
}

}  // namespace
}  // namespace tactus::fleet
