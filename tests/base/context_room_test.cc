// The error of requests that can never fit: one text, from which front ends with their own texts read the numbers back.
#include "base/context_room.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

TEST(ContextRoom, ARefusalIsReadBackWithItsNumbers) {
  EXPECT_TRUE(CheckContext(10, 90, 100).ok());
  const Status prompt = CheckContext(100, 1, 100, "messages"), output = CheckContext(10, 91, 100, "messages");
  EXPECT_EQ(prompt.param(), "messages");
  EXPECT_EQ(output.param(), "max_tokens");
  const Status least = OverflowStatus({.prompt_tokens = 120, .max_tokens = 7, .context = 100, .at_least = true});
  EXPECT_EQ(least.message(),
            "prompt of at least 120 tokens + max_tokens of 7 exceed the context of 100 tokens; shorten the prompt");
  for (const auto& [status, tokens, max_tokens, at_least] :
       {std::tuple(prompt, 100, 1, false), std::tuple(output, 10, 91, false), std::tuple(least, 120, 7, true)}) {
    const auto read = OverflowIn("line 3: " + status.message());
    ASSERT_TRUE(read) << status.message();
    EXPECT_EQ(read->prompt_tokens, tokens);
    EXPECT_EQ(read->max_tokens, max_tokens);
    EXPECT_EQ(read->context, 100);
    EXPECT_EQ(read->at_least, at_least);
  }
}

TEST(ContextRoom, ErrorNamesTheClientsField) {
  for (const char* field : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
    const Status status = CheckContext(10, 91, 100, "messages", field);
    EXPECT_EQ(status.param(), field);
    EXPECT_EQ(status.message(), std::string("prompt of 10 tokens + ") + field +
                                    " of 91 exceed the context of 100 tokens; give " + field + " up to 90");
    ASSERT_TRUE(OverflowIn(status.message())) << field;
    EXPECT_EQ(OverflowIn(status.message())->field, field);
  }
  const Status none = CheckContext(100, 1, 100, "messages", ContextOverflow::kAnswer);
  EXPECT_EQ(none.message(),
            "prompt of 100 tokens + an answer of 1 exceed the context of 100 tokens; shorten the prompt");
  EXPECT_EQ(none.param(), "messages");
  EXPECT_TRUE(OverflowIn(none.message()));
}

TEST(ContextRoom, OtherMessagesAreNotParsed) {
  for (const char* message : {"", "prompt of ", "prompt of many tokens", "prompt of 1 tokens + max_tokens of x",
                              "prompt of 1 tokens + max_tokens of 2 exceed the context of"})
    EXPECT_FALSE(OverflowIn(message)) << message;
}

}  // namespace
}  // namespace tactus
