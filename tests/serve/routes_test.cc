#include <nlohmann/json.hpp>

#include "server_fixture.h"

namespace tactus {
namespace {

using nlohmann::json;
using RoutesTest = ServerTest;

TEST_F(RoutesTest, ChatStreamsRoleTextFinishAndDone) {
  StartServer();
  auto r = Stream("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true})");
  ASSERT_EQ(r->http_status, 200);
  ASSERT_EQ(r->events.size(), 5u);
  EXPECT_EQ(json::parse(r->events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(r->events[1])["choices"][0]["delta"]["content"], "Hel");
  EXPECT_EQ(json::parse(r->events[3])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(r->events[4], "[DONE]");
}

}  // namespace
}  // namespace tactus
