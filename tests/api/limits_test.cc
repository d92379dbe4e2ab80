// The limits of docs/reference/api.md: for each, the last valid value and the first invalid one, and the message that
// names field, value and limit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/chat/request_fields.h"
#include "base/json.h"

namespace tactus::api::limits_test {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 100;
  limits.vocab_size = 1000;
  limits.max_choices = 10;
  limits.max_prompts = 20;
  limits.default_max_tokens = 40;
  return limits;
}
Result<ParsedRequest> Completion(const std::string& fields) {
  return ParseCompletionRequest(R"({"prompt":"p",)" + fields + "}", Limits());
}
Result<ParsedRequest> Chat(const std::string& fields) {
  return ParseChatRequest(R"({"messages":[{"role":"user","content":"c"}],)" + fields + "}", Limits());
}
std::string Quoted(const std::string& name, const std::string& value) {
  return fmt::format("\"{}\":{}", name, value);
}

struct Range {
  const char* field;
  std::vector<const char*> inside, outside;
  const char* give;  // end of the message after "<field>: <value> is out of range; give "
};

void Check(const Range& range, const std::function<Result<ParsedRequest>(const std::string&)>& parse,
           const std::string& prefix = "", const std::string& suffix = "") {
  for (const char* value : range.inside) {
    const auto r = parse(prefix + Quoted(range.field, value) + suffix);
    EXPECT_TRUE(r.ok()) << range.field << " " << value << ": " << r.status().ToString();
  }
  for (const char* value : range.outside) {
    const auto r = parse(prefix + Quoted(range.field, value) + suffix);
    ASSERT_FALSE(r.ok()) << range.field << " " << value;
    EXPECT_EQ(r.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(r.status().message(),
              fmt::format("{}: {} is out of range; give {}", r.status().param(), value, range.give));
    EXPECT_TRUE(r.status().param().ends_with(range.field)) << r.status().param();
  }
}

TEST(LimitsTest, Numbers) {
  const std::vector<Range> ranges = {
      {"temperature", {"0", "0.0", "2", "1e-30"}, {"-0.001", "2.001", "-1"}, "a number from 0 to 2"},
      {"top_p", {"1e-9", "1"}, {"0", "-0.1", "1.001"}, "a number above 0 and up to 1"},
      {"top_k", {"-1", "0", "1", "2147483647"}, {"-2", "2147483648"}, "a whole number from -1 to 2147483647"},
      {"min_p", {"0", "1"}, {"-0.001", "1.001"}, "a number from 0 to 1"},
      {"repetition_penalty", {"0.01", "10", "1"}, {"0", "1e-38", "0.0099", "-1", "10.001"}, "a number from 0.01 to 10"},
      {"presence_penalty", {"-2", "2"}, {"-2.001", "2.001"}, "a number from -2 to 2"},
      {"frequency_penalty", {"-2", "2"}, {"-2.001", "2.001"}, "a number from -2 to 2"},
      {"n", {"1", "10", "10.0"}, {"0", "11", "-1"}, "a whole number from 1 to 10"},
      {"min_tokens", {"0", "100"}, {"-1", "101"}, "a whole number from 0 to 100"},
      {"max_tokens",
       {"1", "9223372036854775807"},
       {"0", "-1", "9223372036854775808", "1e+300"},
       "a whole number from 1 to 9223372036854775807"},
      {"max_completion_tokens", {"1", "9223372036854775807"}, {"0"}, "a whole number from 1 to 9223372036854775807"},
      {"priority",
       {"-2147483648", "2147483647"},
       {"-2147483649", "2147483648"},
       "a whole number from -2147483648 to 2147483647"},
      {"ttft_slo_ms",
       {"0.001", "1e9", "1000000000"},
       {"0", "-1", "1000000001"},
       "a number above 0 and up to 1000000000"},
      {"tpot_slo_ms", {"0.001", "1000000000"}, {"0", "1000000001"}, "a number above 0 and up to 1000000000"},
      {"ttlt_slo_ms", {"0.001", "1000000000"}, {"0", "1000000001"}, "a number above 0 and up to 1000000000"},
  };
  for (const Range& range : ranges) {
    Check(range, Completion);
    Check(range, Chat);
  }
  Check({"logprobs", {"0", "20"}, {"-1", "21"}, "a whole number from 0 to 20"}, Completion);
  Check({"top_logprobs", {"0", "20"}, {"-1", "21"}, "a whole number from 0 to 20"}, Chat, R"("logprobs":true,)");
  for (const char* field : {"ttft_ms", "tbt_ms", "jct_ms"})
    Check({field, {"0.001", "1000000000"}, {"0", "1000000001"}, "a number above 0 and up to 1000000000"}, Completion,
          "\"slo\":{", "}");
}

TEST(LimitsTest, NumbersArriveWhereTheyBelong) {
  const auto r = Completion(R"("temperature":0.25,"top_p":0.5,"min_p":0.75,"repetition_penalty":0.01,
      "presence_penalty":-2,"frequency_penalty":2,"top_k":0,"min_tokens":3)");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->base.sampling.repetition_penalty, 0.01f);
  EXPECT_EQ(r->base.sampling.top_k, 0);
  EXPECT_EQ(r->base.stop.min_tokens, 3);
  // A double below the range of floats stays above 0.
  EXPECT_EQ(Completion(R"("top_p":1e-300)")->base.sampling.top_p, std::numeric_limits<float>::min());
  EXPECT_EQ(Completion(R"("temperature":1e-300)")->base.sampling.temperature, 0.0f);
  EXPECT_EQ(Completion(R"("ttft_slo_ms":1e-9)")->base.slo.ttft_ns, 1);  // never 0, which means none
  EXPECT_EQ(Completion(R"("ttft_slo_ms":0.0000015)")->base.slo.ttft_ns, 2);
  EXPECT_EQ(Completion(R"("max_tokens":4)")->base.stop.min_tokens, 0);
}

TEST(LimitsTest, Defaults) {
  const auto c = Completion(R"("x":1)");
  EXPECT_EQ(c->base.priority, 0);
  EXPECT_EQ(c->base.client, "");
  EXPECT_EQ(c->base.cache_salt, "");
  EXPECT_FALSE(c->chat || c->stream || c->include_usage || c->continuous_usage || c->echo || c->base.prompt_logprobs);
  EXPECT_TRUE(c->add_special_tokens);
  EXPECT_FALSE(c->base.stop.ignore_eos);
  EXPECT_TRUE(Chat(R"("x":1)")->chat);
  EXPECT_EQ(Chat(R"("x":1)")->base.sampling.logprobs, -1);
  EXPECT_EQ(Chat(R"("logprobs":false)")->base.sampling.logprobs, -1);
  RequestLimits limits = Limits();
  limits.generation_defaults.logprobs = 5;  // not a default of the model's file
  EXPECT_EQ(ParseCompletionRequest(R"({"prompt":"p"})", limits)->base.sampling.logprobs, -1);
}

TEST(LimitsTest, Seeds) {
  EXPECT_EQ(Completion(R"("seed":0)")->base.sampling.seed, 0u);
  EXPECT_EQ(Completion(R"("seed":-9223372036854775808)")->base.sampling.seed, uint64_t{1} << 63);
  EXPECT_EQ(Completion(R"("seed":7.0)")->base.sampling.seed, 7u);
  for (const char* bad : {"18446744073709551616", "1.5", "\"7\"", "true"}) {
    const auto r = Completion(Quoted("seed", bad));
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_NE(r.status().message().find("seed: expected a whole number of 64 bits, got"), std::string::npos);
  }
}

TEST(LimitsTest, StopStrings) {
  auto list = [](size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += i > 0 ? ",\"s\"" : "\"s\"";
    return text + "]";
  };
  EXPECT_EQ(Completion(Quoted("stop", list(0)))->base.stop.stop.size(), 0u);
  EXPECT_EQ(Completion(Quoted("stop", list(16)))->base.stop.stop.size(), 16u);
  EXPECT_EQ(Completion(Quoted("stop", list(17))).status().message(), "stop: 17 strings are more than 16, the limit");
  EXPECT_EQ(Completion(Quoted("stop", list(17))).status().param(), "stop");
  EXPECT_EQ(Completion(Quoted("stop", '"' + std::string(1024, 's') + '"'))->base.stop.stop[0].size(), 1024u);
  EXPECT_EQ(Completion(Quoted("stop", '"' + std::string(1025, 's') + '"')).status().message(),
            "stop: a string of 1025 bytes; give 1 to 1024");
  EXPECT_EQ(Completion(R"("stop":["a",""])").status().message(), "stop: a string of 0 bytes; give 1 to 1024");
  EXPECT_TRUE(Completion(R"("stop":"s")").ok());
}

TEST(LimitsTest, StopTokenIds) {
  auto list = [](size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + std::to_string(i);
    return text + "]";
  };
  EXPECT_EQ(Completion(Quoted("stop_token_ids", list(256)))->base.stop.stop_token_ids.size(), 256u);
  EXPECT_EQ(Completion(Quoted("stop_token_ids", list(257))).status().message(),
            "stop_token_ids: 257 ids are more than 256, the limit");
  EXPECT_TRUE(Completion(R"("stop_token_ids":[0,999,5.0])").ok());
  for (const char* bad : {"-1", "1000", "1.5", "\"1\""}) {
    EXPECT_EQ(Completion(Quoted("stop_token_ids", fmt::format("[{}]", bad))).status().message(),
              fmt::format("stop_token_ids: {} is no token id from 0 to 999", bad));
  }
  EXPECT_EQ(Completion(R"("stop_token_ids":5)").status().message(),
            "stop_token_ids: expected a list of token ids, got a number (5)");
}

TEST(LimitsTest, LogitBias) {
  EXPECT_EQ(Completion(R"("logit_bias":{"0":-100,"999":100})")->base.sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{0, -100.0f}, {999, 100.0f}}));
  for (const char* bad : {"100.001", "-100.001", "\"1\"", "true", "null"}) {
    EXPECT_EQ(Completion(fmt::format(R"("logit_bias":{{"7":{}}})", bad)).status().message(),
              fmt::format("logit_bias: {} of token 7 is no number from -100 to 100", bad));
  }
  for (const char* bad : {"1000", "-1", "", "1x", "x", "1.0", " 1", "+1", "99999999999"}) {
    EXPECT_EQ(Completion(fmt::format(R"("logit_bias":{{"{}":1}})", bad)).status().message(),
              fmt::format("logit_bias: '{}' is no token id from 0 to 999", bad));
  }
  const std::string longest(80, '9');
  EXPECT_EQ(Completion(fmt::format(R"("logit_bias":{{"{}":1}})", longest)).status().message(),
            fmt::format("logit_bias: '{}' is no token id from 0 to 999", longest.substr(0, 60)));
  EXPECT_EQ(Completion(R"("logit_bias":[])").status().message(),
            "logit_bias: expected an object of token id: bias, got a list (a list)");
}

TEST(LimitsTest, Strings) {
  for (const char* field : {"user", "cache_salt"}) {
    EXPECT_TRUE(Completion(Quoted(field, '"' + std::string(1024, 'x') + '"')).ok());
    EXPECT_EQ(Completion(Quoted(field, '"' + std::string(1025, 'x') + '"')).status().message(),
              fmt::format("{}: 1025 bytes are more than 1024, the limit", field));
    EXPECT_EQ(Completion(Quoted(field, "5")).status().message(),
              fmt::format("{}: expected a string, got a number (5)", field));
  }
  EXPECT_TRUE(Completion(R"("model":"m")").ok());
  EXPECT_EQ(Completion(R"("model":"M")").status().message(), "model 'M' does not exist here; this server has 'm'");
  EXPECT_EQ(Completion(R"("model":"M")").status().param(), "model");
  EXPECT_EQ(Completion(Quoted("model", '"' + std::string(1025, 'x') + '"')).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(LimitsTest, MinTokensAgainstMaxTokens) {
  EXPECT_TRUE(Completion(R"("min_tokens":8,"max_tokens":8)").ok());
  EXPECT_FALSE(Completion(R"("min_tokens":9,"max_tokens":8)").ok());
  EXPECT_TRUE(Completion(R"("min_tokens":9)").ok());
  StopConditions stop;
  const auto r = Completion(R"("min_tokens":30)");
  stop = r->base.stop;
  ASSERT_TRUE(PlaceInContext(*r, 10, Limits(), &stop).ok());
  EXPECT_EQ(stop.max_tokens, 16);
  EXPECT_EQ(stop.min_tokens, 16);  // never more than max_tokens
}

TEST(LimitsTest, PromptsTimesN) {
  auto prompts = [](size_t count, int n) {
    std::string body = R"({"prompt":[)";
    for (size_t i = 0; i < count; ++i) body += i > 0 ? ",\"x\"" : "\"x\"";
    return ParseCompletionRequest(body + fmt::format("],\"n\":{}}}", n), Limits());
  };
  EXPECT_TRUE(prompts(20, 1).ok());
  EXPECT_EQ(prompts(21, 1).status().message(), "prompt: 21 prompts are more than 20, the limit of one request");
  EXPECT_EQ(prompts(21, 1).status().param(), "prompt");
  EXPECT_TRUE(prompts(2, 10).ok());
  EXPECT_EQ(prompts(3, 7).status().message(), "n: 3 prompts times n 7 are 21 choices, more than 20, the limit");
}

TEST(LimitsTest, Streaming) {
  const auto options = [](const char* text) {
    return Completion(fmt::format(R"("stream":true,"stream_options":{})", text));
  };
  EXPECT_TRUE(options(R"({"include_usage":true})")->include_usage);
  EXPECT_FALSE(options(R"({"include_usage":true})")->continuous_usage);
  EXPECT_TRUE(options(R"({"include_usage":true,"continuous_usage_stats":true})")->continuous_usage);
  // Continuous usage needs include_usage: without the last chunk the format would not be OpenAI's.
  EXPECT_FALSE(options(R"({"include_usage":false,"continuous_usage_stats":true})")->continuous_usage);
  EXPECT_FALSE(options(R"({"continuous_usage_stats":true})")->continuous_usage);
  EXPECT_FALSE(options(R"({"continuous_usage_stats":true})")->include_usage);
  EXPECT_EQ(options(R"({"include_usage":1})").status().message(),
            "stream_options.include_usage: expected true or false, got a number (1)");
  EXPECT_EQ(options("[]").status().message(), "stream_options: expected an object, got a list (a list)");
  EXPECT_EQ(Completion(R"("stream":false,"stream_options":{})").status().message(),
            "stream_options: only with \"stream\": true");
  EXPECT_TRUE(Completion(R"("stream":false,"stream_options":null)").ok());
}

TEST(LimitsTest, LogprobsAndEcho) {
  EXPECT_TRUE(Completion(R"("echo":true,"logprobs":0)")->base.prompt_logprobs);
  EXPECT_FALSE(Completion(R"("echo":true)")->base.prompt_logprobs);
  EXPECT_FALSE(Completion(R"("echo":false,"logprobs":0)")->base.prompt_logprobs);
  EXPECT_EQ(Chat(R"("top_logprobs":1)").status().message(), "top_logprobs: only with \"logprobs\": true");
  EXPECT_EQ(Chat(R"("logprobs":1)").status().message(), "logprobs: expected true or false, got a number (1)");
  EXPECT_EQ(Chat(R"("echo":true)").status().message(), "echo: not supported yet, in chats; leave it out");
  EXPECT_TRUE(Chat(R"("echo":false,"add_special_tokens":false)").ok());
  EXPECT_EQ(Chat(R"("add_special_tokens":true)").status().message(),
            "add_special_tokens: not supported yet, in chats, whose template writes them; leave it out");
  EXPECT_EQ(Completion(R"("messages":[])").status().message(),
            "messages: belongs to /v1/chat/completions; here give prompt");
  EXPECT_EQ(Chat(R"("prompt":"x")").status().message(), "prompt: belongs to /v1/completions; here give messages");
}

TEST(LimitsTest, UnbuiltFieldsAreNamedWithWhatIsPossible) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{R"("modalities":["audio"])", "modalities: not supported yet, only [\"text\"]; leave it out"},
        Case{R"("best_of":2)", "best_of: not supported yet, only equal to n; leave it out"},
        Case{R"("n":3,"best_of":2)", "best_of: not supported yet, only equal to n; leave it out"},
        Case{R"("n":2,"best_of":1)", "best_of: not supported yet, only equal to n; leave it out"},
        Case{R"("suffix":"x")", "suffix: not supported yet; leave it out"},
        Case{R"("detokenize":false)", "detokenize: not supported yet, only true; leave it out"}}) {
    EXPECT_EQ(Chat(c.text).status().message(), c.message);
    EXPECT_EQ(Chat(c.text).status().code(), StatusCode::kUnimplemented);
  }
  for (const char* name :
       {"suffix", "functions", "function_call", "audio", "prediction", "web_search_options", "logits_processors",
        "prompt_logprobs", "truncate_prompt_tokens", "prompt_embeds", "chat_template", "allowed_token_ids", "bad_words",
        "mm_processor_kwargs", "kv_transfer_params"}) {
    EXPECT_EQ(Chat(Quoted(name, "1")).status().param(), name);
    EXPECT_TRUE(Chat(Quoted(name, "null")).ok()) << name;
  }
  for (const char* name : {"use_beam_search", "continue_final_message", "include_stop_str_in_output",
                           "return_token_ids", "return_tokens_as_token_ids"}) {
    EXPECT_EQ(Chat(Quoted(name, "true")).status().code(), StatusCode::kUnimplemented) << name;
    EXPECT_TRUE(Chat(Quoted(name, "false")).ok()) << name;
    EXPECT_EQ(Chat(Quoted(name, "1")).status().code(), StatusCode::kInvalidArgument) << name;
  }
  for (const char* name : {"skip_special_tokens", "detokenize"}) {
    EXPECT_EQ(Chat(Quoted(name, "false")).status().param(), name);
    EXPECT_TRUE(Chat(Quoted(name, "true")).ok()) << name;
  }
  EXPECT_EQ(Chat(R"("tools":{})").status().message(), "tools: expected a list, got an object");
}

TEST(LimitsTest, Messages) {
  auto many = [](size_t count) {
    std::string body = R"({"messages":[)";
    for (size_t i = 0; i < count; ++i) body += std::string(i > 0 ? "," : "") + R"({"role":"user","content":""})";
    return ParseChatRequest(body + "]}", Limits());
  };
  EXPECT_TRUE(many(16384).ok());
  EXPECT_EQ(many(16385).status().message(), "messages: 16385 of them; give 1 to 16384");
  EXPECT_EQ(many(0).status().message(), "messages: 0 of them; give 1 to 16384");
}

TEST(LimitsTest, PromptAndAnswerMustFitTheContext) {
  const auto place = [](const Result<ParsedRequest>& parsed, int64_t prompt) {
    StopConditions stop = parsed->base.stop;
    const Status status = PlaceInContext(*parsed, prompt, Limits(), &stop);
    return status.ok() ? std::to_string(stop.max_tokens) : status.param() + "|" + status.message();
  };
  const auto completion = Completion(R"("x":1)"), chat = Chat(R"("x":1)");
  EXPECT_EQ(place(completion, 0), "prompt|prompt: no tokens; give at least one");
  EXPECT_EQ(place(chat, 0), "messages|prompt: no tokens; give at least one");
  EXPECT_EQ(place(completion, 1), "16");
  EXPECT_EQ(place(completion, 84), "16");
  EXPECT_EQ(place(completion, 85), "15");
  EXPECT_EQ(place(completion, 99), "1");
  EXPECT_EQ(place(completion, 100),
            "prompt|prompt of 100 tokens + an answer of 1 exceed the context of 100 tokens; shorten the prompt");
  EXPECT_EQ(place(Completion(R"("max_tokens":0,"echo":true)"), 100),
            "prompt|prompt of 100 tokens + an answer of 1 exceed the context of 100 tokens; shorten the prompt");
  EXPECT_EQ(place(chat, 60), "40");
  EXPECT_EQ(place(chat, 61), "39");
  EXPECT_EQ(place(Completion(R"("max_tokens":50)"), 50), "50");
  EXPECT_EQ(
      place(Completion(R"("max_tokens":51)"), 50),
      "max_tokens|prompt of 50 tokens + max_tokens of 51 exceed the context of 100 tokens; give max_tokens up to 50");
  EXPECT_EQ(place(Completion(R"("max_tokens":51)"), 100),
            "prompt|prompt of 100 tokens + max_tokens of 51 exceed the context of 100 tokens; shorten the prompt");
}

TEST(LimitsTest, ContextErrorsNameTheFieldThatWasSent) {
  const auto place = [](const Result<ParsedRequest>& parsed, int64_t prompt) {
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    StopConditions stop = parsed->base.stop;
    const Status status = parsed->names.Original(PlaceInContext(*parsed, prompt, Limits(), &stop));
    return status.param() + "|" + status.message();
  };
  const auto refusal = [](const std::string& field) {
    return field + "|prompt of 50 tokens + " + field + " of 51 exceed the context of 100 tokens; give " + field +
           " up to 50";
  };
  EXPECT_EQ(place(Chat(R"("max_tokens":51)"), 50), refusal("max_tokens"));
  EXPECT_EQ(place(Chat(R"("max_completion_tokens":51)"), 50), refusal("max_completion_tokens"));
  EXPECT_EQ(place(Chat(R"("max_completion_tokens":51,"max_tokens":7)"), 50), refusal("max_completion_tokens"));
  EXPECT_EQ(place(ParseResponsesRequest(R"({"input":"x","max_output_tokens":51})", Limits()), 50),
            refusal("max_output_tokens"));
  EXPECT_EQ(
      place(ParseMessagesRequest(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":51})", Limits()), 50),
      refusal("max_tokens"));
  EXPECT_EQ(Chat(R"("max_completion_tokens":5,"min_tokens":6)").status().message(),
            "min_tokens: 6 is more than the answer may have, 5; lower it, or raise max_completion_tokens");
}

TEST(LimitsTest, SloHeaders) {
  const auto apply = [](const char* name, const char* value, Slo slo = {}) {
    const Status status = ApplySloHeader(name, value, &slo);
    return status.ok() ? fmt::format("{} {} {}", slo.ttft_ns, slo.tbt_ns, slo.jct_ns) : status.message();
  };
  EXPECT_EQ(apply("X-SLO-TTFT-MS", "2"), "2000000 0 0");
  EXPECT_EQ(apply("x-slo-tpot-ms", "2.5"), "0 2500000 0");
  EXPECT_EQ(apply("X-LLM-D-SLO-TTFT-ms", "1000000000"), "1000000000000000 0 0");
  EXPECT_EQ(apply("x-slo-ttft-ms", "3", {7, 8, 9}), "7 8 9");  // the body's value wins
  for (const char* other : {"slo-ttft-ms", "x-ttft-ms", "x-slo-jct-ms", "y-slo-ttft-ms", "x-x-slo-ttft-ms", "x", ""})
    EXPECT_EQ(apply(other, "nonsense"), "0 0 0") << other;
  for (const char* bad : {"0", "-1", "1000000001", "", " 1", "1 ", "1ms", "inf", "nan"}) {
    EXPECT_EQ(apply("X-Slo-Ttft-Ms", bad),
              fmt::format("x-slo-ttft-ms: '{}' is no number of milliseconds above 0 and up to 1000000000", bad));
  }
  EXPECT_EQ(apply("x-slo-ttft-ms", std::string(70, '\xff').c_str()).find('\xff'), std::string::npos);
}

TEST(LimitsTest, TokenizeAndDetokenize) {
  const auto tokenize = [](const char* body) { return ParseTokenizeRequest(body, Limits()); };
  EXPECT_EQ(tokenize(R"({"prompt":"x"})")->prompt, "x");
  EXPECT_TRUE(tokenize(R"({"prompt":"x"})")->add_special_tokens);
  EXPECT_FALSE(tokenize(R"({"prompt":"x"})")->return_token_strs);
  EXPECT_FALSE(tokenize(R"({"prompt":"x"})")->chat);
  EXPECT_FALSE(tokenize(R"({"prompt":"x","add_special_tokens":false})")->add_special_tokens);
  EXPECT_TRUE(tokenize(R"({"prompt":"x","return_token_strs":true})")->return_token_strs);
  EXPECT_TRUE(tokenize(R"({"messages":[{"role":"user","content":"c"}]})")->chat);
  EXPECT_EQ(tokenize("{}").status().message(), "prompt: missing; give prompt or messages");
  EXPECT_EQ(tokenize(R"({"prompt":"x","messages":[{"role":"user","content":"c"}]})").status().message(),
            "prompt: give either prompt or messages");
  EXPECT_EQ(tokenize(R"({"messages":[{"role":"user","content":"c"}],"add_special_tokens":true})").status().message(),
            "add_special_tokens: not supported yet, with messages, whose template writes them; leave it out");
  for (const char* extra : {R"("continue_final_message":true)"}) {
    EXPECT_EQ(
        tokenize(fmt::format(R"({{"messages":[{{"role":"user","content":"c"}}],{}}})", extra).c_str()).status().code(),
        StatusCode::kUnimplemented);
  }
  EXPECT_EQ(tokenize(R"({"prompt":"x","model":"other"})").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(tokenize("[]").status().message(), "the body must be a JSON object, not a list");
  const auto detokenize = [](const char* body) { return ParseDetokenizeRequest(body, Limits()); };
  EXPECT_EQ(*detokenize(R"({"tokens":[0,999]})"), (std::vector<TokenId>{0, 999}));
  EXPECT_EQ(*detokenize(R"({"tokens":[]})"), std::vector<TokenId>());
  EXPECT_EQ(detokenize("{}").status().message(), "tokens: missing; give a list of token ids");
  EXPECT_EQ(detokenize(R"({"tokens":[1000]})").status().message(), "tokens: 1000 is no token id from 0 to 999");
  EXPECT_EQ(detokenize(R"({"tokens":"x"})").status().message(),
            "tokens: expected a list of token ids, got a string (\"x\")");
  EXPECT_EQ(detokenize(R"({"tokens":[1],"model":"other"})").status().code(), StatusCode::kNotFound);
}

TEST(FieldsTest, TheFirstFaultIsKept) {
  EXPECT_EQ(Completion(R"("temperature":3,"top_p":5)").status().param(), "temperature");
  const Json object = Json::object();
  Fields fields(object, "a.");
  EXPECT_TRUE(fields.ok());
  fields.Fail(InvalidArgument("one"));
  fields.Fail(InvalidArgument("two"));
  EXPECT_EQ(fields.status().message(), "one");
  EXPECT_EQ(fields.Name("b"), "a.b");
  EXPECT_FALSE(fields.Has("b"));
}

TEST(FieldsTest, IntegersAndShownValues) {
  EXPECT_EQ(AsInteger(Json(9007199254740992.0)), 9007199254740992);
  EXPECT_EQ(AsInteger(Json(9007199254740994.0)), std::nullopt);  // beyond the exact integers of a double
  EXPECT_EQ(AsInteger(Json(-9007199254740992.0)), -9007199254740992);
  EXPECT_EQ(AsInteger(Json(0.5)), std::nullopt);
  EXPECT_EQ(AsInteger(Json(std::numeric_limits<int64_t>::min())), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(AsInteger(Json(uint64_t{1} << 63)), std::nullopt);
  EXPECT_EQ(AsInteger(Json((uint64_t{1} << 63) - 1)), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(AsInteger(Json("5")), std::nullopt);
  EXPECT_EQ(Shown(Json("x")), "\"x\"");
  EXPECT_EQ(Shown(Json(std::string(58, 'x'))).size(), 60u);  // with its quotes it just fits
  const std::string cut = Shown(Json(std::string(59, 'x')));
  EXPECT_EQ(cut, "\"" + std::string(56, 'x') + "...");
  EXPECT_EQ(Shown(Json::array()), "a list");
  EXPECT_STREQ(TypeName(Json(nullptr)), "null");
  EXPECT_STREQ(TypeName(Json(true)), "a boolean");
  EXPECT_EQ(Completion(R"("n":1e300)").status().message(),
            "n: 1e+300 is out of range; give a whole number from 1 to 10");
  EXPECT_EQ(Completion(R"("n":1.5)").status().message(), "n: expected a whole number, got a number (1.5)");
}

TEST(JsonLimitsTest, DepthAndValues) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(3), {.max_depth = 3}).ok());
  EXPECT_EQ(ParseJson(nested(4), {.max_depth = 3}).status().message(),
            "invalid JSON: nested deeper than 3 levels, the limit");
  EXPECT_TRUE(ParseJson("[1,{\"a\":[]}]", {.max_values = 4}).ok());
  EXPECT_EQ(ParseJson("[1,{\"a\":[]}]", {.max_values = 3}).status().message(),
            "invalid JSON: more than 3 values, the limit");
  EXPECT_EQ(ParseJson("[[[[]]]]", {.max_values = 3}).status().message(), "invalid JSON: more than 3 values, the limit");
  EXPECT_EQ(ParseJson("{\"a\":1,\n \"a\":2}").status().message(),
            "invalid JSON: the key 'a' appears twice in one object");
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":2}])").ok());
  EXPECT_EQ(ParseJson(R"({"b":1,"a":{"c":2}})")->dump(), R"({"b":1,"a":{"c":2}})");  // the client's order
}

TEST(JsonLimitsTest, Utf8) {
  const std::string bad = "\xEF\xBF\xBD";
  for (const std::string good : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                                 "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\x7f", "a"}) {
    EXPECT_EQ(ReplaceInvalidUtf8(good), good);
  }
  EXPECT_EQ(ReplaceInvalidUtf8("\x80"), bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC1\xBF"), bad + bad);                      // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xE0\x9F\xBF"), bad + bad + bad);            // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x8F\xBF\xBF"), bad + bad + bad + bad);  // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("\xF5\x80\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC3"), bad);  // cut off
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), bad + bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), bad + bad + bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98z"), bad + bad + bad + "z");
  std::string out;
  AppendJsonString(&out, "\x1f\x20\x7e\x7f");
  EXPECT_EQ(out, "\"\\u001f ~\\u007f\"");
}

}  // namespace
}  // namespace tactus::api::limits_test
