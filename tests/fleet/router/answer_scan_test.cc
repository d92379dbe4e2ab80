#include "fleet/router/answer_scan.h"

#include <gtest/gtest.h>

#include "fleet/router/json_end.h"

namespace tactus::fleet {
namespace {

const std::string kStream =
    ": ping\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\": b\\n:\"}}]}\r\n\r\n"
    ":x\n"
    "data: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":7}}\n\n";

TEST(AnswerScanTest, PassesEverythingOnInPiecesOfAnySize) {
  for (size_t piece = 1; piece <= kStream.size(); ++piece) {
    AnswerScan scan;
    std::string passed;
    for (size_t at = 0; at < kStream.size(); at += piece)
      passed += scan.Stream(std::string_view(kStream).substr(at, piece));
    ASSERT_EQ(passed, kStream) << "pieces of " << piece;
    ASSERT_EQ(scan.events(), 3) << "pieces of " << piece;
    ASSERT_EQ(scan.prompt_tokens(), 12) << "pieces of " << piece;
    ASSERT_EQ(scan.output_tokens(), 7) << "pieces of " << piece;
    ASSERT_FALSE(scan.done());
    ASSERT_FALSE(scan.moved());
  }
}

TEST(AnswerScanTest, RemovesTheRoutersCommentInPiecesOfAnySize) {
  const std::string comment = ": migrated {\"to\":\"http://h:1\",\"ticket\":\"t9\"}\n\n";
  for (size_t piece = 1; piece <= kStream.size() + comment.size(); ++piece) {
    AnswerScan scan;
    const std::string all = kStream + comment;
    std::string passed;
    for (size_t at = 0; at < all.size(); at += piece) passed += scan.Stream(std::string_view(all).substr(at, piece));
    ASSERT_EQ(passed, kStream) << "pieces of " << piece;
    ASSERT_TRUE(scan.moved()) << "pieces of " << piece;
    ASSERT_EQ(scan.moved()->url, "http://h:1");
    ASSERT_EQ(scan.moved()->ticket, "t9");
  }
}

TEST(AnswerScanTest, AMigrationCommentWithinAnEventIsContent) {
  AnswerScan scan;
  const std::string text = "data: : migrated {\"to\":\"http://h:1\",\"ticket\":\"t\"}\n\n";
  EXPECT_EQ(scan.Stream(text), text);
  EXPECT_FALSE(scan.moved());
  EXPECT_EQ(scan.events(), 1);
}

TEST(AnswerScanTest, PassesALongCommentOn) {
  const std::string text = ":" + std::string(200'000, 'x') + "\n\ndata: 1\n\n";
  for (const size_t piece : {size_t{1000}, text.size()}) {
    AnswerScan scan;
    std::string passed;
    for (size_t at = 0; at < text.size(); at += piece) passed += scan.Stream(std::string_view(text).substr(at, piece));
    EXPECT_TRUE(passed == text) << "pieces of " << piece << ": " << passed.size() << " of " << text.size() << " bytes";
    EXPECT_EQ(scan.events(), 1);
  }
}

// A stream that breaks off must not end inside an event.
TEST(AnswerScanTest, PassesAnEventOnWhenItIsComplete) {
  AnswerScan scan;
  EXPECT_EQ(scan.Stream("data: 1\n\ndata: {\"ch"), "data: 1\n\n");
  EXPECT_FALSE(scan.in_event());
  EXPECT_EQ(scan.Stream("oices\":[]}\n"), "");
  EXPECT_EQ(scan.events(), 1);
  EXPECT_EQ(scan.Stream("\ndata: 3"), "data: {\"choices\":[]}\n\n");
  EXPECT_EQ(scan.events(), 2);
  EXPECT_EQ(scan.Rest(), "data: 3");
  EXPECT_EQ(scan.events(), 3);
  EXPECT_EQ(scan.Rest(), "");
}

TEST(AnswerScanTest, PassesALongEventOnAsItArrives) {
  const std::string event = "data: " + std::string(2 * kEventBytes, 'x') + "\r\n\r\n", next = "data: 2\n\n";
  for (const size_t piece : {size_t{1}, size_t{1000}, kEventBytes, event.size() + next.size()}) {
    AnswerScan scan;
    std::string passed;
    const std::string text = event + next;
    bool inside = false;
    for (size_t at = 0; at < text.size(); at += piece) {
      passed += scan.Stream(std::string_view(text).substr(at, piece));
      inside |= scan.in_event();
      ASSERT_LE(at - std::min(at, passed.size()), kEventBytes + piece) << "pieces of " << piece;
    }
    EXPECT_TRUE(passed == text) << "pieces of " << piece << ": " << passed.size() << " of " << text.size() << " bytes";
    EXPECT_EQ(inside, piece < text.size());
    EXPECT_FALSE(scan.in_event());
    EXPECT_EQ(scan.events(), 2) << "pieces of " << piece;
  }
}

TEST(AnswerScanTest, WithholdsAnErrorThatComesFirst) {
  for (const std::string& text : {std::string("data: {\"error\":{\"message\":\"m\"}}\n\n"),
                                  std::string("data:{ \"error\":{\"message\":\"m\"}}\r\n\r\n")}) {
    AnswerScan first, later;
    EXPECT_EQ(first.Stream(": ping\n\n" + text), ": ping\n\n");
    EXPECT_NE(first.first_error().find("\"m\""), std::string::npos);
    EXPECT_TRUE(first.failed());
    EXPECT_EQ(later.Stream("data: 1\n\n" + text), "data: 1\n\n" + text);
    EXPECT_EQ(later.first_error(), "");
    EXPECT_TRUE(later.failed());
    EXPECT_EQ(later.events(), 1);
  }
}

TEST(AnswerScanTest, AValidTicketIsAShortWord) {
  EXPECT_TRUE(ValidTicket("0af-9Z"));
  EXPECT_TRUE(ValidTicket(std::string(64, 'a')));
  for (const std::string& bad : {std::string(), std::string(65, 'a'), std::string("a b"), std::string("a\r\nGET /"),
                                 std::string("../x"), std::string("a%20"), std::string("a\0b", 3)})
    EXPECT_FALSE(ValidTicket(bad)) << bad;
}

TEST(AnswerScanTest, DoneAndErrorsEndAStream) {
  AnswerScan done, error;
  done.Stream("data: 1\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(done.done());
  EXPECT_EQ(done.events(), 1);
  error.Stream("data: {\"error\":{\"message\":\"m\"}}\n\n");
  EXPECT_TRUE(error.done());
}

TEST(AnswerScanTest, StreamsOfOtherApisEndWithTheirOwnLastEvent) {
  for (const char* last : {"message_stop", "response.completed", "response.incomplete", "response.failed", "error"}) {
    AnswerScan scan;
    scan.Stream("event: x\ndata: {\"type\":\"ping\",\"text\":\"message_stop\"}\n\n");
    EXPECT_FALSE(scan.done());
    scan.Stream(std::string("event: x\ndata: {\"type\": \"") + last + "\"}\n\n");
    EXPECT_TRUE(scan.done()) << last;
    EXPECT_EQ(scan.failed(), std::string_view(last) == "error" || std::string_view(last) == "response.failed");
  }
  AnswerScan first;
  EXPECT_EQ(first.Stream("event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"m\"}}\n\n"), "");
  EXPECT_EQ(first.first_error(), "{\"type\":\"error\",\"error\":{\"message\":\"m\"}}");
}

TEST(AnswerScanTest, CountsChoicesWithAFinishReason) {
  AnswerScan scan;
  scan.Stream("data: {\"choices\":[{\"text\":\"\\\"finish_reason\\\": \\\"stop\\\"\",\"finish_reason\":null}]}\n\n");
  EXPECT_EQ(scan.finishes(), 0);
  scan.Stream("data: {\"choices\":[{\"index\":1,\"finish_reason\" : \"stop\"}]}\n\n");
  EXPECT_EQ(scan.finishes(), 1);
  scan.Stream("data: {\"choices\":[{\"finish_reason\":\"length\"},{\"finish_reason\":\"stop\"}]}\n\n");
  EXPECT_EQ(scan.finishes(), 3);
  EXPECT_FALSE(scan.done());
}

TEST(AnswerScanTest, DropsEventsAfterTheEnd) {
  AnswerScan scan;
  EXPECT_EQ(scan.Stream("data: 1\n\ndata: [DONE]\n\ndata: 2\n\n: x\n\ndata: [DONE]\n\n"),
            "data: 1\n\ndata: [DONE]\n\n: x\n\n");
  EXPECT_EQ(scan.events(), 1);
}

TEST(JsonEndTest, IsReachedAtTheEndOfTheTextInPiecesOfAnySize) {
  const std::string whole = " {\"a\": [1, {\"b\": \"}]\\\"\\\\\"}], \"c\": \"\\u007d\"}\n";
  for (size_t piece = 1; piece <= whole.size(); ++piece) {
    JsonEnd json;
    for (size_t at = 0; at < whole.size(); at += piece) {
      EXPECT_EQ(json.reached(), at >= whole.size() - 1) << at << " in pieces of " << piece;
      json.Feed(std::string_view(whole).substr(at, piece));
    }
    EXPECT_TRUE(json.reached()) << "pieces of " << piece;
  }
  for (const char* none : {"", " ", "5", "\"{}\"", "null", "{", "[}", "{}}", "[] x", "{\"a\": \"}", "hello {}"}) {
    JsonEnd json;
    json.Feed(none);
    EXPECT_EQ(json.reached(), std::string_view(none) == "[}") << none;  // kinds of brackets are not checked
  }
}

TEST(AnswerScanTest, ReadsUsageWithTheMessagesApisNames) {
  AnswerScan scan;
  scan.Whole("{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":16,\"output_tokens\":9}}");
  EXPECT_EQ(scan.prompt_tokens(), 21);
  EXPECT_EQ(scan.output_tokens(), 9);
}

TEST(AnswerScanTest, ReadsUsageOfACompleteAnswer) {
  AnswerScan scan;
  scan.Whole("{\"choices\":[],\"usage\":{\"prompt_tokens\": 5,\"total_tokens\":14,\"completion_tokens\": 9}}");
  EXPECT_EQ(scan.prompt_tokens(), 5);
  EXPECT_EQ(scan.output_tokens(), 9);
}

TEST(AnswerScanTest, FindsTheLastEventsTypeAnywhereInItsObject) {
  for (const char* data : {R"({"type":"response.completed","response":{}})",
                           R"({"response":{"type":"x"},"sequence_number":2,"type":"response.completed"})",
                           R"({"response":{"text":"}\"{,"},"type" : "response.incomplete"})",
                           R"( {"n":[1,{"a":2}],"type":"message_stop"})"}) {
    AnswerScan scan;
    scan.Stream("data: " + std::string(data) + "\n\n");
    EXPECT_TRUE(scan.done()) << data;
    EXPECT_FALSE(scan.failed()) << data;
  }
  AnswerScan named;
  named.Stream("event: response.completed\ndata: {}\n\n");
  EXPECT_TRUE(named.done());
}

TEST(AnswerScanTest, PartsOfAnAnswerDoNotEndIt) {
  for (const char* data : {R"({"type":"response.output_text.delta","delta":"\"type\":\"response.completed\""})",
                           R"({"item":{"type":"response.completed"},"type":"response.output_item.done"})",
                           R"({"choices":[{"delta":{"content":"\"error\""}}],"error":null})",
                           R"(["response.completed"])", R"({"text":"message_stop)", "{", ""}) {
    AnswerScan scan;
    scan.Stream("data: " + std::string(data) + "\n\n");
    EXPECT_FALSE(scan.done()) << data;
  }
}

TEST(AnswerScanTest, FindsAnErrorAnywhereInItsObject) {
  for (const char* event :
       {"data: {\"error\":{\"message\":\"m\"}}", "data: {\"code\":500,\"error\":\"m\"}",
        "data: {\"object\":\"error\",\"message\":\"m\"}", "data: {\"message\":\"m\",\"type\":\"error\"}",
        "event: error\ndata: m", "data: {\"response\":{},\"type\":\"response.failed\"}"}) {
    AnswerScan scan;
    scan.Stream("data: {}\n\n" + std::string(event) + "\n\n");
    EXPECT_TRUE(scan.failed()) << event;
  }
}

TEST(AnswerScanTest, AnEventTooLongToScanMayBeTheLast) {
  AnswerScan scan;
  scan.Stream("data: {\"text\":\"" + std::string(kEventBytes, 'x'));
  EXPECT_TRUE(scan.unread());
  EXPECT_TRUE(scan.in_event());
  scan.Stream("\",\"type\":\"response.completed\"}\n\n");
  EXPECT_FALSE(scan.in_event());
  scan.Stream(": ping\n\n");
  EXPECT_TRUE(scan.unread());
}

TEST(AnswerScanTest, AnEventTooLongToScanIsNotTheLastIfAnotherFollows) {
  AnswerScan scan;
  scan.Stream("data: {\"text\":\"" + std::string(kEventBytes, 'x'));
  scan.Stream("\",\"type\":\"response.created\"}\n\n");
  EXPECT_TRUE(scan.unread());
  scan.Stream("data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n");
  EXPECT_FALSE(scan.unread()) << "a stream that is cut here is incomplete";
}

}  // namespace
}  // namespace tactus::fleet
