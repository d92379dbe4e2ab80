// What a chat template gets, to the byte, and what is refused with which words.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/request_parser.h"

namespace tactus::api {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 100;
  limits.vocab_size = 1000;
  return limits;
}
// The template's variables, or the error as "param|message".
std::string Variables(const std::string& fields) {
  const auto r = ParseChatRequest("{" + fields + "}", Limits());
  return r.ok() ? r->template_variables : r.status().param() + "|" + r.status().message();
}
std::string Message(const std::string& message) {
  return Variables("\"messages\":[" + message + "]");
}
std::string Rendered(const std::string& message) {
  return "{\"messages\":[" + message + "],\"add_generation_prompt\":true}";
}

TEST(ChatMessages, PassThroughInTheClientsOrder) {
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    const std::string message = std::string(R"({"name":"n","role":")") + role + R"(","content":"c","extra":[1]})";
    EXPECT_EQ(Message(message), Rendered(message));
  }
  EXPECT_EQ(Message(R"({"role":"developer","content":"c"})"), Rendered(R"({"role":"system","content":"c"})"));
}

TEST(ChatMessages, PartsAreJoinedByNewlines) {
  const auto content = [](const char* parts) {
    return Message(std::string(R"({"role":"user","content":)") + parts + "}");
  };
  const auto rendered = [](const char* text) {
    return Rendered(std::string(R"({"role":"user","content":")") + text + R"("})");
  };
  EXPECT_EQ(content("[]"), rendered(""));
  EXPECT_EQ(content(R"([{"type":"text","text":"a"}])"), rendered("a"));
  EXPECT_EQ(content(R"(["a",{"type":"text","text":"b"},"c",""])"), rendered("a\\nb\\nc\\n"));
  EXPECT_EQ(content("[5]"),
            "messages[0].content[0]|messages[0].content[0]: expected an object with a type, got a number");
  EXPECT_EQ(content(R"(["a",{}])"),
            "messages[0].content[1]|messages[0].content[1]: expected an object with a type, got an object");
  EXPECT_EQ(content(R"([{"type":5}])"),
            "messages[0].content[0]|messages[0].content[0]: expected an object with a type, got an object");
  EXPECT_EQ(
      content(R"([{"type":"image_url"}])"),
      "messages[0].content[0]|messages[0].content[0]: parts of type \"image_url\" are not supported yet; only text");
  EXPECT_EQ(content(R"([{"type":"text","text":5}])"),
            "messages[0].content[0].text|messages[0].content[0].text: expected a string");
  EXPECT_EQ(content("5"),
            "messages[0].content|messages[0].content: expected a string or a list of text parts, got a number");
}

TEST(ChatMessages, OnlyAnAssistantThatCallsToolsMayBeSilent) {
  const std::string calls = R"({"role":"assistant","tool_calls":[]})";
  EXPECT_EQ(Message(calls), Rendered(calls));
  const std::string null_content = R"({"role":"assistant","content":null,"tool_calls":[{"id":"1"}]})";
  EXPECT_EQ(Message(null_content), Rendered(null_content));
  for (const char* silent : {R"({"role":"assistant"})", R"({"role":"assistant","content":null})",
                             R"({"role":"assistant","tool_calls":null})", R"({"role":"user","tool_calls":[]})"}) {
    EXPECT_EQ(Message(silent), "messages[0].content|messages[0].content: missing") << silent;
  }
  EXPECT_EQ(Message(R"({"role":"user","content":"c","tool_calls":{}})"),
            "messages[0].tool_calls|messages[0].tool_calls: expected a list, got an object");
}

TEST(ChatMessages, RolesAreKnown) {
  EXPECT_EQ(Message(R"({"role":"robot","content":"c"})"),
            "messages[0].role|messages[0].role: \"robot\" is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"content":"c"})"),
            "messages[0].role|messages[0].role: nothing is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"role":5,"content":"c"})"),
            "messages[0].role|messages[0].role: 5 is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"role":"user","content":"c"},"x")"),
            "messages[1]|messages[1]: expected an object, got a string");
  EXPECT_EQ(Variables(R"("messages":{})"), "messages|messages: expected a list, got an object (an object)");
  EXPECT_EQ(Variables(""), "messages|messages: missing");
}

TEST(ChatMessages, TheTemplatesOtherVariables) {
  const std::string messages = R"("messages":[{"role":"user","content":"c"}])";
  const auto with = [&](const std::string& extra) { return Variables(messages + "," + extra); };
  EXPECT_EQ(with(R"("add_generation_prompt":false)"), "{" + messages + R"(,"add_generation_prompt":false})");
  EXPECT_EQ(with(R"("documents":[{"a":1}])"),
            "{" + messages + R"(,"documents":[{"a":1}],"add_generation_prompt":true})");
  EXPECT_EQ(with(R"("chat_template_kwargs":{"b":1,"a":{"x":null}})"),
            "{" + messages + R"(,"add_generation_prompt":true,"b":1,"a":{"x":null}})");
  EXPECT_EQ(with(R"("documents":{})"), "documents|documents: expected a list, got an object (an object)");
  EXPECT_EQ(with(R"("chat_template_kwargs":[])"),
            "chat_template_kwargs|chat_template_kwargs: expected an object, got a list (a list)");
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    const std::string full = std::string("chat_template_kwargs.") + name;
    EXPECT_EQ(with(std::string("\"chat_template_kwargs\":{\"") + name + "\":1}"),
              full + "|" + full + ": give it as a field of the request");
  }
}

}  // namespace
}  // namespace tactus::api
