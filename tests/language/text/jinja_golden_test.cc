// Every construct against the output of Python's jinja2 (golden.json, written by tools/make_template_golden.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "base/json.h"
#include "language/text/jinja/template.h"
#include "support/source_path.h"

namespace tactus::language::jinja::jinja_golden_test {
namespace {

class JinjaGolden : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("TZ", "UTC", 1);
    tzset();
    std::ifstream file(test::SourcePath("tests/language/text/data/templates/golden.json"));
    golden_ = new Json(Json::parse(file));
  }
  static void TearDownTestSuite() {
    delete golden_;
    golden_ = nullptr;
  }
  static RenderOptions Options() {
    RenderOptions options;
    options.now_s = golden_->at("now_s").get<int64_t>();
    return options;
  }

  static void Check(const Json& expected, const std::string& source, const Json& variables) {
    SCOPED_TRACE(source);
    const auto compiled = Template::Compile(source);
    if (expected.contains("compile_error")) {
      ASSERT_FALSE(compiled.ok());
      const std::string& message = compiled.status().message();
      const int line = expected.at("line").get<int>();
      if (line > 0) {
        EXPECT_NE(message.find("line " + std::to_string(line) + ": "), std::string::npos) << message;
      }
      return;
    }
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    const auto text = compiled.value()->Render(variables, Options());
    if (expected.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status().message();
      EXPECT_EQ(*text, expected.at("text").get<std::string>());
      return;
    }
    ASSERT_FALSE(text.ok()) << *text;
    if (expected.at("raised").get<bool>()) {
      EXPECT_EQ(text.status().message(), expected.at("error").get<std::string>());
      EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
    }
  }

  static Json* golden_;
};
Json* JinjaGolden::golden_ = nullptr;

TEST_F(JinjaGolden, TemplatesYieldJinja2sTextOrError) {
  size_t texts = 0, errors = 0;
  for (const Json& expected : golden_->at("cases")) {
    Check(expected, expected.at("template").get<std::string>(), golden_->at("variables"));
    ++(expected.contains("text") ? texts : errors);
  }
  EXPECT_GT(texts, 80u);
  EXPECT_GT(errors, 90u);
}

TEST_F(JinjaGolden, AChatTemplateRendersEveryConversation) {
  const std::string source = golden_->at("chat").get<std::string>();
  ASSERT_GT(golden_->at("conversations").size(), 3u) << "nothing to compare: golden.json has no conversations";
  for (const Json& expected : golden_->at("conversations")) {
    SCOPED_TRACE(expected.at("variables").dump());
    Check(expected, source, expected.at("variables"));
  }
}

// Runtime messages equal jinja2's where a template's user sees them.
TEST_F(JinjaGolden, MessagesOfUndefinedValuesAreJinja2s) {
  size_t compared = 0;
  for (const Json& expected : golden_->at("cases")) {
    if (!expected.contains("error")) continue;
    const std::string error = expected.at("error").get<std::string>();
    if (error.find("undefined") == std::string::npos && error.find("has no attribute") == std::string::npos &&
        error.find("unpack") == std::string::npos && error.find("is unsafe") == std::string::npos) {
      continue;
    }
    const std::string source = expected.at("template").get<std::string>();
    const auto text = Template::Compile(source).value()->Render(golden_->at("variables"), Options());
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.status().message(), "chat template line 1: " + error) << source;
    ++compared;
  }
  EXPECT_GT(compared, 12u);
}

TEST(JinjaErrors, NameTheLineAndTheConstruct) {
  const auto message = [](const char* source) { return Template::Compile(source).status().message(); };
  EXPECT_EQ(message("a\nb\n{% include 'x' %}"),
            "chat template line 3: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(message("\n{{ x | urlize }}"), "chat template line 2: the filter 'urlize' is not supported");
  EXPECT_EQ(message("{% if x %}{{ x | urlize }}{% endif %}"),
            "chat template line 1: the filter 'urlize' is not supported");
  EXPECT_EQ(message("{{ x.encode('utf-8') }}"), "chat template line 1: the method 'encode' is not supported");
  EXPECT_EQ(message("{{ x | map('urlize') | list }}"), "chat template line 1: the filter 'urlize' is not supported");
  EXPECT_EQ(Template::Compile("{% block a %}{% endblock %}").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Template::Compile("{{ 99999999999999999999 }}").status().message(),
            "chat template line 1: the integer 99999999999999999999 does not fit 64 bits");
  EXPECT_FALSE(Template::Compile("\xff").ok());
}

// Bounds of unsigned integers occur in the schemas of many tools.
TEST(JinjaText, AnUnsignedIntegerBeyond63BitsKeepsItsDigits) {
  const Json variables = Json::parse(
      R"({"x":18446744073709551615,"y":9223372036854775808,"z":9223372036854775807,"all":[18446744073709551615,1]})");
  const auto render = [&](const std::string& expression) {
    const auto text = Template::Compile("{{ " + expression + " }}").value()->Render(variables);
    return text.ok() ? *text : text.status().message();
  };
  EXPECT_EQ(render("x"), "18446744073709551615");
  EXPECT_EQ(render("all | tojson ~ ' ' ~ all ~ ' ' ~ x ~ (y | string) ~ (x | int)"),
            "[18446744073709551615, 1] [18446744073709551615, 1] "
            "18446744073709551615922337203685477580818446744073709551615");
  EXPECT_EQ(render("{x: 1, y: 2, z: 3, x: 4} | tojson"),
            R"({"18446744073709551615": 4, "9223372036854775808": 2, "9223372036854775807": 3})");
  EXPECT_EQ(render("[x > y, y > z, z < y, y == z, x == x, y != x, 1 < x, x < 1, x > 1.5, x in all, y in all]"),
            "[True, True, True, False, True, True, True, False, True, True, False]");
  EXPECT_EQ(render("[x, 1, y, z, -1] | sort"),
            "[-1, 1, 9223372036854775807, 9223372036854775808, 18446744073709551615]");
  EXPECT_EQ(render("[x is number, x is integer, x is float, x is odd, y is even, x is divisibleby(5), not x]"),
            "[True, True, False, True, True, True, False]");
  EXPECT_EQ(render("[-y, y / 2, x * 1.0]"), "[-9223372036854775808, 4.611686018427388e+18, 1.8446744073709552e+19]");
  EXPECT_EQ(render("'a'[x] is defined"), "False");
  const auto refused = [](const std::string& what, const std::string& number) {
    return "chat template line 1: " + what + " on the integer " + number +
           " is not supported: it is beyond 9223372036854775807";
  };
  for (const char* expression : {"x + 1", "1 - x", "x * 2", "x // 2", "x % 2", "-x", "'a' * x", "x * [1]"})
    EXPECT_EQ(render(expression), refused("arithmetic", "18446744073709551615")) << expression;
  EXPECT_EQ(render("'a'[:y]"), refused("a slice", "9223372036854775808"));
  EXPECT_EQ(render("range(y)"), refused("a call", "9223372036854775808"));
}

TEST(JinjaText, RawEndsAtEndrawAlone) {
  EXPECT_EQ(Template::Compile("{% raw %}{% abcdef %}{{ x }}{%- endraw %}!").value()->Render(Json::object()).value(),
            "{% abcdef %}{{ x }}!");
}

// Features of jinja2 and Python that chat templates do not use: refused by name, never rendered differently.
TEST(JinjaErrors, UnsupportedFeaturesAreNamedAtCompileTime) {
  const auto message = [](const std::string& source) {
    const auto compiled = Template::Compile(source);
    EXPECT_EQ(compiled.status().code(), StatusCode::kUnimplemented) << source;
    return compiled.status().message();
  };
  for (const std::string filter :
       {"abs",      "attr",      "batch",  "center",    "filesizeformat", "forceescape", "format",
        "groupby",  "pprint",    "random", "round",     "slice",          "striptags",   "sum",
        "truncate", "urlencode", "urlize", "wordcount", "wordwrap",       "xmlattr"}) {
    const std::string expected = "chat template line 1: the filter '" + filter + "' is not supported";
    EXPECT_EQ(message("{{ x | " + filter + " }}"), expected);
    EXPECT_EQ(message("{{ x | map('" + filter + "') | list }}"), expected);
  }
  for (const std::string test : {"callable", "escaped", "filter", "lower", "test", "upper"}) {
    EXPECT_EQ(message("{{ x is " + test + " }}"), "chat template line 1: the test '" + test + "' is not supported");
  }
  for (const std::string method :
       {"casefold",  "center",      "encode",  "expandtabs", "format_map", "fromkeys",     "index",
        "isalnum",   "isalpha",     "isascii", "isdecimal",  "isdisjoint", "isidentifier", "islower",
        "isnumeric", "isprintable", "isspace", "istitle",    "isupper",    "ljust",        "maketrans",
        "partition", "rindex",      "rjust",   "rpartition", "swapcase",   "translate",    "zfill"}) {
    EXPECT_EQ(message("{{ x." + method + "() }}"),
              "chat template line 1: the method '" + method + "' is not supported");
  }
  EXPECT_EQ(message("\n{{ 2 ** x }}"), "chat template line 2: the operator ** is not supported");
  EXPECT_EQ(message("{% for n in x recursive %}{% endfor %}"),
            "chat template line 1: a recursive loop is not supported");
  EXPECT_EQ(message("{% print 1 %}"), "chat template line 1: the tag 'print' is not supported in chat templates");
  EXPECT_EQ(message("{% macro f() %}{{ varargs }}{% endmacro %}"),
            "chat template line 1: 'varargs' in a macro is not supported");
  EXPECT_EQ(message("{% macro f() %}{{ kwargs }}{% endmacro %}"),
            "chat template line 1: 'kwargs' in a macro is not supported");
  EXPECT_TRUE(Template::Compile("{% macro f(kwargs) %}{{ kwargs }}{% endmacro %}").ok());
}

TEST(JinjaErrors, UnsupportedFeaturesAreNamedAtRunTime) {
  const auto message = [](const std::string& source) {
    const auto text =
        Template::Compile(source).value()->Render({{"s", "text"}, {"l", {1, 2}}, {"d", {{"k", 1}}}, {"n", "sum"}});
    EXPECT_EQ(text.status().code(), StatusCode::kUnimplemented) << source;
    return text.status().message();
  };
  const std::string line = "chat template line 1: ";
  EXPECT_EQ(message("{{ '%s' % s }}"), line + "the operator % on a text is not supported");
  EXPECT_EQ(message("{{ '{:>5}'.format(s) }}"),
            line + "the format field '{:>5}' is not supported; {}, {0} and {name} are");
  EXPECT_EQ(message("{{ '{!r}'.format(s) }}"),
            line + "the format field '{!r}' is not supported; {}, {0} and {name} are");
  EXPECT_EQ(message("{{ '{a.b}'.format(a=s) }}"),
            line + "the format field '{a.b}' is not supported; {}, {0} and {name} are");
  EXPECT_EQ(message("{{ ('{}' | safe).format(s) }}"), line + "format on a text marked safe is not supported");
  EXPECT_EQ(message("{{ 7.5 % 2 }}"), line + "the operator % on floats is not supported");
  EXPECT_EQ(message("{{ 7 // 2.0 }}"), line + "the operator // on floats is not supported");
  EXPECT_EQ(message("{{ s | int(0, 16) }}"), line + "the filter 'int' with a base is not supported");
  EXPECT_EQ(message("{{ cycler(1, 2) }}"), line + "the function 'cycler' is not supported");
  EXPECT_EQ(message("{{ joiner() }}"), line + "the function 'joiner' is not supported");
  EXPECT_EQ(message("{{ s.find('t', 1) }}"), line + "str.find() with a start is not supported");
  EXPECT_EQ(message("{{ s.startswith('t', 1) }}"), line + "str.startswith() with a start is not supported");
  EXPECT_EQ(message("{{ s.count('t', 1) }}"), line + "str.count() with a start is not supported");
  EXPECT_EQ(message("{{ l.count(1) }}"), line + "the method 'count' of 'list' is not supported");
  EXPECT_EQ(message("{{ l.copy() }}"), line + "the method 'copy' of 'list' is not supported");
  EXPECT_EQ(message("{{ d.copy() }}"), line + "the method 'copy' of 'dict' is not supported");
  EXPECT_EQ(message("{{ s['zfill'](9) }}"), line + "the method 'zfill' of 'str' is not supported");
  EXPECT_EQ(message("{% for x in l %}{{ loop.cycle(1, 2) }}{% endfor %}"),
            line + "the attribute 'cycle' of a loop is not supported");
  EXPECT_EQ(message("{% for x in l %}{{ loop.depth }}{% endfor %}"),
            line + "the attribute 'depth' of a loop is not supported");
  EXPECT_EQ(message("{% macro f() %}{% endmacro %}{{ f.name }}"),
            line + "the attribute 'name' of a macro is not supported");
  EXPECT_EQ(message("{{ (1).real }}"), line + "the attribute 'real' of a number is not supported");
  EXPECT_EQ(message("{{ range(3) }}"), line + "printing a range is not supported; add |list");
  EXPECT_EQ(message("{{ l | map(n) | list }}"), line + "the filter 'sum' is not supported");
  EXPECT_EQ(message("{{ l | select('upper') | list }}"), line + "the test 'upper' is not supported");
  EXPECT_EQ(
      Template::Compile("{% macro joiner() %}own{% endmacro %}{{ joiner() }}").value()->Render(Json::object()).value(),
      "own");
}

TEST(JinjaErrors, OutputsThatCouldDifferAreErrors) {
  const auto render = [](const char* source) { return Template::Compile(source).value()->Render(Json::object()); };
  EXPECT_FALSE(render("{{ 9223372036854775807 + 1 }}").ok());  // Python continues with a longer integer
  EXPECT_FALSE(render("{{ [1] | map('string') }}").ok());      // Python prints an address
  EXPECT_FALSE(render("{{ (1).real }}").ok());
}

}  // namespace
}  // namespace tactus::language::jinja::jinja_golden_test
