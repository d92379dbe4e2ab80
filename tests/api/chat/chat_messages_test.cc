// The exact variables of a chat template, and the error texts of invalid messages.
#include <gtest/gtest.h>

#include "api/request_parser.h"
#include "base/json.h"

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

TEST(ChatMessages, AnAssistantMessageMayBeEmpty) {
  const std::string silent = Rendered(R"({"role":"assistant","content":""})");
  for (const char* message :
       {R"({"role":"assistant"})", R"({"role":"assistant","content":null})", R"({"role":"assistant","content":[]})",
        R"({"role":"assistant","tool_calls":null})", R"({"role":"assistant","tool_calls":[]})"}) {
    EXPECT_EQ(Message(message), silent) << message;
  }
  const std::string calls = Rendered(
      R"({"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}},"type":"function"}]})");
  EXPECT_EQ(
      Message(
          R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":null,"function":{"name":"f","arguments":null}}]})"),
      calls);
  EXPECT_EQ(Message(R"({"role":"user","tool_calls":[]})"), "messages[0].content|messages[0].content: missing");
  EXPECT_EQ(Message(R"({"role":"tool","content":null})"),
            R"({"messages":[{"role":"tool","content":""}],"add_generation_prompt":true})")
      << "it returned nothing";
  EXPECT_EQ(Message(R"({"role":"tool"})"), "messages[0].content|messages[0].content: missing");
  EXPECT_EQ(Message(R"({"role":"user","content":"c","tool_calls":{"a":1}})"),
            "messages[0].tool_calls|messages[0].tool_calls: expected a list, got an object");
}

TEST(ChatMessages, ACallMustNameItsFunction) {
  const auto refused = [](const std::string& call) {
    return Message(R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}},)" + call + "]}");
  };
  const auto at = [](const std::string& member, const std::string& what) {
    const std::string name = "messages[0].tool_calls[1]" + member;
    return name + "|" + name + ": " + what;
  };
  EXPECT_EQ(refused(R"({"id":"c","type":"custom","custom":{"name":"n","input":"i"}})"),
            at(".type", R"("custom" is not supported; there is "function")"));
  EXPECT_EQ(refused(R"({"type":5,"function":{"name":"f"}})"),
            at(".type", R"(5 is not supported; there is "function")"));
  for (const char* call : {"{}", R"({"function":null})", R"({"id":"c","type":"function"})"})
    EXPECT_EQ(refused(call), at(".function", "missing; give an object with a name and arguments"));
  EXPECT_EQ(refused(R"({"function":"f"})"),
            at(".function", "expected an object with a name and arguments, got a string"));
  for (const char* call : {R"({"function":{}})", R"({"function":{"name":null,"arguments":"{}"}})"})
    EXPECT_EQ(refused(call), at(".function.name", "missing; give a string"));
  EXPECT_EQ(refused(R"({"function":{"name":5}})"), at(".function.name", "expected a string, got a number"));
}

TEST(ChatMessages, EmptyFieldsAreAbsent) {
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    for (const char* field : {"tool_calls", "function_call", "audio", "refusal", "annotations", "name", "tool_call_id",
                              "reasoning_content", "reasoning", "thinking"}) {
      for (const char* nothing : {"null", "[]", "{}", R"("")"}) {
        const std::string head = std::string(R"({"role":")") + role + R"(","content":"c")";
        EXPECT_EQ(Message(head + ",\"" + field + "\":" + nothing + "}"), Rendered(head + "}")) << field << nothing;
      }
    }
  }
  EXPECT_EQ(Message(R"({"role":"user","content":"c","own":null,"empty":[]})"),
            Rendered(R"({"role":"user","content":"c","empty":[]})"));
}

TEST(ChatMessages, ARefusalBecomesTheContent) {
  const auto text = [](const char* said) {
    return Rendered(std::string(R"({"role":"assistant","content":")") + said + R"("})");
  };
  EXPECT_EQ(Message(R"({"role":"assistant","content":null,"refusal":"No."})"), text("No."));
  EXPECT_EQ(Message(R"({"role":"assistant","content":"a","refusal":"No."})"), text("a\\nNo."));
  EXPECT_EQ(Message(R"({"role":"assistant","content":[{"type":"refusal","refusal":"No."}]})"), text("No."));
  EXPECT_EQ(Message(R"({"role":"assistant","content":[{"type":"refusal"}]})"),
            "messages[0].content[0].refusal|messages[0].content[0].refusal: expected a string");
  EXPECT_EQ(Message(R"({"role":"assistant","content":"a","refusal":5})"),
            "messages[0].refusal|messages[0].refusal: expected a string, got a number");
}

TEST(ChatMessages, ThinkingPartsBecomeReasoning) {
  const auto parts = [](const std::string& list, const std::string& more = "") {
    return Message(R"({"role":"assistant","content":)" + list + more + "}");
  };
  const auto rendered = [](const char* text, const char* more) {
    return Rendered(std::string(R"({"role":"assistant","content":")") + text + "\"" + more + "}");
  };
  EXPECT_EQ(parts(R"([{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"a"},"b"])"),
            rendered("a\\nb", R"(,"reasoning_content":"t")"));
  EXPECT_EQ(
      parts(R"(["a",{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"thinking","thinking":"u"}])"),
      rendered("a", R"(,"reasoning_content":"tu")"));
  EXPECT_EQ(parts(R"([{"type":"redacted_thinking","data":"x"},"a"])"), rendered("a", ""));
  EXPECT_EQ(parts(R"([{"type":"thinking","thinking":"t"}])", R"(,"reasoning":"own")"),
            rendered("", R"(,"reasoning":"own")"));
  const std::string place = "messages[0].content[0].thinking";
  EXPECT_EQ(parts(R"([{"type":"thinking"}])"), place + "|" + place + ": expected a string or a list of text parts");
  EXPECT_EQ(parts(R"([{"type":"thinking","thinking":[5]}])"),
            place + "[0]|" + place + "[0]: expected an object with a text");
  EXPECT_EQ(parts(R"([{"type":"refusal","refusal":null},"a",{"type":"refusal","refusal":null}])"), rendered("a", ""));
  EXPECT_EQ(
      Message(R"({"role":"user","content":[{"type":"thinking","thinking":"t"}]})"),
      R"(messages[0].content[0]|messages[0].content[0]: parts of type "thinking" are not supported yet; only text)");
}

TEST(ChatMessages, NonTextPartsOfAResultAreNamed) {
  EXPECT_EQ(Message(R"({"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]})"),
            Rendered(R"({"role":"tool","content":"a\n[image_url: not shown, this model reads text alone]"})"));
}

TEST(ChatMessages, OlderCallsAndAudioAreRefused) {
  EXPECT_EQ(Message(R"({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}})"),
            "messages[0].function_call|messages[0].function_call: not supported; give tool_calls");
  EXPECT_EQ(Message(R"({"role":"assistant","content":null,"audio":{"id":"a"}})"),
            "messages[0].audio|messages[0].audio: not supported; give its transcript as content");
}

TEST(ChatMessages, UnknownRolesAreRefused) {
  EXPECT_EQ(Message(R"({"role":"robot","content":"c"})"),
            "messages[0].role|messages[0].role: \"robot\" is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"content":"c"})"),
            "messages[0].role|messages[0].role: nothing is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"role":5,"content":"c"})"),
            "messages[0].role|messages[0].role: 5 is none of system, developer, user, assistant, tool");
  EXPECT_EQ(Message(R"({"role":"user","content":"c"},"x")"),
            "messages[1]|messages[1]: expected an object, got a string");
  EXPECT_EQ(Variables(R"("messages":{})"), "messages|messages: expected a list, got an object (an object)");
  EXPECT_EQ(Variables(""), "messages|messages: missing; give a list of messages");
}

TEST(ChatMessages, OtherTemplateVariablesAreChecked) {
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
