// Files and batches as OpenAI's objects, and the requests for them.
#include "offline/server/objects.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "offline/server/record.h"

namespace tactus::offline {
namespace {

using json = SortedJson;

json Ask(json changed = json::object()) {
  json body = {{"input_file_id", "file-1"}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  body.update(changed);
  return body;
}
std::string ParamOf(const std::string& body) {
  const auto batch = ParseBatch(body, 1000);
  return batch.ok() ? "taken" : batch.status().param();
}

TEST(BatchRequestTest, ValidRequestsAreAccepted) {
  const auto batch = ParseBatch(Ask({{"metadata", {{"k", "v"}}},
                                     {"output_expires_after", {{"anchor", "created_at"}, {"seconds", 3600}}},
                                     {"not_known", 1}})
                                    .dump(),
                                1000);
  ASSERT_TRUE(batch.ok()) << batch.status().ToString();
  EXPECT_EQ(batch->expires_s, 1000 + 86400);
  EXPECT_EQ(batch->results_live_s, 3600);
  EXPECT_EQ(batch->metadata.at(0).second, "v");
  for (const auto& [window, seconds] :
       std::vector<std::pair<std::string, int64_t>>{{"1s", 1}, {"90m", 5400}, {"48h", 172800}, {"30d", 2592000}})
    EXPECT_EQ(ParseBatch(Ask({{"completion_window", window}}).dump(), 1000)->expires_s, 1000 + seconds) << window;
  EXPECT_EQ(ParamOf(Ask({{"metadata", nullptr}}).dump()), "taken");
}

TEST(BatchRequestTest, InvalidRequestsAreRefusedByField) {
  for (const std::string window : {"", "h", "0h", "-1h", "24", "24 h", "1.5h", "31d", "721h", "99999999999999999999s"})
    EXPECT_EQ(ParamOf(Ask({{"completion_window", window}}).dump()), "completion_window") << window;
  for (const std::string endpoint : {"", "/v1/embeddings", "v1/completions", "/v1/batches"})
    EXPECT_EQ(ParamOf(Ask({{"endpoint", endpoint}}).dump()), "endpoint") << endpoint;
  EXPECT_EQ(ParamOf(Ask({{"endpoint", nullptr}}).dump()), "endpoint");
  EXPECT_EQ(ParamOf(Ask({{"input_file_id", nullptr}}).dump()), "input_file_id");
  EXPECT_EQ(ParamOf(Ask({{"input_file_id", 7}}).dump()), "input_file_id");
  json many;
  for (int i = 0; i < 17; ++i) many["k" + std::to_string(i)] = "v";
  for (const json& metadata :
       {many, json("x"), json({{"k", 1}}), json({{std::string(65, 'k'), "v"}}), json({{"k", std::string(513, 'v')}})})
    EXPECT_EQ(ParamOf(Ask({{"metadata", metadata}}).dump()), "metadata") << metadata;
  std::string umlauts;
  for (int i = 0; i < 512; ++i) umlauts += "\xc3\xa4";
  EXPECT_EQ(ParamOf(Ask({{"metadata", {{"k", umlauts}}}}).dump()), "taken") << "512 characters";
  for (const json& live : {json(1), json({{"anchor", "x"}, {"seconds", 3600}}), json({{"anchor", "created_at"}})})
    EXPECT_EQ(ParamOf(Ask({{"output_expires_after", live}}).dump()), "output_expires_after") << live;
  EXPECT_EQ(ParseBatch("[]", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseBatch("{", 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(UploadFieldsTest, PurposeAndExpiryAreChecked) {
  using Fields = std::vector<std::pair<std::string, std::string>>;
  const auto param = [](const Fields& fields) {
    const auto parsed = ParseUpload(fields);
    return parsed.ok() ? std::to_string(parsed->live_s) : parsed.status().param();
  };
  const Fields good = {
      {"purpose", "batch"}, {"expires_after[anchor]", "created_at"}, {"expires_after[seconds]", "3600"}};
  EXPECT_EQ(param(good), "3600");
  EXPECT_EQ(param({good[0], {"unknown", "x"}}), "0");
  EXPECT_EQ(param({}), "purpose");
  EXPECT_EQ(param({{"purpose", "assistants"}}), "purpose");
  EXPECT_EQ(param({good[0], good[0]}), "purpose");
  EXPECT_EQ(param({good[0], good[1]}), "expires_after");
  EXPECT_EQ(param({good[0], good[2]}), "expires_after");
  for (const char* seconds : {"", "x", "3599", "2592001", "-1", "1e9"})
    EXPECT_EQ(param({good[0], good[1], {good[2].first, seconds}}), "expires_after") << seconds;
}

TEST(PageTest, AQueryIsParsedAndChecked) {
  std::string purpose;
  const auto page = ParsePage("/v1/files?after=file-1&limit=7&order=asc&purpose=batch&x=y", 20, 100, &purpose);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->after, "file-1");
  EXPECT_EQ(page->limit, 7);
  EXPECT_TRUE(page->ascending);
  EXPECT_EQ(purpose, "batch");
  EXPECT_EQ(ParsePage("/v1/files", 20, 100, nullptr)->limit, 20);
  EXPECT_EQ(ParsePage("/v1/files?", 20, 100, nullptr)->after, "");
  for (const char* bad : {"?limit=0", "?limit=101", "?limit=", "?limit=x", "?limit"})
    EXPECT_EQ(ParsePage(bad, 20, 100, nullptr).status().param(), "limit") << bad;
  EXPECT_EQ(ParsePage("?order=up", 20, 100, nullptr).status().param(), "order");
}

TEST(BatchObjectTest, ABatchHasEveryFieldOfOpenAis) {
  BatchRow batch = *ParseBatch(Ask({{"metadata", {{"k", "v"}}}}).dump(), 1000);
  batch.id = "batch_1";
  batch.output_file_id = "file-2";
  const json waiting = json::parse(BatchText(batch, "m"));
  for (const char* field : {"id",
                            "object",
                            "endpoint",
                            "model",
                            "errors",
                            "input_file_id",
                            "completion_window",
                            "status",
                            "output_file_id",
                            "error_file_id",
                            "created_at",
                            "in_progress_at",
                            "expires_at",
                            "finalizing_at",
                            "completed_at",
                            "failed_at",
                            "expired_at",
                            "cancelling_at",
                            "cancelled_at",
                            "request_counts",
                            "usage",
                            "metadata"})
    EXPECT_TRUE(waiting.contains(field)) << field;
  EXPECT_EQ(waiting["status"], "validating");
  EXPECT_EQ(waiting["output_file_id"], nullptr) << "null until the file exists";
  EXPECT_EQ(waiting["usage"], nullptr);
  batch.state = BatchState::kFailed;
  batch.errors = {{"empty_file", "why", "input_file_id", 3}};
  const json failed = json::parse(BatchText(batch, "m"));
  EXPECT_EQ(failed["errors"]["data"][0]["line"], 3);
  EXPECT_EQ(failed["errors"]["object"], "list");
}

TEST(BatchRecordTest, ARecordIsReadBackUnchanged) {
  BatchRow batch = *ParseBatch(Ask({{"metadata", {{"k", "v"}}}}).dump(), 1000);
  batch.id = "batch_1";
  batch.owner = "me";
  batch.state = BatchState::kExpired;
  batch.errors = {{"code", "message", "param", 3}};
  batch.has_errors = true;
  batch.counts = {5, 3, 2};
  batch.input_tokens = 7;
  const auto again = BatchOf(RecordOf(batch));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(RecordOf(*again), RecordOf(batch));
  EXPECT_EQ(BatchText(*again, "m"), BatchText(batch, "m"));
  for (const char* damaged : {"", "{}", "[]", R"({"state":9})"})
    EXPECT_EQ(BatchOf(damaged).status().code(), StatusCode::kDataLoss) << damaged;
}

}  // namespace
}  // namespace tactus::offline
