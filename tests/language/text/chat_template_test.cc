// The additions of apply_chat_template around the template: variables that are always defined, reasoning's names, the
// clock.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "base/json.h"
#include "language/text/chat_template.h"

namespace tactus::language {
namespace {

std::string Render(const char* source, const Json& variables, int64_t now_s = -1) {
  const auto compiled = ChatTemplate::Compile(source, now_s);
  if (!compiled.ok()) return compiled.status().message();
  const auto text = compiled.value()->Render(variables);
  return text.ok() ? *text : "error: " + text.status().message();
}

TEST(ChatTemplate, ToolsDocumentsAndThePromptFlagAreAlwaysDefined) {
  EXPECT_EQ(Render("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ other is defined }}",
                   Json::object()),
            "True True False False");
  EXPECT_EQ(Render("{{ tools }} {{ add_generation_prompt }} {{ extra }}",
                   {{"tools", {1}}, {"add_generation_prompt", true}, {"extra", "e"}}),
            "[1] True e");
}

TEST(ChatTemplate, ReasoningIsFoundUnderEveryName) {
  const char* source = "{% for m in messages %}{{ m | tojson }};{% endfor %}";
  for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
    Json message = Json::object();
    message["role"] = "assistant";
    message[name] = "r";
    const std::string text =
        Render("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", {{"messages", Json::array({message})}});
    EXPECT_EQ(text, "rr") << name;
  }
  const Json two = Json::parse(R"([{"role":"user","content":"x"},{"role":"assistant","reasoning":"r"}])");
  EXPECT_EQ(
      Render(source, {{"messages", two}}),
      R"({"role": "user", "content": "x"};{"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"};)");
}

TEST(ChatTemplate, RaiseExceptionReturnsItsTextAlone) {
  const auto compiled = ChatTemplate::Compile("{{ raise_exception('no ' ~ messages[0].role) }}");
  const auto text = compiled.value()->Render({{"messages", Json::parse(R"([{"role":"critic"}])")}});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().message(), "no critic");
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, TheClockCanBeFixed) {
  setenv("TZ", "UTC", 1);
  tzset();
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y %H:%M') }}", Json::object(), 1753362793), "24 Jul 2025 13:13");
  EXPECT_GT(Render("{{ strftime_now('%Y') }}", Json::object()), "2024");
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const auto compiled = ChatTemplate::Compile(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.k %}{% endfor %}{{ ns.n }}");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 200; ++k) {
        Json messages = Json::array();
        for (int j = 0; j <= k; ++j) messages.push_back({{"k", t + 1}});
        const auto text = compiled.value()->Render({{"messages", messages}});
        if (!text.ok() || *text != std::to_string((k + 1) * (t + 1))) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(ChatTemplate, TheToolTemplateIsChosenWhereThereAreTools) {
  const auto choose = [](const char* plain, const char* tool_use, const Json& variables) {
    const auto compile = [](const char* source) {
      return source == nullptr ? nullptr : std::move(ChatTemplate::Compile(source)).value();
    };
    const auto text = ChatTemplate::Choosing(compile(plain), compile(tool_use))->Render(variables);
    return text.ok() ? *text : "error: " + text.status().message();
  };
  const Json with = {{"tools", {1}}}, none = {{"tools", nullptr}}, without = Json::object();
  EXPECT_EQ(choose("D", "T{{ tools }}", with), "T[1]");
  EXPECT_EQ(choose("D", "T", none), "D");
  EXPECT_EQ(choose("D", "T", without), "D");
  EXPECT_EQ(choose(nullptr, "T", with), "T");
  EXPECT_EQ(choose("D{{ tools }}", nullptr, with), "D[1]");
  EXPECT_EQ(choose(nullptr, "T", without),
            "error: none of the model's chat templates is named \"default\", for chats without tools; pass tools, or "
            "start with --chat-template FILE");
}

TEST(ChatTemplate, VariablesMustBeAnObject) {
  EXPECT_FALSE(ChatTemplate::Compile("x").value()->Render(Json::array()).ok());
}

}  // namespace
}  // namespace tactus::language
