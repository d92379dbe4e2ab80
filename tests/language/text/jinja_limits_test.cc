// Hostile templates and conversations end with an error, in bounded time and memory, and never with a crash.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/json.h"
#include "language/text/jinja/meter.h"
#include "language/text/jinja/search.h"
#include "language/text/jinja/template.h"

namespace tactus::language::jinja::jinja_limits_test {
namespace {

Status Fails(const std::string& source, const Json& variables = Json::object()) {
  const auto compiled = Template::Compile(source);
  if (!compiled.ok()) return compiled.status();
  const auto text = compiled.value()->Render(variables);
  return text.ok() ? Status() : text.status();
}

TEST(JinjaLimits, HostileTemplatesEndWithAnError) {
  const char* templates[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
      "{{ 'x' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{{ 'x' * 9223372036854775807 }}",
      "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(100000) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      "{% set ns = namespace(s='x') %}{% for a in range(100000) %}{% set ns.s = ns.s ~ "
      "'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy' %}{% endfor %}",
      "{% set ns = namespace(l=[0]) %}{% for a in range(100000) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
      "{% set ns = namespace(l=[], m=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% "
      "endfor %}{{ ns.l == ns.m }}",
      "{% set ns = namespace(l=[], m=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% "
      "endfor %}{{ ns.l < ns.m }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{% if true %}{{ f() }}{% endif %}{% endmacro %}{{ f() }}",
      "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
      "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
      "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}",
      "{{ ('y' * 1000000).join(['x'] * 100000) }}",
      "{{ ('{0}' * 100000).format('x' * 1000000) }}",
      "{{ 'x' | indent(9223372036854775807, true) }}",
      "{{ range(9223372036854775807) }}",
      "{{ range(-9223372036854775807, 9223372036854775807, 1) }}",
      "{{ [1] | tojson(indent=1000000000) }}",
      "{{ strftime_now('%c' * 100000) }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ -(-9223372036854775807 - 1) }}",
  };
  for (const char* source : templates) {
    const Status status = Fails(source);
    EXPECT_FALSE(status.ok()) << source;
    EXPECT_FALSE(status.message().empty());
  }
}

TEST(JinjaLimits, NestedSourcesEndWithAnError) {
  const auto repeat = [](const std::string& text, int n) {
    std::string out;
    for (int k = 0; k < n; ++k) out += text;
    return out;
  };
  for (const int n : {1000, 100000}) {
    EXPECT_FALSE(Fails("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}").ok());
    EXPECT_FALSE(Fails("{{ " + repeat("[", n) + repeat("]", n) + " }}").ok());
    EXPECT_FALSE(Fails("{{ " + repeat("not ", n) + "1 }}").ok());
    EXPECT_FALSE(Fails("{{ " + repeat("-", n) + "1 }}").ok());
    EXPECT_FALSE(Fails("{{ 1" + repeat(" + 1", n) + " }}").ok());
    EXPECT_FALSE(Fails("{{ x" + repeat(".x", n) + " }}").ok());
    EXPECT_FALSE(Fails("{{ x" + repeat(" | string", n) + " }}").ok());
    EXPECT_FALSE(Fails("{{ 1 if 1 else " + repeat("1 if 1 else ", n) + "1 }}").ok());
    EXPECT_FALSE(Fails(repeat("{% if 1 %}", n / 10) + repeat("{% endif %}", n / 10)).ok());
    EXPECT_FALSE(Fails("{% set " + repeat("(", n) + "a" + repeat(")", n) + " = 1 %}").ok());
  }
  EXPECT_EQ(Fails(std::string(kMaxSourceBytes + 1, 'x')).code(), StatusCode::kInvalidArgument);
  const std::string longest(kMaxSourceBytes, 'x');
  EXPECT_TRUE(Fails(longest).ok());
}

TEST(JinjaLimits, DeepConversationsEndWithAnError) {
  Json deep = 1;
  for (int k = 0; k < 1000; ++k) deep = Json::array({std::move(deep)});
  EXPECT_EQ(Fails("{{ x }}", {{"x", deep}}).code(), StatusCode::kTooLarge);
  EXPECT_TRUE(Fails("{{ y }}", {{"x", deep}}).ok());  // never read, so never converted
}

TEST(JinjaLimits, RealTemplatesFit) {
  const auto sum = Template::Compile(
      "{% set ns = namespace(n=0) %}{% for x in range(100000) %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}");
  EXPECT_EQ(sum.value()->Render(Json::object()).value(), "4999950000");
  const auto depth =
      Template::Compile("{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}");
  EXPECT_TRUE(depth.value()->Render(Json::object()).ok());
  std::string long_sum = "{{ 'x'";
  for (int k = 0; k < 200; ++k) long_sum += " + 'y'";
  EXPECT_EQ(Template::Compile(long_sum + " }}").value()->Render(Json::object()).value(), "x" + std::string(200, 'y'));
}

// At the limit itself there is still a text; one more character is refused.
TEST(JinjaLimits, WidthsMayReachTheirLimits) {
  const auto length = [](const std::string& source) -> int64_t {
    RenderOptions options;
    options.limits.output_bytes = 400'000;
    const auto text = Template::Compile(source).value()->Render(Json::object(), options);
    return text.ok() ? static_cast<int64_t>(text->size()) : -1;
  };
  EXPECT_EQ(length("{{ '' | indent(100000, true) }}"), 100'000);  // a quarter of a text's limit
  EXPECT_EQ(length("{{ '' | indent(100001, true) }}"), -1);
}

TEST(JinjaLimits, InvalidUtf8InAConversationIsReplaced) {
  EXPECT_EQ(Template::Compile("{{ x }}|{{ x | length }}").value()->Render({{"x", "a\xff\xc3"}}).value(),
            "a\xEF\xBF\xBD\xEF\xBF\xBD|3");
}

TEST(JinjaLimits, ALimitErrorNamesTheLimitAndItsValue) {
  RenderOptions options;
  options.limits.steps = 1000;
  const auto loop = Template::Compile("\n{% for x in range(5000) %}{{ x }}{% endfor %}");
  const auto text = loop.value()->Render(Json::object(), options);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().message(), "chat template line 2: the template takes more than 1000 steps");
  EXPECT_EQ(text.status().code(), StatusCode::kTooLarge);
}

// Native work is charged by the bytes it may touch: over 16 times the text, the same template reaches a step limit that
// the small text keeps with room.
TEST(JinjaLimits, SearchesInLongTextsAreCharged) {
  const char* templates[] = {"{{ n in t }}",
                             "{{ t.find(n) }}",
                             "{{ t.rfind(n) }}",
                             "{{ t.count(n) }}",
                             "{{ t.split(n) | length }}",
                             "{{ t.rsplit(n) | length }}",
                             "{{ t.replace(n, 'x') | length }}",
                             "{{ t | replace(n, 'x') | length }}",
                             "{{ t.strip(n) | length }}",
                             "{{ l | unique | list | length }}",
                             "{{ a == b }}",
                             "{{ a < b }}",
                             "{{ l | sort | length }}"};
  for (const char* source : templates) {
    const auto compiled = Template::Compile(source);
    ASSERT_TRUE(compiled.ok()) << source;
    // A part that nearly matches at every position, a quarter as long as the text.
    const auto steps_suffice = [&](size_t bytes, int64_t steps) {
      const std::string text(bytes, 'a');
      const std::string part = std::string(bytes / 4, 'a') + "b";
      Json list = Json::array();
      for (int k = 0; k < 32; ++k) list.push_back(std::string(bytes / 32, 'a') + std::to_string(k + 10));
      list.push_back(part);
      RenderOptions options;
      options.limits.steps = steps;
      return compiled.value()->Render({{"t", text}, {"n", part}, {"l", list}, {"a", text}, {"b", text}}, options).ok();
    };
    EXPECT_TRUE(steps_suffice(1 << 10, 50'000'000)) << source;
    EXPECT_FALSE(steps_suffice(1 << 16, 2'200)) << source << ": 64 KiB with less than a step per 30 bytes";
  }
}

TEST(JinjaLimits, ASearchFromTheBackIsChargedForEveryByteAndEveryComparison) {
  const auto steps = [](const std::string& text, const std::string& part) {
    Meter meter(int64_t{1} << 40, StopToken());
    EXPECT_EQ(RightFindText(meter, text, part), std::string::npos);
    return meter.steps();
  };
  EXPECT_GE(steps(std::string(1 << 20, 'z'), "b"), (1 << 20) / 64);
  EXPECT_GE(steps(std::string(2048, 'a'), std::string(1023, 'a') + "b"), 1025 * (1024 / 64));
}

TEST(JinjaLimits, ComparingSharedValuesIsCharged) {
  // Two trees of 2^60 leaves, from 60 lists each.
  const std::string source =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for k in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, "
      "ns.b] %}"
      "{% endfor %}{{ ns.a == ns.b }}";
  EXPECT_EQ(Fails(source).code(), StatusCode::kTooLarge);
}

TEST(JinjaLimits, ARenderEndsSoonAfterItIsStopped) {
  const std::atomic<bool> flag{true};
  RenderOptions options;
  options.stop = StopToken(&flag);
  const auto loop =
      Template::Compile("{% for x in range(100000) %}{% for y in range(100) %}{{ x }}{% endfor %}{% endfor %}");
  const auto text = loop.value()->Render(Json::object(), options);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), StatusCode::kCancelled);
}

TEST(JinjaLimits, ManyKeywordsCostLinearSteps) {
  // ** of a client's object: its keys are not compared with each other.
  Json many = Json::object();
  auto& keys = many.get_ref<Json::object_t&>();
  for (int k = 0; k < 16384; ++k) keys.emplace_back("k" + std::to_string(k), k);
  RenderOptions options;
  options.limits.steps = 2'000'000;  // half of 16,384 squared would be 134 million
  const auto call = Template::Compile("{{ dict(**d) | length }}");
  const auto text = call.value()->Render({{"d", many}}, options);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text, "16384");
}

}  // namespace
}  // namespace tactus::language::jinja::jinja_limits_test
