// Answers to the byte: whole and streamed, chat and completion, logprobs in every form, errors, models, tokens.
#include "api/response_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
const std::string kUsage =
    R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}})";

class ResponseTextTest : public testing::Test {
 protected:
  AnswerWriter Writer(bool chat, int32_t logprobs = -1, bool usage_in_chunks = false) {
    const ChunkFrame event{"data: ", "\n\n"};
    return AnswerWriter(engine_,
                        {.chat = chat, .logprobs = logprobs, .usage_in_chunks = usage_in_chunks, .frame = event}, "id",
                        5, "print");
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
    EXPECT_EQ(ErrorText(Status(c.code, "m\"", "p")), std::string(R"({"error":{"message":"m\"","type":")") + c.type +
                                                         R"(","param":"p","code":)" + std::to_string(c.status) + "}}");
  }
  EXPECT_EQ(HttpStatusOf(StatusCode::kOk), 200);
  EXPECT_EQ(ErrorText(499, "m"), R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":499}})");
  EXPECT_EQ(ErrorText(500, "m"), R"({"error":{"message":"m","type":"server_error","param":null,"code":500}})");
  EXPECT_STREQ(StatusCodeName(StatusCode::kTooManyRequests), "too many requests");
}

TEST_F(ResponseTextTest, FinishReasons) {
  EXPECT_EQ(FinishText(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishText(FinishReason::kLength), "length");
  for (const auto none : {FinishReason::kNone, FinishReason::kCancelled, FinishReason::kError})
    EXPECT_EQ(FinishText(none), "");
}

TEST_F(ResponseTextTest, WholeChat) {
  const std::vector<ChoiceText> choices = {{"a\"b", {}, FinishReason::kStop, "END"},
                                           {"", {}, FinishReason::kLength, ""}};
  EXPECT_EQ(
      Writer(true).Whole(choices, usage_),
      Head("chat.completion") +
          R"({"index":0,"message":{"role":"assistant","content":"a\"b","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":"END"},)"
          R"({"index":1,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":"length"}],)" +
          kUsage + "}");
}

TEST_F(ResponseTextTest, WholeCompletion) {
  EXPECT_EQ(
      Writer(false).Whole({{"x", {}, FinishReason::kNone, ""}}, usage_),
      Head("text_completion") + R"({"index":0,"text":"x","logprobs":null,"finish_reason":null}],)" + kUsage + "}");
}

TEST_F(ResponseTextTest, ChatChunks) {
  const AnswerWriter writer = Writer(true);
  EXPECT_EQ(writer.id(), "id");
  std::string out;
  writer.AppendRole(&out, 1);
  EXPECT_EQ(out, "data: " + Head("chat.completion.chunk") +
                     R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
                     "\n\n");
  int64_t offset = 0;
  out.clear();
  TokenDelta delta;
  delta.text = "t";
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_EQ(out, "data: " + Head("chat.completion.chunk") +
                     R"({"index":0,"delta":{"content":"t"},"logprobs":null,"finish_reason":null}]})"
                     "\n\n");
  out.clear();
  delta.finish = FinishReason::kStop;  // with text: both
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_NE(out.find(R"("delta":{"content":"t"},"logprobs":null,"finish_reason":"stop"}]})"), std::string::npos) << out;
  out.clear();
  delta.text.clear();  // nothing but the end
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_NE(out.find(R"("delta":{},"logprobs":null,"finish_reason":"stop"}]})"), std::string::npos) << out;
  out.clear();
  delta.finish = FinishReason::kNone;  // a token without text, for its logprobs
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_NE(out.find(R"("delta":{"content":""},)"), std::string::npos) << out;
}

TEST_F(ResponseTextTest, UsageInChunks) {
  const AnswerWriter writer = Writer(false, -1, true);
  std::string out;
  int64_t offset = 0;
  TokenDelta delta;
  delta.text = "t";
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_EQ(out, "data: " + Head("text_completion") +
                     R"({"index":0,"text":"t","logprobs":null,"finish_reason":null}],"usage":null})"
                     "\n\n");
  out.clear();
  writer.AppendDelta(&out, 0, delta, &offset, &usage_);
  EXPECT_TRUE(out.ends_with("}]," + kUsage + "}\n\n")) << out;
  out.clear();
  writer.AppendLast(&out, &usage_, {});
  EXPECT_EQ(out, "data: " + Head("text_completion") + "]," + kUsage + "}\n\n");
}

TEST_F(ResponseTextTest, CompletionLogprobs) {
  const AnswerWriter writer = Writer(false, 2);
  // The chosen token is the second best; its text counts once although it is listed twice.
  const std::vector<std::vector<TokenLogprob>> rows = {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}},
                                                       {},  // nothing known of it: left out
                                                       {{'c', -3.0f}, {'a', -0.25f}, {'d', -2.0f}}};
  EXPECT_EQ(
      writer.Whole({{"bc", rows, FinishReason::kLength, ""}}, usage_),
      Head("text_completion") +
          R"({"index":0,"text":"bc","logprobs":{"text_offset":[0,1],"token_logprobs":[-1.5,-3],"tokens":["b","c"],)"
          R"("top_logprobs":[{"a":-0.5,"b":-1.5},{"a":-0.25,"d":-2,"c":-3}]},"finish_reason":"length"}],)" +
          kUsage + "}");
  std::string out;
  int64_t offset = 7;
  TokenDelta delta;
  delta.text = "b";
  delta.logprobs = {rows[0]};
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_NE(out.find(R"("text_offset":[7])"), std::string::npos) << out;
  EXPECT_EQ(offset, 8);
  out.clear();
  delta.logprobs.clear();
  writer.AppendDelta(&out, 0, delta, &offset, nullptr);
  EXPECT_NE(out.find(R"("text":"b","logprobs":null,)"), std::string::npos) << out;
  EXPECT_EQ(offset, 8);
}

TEST_F(ResponseTextTest, TextsThatAreEqualAreListedOnce) {
  // 200 and 201 are bytes that are no character: both are shown as U+FFFD.
  const std::string out =
      Writer(false, 2).Whole({{"", {{{200, -1.0f}, {201, -0.5f}, {200, -1.0f}}}, FinishReason::kLength, ""}}, usage_);
  EXPECT_NE(out.find("\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5}]"), std::string::npos) << out;
}

TEST_F(ResponseTextTest, LogprobsOfZeroHaveNoTopList) {
  const std::string out = Writer(false, 0).Whole({{"b", {{{'b', -1.5f}}}, FinishReason::kLength, ""}}, usage_);
  EXPECT_NE(out.find(R"("logprobs":{"text_offset":[0],"token_logprobs":[-1.5],"tokens":["b"],"top_logprobs":null})"),
            std::string::npos)
      << out;
}

TEST_F(ResponseTextTest, OffsetsCountCharactersByTheirFirstByte) {
  const auto token = [](TokenId id) { return std::vector<TokenLogprob>{{id, -1.0f}}; };
  const std::string out = Writer(false, 0).Whole(
      {{"x", {token('a'), token(0xC3), token(0xA9), token(300), token('z')}, FinishReason::kLength, ""}}, usage_);
  EXPECT_NE(out.find(R"("text_offset":[0,1,2,2,7])"), std::string::npos) << out;  // <300> is five characters
}

TEST_F(ResponseTextTest, EchoRowsBeginWithNull) {
  const AnswerWriter writer = Writer(false, 1);
  std::string out;
  int64_t offset = 0;
  writer.AppendEcho(&out, 2, "de", {{{'d', kNone}}, {{'e', -0.5f}, {'f', -0.25f}}}, &offset);
  EXPECT_EQ(
      out,
      "data: " + Head("text_completion") +
          R"({"index":2,"text":"de","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-0.5],"tokens":["d","e"],)"
          R"("top_logprobs":[null,{"f":-0.25,"e":-0.5}]},"finish_reason":null}]})"
          "\n\n");
  EXPECT_EQ(offset, 2);
}

TEST_F(ResponseTextTest, ChatLogprobs) {
  const AnswerWriter writer = Writer(true, 1);
  const std::string out = writer.Whole(
      {{"b", {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}}, {}, {{200, -2.0f}, {300, -1.0f}}}, FinishReason::kStop, ""}},
      usage_);
  EXPECT_NE(
      out.find(
          R"("logprobs":{"content":[{"token":"b","logprob":-1.5,"bytes":[98],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]},)"
          "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-2,\"bytes\":[200],\"top_logprobs\":[{\"token\":\"<300>\","
          "\"logprob\":-1,\"bytes\":[60,51,48,48,62]}]}],"
          "\"refusal\":null}"),
      std::string::npos)
      << out;
  const std::string two =
      Writer(true, 2).Whole({{"b", {{{'b', -1.5f}, {'a', -0.5f}, {'b', -1.5f}}}, FinishReason::kStop, ""}}, usage_);
  EXPECT_NE(
      two.find(
          R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.5,"bytes":[98]}]})"),
      std::string::npos)
      << two;
  const std::string none = Writer(true, 0).Whole({{"b", {{{'b', -1.5f}}}, FinishReason::kStop, ""}}, usage_);
  EXPECT_NE(none.find(R"("bytes":[98],"top_logprobs":[]}])"), std::string::npos) << none;
}

TEST_F(ResponseTextTest, LogprobsAreNumbersOfJson) {
  const auto shown = [&](float value) {
    const std::string out = Writer(true, 0).Whole({{"", {{{'b', value}}}, FinishReason::kStop, ""}}, usage_);
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
  EXPECT_EQ(ModelText(engine_.model(), 9), model);
  EXPECT_EQ(ModelsText(engine_.model(), 9), R"({"object":"list","data":[)" + model + "]}");
  EXPECT_EQ(TokenizeText(engine_, {97, 300}, true),
            R"({"count":2,"max_model_len":4096,"tokens":[97,300],"token_strs":["a","<300>"]})");
  EXPECT_EQ(TokenizeText(engine_, {97}, false), R"({"count":1,"max_model_len":4096,"tokens":[97],"token_strs":null})");
  EXPECT_EQ(TokenizeText(engine_, {}, true), R"({"count":0,"max_model_len":4096,"tokens":[],"token_strs":[]})");
  EXPECT_EQ(DetokenizeText("a\n"), R"({"prompt":"a\n"})");
}

}  // namespace
}  // namespace tactus::api
