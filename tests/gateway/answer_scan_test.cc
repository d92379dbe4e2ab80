// Tokens of an answer, read from its bytes in any pieces.
#include "gateway/answer_scan.h"

#include <gtest/gtest.h>

namespace tactus::gateway {
namespace {

int32_t Tokens(AnswerScan::Form form, std::string_view text, size_t piece) {
  AnswerScan scan;
  scan.SetForm(form);
  for (size_t at = 0; at < text.size(); at += piece) scan.Add(text.substr(at, piece));
  return scan.output_tokens();
}

// Every way to cut the text gives the same.
void ExpectTokens(AnswerScan::Form form, std::string_view text, int32_t tokens) {
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ASSERT_EQ(Tokens(form, text, piece), tokens) << "in pieces of " << piece;
  }
}

TEST(AnswerScan, CountsEventsWithoutTheClosingOne) {
  ExpectTokens(AnswerScan::Form::kEvents,
               "data: {\"a\": 1}\n\n: ping\n\ndata: {\"data:\": 2}\r\n\r\nevent: x\ndata: 3\n\ndata: [DONE]\n\n", 3);
  ExpectTokens(AnswerScan::Form::kEvents, "data: [DONE]\n\n", 0);
}

TEST(AnswerScan, TakesUsageWhereThereIsSome) {
  ExpectTokens(AnswerScan::Form::kJson,
               "{\"choices\": [{\"text\": \"a\"}], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\" : 123}}",
               123);
  ExpectTokens(AnswerScan::Form::kEvents,
               "data: {\"usage\":{\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"completion_tokens\":27}}\n\n"
               "data: [DONE]\n\n",
               27);
}

TEST(AnswerScan, IsNotFooledByWhatAModelWrites) {
  ExpectTokens(AnswerScan::Form::kJson,
               "{\"text\": \"{\\\"completion_tokens\\\": 5}\", \"usage\": {\"completion_tokens\": 7}, "
               "\"more\": \"\\\"completion_tokens\\\": 6\"}",
               7);
}

TEST(AnswerScan, SaysSoWhereItCannotTell) {
  ExpectTokens(AnswerScan::Form::kJson, "{\"object\": \"list\"}", -1);
  ExpectTokens(AnswerScan::Form::kUnknown, "data: 1\n\n\"completion_tokens\": 4}", -1);
  EXPECT_EQ(AnswerScan().output_tokens(), -1);
}

TEST(AnswerScan, ANumberWithoutEndIsNoNumber) {
  ExpectTokens(AnswerScan::Form::kJson, "\"completion_tokens\": 99999999999999999999999}", -1);
}

}  // namespace
}  // namespace tactus::gateway
