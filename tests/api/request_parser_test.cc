#include "api/request_parser.h"
#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "api/fields/json.h"
#include "support/source_path.h"

namespace tactus::api::request_parser_test {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 100;
  limits.vocab_size = 1000;
  limits.default_max_tokens = 40;
  limits.generation_defaults.temperature = 0.5f;
  limits.generation_defaults.top_k = 7;
  return limits;
}

Result<ParsedRequest> Completion(const std::string& fields) {
  return ParseCompletionRequest(fields.empty() ? R"({"prompt":"p"})" : R"({"prompt":"p",)" + fields + "}", Limits());
}
Result<ParsedRequest> Chat(const std::string& fields) {
  return ParseChatRequest(R"({"messages":[{"role":"user","content":"c"}])" + (fields.empty() ? "" : "," + fields) + "}",
                          Limits());
}

TEST(RequestParserTest, DefaultsComeFromTheModel) {
  const auto r = Completion("");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->base.sampling.temperature, 0.5f);
  EXPECT_EQ(r->base.sampling.top_k, 7);
  EXPECT_EQ(r->base.sampling.logprobs, -1);
  EXPECT_EQ(r->base.n, 1);
  EXPECT_FALSE(r->base.sampling.has_seed);
  EXPECT_FALSE(r->max_tokens);
  EXPECT_EQ(Completion(R"("temperature":null,"top_k":-1)")->base.sampling.temperature, 0.5f);
  EXPECT_EQ(Completion(R"("top_k":-1)")->base.sampling.top_k, 0);
}

TEST(RequestParserTest, EveryFieldReachesTheRequest) {
  const auto r = Completion(
      R"("temperature":0.25,"top_p":0.5,"top_k":3,"min_p":0.125,"repetition_penalty":1.5,"presence_penalty":-1,
      "frequency_penalty":2,"seed":18446744073709551615,"logit_bias":{"9":-100,"3":1.5},"n":4,"stop":["a","b"],"stop_token_ids":[5],
      "ignore_eos":true,"min_tokens":2,"max_tokens":8,"logprobs":5,"echo":true,"stream":true,"priority":-7,"user":"u","cache_salt":"s",
      "add_special_tokens":false,"stream_options":{"include_usage":true},"unknown_field":{"a":[1]}, "ttft_slo_ms":1,"tpot_slo_ms":2.5,
      "ttlt_slo_ms":3)");
  ASSERT_TRUE(r.ok()) << r.status().ToString();
  const SamplingParams& s = r->base.sampling;
  EXPECT_EQ(s.temperature, 0.25f);
  EXPECT_EQ(s.top_p, 0.5f);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.presence_penalty, -1.0f);
  EXPECT_EQ(s.frequency_penalty, 2.0f);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  EXPECT_TRUE(s.has_seed);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<TokenId, float>>{{3, 1.5f}, {9, -100.0f}}));
  EXPECT_EQ(s.logprobs, 5);
  EXPECT_EQ(r->base.n, 4);
  EXPECT_EQ(r->base.stop.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r->base.stop.stop_token_ids, (std::vector<TokenId>{5}));
  EXPECT_TRUE(r->base.stop.ignore_eos);
  EXPECT_EQ(r->base.stop.min_tokens, 2);
  EXPECT_EQ(*r->max_tokens, 8);
  EXPECT_TRUE(r->echo && r->stream && r->include_usage && r->base.prompt_logprobs && !r->add_special_tokens);
  EXPECT_EQ(r->base.priority, -7);
  EXPECT_EQ(r->base.client, "u");
  EXPECT_EQ(r->base.cache_salt, "s");
  EXPECT_EQ(r->base.slo.ttft_ns, 1'000'000);
  EXPECT_EQ(r->base.slo.tbt_ns, 2'500'000);
  EXPECT_EQ(r->base.slo.jct_ns, 3'000'000);
  EXPECT_EQ(Completion(R"("seed":-1)")->base.sampling.seed, 18446744073709551615u);
  EXPECT_EQ(*Completion(R"("max_tokens":8.0)")->max_tokens, 8);
  EXPECT_EQ(*Chat(R"("max_tokens":8,"max_completion_tokens":9)")->max_tokens, 9);
  EXPECT_EQ(Chat(R"("logprobs":true,"top_logprobs":20)")->base.sampling.logprobs, 20);
  EXPECT_EQ(Chat(R"("logprobs":true)")->base.sampling.logprobs, 0);
  EXPECT_EQ(Chat(R"("slo":{"ttft_ms":5,"tbt_ms":6,"jct_ms":7})")->base.slo.jct_ns, 7'000'000);
  EXPECT_EQ(Chat(R"("slo":{"ttft_ms":5})")->base.slo_class, "");
  EXPECT_EQ(Chat(R"("slo":{"class":"gold"})")->base.slo_class, "gold");
  EXPECT_TRUE(Chat("\"slo\":{\"class\":\"" + std::string(64, 'a') + "\"}").ok());
  const Status long_class = Chat("\"slo\":{\"class\":\"" + std::string(65, 'a') + "\"}").status();
  EXPECT_NE(long_class.message().find("slo.class"), std::string::npos) << long_class.message();
}

// docs/reference/api.md has every field that src/api reads, in code spans.
TEST(RequestParserTest, DocsApiPageNamesEveryField) {
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  std::istringstream page(read(test::SourcePath("docs/reference/api.md")));
  std::string spans;
  for (std::string text; std::getline(page, text, '`') && std::getline(page, text, '`');) spans += text + "\n";
  const std::regex field("(?:Find|String|Integer|Number|Boolean|Refuse|RefuseTrue)\\(\\s*\"([a-z_]+)\"");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(test::SourcePath("src/api"))) {
    if (!file.is_regular_file()) continue;
    const std::string code = read(file.path());
    for (std::sregex_iterator it(code.begin(), code.end(), field), end; it != end; ++it) names.insert((*it)[1]);
  }
  EXPECT_GE(names.size(), 40u) << "the functions that read fields have other names";
  for (const std::string& name : names) {
    EXPECT_TRUE(std::regex_search(spans, std::regex("\\b" + name + "\\b")))
        << "docs/reference/api.md does not name " << name;
  }
}

TEST(RequestParserTest, PromptForms) {
  auto prompts = [](const std::string& text) { return ParseCompletionRequest("{\"prompt\":" + text + "}", Limits()); };
  EXPECT_EQ(prompts(R"(["a","b"])")->prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(prompts("[1,2,999]")->prompts.at(0)), (std::vector<TokenId>{1, 2, 999}));
  EXPECT_TRUE(prompts("[0]").ok()) << prompts("[0]").status().ToString();
  EXPECT_EQ(prompts("[[1],[2,3]]")->prompts.size(), 2u);
  EXPECT_EQ(prompts(R"(["a",[1]])")->prompts.size(), 2u);
  for (const char* bad :
       {"null", "[]", "5", "{}", "true", "[1,\"a\"]", "[1000]", "[-1]", "[1.5]", "[[\"a\"]]", "[true]", "[{}]"}) {
    EXPECT_FALSE(prompts(bad).ok()) << bad;
  }
  std::string many = "[";
  for (int i = 0; i < 257; ++i) many += i ? ",\"x\"" : "\"x\"";
  EXPECT_NE(prompts(many + "]").status().message().find("257 prompts are more than 256"), std::string::npos);
  EXPECT_EQ(ParseCompletionRequest(R"({"prompt":["a","b","c"],"n":100})", Limits()).status().param(), "n");
}

TEST(RequestParserTest, WrongTypesAndRangesNameTheField) {
  for (const char* field : {"temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "repetition_penalty",
                            "presence_penalty",
                            "frequency_penalty",
                            "seed",
                            "logit_bias",
                            "n",
                            "stop",
                            "stop_token_ids",
                            "ignore_eos",
                            "min_tokens",
                            "max_tokens",
                            "stream",
                            "priority",
                            "user",
                            "cache_salt",
                            "slo",
                            "ttft_slo_ms",
                            "logprobs",
                            "echo",
                            "model"}) {
    for (const char* value : {"[[]]", "{\"x\":{}}", "1e300", "\"\\u0000\"", "-2.5"}) {
      const auto r = Completion(fmt::format("\"{}\":{}", field, value));
      const std::string name = field, text = value;
      const bool takes_text = name == "stop" || name == "user" || name == "cache_salt";
      // slo ignores unknown members.
      if ((takes_text && text == "\"\\u0000\"") || (name == "slo" && text == "{\"x\":{}}")) {
        EXPECT_TRUE(r.ok()) << name << " " << text << ": " << r.status().ToString();
        continue;
      }
      ASSERT_FALSE(r.ok()) << name << " " << text;
      const bool no_such_model = r.status().code() == StatusCode::kNotFound;
      EXPECT_EQ(no_such_model, name == "model" && text == "\"\\u0000\"") << name << " " << text;
      EXPECT_EQ(r.status().param(), name) << text << ": " << r.status().ToString();
      EXPECT_TRUE(r.status().message().starts_with(name + (no_such_model ? " '" : ": ")))
          << name << " " << text << ": " << r.status().message();
    }
  }
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{R"("temperature":2.1)", "temperature: 2.1 is out of range; give a number from 0 to 2"},
        Case{R"("top_p":0)", "top_p: 0 is out of range; give a number above 0 and up to 1"},
        Case{R"("top_k":-2)", "top_k: -2 is out of range; give a whole number from -1 to 2147483647"},
        Case{R"("n":0)", "n: 0 is out of range; give a whole number from 1 to 128"},
        Case{R"("n":"2")", "n: expected a whole number, got a string (\"2\")"},
        Case{R"("n":1.5)", "n: expected a whole number, got a number (1.5)"},
        Case{R"("max_tokens":0)", "max_tokens: 0 is out of range; give a whole number from 1 to 9223372036854775807"},
        Case{R"("stop":"")", "stop: a string of 0 bytes; give 1 to 1024"},
        Case{R"("stop":["a",1])", "stop: expected a string or a list of strings, got a number (1)"},
        Case{R"("logit_bias":{"x":1})", "logit_bias: 'x' is no token id from 0 to 999"},
        Case{R"("logit_bias":{"1000":1})", "logit_bias: '1000' is no token id from 0 to 999"},
        Case{R"("logit_bias":{"1":101})", "logit_bias: 101 of token 1 is no number from -100 to 100"},
        Case{R"("logit_bias":{"1":1,"01":2})", "logit_bias: token 1 appears twice; give each once"},
        Case{R"("logprobs":21)", "logprobs: 21 is out of range; give a whole number from 0 to 20"},
        Case{R"("slo":{"ttft_ms":0})", "slo.ttft_ms: 0 is out of range; give a number above 0 and up to 1000000000"},
        Case{R"("stream_options":{"include_usage":true})", "stream_options: only with \"stream\": true"},
        Case{R"("min_tokens":9,"max_tokens":8)",
             "min_tokens: 9 is more than the answer may have, 8; lower it, or raise max_tokens"},
        Case{R"("stream":"yes")", "stream: expected true or false, got a string (\"yes\")"}}) {
    EXPECT_EQ(Completion(c.text).status().message(), c.message);
  }
  EXPECT_EQ(Chat(R"("top_logprobs":3)").status().param(), "top_logprobs");
  EXPECT_EQ(Completion(R"("model":"other")").status().code(), StatusCode::kNotFound);
}

TEST(RequestParserTest, KnownButUnbuiltFieldsAreRefusedNeverIgnored) {
  for (const char* text : {R"("functions":[{}])", R"("suffix":"x")", R"("best_of":2)", R"("prompt_logprobs":1)",
                           R"("modalities":["text","audio"])", R"("use_beam_search":true)",
                           R"("skip_special_tokens":false)", R"("continue_final_message":true)"}) {
    const auto r = Chat(text);
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.status().code(), StatusCode::kUnimplemented) << text;
    EXPECT_EQ("\"" + r.status().param(), std::string(text).substr(0, r.status().param().size() + 1)) << text;
  }
  for (const char* text : {R"("response_format":{"type":"text"})", R"("tools":[])",
                           R"("tools":null,"tool_choice":"none")", R"("best_of":1)", R"("n":2,"best_of":2)",
                           R"("modalities":["text"])", R"("use_beam_search":false)", R"("skip_special_tokens":true)",
                           R"("store":true,"metadata":{},"service_tier":"auto","parallel_tool_calls":true)"}) {
    EXPECT_TRUE(Chat(text).ok()) << text << Chat(text).status().ToString();
  }
}

TEST(RequestParserTest, Messages) {
  auto chat = [](const std::string& messages) { return ParseChatRequest("{\"messages\":" + messages + "}", Limits()); };
  auto rendered = [&](const std::string& messages) {
    return Json::parse(chat(messages)->template_variables)["messages"].dump();
  };
  EXPECT_EQ(
      rendered(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"}])"),
      R"([{"role":"user","content":"a\nb","name":"n"}])");
  EXPECT_EQ(rendered(R"([{"role":"developer","content":"d"}])"), R"([{"role":"system","content":"d"}])");
  EXPECT_EQ(
      rendered(
          R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"r","tool_call_id":"1"}])"),
      R"([{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}},"type":"function"}]},{"role":"tool","content":"r","tool_call_id":"1"}])");
  struct Case {
    const char* messages;
    const char* param;
  };
  for (const Case& c :
       {Case{"[]", "messages"}, Case{"5", "messages"}, Case{"[5]", "messages[0]"},
        Case{R"([{"content":"x"}])", "messages[0].role"},
        Case{R"([{"role":"user","content":"x"},{"role":"robot","content":"x"}])", "messages[1].role"},
        Case{R"([{"role":"user"}])", "messages[0].content"},
        Case{R"([{"role":"user","content":5}])", "messages[0].content"},
        Case{R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
        Case{R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "messages[0].content[0]"},
        Case{R"([{"role":"assistant","content":"x","tool_calls":5}])", "messages[0].tool_calls"}}) {
    EXPECT_EQ(chat(c.messages).status().param(), c.param) << c.messages;
  }
  EXPECT_EQ(chat(R"([{"role":"user","content":[{"type":"input_audio"}]}])").status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(ParseChatRequest("{}", Limits()).status().param(), "messages");
  EXPECT_EQ(Chat(R"("chat_template_kwargs":{"messages":[]})").status().param(), "chat_template_kwargs.messages");
  EXPECT_EQ(Chat(R"("prompt":"x")").status().param(), "prompt");
}

TEST(RequestParserTest, ContextDecidesMaxTokens) {
  auto place = [](const Result<ParsedRequest>& parsed, int64_t prompt) -> Result<int64_t> {
    StopConditions stop = parsed->base.stop;
    TACTUS_RETURN_IF_ERROR(PlaceInContext(*parsed, prompt, Limits(), &stop));
    return stop.max_tokens;
  };
  EXPECT_EQ(*place(Completion(""), 10), 16);
  EXPECT_EQ(*place(Completion(""), 95), 5);
  EXPECT_EQ(*place(Chat(""), 10), 40);
  EXPECT_EQ(*place(Chat(""), 90), 10);
  EXPECT_EQ(*place(Chat(R"("max_tokens":90)"), 10), 90);
  EXPECT_EQ(place(Chat(R"("max_tokens":91)"), 10).status().message(),
            "prompt of 10 tokens + max_tokens of 91 exceed the context of 100 tokens; give max_tokens up to 90");
  EXPECT_EQ(place(Chat(R"("max_tokens":9223372036854775807)"), 10).status().param(), "max_tokens");
  EXPECT_EQ(place(Chat(""), 100).status().param(), "messages");
  EXPECT_EQ(place(Completion(""), 0).status().param(), "prompt");
}

TEST(RequestParserTest, SloHeaders) {
  Slo slo;
  EXPECT_TRUE(ApplySloHeader("X-SLO-TTFT-ms", "12.5", &slo).ok());
  EXPECT_TRUE(ApplySloHeader("x-llm-d-slo-tpot-ms", "3", &slo).ok());
  EXPECT_TRUE(ApplySloHeader("x-slo-other", "nonsense", &slo).ok());
  EXPECT_EQ(slo.ttft_ns, 12'500'000);
  EXPECT_EQ(slo.tbt_ns, 3'000'000);
  EXPECT_EQ(ApplySloHeader("x-slo-ttft-ms", "fast", &slo).param(), "x-slo-ttft-ms");
  EXPECT_FALSE(ApplySloHeader("x-slo-ttft-ms", "-1", &slo).ok());
  EXPECT_FALSE(ApplySloHeader("x-slo-ttft-ms", "nan", &slo).ok());
}

TEST(JsonTest, PositionsAndLimits) {
  EXPECT_EQ(ParseJson("{\n  \"a\": tru }").status().message().substr(0, 33), "invalid JSON at line 2, column 11");
  EXPECT_NE(ParseJson("{} x").status().message().find("line 1, column 4"), std::string::npos);
  EXPECT_NE(ParseJson("{\"a\":1,\"a\":2}").status().message().find("'a' appears twice"), std::string::npos);
  EXPECT_TRUE(ParseJson("{\"a\":{\"a\":1}}").ok());
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']')).ok());
  EXPECT_NE(ParseJson(std::string(65, '[') + std::string(65, ']')).status().message().find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(ParseJson("[1,2,3]", {.max_values = 3}).status().message().find("more than 3 values"), std::string::npos);
  EXPECT_FALSE(ParseJson("\"\xc3\x28\"").ok());
  EXPECT_FALSE(ParseJson("1e999").ok());
  EXPECT_FALSE(ParseJson("NaN").ok());
  EXPECT_FALSE(ParseJson("").ok());
  for (const char* bad : {"\"\xff\"", "{\"\xff\":1}", "\xff", "1e999"}) {
    const std::string message = ParseJson(bad).status().message();
    EXPECT_EQ(ReplaceInvalidUtf8(message), message) << bad;  // messages are sent as JSON
  }
}

TEST(JsonTest, StringsAreEscapedAndRepaired) {
  auto text = [](std::string_view in) {
    std::string out;
    AppendJsonString(&out, in);
    return out;
  };
  EXPECT_EQ(text("a\"b\\c\n\t\r\x01"), "\"a\\\"b\\\\c\\n\\t\\r\\u0001\"");
  EXPECT_EQ(text("é€😀"), "\"é€😀\"");
  EXPECT_EQ(text("x\xff\xc3y"), "\"x\xEF\xBF\xBD\xEF\xBF\xBDy\"");
  EXPECT_EQ(text(std::string_view("\0", 1)), "\"\\u0000\"");
  // For any bytes the result is JSON, and valid text is unchanged.
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; b += 5) {
      const std::string bytes = {static_cast<char>(a), static_cast<char>(b), '\xa0', 'z'};
      const Json parsed = Json::parse(text(bytes));
      EXPECT_EQ(parsed.get<std::string>(), ReplaceInvalidUtf8(bytes));
    }
  }
}

TEST(Json, AnObjectsKeysAreLimited) {
  const auto object = [](int keys) {
    std::string text = "{";
    for (int k = 0; k < keys; ++k) text += fmt::format("{}\"k{}\":1", k > 0 ? "," : "", k);
    return text + "}";
  };
  EXPECT_TRUE(ParseJson(object(16384)).ok());
  const auto refused = ParseJson("[" + object(16385) + "]");
  EXPECT_EQ(refused.status().message(), "invalid JSON: an object of at least 16385 keys; the limit is 16384");
  EXPECT_TRUE(ParseJson(object(20), {.max_keys = 20}).ok());
  EXPECT_FALSE(ParseJson(object(21), {.max_keys = 20}).ok());
}

TEST(Json, ParsingEndsSoonAfterStop) {
  const std::atomic<bool> flag{true};
  std::string text = "[0";
  for (int k = 0; k < 5000; ++k) text += ",1";
  text += ", this is not JSON";  // never reached
  JsonLimits limits;
  limits.stop = StopToken(&flag);
  EXPECT_EQ(ParseJson(text, limits).status().code(), StatusCode::kCancelled);
}

TEST(LeastTokens, ErrorHasTheNumbersOfTheContext) {
  RequestLimits limits;
  limits.max_model_len = 100;
  ParsedRequest parsed;
  EXPECT_TRUE(CheckLeastTokens(parsed, 99, limits).ok());
  EXPECT_EQ(CheckLeastTokens(parsed, 100, limits).message(),
            "prompt of at least 100 tokens + an answer of 1 exceed the context of 100 tokens; shorten the prompt");
  parsed.max_tokens = 50;
  EXPECT_TRUE(CheckLeastTokens(parsed, 99, limits).ok())
      << "the exact number decides, and names what max_tokens may be";
}

}  // namespace
}  // namespace tactus::api::request_parser_test
