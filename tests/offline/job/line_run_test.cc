// Errors of a line with several prompts, with a scripted engine.
#include "offline/job/line_run.h"

#include <gtest/gtest.h>

#include <future>

#include "api/chat/conversation.h"
#include "serve/fake_engine.h"

namespace tactus::offline::line_run_test {
namespace {

TEST(LineRun, RefusedPromptIsTheErrorOfItsLineAndNotTheCancellationOfTheOthers) {
  FakeEngine engine;
  engine.Hold();
  engine.RefuseAfter(1, InvalidArgument("the second prompt is too long"));
  const api::Api& api = api::ApiOfPath("/v1/completions");
  api::RequestLimits limits;
  limits.max_model_len = engine.model().max_model_len;
  limits.vocab_size = engine.model().vocab_size;
  auto parsed = api.parse(R"({"prompt": ["a", "b"], "max_tokens": 4})", limits, {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  auto prepared = api::PrepareConversation(std::move(*parsed), engine, limits);
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  std::promise<Status> ended;
  const auto line =
      std::make_shared<LineRun>(&engine, api, std::move(*prepared), api::AnswerIdentity{"id", 1, {}},
                                [&](const Result<LineAnswer>& answer) { ended.set_value(answer.status()); });
  line->Submit();
  std::future<Status> error = ended.get_future();
  ASSERT_EQ(error.wait_for(std::chrono::nanoseconds(kAwaitLimit)), std::future_status::ready) << "the line never ends";
  EXPECT_EQ(error.get().message(), "the second prompt is too long");
}

}  // namespace
}  // namespace tactus::offline::line_run_test
