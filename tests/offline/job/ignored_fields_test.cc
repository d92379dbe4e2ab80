// Unknown fields of a line's body: named in its result and counted, or an error.
#include <gtest/gtest.h>

#include <map>
#include "base/json.h"

#include "api/chat/conversation.h"
#include "offline/job/job_folder.h"
#include "offline/job/runner.h"
#include "serve/fake_engine.h"

namespace tactus::offline {
namespace {

using json = SortedJson;

class IgnoredFieldsTest : public JobFolder {
 protected:
  // Returns the result lines by custom_id.
  std::map<std::string, json> Run(bool strict, IgnoredFields* ignored) {
    FakeEngine engine;
    const auto job = Open();
    if (!job.ok()) return {};
    RunnerOptions options;
    options.limits = api::LimitsOf(engine, 100);
    options.limits.strict_fields = strict;
    options.ignored = ignored;
    EXPECT_TRUE(RunJob(job->get(), &engine, options, SystemClock()).ok());
    std::map<std::string, json> results;
    for (const std::string& path : {files_.output, files_.errors})
      for (const json& line : Lines(path)) results[line["custom_id"]] = line;
    return results;
  }

  // A line with a tool that the model does not receive.
  const std::string response_ = R"({"custom_id":"e","method":"POST","url":"/v1/responses","body":{"input":"hi",)"
                                R"("tools":[{"type":"web_search"}]}})"
                                "\n";
};

TEST_F(IgnoredFieldsTest, IgnoredFieldsAreNamedInTheResult) {
  Write(files_.input, Request("a") + Request("b", {{"prompt", "x"}, {"wish", 1}, {"slo", {{"no, \n", 1}}}}) +
                          Request("c", {{"prompt", "x"}, {"later", 1}}) +
                          Request("d", {{"prompt", "x"}, {"n", 0}, {"wish", 1}}) + response_);
  IgnoredFields ignored;
  auto results = Run(false, &ignored);
  ASSERT_EQ(results.size(), 5u);
  EXPECT_FALSE(results["a"]["response"].contains("headers"));
  EXPECT_EQ(results["b"]["response"]["headers"], json({{"x-tactus-ignored", "slo.no? ?, wish"}}));
  EXPECT_EQ(results["c"]["response"]["headers"], json({{"x-tactus-ignored", "later"}}));
  EXPECT_FALSE(results["d"]["response"].contains("headers")) << "as a server's error";
  EXPECT_EQ(results["e"]["response"]["headers"], json({{"x-tactus-ignored", "tools[0] (web_search)"}}));
  EXPECT_EQ(ignored.lines, 3);
  EXPECT_EQ(ignored.first_line, 2);
  EXPECT_EQ(ignored.first, "slo.no? ?, wish");
}

TEST_F(IgnoredFieldsTest, IgnoredFieldsAreErrorsWithStrictFields) {
  Write(files_.input, Request("a") + Request("b", {{"prompt", "x"}, {"wish", 1}}) + response_);
  IgnoredFields ignored;
  auto results = Run(true, &ignored);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results["a"]["response"]["status_code"], 200);
  EXPECT_EQ(results["b"]["response"]["status_code"], 400);
  EXPECT_EQ(results["b"]["error"],
            json({{"code", "invalid_request"},
                  {"message", "line 2: wish: not known here, and nothing is ignored (--strict-fields); leave it out"},
                  {"param", "wish"},
                  {"line", 2}}));
  EXPECT_EQ(results["e"]["error"]["param"], "tools[0]");
  EXPECT_EQ(ignored.lines, 0);
}

}  // namespace
}  // namespace tactus::offline
