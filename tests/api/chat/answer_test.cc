// Answers from engine events: in every combination the chunks of a stream add up to the complete object; ends, token
// counts and failures.
#include "api/chat/answer.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <sstream>

#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

using json = SortedJson;

std::vector<TokenLogprob> Row(TokenId token) {
  return {{token, -0.5f}, {token, -0.5f}, {token + 1, -1.5f}};
}

class AnswerTest : public testing::Test {
 protected:
  static AnswerShape Shape(int prompts, int n, bool stream) {
    AnswerShape shape;
    for (int i = 0; i < prompts; ++i) {
      std::vector<TokenId> tokens(static_cast<size_t>(i) + 2, 'p');
      shape.prompts.push_back({std::make_shared<const std::vector<TokenId>>(tokens), {}});
    }
    shape.choices_per_prompt = n;
    shape.stream = stream;
    shape.include_usage = stream;
    return shape;
  }
  Answer Make(AnswerShape shape, ChunkFrame frame = {"", "\n"}) {
    return Answer(engine_, std::move(shape), {"id", 5, "print"}, std::move(frame));
  }
  static TokenDelta Delta(int32_t choice, std::string text, TokenId token, FinishReason finish = FinishReason::kNone) {
    TokenDelta delta;
    delta.choice = choice;
    delta.text = std::move(text);
    delta.tokens = {token};
    delta.finish = finish;
    return delta;
  }
  static TokenDelta Failure(FinishReason finish, Status why) {
    TokenDelta delta;
    delta.finish = finish;
    delta.error = std::move(why);
    return delta;
  }
  static std::vector<json> Lines(const std::string& chunks) {
    std::vector<json> lines;
    std::istringstream in(chunks);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }

  // Events of two prompts with three choices each, interleaved: every choice outputs its index, then a character in two
  // halves, then "!"; the last choice of each prompt ends with a stop string.
  void Tell(Answer* answer, bool logprobs, std::string* chunks) {
    answer->OnPromptLogprobs(1, {Row('p'), Row('p')});
    answer->OnPromptLogprobs(0, {Row('p')});
    for (int step = 0; step < 4; ++step) {
      for (const size_t prompt : {1u, 0u}) {
        for (int32_t choice = 0; choice < 3; ++choice) {
          const char* const texts[] = {"", "", "\xC3\xA9", "!"};
          TokenDelta delta =
              Delta(choice, step == 0 ? std::to_string(prompt * 3 + static_cast<size_t>(choice)) : texts[step],
                    static_cast<TokenId>(step == 1   ? 0xC3
                                         : step == 2 ? 0xA9
                                                     : 'a' + choice));
          if (logprobs) delta.logprobs = {Row(delta.tokens[0])};
          if (step == 3) {
            delta.finish = choice == 2 ? FinishReason::kStop : FinishReason::kLength;
            if (choice == 2) delta.stop_string = "END";
          }
          ASSERT_TRUE(answer->OnDelta(prompt, delta, chunks).ok());
        }
      }
    }
    EXPECT_FALSE(answer->done());
    answer->OnDone(1, Usage{3, 1, 12}, chunks);
    EXPECT_FALSE(answer->done());
    EXPECT_TRUE(answer->done(1));
    EXPECT_FALSE(answer->done(0));
    answer->OnDone(0, Usage{2, 0, 12}, chunks);
    EXPECT_TRUE(answer->done());
  }

  FakeEngine engine_;
};

// The choices of all chunks, joined as a client does it, in the form of a complete answer.
json Sum(const std::vector<json>& lines, bool chat, size_t choices) {
  std::vector<json> sum(choices, {{"text", ""}, {"logprobs", nullptr}});
  for (const json& line : lines) {
    for (const json& chunk : line["choices"]) {
      json& into = sum.at(chunk["index"].get<size_t>());
      const json& said = chat ? chunk["delta"].value("content", json("")) : chunk["text"];
      into["text"] = into["text"].get<std::string>() + said.get<std::string>();
      for (const auto& [list, items] : chunk["logprobs"].items()) {
        if (!items.is_array()) continue;
        for (const json& item : items) into["logprobs"][list].push_back(item);
      }
      if (!chunk["finish_reason"].is_null()) into["finish_reason"] = chunk["finish_reason"];
      if (chunk.contains("stop_reason")) into["stop_reason"] = chunk["stop_reason"];
    }
  }
  return sum;
}

TEST_F(AnswerTest, TheChunksOfAStreamAddUpToTheCompleteAnswer) {
  for (const bool chat : {false, true}) {
    for (const bool logprobs : {false, true}) {
      for (const bool echo : {false, true}) {
        if (chat && echo) continue;
        SCOPED_TRACE(testing::Message() << "chat " << chat << " logprobs " << logprobs << " echo " << echo);
        const auto shape = [&](bool stream) {
          AnswerShape s = Shape(2, 3, stream);
          s.chat = chat;
          s.logprobs = logprobs ? 1 : -1;
          s.echo = echo;
          s.prompt_logprobs = echo && logprobs;
          if (echo) s.prompts[0].echo = "pp", s.prompts[1].echo = "ppp";
          return s;
        };
        Answer whole = Make(shape(false)), streamed = Make(shape(true));
        std::string none, chunks;
        Tell(&whole, logprobs, &none);
        Tell(&streamed, logprobs, &chunks);
        EXPECT_EQ(none, "") << "a complete answer has no chunks";
        const Usage usage = whole.usage();
        EXPECT_EQ(usage.prompt_tokens, 5);
        EXPECT_EQ(usage.cached_tokens, 1);
        EXPECT_EQ(usage.completion_tokens, 24);
        const json complete = json::parse(std::move(whole).Complete());
        const std::vector<json> lines = Lines(chunks);
        EXPECT_EQ(lines.back()["usage"], complete["usage"]);
        EXPECT_EQ(lines.back()["choices"], json::array());
        const json sum = Sum(lines, chat, 6);
        for (size_t i = 0; i < 6; ++i) {
          const json& choice = complete["choices"][i];
          EXPECT_EQ(choice["index"], i);
          const json& text = chat ? choice["message"]["content"] : choice["text"];
          EXPECT_EQ(text, (echo ? (i < 3 ? "pp" : "ppp") : "") + std::to_string(i) + "\xC3\xA9!");
          EXPECT_EQ(sum[i]["text"], text);
          EXPECT_EQ(sum[i].value("finish_reason", ""), choice["finish_reason"]);
          EXPECT_EQ(choice["finish_reason"], i % 3 == 2 ? "stop" : "length");
          EXPECT_EQ(sum[i].value("stop_reason", ""), i % 3 == 2 ? "END" : "");
          EXPECT_EQ(choice.value("stop_reason", ""), i % 3 == 2 ? "END" : "");
          json rows = choice["logprobs"];
          if (rows.is_object()) rows.erase("refusal");
          EXPECT_EQ(sum[i]["logprobs"], rows);
          EXPECT_EQ(rows.is_null(), !logprobs);
        }
      }
    }
  }
}

TEST_F(AnswerTest, AFrameGoesAroundEveryChunkAndNothingElseIsWritten) {
  std::string plain, framed;
  Answer one = Make(Shape(1, 1, true), {}), other = Make(Shape(1, 1, true), {"<", ">"});
  for (auto& [answer, out] : {std::pair(&one, &plain), std::pair(&other, &framed)}) {
    ASSERT_TRUE(answer->OnDelta(0, Delta(0, "a", 'a', FinishReason::kLength), out).ok());
    answer->OnDone(0, Usage{2, 0, 1}, out);
  }
  const size_t second = plain.find("}{") + 1;
  ASSERT_NE(second, 0u) << plain;
  EXPECT_EQ(framed, "<" + plain.substr(0, second) + "><" + plain.substr(second) + ">");
  EXPECT_TRUE(json::accept(plain.substr(0, second)));
}

TEST_F(AnswerTest, UndecidedTextMakesNoChunkAndStillCounts) {
  Answer answer = Make(Shape(1, 1, true));
  std::string chunks;
  EXPECT_FALSE(answer.begun());
  EXPECT_FALSE(Answer::Tells(Delta(0, "", 0xC3)));
  ASSERT_TRUE(answer.OnDelta(0, Delta(0, "", 0xC3), &chunks).ok());
  EXPECT_EQ(chunks, "");
  EXPECT_TRUE(answer.begun());
  EXPECT_EQ(answer.usage().completion_tokens, 1);
  ASSERT_TRUE(answer.OnDelta(0, Delta(0, "", 'x', FinishReason::kStop), &chunks).ok());
  EXPECT_EQ(Lines(chunks).size(), 1u);
  EXPECT_TRUE(Answer::Tells(Delta(0, "", 'x', FinishReason::kStop)));
  EXPECT_TRUE(Answer::Tells(Delta(0, "x", 'x')));
  EXPECT_FALSE(Answer::Tells(Failure(FinishReason::kError, Status())));
}

TEST_F(AnswerTest, AChatsChoiceBeginsWithItsRoleOnce) {
  AnswerShape shape = Shape(1, 2, true);
  shape.chat = true;
  Answer answer = Make(shape);
  std::string chunks;
  for (const int32_t choice : {1, 0, 1}) ASSERT_TRUE(answer.OnDelta(0, Delta(choice, "t", 't'), &chunks).ok());
  std::vector<std::pair<int, bool>> seen;
  for (const json& line : Lines(chunks)) {
    EXPECT_EQ(line["id"], "chatcmpl-id");
    seen.emplace_back(line["choices"][0]["index"], line["choices"][0]["delta"].contains("role"));
  }
  EXPECT_EQ(seen, (std::vector<std::pair<int, bool>>{{1, true}, {1, false}, {0, true}, {0, false}, {1, false}}));
}

TEST_F(AnswerTest, ContinuousUsageIsThatOfThePromptSoFar) {
  AnswerShape shape = Shape(2, 2, true);
  shape.continuous_usage = true;
  Answer answer = Make(shape);
  std::string chunks;
  for (const auto& [prompt, choice] : {std::pair(0u, 0), std::pair(1u, 0), std::pair(1u, 1)})
    ASSERT_TRUE(answer.OnDelta(prompt, Delta(choice, "t", 't'), &chunks).ok());
  const auto lines = Lines(chunks);
  ASSERT_EQ(lines.size(), 3u);
  const auto usage = [&](size_t i) {
    return std::pair(lines[i]["usage"]["prompt_tokens"].get<int>(), lines[i]["usage"]["completion_tokens"].get<int>());
  };
  EXPECT_EQ(usage(0), std::pair(2, 1));
  EXPECT_EQ(usage(1), std::pair(3, 1));
  EXPECT_EQ(usage(2), std::pair(3, 2));
}

// Each token of the fake engine is a byte.
void TellBytes(Answer* answer, std::string_view text, size_t at_once, std::string* chunks) {
  for (size_t at = 0; at < text.size(); at += at_once) {
    TokenDelta delta;
    delta.text = text.substr(at, at_once);
    for (const char c : delta.text) delta.tokens.push_back(static_cast<unsigned char>(c));
    if (at + at_once >= text.size()) delta.finish = FinishReason::kStop;
    ASSERT_TRUE(answer->OnDelta(0, delta, chunks).ok());
  }
  answer->OnDone(0, Usage{2, 0, static_cast<int64_t>(text.size())}, chunks);
}

TEST_F(AnswerTest, ReasoningTokensAreThoseBetweenItsMarkers) {
  for (const auto& [text, begun, count] :
       {std::tuple("<think>abcd</think>hi", false, 4), std::tuple("abcd</think>hi", true, 4),
        std::tuple("hi", false, 0), std::tuple("ab", true, 2), std::tuple("</think>hi", true, 0),
        std::tuple("a</thin</think>hi", true, 7)}) {
    for (const size_t at_once : {1u, 3u, 100u}) {
      AnswerShape shape = Shape(1, 1, false);
      shape.chat = true;
      AnswerReading reading;
      reading.reasoning = FindReasoningFormat("think");
      reading.begins_in_reasoning = begun;
      shape.reading = reading;
      Answer answer = Make(shape);
      TellBytes(&answer, text, at_once, nullptr);
      EXPECT_EQ(answer.usage().reasoning_tokens, count) << text << " by " << at_once;
      const json whole = json::parse(std::move(answer).Complete());
      EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], count) << text;
    }
  }
}

TEST_F(AnswerTest, ReasoningTokensOfALongStreamAreCountedAsTheyArrive) {
  AnswerShape shape = Shape(1, 1, true);
  shape.chat = true;
  shape.continuous_usage = true;
  AnswerReading reading;
  reading.reasoning = FindReasoningFormat("think");
  reading.begins_in_reasoning = true;
  shape.reading = reading;
  Answer answer = Make(shape);
  std::string chunks;
  TellBytes(&answer, std::string(5000, 'r') + "</think>" + std::string(20, 'x'), 1, &chunks);
  const std::vector<json> lines = Lines(chunks);
  const auto told = [](const json& line) {
    return line["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>();
  };
  EXPECT_EQ(told(lines.back()), 5000);
  int before = 0;
  for (const json& line : lines) {
    if (line["usage"].is_null()) continue;
    EXPECT_GE(told(line), before);
    before = told(line);
  }
}

TEST_F(AnswerTest, PromptOnlyAnswerOmitsGeneratedText) {
  for (const bool stream : {false, true}) {
    AnswerShape shape = Shape(1, 1, stream);
    shape.echo = shape.prompt_only = shape.prompt_logprobs = true;
    shape.logprobs = 1;
    shape.prompts[0].echo = "pp";
    Answer answer = Make(shape);
    std::string chunks;
    answer.OnPromptLogprobs(0, {Row('p')});
    TokenDelta delta = Delta(0, "x", 'x', FinishReason::kStop);
    delta.logprobs = {Row('x')};
    ASSERT_TRUE(answer.OnDelta(0, delta, &chunks).ok());
    answer.OnDone(0, Usage{2, 0, 1}, &chunks);
    EXPECT_EQ(answer.usage().completion_tokens, 0);
    const json sum = stream ? Sum(Lines(chunks), false, 1)[0] : json::parse(std::move(answer).Complete())["choices"][0];
    EXPECT_EQ(sum["text"], "pp");
    EXPECT_EQ(sum["finish_reason"], "length");
    EXPECT_EQ(sum["logprobs"]["tokens"], json({"p", "p"}));
  }
}

TEST_F(AnswerTest, AStreamThatAskedForNoUsageEndsWithoutIt) {
  AnswerShape shape = Shape(1, 1, true);
  shape.include_usage = false;
  Answer answer = Make(shape);
  std::string chunks;
  ASSERT_TRUE(answer.OnDelta(0, Delta(0, "t", 't', FinishReason::kLength), &chunks).ok());
  answer.OnDone(0, Usage{2, 0, 1}, &chunks);
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(chunks.find("usage"), std::string::npos) << chunks;
}

TEST_F(AnswerTest, ARepeatedEndOfAPromptCountsOnce) {
  Answer answer = Make(Shape(2, 1, true));
  std::string chunks;
  answer.OnDone(0, Usage{2, 0, 1}, &chunks);
  answer.OnDone(0, Usage{9, 9, 9}, &chunks);
  EXPECT_FALSE(answer.done());
  EXPECT_EQ(answer.usage().prompt_tokens, 2);
  EXPECT_EQ(chunks, "");
}

TEST_F(AnswerTest, AFailureInTheMiddleReportsItsReasonAndNothingFollows) {
  for (const FinishReason finish : {FinishReason::kError, FinishReason::kCancelled}) {
    Answer answer = Make(Shape(1, 2, true));
    std::string chunks;
    ASSERT_TRUE(answer.OnDelta(0, Delta(0, "t", 't'), &chunks).ok());
    const std::string before = chunks;
    const Status why(StatusCode::kUnavailable, "the executor went");
    EXPECT_EQ(answer.OnDelta(0, Failure(finish, why), &chunks).message(), "the executor went");
    EXPECT_EQ(answer.OnDelta(0, Delta(1, "more", 'm', FinishReason::kStop), &chunks).code(), StatusCode::kUnavailable);
    answer.OnDone(0, Usage{2, 0, 2}, &chunks);
    EXPECT_EQ(chunks, before) << "a failed answer ended like a successful one";
  }
}

TEST_F(AnswerTest, AFailedOutputRuleNamesItsField) {
  AnswerShape shape = Shape(1, 1, false);
  shape.rule_field = "guided_grammar";
  Answer answer = Make(std::move(shape));
  const Status status = answer.OnDelta(0, Failure(FinishReason::kError, InvalidArgument("takes too much")), nullptr);
  EXPECT_EQ(status.message(), "guided_grammar: takes too much");
  EXPECT_EQ(status.param(), "guided_grammar");
}

TEST_F(AnswerTest, AFailureWithoutAReasonIsAnInternalError) {
  Answer answer = Make(Shape(1, 1, false));
  const Status status = answer.OnDelta(0, Failure(FinishReason::kError, Status()), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "generation ended without a reason");
}

// A terminal shows the text before any kind of end.
TEST_F(AnswerTest, TheTextOfACancelledChoiceIsKept) {
  Answer answer = Make(Shape(1, 1, false));
  ASSERT_TRUE(answer.OnDelta(0, Delta(0, "so f", 's'), nullptr).ok());
  TokenDelta last = Failure(FinishReason::kCancelled, Status(StatusCode::kCancelled, "cancelled"));
  last.text = "ar";
  EXPECT_FALSE(answer.OnDelta(0, last, nullptr).ok());
  EXPECT_EQ(TextOf(answer.choice(0).parts), "so far");
  EXPECT_EQ(answer.choice(0).finish, FinishReason::kCancelled);
}

TEST_F(AnswerTest, RowsBeyondThePromptAreDropped) {
  AnswerShape shape = Shape(1, 1, false);
  shape.logprobs = 0;
  shape.echo = shape.prompt_logprobs = true;
  Answer answer = Make(shape);
  answer.OnPromptLogprobs(0, {Row('q'), Row('r'), Row('s')});
  const json rows = json::parse(std::move(answer).Complete())["choices"][0]["logprobs"];
  EXPECT_EQ(rows["tokens"], json({"p", "q"}));
  EXPECT_EQ(rows["token_logprobs"], json({nullptr, -0.5}));
}

TEST_F(AnswerTest, FingerprintsDependOnModelFormatAndKernels) {
  const ModelInfo base = engine_.model();
  const std::string fingerprint = Fingerprint(base);
  EXPECT_TRUE(fingerprint.starts_with("tactus-")) << fingerprint;
  EXPECT_EQ(Fingerprint(base), fingerprint);
  for (const auto field : {&ModelInfo::name, &ModelInfo::weight_format, &ModelInfo::kernels}) {
    ModelInfo other = base;
    other.*field += "x";
    EXPECT_NE(Fingerprint(other), fingerprint);
  }
}

}  // namespace
}  // namespace tactus::api
