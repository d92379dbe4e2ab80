// Exact answers: whole and streamed, chat and completion, logprobs in every form, errors, models, tokens.
#include "api/chat/response_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

const std::string kChatUsage =
    R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2},)"
    R"("completion_tokens_details":{"reasoning_tokens":0}})";
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
const std::string kUsage =
    R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}})";

class ResponseTextTest : public testing::Test {
 protected:
  CompletionWriter Writer(bool chat, int32_t logprobs = -1, bool include_usage = false, bool continuous = false) {
    return CompletionWriter(engine_,
                            {.chat = chat,
                             .logprobs = logprobs,
                             .include_usage = include_usage,
                             .continuous_usage = continuous,
                             .frame = {"data: ", "\n\n"}},
                            "id", 5, "print");
  }
  using Rows = std::vector<std::vector<TokenLogprob>>;
  static std::vector<AnswerPart> Text(std::string text) {
    std::vector<AnswerPart> parts;
    if (!text.empty()) parts.emplace_back().text = std::move(text);
    return parts;
  }
  static ChoiceText Choice(std::string text, Rows rows, FinishReason finish, std::string stop_string = "") {
    return {Text(std::move(text)), std::move(rows), finish, std::move(stop_string)};
  }
  std::string Whole(CompletionWriter writer, const std::vector<ChoiceText>& choices) {
    return writer.Whole(choices, usage_, {});
  }
  // The chunk that a delta of this text adds to a stream.
  std::string Delta(CompletionWriter* writer, std::string text, FinishReason finish = FinishReason::kNone,
                    Rows rows = {}) {
    std::string out;
    writer->AppendDelta(&out, 0, {Text(std::move(text)), rows, finish, false, {}}, usage_);
    return out;
  }
  static std::string Head(const char* object) {
    return std::string(R"({"id":"id","object":")") + object +
           R"(","created":5,"model":"fake","system_fingerprint":"print","choices":[)";
  }
  FakeEngine engine_;
  const Usage usage_{3, 2, 4};
};

TEST_F(ResponseTextTest, EveryCodeHasItsStatusAndEveryStatusItsType) {
  struct Case {
    StatusCode code;
    int status;
    const char* type;
  };
  for (const Case& c :
       {Case{StatusCode::kInvalidArgument, 400, "invalid_request_error"},
        Case{StatusCode::kUnimplemented, 400, "invalid_request_error"},
        Case{StatusCode::kUnauthenticated, 401, "authentication_error"},
        Case{StatusCode::kNotFound, 404, "not_found_error"},
        Case{StatusCode::kDeadlineExceeded, 408, "invalid_request_error"},
        Case{StatusCode::kTooLarge, 413, "invalid_request_error"},
        Case{StatusCode::kTooManyRequests, 429, "rate_limit_error"},
        Case{StatusCode::kCancelled, 499, "invalid_request_error"}, Case{StatusCode::kDataLoss, 500, "server_error"},
        Case{StatusCode::kInternal, 500, "server_error"}, Case{StatusCode::kResourceExhausted, 503, "overloaded_error"},
        Case{StatusCode::kUnavailable, 503, "overloaded_error"}}) {
    EXPECT_EQ(HttpStatusOf(c.code), c.status);
    const char* const code = c.status == 401   ? "\"invalid_api_key\""
                             : c.status == 429 ? "\"rate_limit_exceeded\""
                                               : "null";
    EXPECT_EQ(ErrorText(Status(c.code, "m\"", "p")),
              std::string(R"({"error":{"message":"m\"","type":")") + c.type + R"(","param":"p","code":)" + code + "}}");
  }
  EXPECT_EQ(HttpStatusOf(StatusCode::kOk), 200);
  EXPECT_EQ(ErrorText(499, "m"),
            R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_EQ(ErrorText(500, "m"), R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
  EXPECT_STREQ(StatusCodeName(StatusCode::kTooManyRequests), "too many requests");
}

TEST_F(ResponseTextTest, FinishReasons) {
  EXPECT_EQ(FinishText(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishText(FinishReason::kLength), "length");
  for (const auto none : {FinishReason::kNone, FinishReason::kCancelled, FinishReason::kError})
    EXPECT_EQ(FinishText(none), "");
}

TEST_F(ResponseTextTest, WholeChat) {
  const std::vector<ChoiceText> choices = {Choice("a\"b", {}, FinishReason::kStop, "END"),
                                           Choice("", {}, FinishReason::kLength)};
  EXPECT_EQ(
      Whole(Writer(true), choices),
      Head("chat.completion") +
          R"({"index":0,"message":{"role":"assistant","content":"a\"b","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":"END"},)"
          R"({"index":1,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":"length"}],)" +
          kChatUsage + "}");
}

TEST_F(ResponseTextTest, WholeCompletion) {
  EXPECT_EQ(
      Whole(Writer(false), {Choice("x", {}, FinishReason::kNone)}),
      Head("text_completion") + R"({"index":0,"text":"x","logprobs":null,"finish_reason":null}],)" + kUsage + "}");
}

TEST_F(ResponseTextTest, ChatChunks) {
  CompletionWriter writer = Writer(true);
  EXPECT_EQ(writer.id(), "id");
  std::string out;
  writer.AppendBegin(&out, 1, nullptr, usage_);
  EXPECT_EQ(out, "data: " + Head("chat.completion.chunk") +
                     R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
                     "\n\n");
  EXPECT_EQ(Delta(&writer, "t"), "data: " + Head("chat.completion.chunk") +
                                     R"({"index":0,"delta":{"content":"t"},"logprobs":null,"finish_reason":null}]})"
                                     "\n\n");
  out = Delta(&writer, "t", FinishReason::kStop);  // text and end together
  EXPECT_NE(out.find(R"("delta":{"content":"t"},"logprobs":null,"finish_reason":"stop"}]})"), std::string::npos) << out;
  out = Delta(&writer, "", FinishReason::kStop);  // only the end
  EXPECT_NE(out.find(R"("delta":{},"logprobs":null,"finish_reason":"stop"}]})"), std::string::npos) << out;
  out = Delta(&writer, "");  // a token without text, for its logprobs
  EXPECT_NE(out.find(R"("delta":{"content":""},)"), std::string::npos) << out;
}

TEST_F(ResponseTextTest, UsageInChunks) {
  CompletionWriter writer = Writer(false, -1, true);
  EXPECT_EQ(Delta(&writer, "t"), "data: " + Head("text_completion") +
                                     R"({"index":0,"text":"t","logprobs":null,"finish_reason":null}],"usage":null})"
                                     "\n\n");
  CompletionWriter continuous = Writer(false, -1, true, true);
  const std::string shown = Delta(&continuous, "t");
  EXPECT_TRUE(shown.ends_with("}]," + kUsage + "}\n\n")) << shown;
  std::string out;
  writer.AppendLast(&out, usage_, {});
  EXPECT_EQ(out, "data: " + Head("text_completion") + "]," + kUsage + "}\n\n");
  out.clear();
  CompletionWriter without = Writer(false);
  without.AppendLast(&out, usage_, {});
  EXPECT_EQ(out, "");
}

// Reasoning, then text, then two calls.
std::vector<AnswerPart> CallParts() {
  using Kind = AnswerPart::Kind;
  return {{Kind::kReasoning, "R", {}, {}, -1},      {Kind::kText, "T", {}, {}, -1},
          {Kind::kCallBegin, {}, "f", "call_0", 0}, {Kind::kCallArguments, "{\"a\":", {}, {}, 0},
          {Kind::kCallArguments, "1}", {}, {}, 0},  {Kind::kCallBegin, {}, "g", "call_1", 1},
          {Kind::kCallArguments, "{}", {}, {}, 1}};
}

TEST_F(ResponseTextTest, CallsOfAWholeChat) {
  const std::vector<ChoiceText> choices = {{CallParts(), {}, FinishReason::kStop, ""}};
  EXPECT_EQ(
      Whole(Writer(true), choices),
      Head("chat.completion") +
          R"({"index":0,"message":{"role":"assistant","content":"T","refusal":null,"reasoning_content":"R","tool_calls":[)"
          R"({"id":"call_0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},)"
          R"({"id":"call_1","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],)" +
          kChatUsage + "}");
  // No text beside the call: content is null, as in OpenAI's API. Cut off: finish_reason is "length".
  std::vector<AnswerPart> parts = CallParts();
  parts.erase(parts.begin(), parts.begin() + 2);
  const std::string silent = Whole(Writer(true), {{parts, {}, FinishReason::kLength, ""}});
  EXPECT_NE(silent.find(R"("content":null,"refusal":null,"tool_calls":[)"), std::string::npos) << silent;
  EXPECT_NE(silent.find(R"("finish_reason":"length")"), std::string::npos) << silent;
  const std::string thought = Whole(Writer(true), {{{CallParts()[0]}, {}, FinishReason::kLength, ""}});
  EXPECT_NE(thought.find(R"("content":null,"refusal":null,"reasoning_content":"R"})"), std::string::npos) << thought;
}

TEST_F(ResponseTextTest, CallsInChunks) {
  CompletionWriter writer = Writer(true);
  const std::vector<AnswerPart> parts = CallParts();
  std::string out;
  writer.AppendDelta(&out, 0, {parts, {}, FinishReason::kStop, true, "END"}, usage_);
  std::string expected;
  for (const char* delta :
       {R"({"reasoning_content":"R"})", R"({"content":"T"})",
        R"({"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"f","arguments":""}}]})",
        R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})",
        R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})",
        R"({"tool_calls":[{"index":1,"id":"call_1","type":"function","function":{"name":"g","arguments":""}}]})"}) {
    expected += "data: " + Head("chat.completion.chunk") + R"({"index":0,"delta":)" + delta +
                R"(,"logprobs":null,"finish_reason":null}]})" + "\n\n";
  }
  expected += "data: " + Head("chat.completion.chunk") +
              R"({"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]},"logprobs":null,)"
              R"("finish_reason":"tool_calls","stop_reason":"END"}]})"
              "\n\n";
  EXPECT_EQ(out, expected);
}

TEST_F(ResponseTextTest, PartsOfOneKindAreOne) {
  std::vector<AnswerPart> parts;
  for (const AnswerPart& part : CallParts()) AppendPart(part, &parts);
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(ArgumentsOf(parts, 0), "{\"a\":1}");
  EXPECT_EQ(ArgumentsOf(parts, 1), "{}");
  EXPECT_EQ(TextOf(parts), "T");
  EXPECT_EQ(TextOf(parts, AnswerPart::Kind::kReasoning), "R");
  EXPECT_TRUE(Called(parts));
  EXPECT_FALSE(Called(Text("x")));
}

TEST_F(ResponseTextTest, CompletionLogprobs) {
  CompletionWriter writer = Writer(false, 2);
  // The chosen token is the second best; its text counts once although it is listed twice.
  const std::vector<std::vector<TokenLogprob>> rows = {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}},
                                                       {},  // no data: left out
                                                       {{'c', -3.0f}, {'a', -0.25f}, {'d', -2.0f}}};
  EXPECT_EQ(
      Whole(writer, {Choice("bc", rows, FinishReason::kLength)}),
      Head("text_completion") +
          R"({"index":0,"text":"bc","logprobs":{"text_offset":[0,1],"token_logprobs":[-1.5,-3],"tokens":["b","c"],)"
          R"("top_logprobs":[{"a":-0.5,"b":-1.5},{"a":-0.25,"d":-2,"c":-3}]},"finish_reason":"length"}],)" +
          kUsage + "}");
  // Offsets continue from chunk to chunk.
  std::string out;
  const Rows seven(7, {{'1', -1.0f}});
  const EchoedPrompt echoed{"1111111", seven};
  writer.AppendBegin(&out, 0, &echoed, usage_);
  out = Delta(&writer, "b", FinishReason::kNone, {rows[0]});
  EXPECT_NE(out.find(R"("text_offset":[7])"), std::string::npos) << out;
  out = Delta(&writer, "b");
  EXPECT_NE(out.find(R"("text":"b","logprobs":null,)"), std::string::npos) << out;
  out = Delta(&writer, "b", FinishReason::kNone, {rows[0]});
  EXPECT_NE(out.find(R"("text_offset":[8])"), std::string::npos) << out;
}

TEST_F(ResponseTextTest, TokensThatArePartsOfACharacterHaveDistinctNames) {
  const std::string out =
      Whole(Writer(false, 2), {Choice("", {{{200, -1.0f}, {201, -0.5f}, {200, -1.0f}}}, FinishReason::kLength)});
  EXPECT_NE(out.find(R"("tokens":["bytes:\\xc8"],"top_logprobs":[{"bytes:\\xc9":-0.5,"bytes:\\xc8":-1}])"),
            std::string::npos)
      << out;
}

TEST_F(ResponseTextTest, LogprobsOfZeroHaveNoTopList) {
  const std::string out = Whole(Writer(false, 0), {Choice("b", {{{'b', -1.5f}}}, FinishReason::kLength)});
  EXPECT_NE(out.find(R"("logprobs":{"text_offset":[0],"token_logprobs":[-1.5],"tokens":["b"],"top_logprobs":null})"),
            std::string::npos)
      << out;
}

TEST_F(ResponseTextTest, OffsetsCountCharactersByTheirFirstByte) {
  const auto token = [](TokenId id) { return std::vector<TokenLogprob>{{id, -1.0f}}; };
  const std::string out =
      Whole(Writer(false, 0),
            {Choice("x", {token('a'), token(0xC3), token(0xA9), token(300), token('z')}, FinishReason::kLength)});
  EXPECT_NE(out.find(R"("text_offset":[0,1,2,2,7])"), std::string::npos) << out;  // <300> is five characters
}

TEST_F(ResponseTextTest, OffsetsAreThoseOfTheSentText) {
  const auto token = [](TokenId id) { return std::vector<TokenLogprob>{{id, -1.0f}}; };
  // Bytes that form no character: each is a U+FFFD in the text.
  const std::string out =
      Whole(Writer(false, 0),
            {Choice("x", {token(0xA9), token(0xA9), token(0xC3), token('z'), token('y')}, FinishReason::kLength)});
  EXPECT_NE(out.find(R"("text_offset":[0,1,2,3,4])"), std::string::npos) << out;
  // A space that the tokeniser adds before a text is not part of it.
  const std::string spaced =
      Whole(Writer(false, 0), {Choice("ab", {token(' '), token('a'), token('b')}, FinishReason::kLength)});
  EXPECT_NE(spaced.find(R"("text_offset":[0,0,1])"), std::string::npos) << spaced;
}

TEST_F(ResponseTextTest, ErrorOfATooLongPromptHasTheWordsThatClientsLookFor) {
  const std::string text = ErrorText(InvalidArgument(
      "prompt of 9000 tokens + max_tokens of 10 exceed the context of 8192 tokens; shorten the prompt", "messages"));
  EXPECT_NE(text.find(R"("code":"context_length_exceeded")"), std::string::npos) << text;
  EXPECT_NE(text.find("maximum context length is 8192 tokens"), std::string::npos) << text;
  EXPECT_NE(ErrorText(NotFound("no such", "model")).find(R"("code":"model_not_found")"), std::string::npos);
}

TEST_F(ResponseTextTest, EchoRowsBeginWithNull) {
  CompletionWriter writer = Writer(false, 1);
  std::string out;
  const Rows rows = {{{'d', kNone}}, {{'e', -0.5f}, {'f', -0.25f}}};
  const EchoedPrompt echo{"de", rows};
  writer.AppendBegin(&out, 2, &echo, usage_);
  EXPECT_EQ(
      out,
      "data: " + Head("text_completion") +
          R"({"index":2,"text":"de","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-0.5],"tokens":["d","e"],)"
          R"("top_logprobs":[null,{"f":-0.25,"e":-0.5}]},"finish_reason":null}]})"
          "\n\n");
}

TEST_F(ResponseTextTest, ChatLogprobs) {
  CompletionWriter writer = Writer(true, 1);
  const std::string out =
      Whole(writer, {Choice("b", {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}}, {}, {{200, -2.0f}, {300, -1.0f}}},
                            FinishReason::kStop)});
  EXPECT_NE(
      out.find(
          R"("logprobs":{"content":[{"token":"b","logprob":-1.5,"bytes":[98],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]},)"
          "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-2,\"bytes\":[200],\"top_logprobs\":[{\"token\":\"<300>\","
          "\"logprob\":-1,\"bytes\":[60,51,48,48,62]}]}],"
          "\"refusal\":null}"),
      std::string::npos)
      << out;
  const std::string two =
      Whole(Writer(true, 2), {Choice("b", {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}}}, FinishReason::kStop)});
  EXPECT_NE(
      two.find(
          R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.5,"bytes":[98]}]})"),
      std::string::npos)
      << two;
  const std::string none = Whole(Writer(true, 0), {Choice("b", {{{'b', -1.5f}}}, FinishReason::kStop)});
  EXPECT_NE(none.find(R"("bytes":[98],"top_logprobs":[]}])"), std::string::npos) << none;
}

TEST_F(ResponseTextTest, LogprobsAreNumbersOfJson) {
  const auto shown = [&](float value) {
    const std::string out = Whole(Writer(true, 0), {Choice("", {{{'b', value}}}, FinishReason::kStop)});
    const size_t at = out.find("\"logprob\":") + 10;
    return out.substr(at, out.find(',', at) - at);
  };
  EXPECT_EQ(shown(-std::numeric_limits<float>::infinity()), "-9999");
  EXPECT_EQ(shown(-10000.0f), "-9999");
  EXPECT_EQ(shown(-9999.0f), "-9999");
  EXPECT_EQ(shown(-9998.5f), "-9998.5");
  EXPECT_EQ(shown(kNone), "-9999");
  EXPECT_EQ(shown(0.0f), "0");
}

TEST_F(ResponseTextTest, ModelsTokensAndText) {
  engine_.mutable_model().name = "a\"b";
  const std::string model =
      R"({"id":"a\"b","object":"model","created":9,"owned_by":"tactus","root":"a\"b","parent":null,"max_model_len":4096})";
  EXPECT_EQ(ModelText(engine_.model(), engine_.model().name, 9), model);
  EXPECT_EQ(ModelsText(engine_.model(), 9), R"({"object":"list","data":[)" + model + "]}");
  EXPECT_EQ(TokenizeText(engine_, {97, 300}, true),
            R"({"count":2,"max_model_len":4096,"tokens":[97,300],"token_strs":["a","<300>"]})");
  EXPECT_EQ(TokenizeText(engine_, {97}, false), R"({"count":1,"max_model_len":4096,"tokens":[97],"token_strs":null})");
  EXPECT_EQ(TokenizeText(engine_, {}, true), R"({"count":0,"max_model_len":4096,"tokens":[],"token_strs":[]})");
  EXPECT_EQ(DetokenizeText("a\n"), R"({"prompt":"a\n"})");
}

}  // namespace
}  // namespace tactus::api
