// The replies to a data plane, message by message, in every body mode.
#include "fleet/picker/stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "fleet/picker/scripted_fleet.h"

namespace tactus::fleet {
namespace {

using Kind = Reply::Kind;

const http::Headers kPost = {{":method", "POST"}, {":path", "/v1/completions"}};
const http::Headers kGet = {{":method", "GET"}, {":path", "/v1/models"}};
const http::Headers kEvents = {{":status", "200"}, {"content-type", "text/event-stream"}};
const http::Headers kJson = {{":status", "200"}, {"content-type", "application/json"}};
constexpr char kBody[] = "{\"model\": \"m\", \"prompt\": \"0123456789ab\"}";

std::vector<Kind> Kinds(const Stream::Replies& replies) {
  std::vector<Kind> kinds;
  for (const Reply& reply : replies) kinds.push_back(reply.kind);
  return kinds;
}

std::string Joined(const Stream::Replies& replies) {
  std::string text;
  for (const Reply& reply : replies) text += reply.body;
  return text;
}

struct StreamTest : testing::Test {
  std::unique_ptr<Stream> Make(BodyMode request, BodyMode response = BodyMode::kFullDuplex) {
    return std::make_unique<Stream>(picker, request, response);
  }
  void ExpectRefused(const Stream& stream, const Stream::Replies& replies, int status) {
    ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kRefusal});
    EXPECT_EQ(replies[0].status, status) << replies[0].body;
    EXPECT_EQ(replies[0].body.find("{\"error\": {\"message\": \""), 0u) << replies[0].body;
    EXPECT_TRUE(stream.refused());
  }

  ManualClock clock;
  ScriptedFleet fleet{3};
  Picker picker{fleet, {.max_body_bytes = 200'000, .max_body_total_bytes = 300'000}, clock};
};

TEST_F(StreamTest, ARequestWithoutBodyIsRoutedAtOnceInEveryMode) {
  for (const BodyMode mode :
       {BodyMode::kNone, BodyMode::kStreamed, BodyMode::kBuffered, BodyMode::kBufferedPartial, BodyMode::kFullDuplex}) {
    auto stream = Make(mode);
    const auto replies = stream->RequestHeaders(kGet, true, {});
    ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kRequestHeaders});
    EXPECT_FALSE(replies[0].destination.empty());
    EXPECT_EQ(Kinds(stream->ResponseHeaders(kJson, true, {})), std::vector<Kind>{Kind::kResponseHeaders});
  }
  EXPECT_EQ(fleet.ends.size(), 5u) << "a response without body ends with its headers";
}

TEST_F(StreamTest, FullDuplexRepliesToTheHeadersOnceAfterTheBodysEnd) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->RequestHeaders(kPost, false, {}).empty());
  const std::string body = kBody;
  for (const char c : body.substr(0, body.size() - 1)) {
    ASSERT_TRUE(stream->RequestBody(std::string(1, c), false, {}).empty());
  }
  EXPECT_TRUE(fleet.picks.empty());
  const auto replies = stream->RequestBody(body.substr(body.size() - 1), true, {});
  ASSERT_EQ(Kinds(replies), (std::vector<Kind>{Kind::kRequestHeaders, Kind::kRequestBody}));
  EXPECT_EQ(replies[0].destination, AddressOf(0));
  EXPECT_TRUE(replies[1].destination.empty());
  EXPECT_TRUE(replies[1].streamed);
  EXPECT_TRUE(replies[1].end_of_stream);
  EXPECT_EQ(replies[1].body, body);
  EXPECT_EQ(fleet.picks[0].prompt_tokens, 3) << "12 bytes";
  // Some releases of Envoy send the end twice.
  EXPECT_TRUE(stream->RequestBody(body.substr(body.size() - 1), true, {}).empty());
  EXPECT_EQ(fleet.picks.size(), 1u);
}

TEST_F(StreamTest, AnEmptyLastPieceEndsTheBody) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->RequestHeaders(kPost, false, {}).empty());
  EXPECT_TRUE(stream->RequestBody(kBody, false, {}).empty());
  const auto replies = stream->RequestBody("", true, {});
  ASSERT_EQ(Kinds(replies), (std::vector<Kind>{Kind::kRequestHeaders, Kind::kRequestBody}));
  EXPECT_EQ(replies[1].body, kBody);
  EXPECT_TRUE(replies[1].end_of_stream);
}

TEST_F(StreamTest, AnEmptyBodyStillGetsItsEnd) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->RequestHeaders(kPost, false, {}).empty());
  const auto replies = stream->RequestBody("", true, {});
  ASSERT_EQ(Kinds(replies), (std::vector<Kind>{Kind::kRequestHeaders, Kind::kRequestBody}));
  EXPECT_TRUE(replies[1].end_of_stream);
}

TEST_F(StreamTest, TrailersEndTheBodyAndTheirReplyIsLast) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->RequestHeaders(kPost, false, {}).empty());
  EXPECT_TRUE(stream->RequestBody(kBody, false, {}).empty());
  const auto replies = stream->RequestTrailers({});
  ASSERT_EQ(Kinds(replies), (std::vector<Kind>{Kind::kRequestHeaders, Kind::kRequestBody, Kind::kRequestTrailers}));
  EXPECT_FALSE(replies[1].end_of_stream) << "the trailers end the request";
  EXPECT_EQ(replies[1].body, kBody);
}

TEST_F(StreamTest, LargeBodiesArePassedOnInPiecesWithinTheLimit) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->RequestHeaders(kPost, false, {}).empty());
  std::string body(150'000, 'x');
  for (size_t i = 0; i < body.size(); i += 7) body[i] = static_cast<char>('a' + i % 26);
  const auto replies = stream->RequestBody(body, true, {});
  ASSERT_EQ(replies.size(), 4u);
  EXPECT_EQ(Joined(replies), body);
  for (size_t i = 1; i < replies.size(); ++i) {
    EXPECT_LT(replies[i].body.size(), 64u << 10);
    EXPECT_EQ(replies[i].end_of_stream, i + 1 == replies.size());
  }
}

TEST_F(StreamTest, FullDuplexWithoutHeadersRepliesWithTheChoiceInTheBody) {
  auto stream = Make(BodyMode::kFullDuplex);
  const auto replies = stream->RequestBody(kBody, true, {});
  ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kRequestBody});
  EXPECT_EQ(replies[0].destination, AddressOf(0));
}

TEST_F(StreamTest, ABufferedBodyGetsTheChoiceAsItsReply) {
  auto stream = Make(BodyMode::kBuffered);
  const auto headers = stream->RequestHeaders(kPost, false, {});
  ASSERT_EQ(Kinds(headers), std::vector<Kind>{Kind::kRequestHeaders}) << "otherwise no body would come";
  EXPECT_TRUE(headers[0].destination.empty());
  const auto replies = stream->RequestBody(kBody, true, {});
  ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kRequestBody});
  EXPECT_EQ(replies[0].destination, AddressOf(0));
  EXPECT_FALSE(replies[0].streamed);
  EXPECT_EQ(fleet.picks[0].prompt_tokens, 3);
  EXPECT_EQ(picker.MetricsText().find("tactus_epp_body_bytes 0"), picker.MetricsText().rfind("tactus_epp_body_bytes"))
      << "the data plane stores the body, the picker does not";
}

TEST_F(StreamTest, AStreamedBodyIsRoutedByItsHeadersAndSizedByItsLength) {
  for (const BodyMode mode : {BodyMode::kStreamed, BodyMode::kBufferedPartial, BodyMode::kNone}) {
    fleet.picks.clear();
    auto stream = Make(mode);
    http::Headers headers = kPost;
    headers.emplace_back("content-length", "400");
    const auto first = stream->RequestHeaders(headers, false, {});
    ASSERT_EQ(Kinds(first), std::vector<Kind>{Kind::kRequestHeaders});
    EXPECT_FALSE(first[0].destination.empty());
    ASSERT_EQ(fleet.picks.size(), 1u);
    EXPECT_EQ(fleet.picks[0].prompt_tokens, 100);
    for (const bool end : {false, true}) {
      const auto replies = stream->RequestBody(kBody, end, {});
      ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kRequestBody}) << "one reply for each message";
      EXPECT_FALSE(replies[0].streamed);
      EXPECT_TRUE(replies[0].destination.empty());
    }
    EXPECT_EQ(fleet.picks.size(), 1u);
  }
}

TEST_F(StreamTest, ResponsePiecesPassAtOnceAndTheLastEndsThePick) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestHeaders(kPost, false, {});
  stream->RequestBody(kBody, true, {});
  ASSERT_EQ(Kinds(stream->ResponseHeaders(kEvents, false, {})), std::vector<Kind>{Kind::kResponseHeaders});
  const auto piece = stream->ResponseBody("data: {\"a\": 1}\n\n", false);
  ASSERT_EQ(Kinds(piece), std::vector<Kind>{Kind::kResponseBody});
  EXPECT_EQ(piece[0].body, "data: {\"a\": 1}\n\n");
  EXPECT_TRUE(piece[0].streamed);
  EXPECT_FALSE(piece[0].end_of_stream);
  EXPECT_TRUE(fleet.ends.empty());
  const auto last = stream->ResponseBody("data: 2\n\ndata: [DONE]\n\n", true);
  EXPECT_TRUE(last[0].end_of_stream);
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, 2);
}

TEST_F(StreamTest, ResponseTrailersEndThePickOnce) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestHeaders(kGet, true, {});
  stream->ResponseHeaders(kJson, false, {});
  stream->ResponseBody("{\"usage\": {\"completion_tokens\": 9}}", false);
  EXPECT_EQ(Kinds(stream->ResponseTrailers()), std::vector<Kind>{Kind::kResponseTrailers});
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, 9);
}

TEST_F(StreamTest, OtherResponseModesGetOneReplyForEachMessage) {
  for (const BodyMode mode : {BodyMode::kStreamed, BodyMode::kBuffered, BodyMode::kBufferedPartial}) {
    auto stream = Make(BodyMode::kFullDuplex, mode);
    stream->RequestHeaders(kGet, true, {});
    stream->ResponseHeaders(kJson, false, {});
    const auto replies = stream->ResponseBody(std::string(100'000, 'x'), true);
    ASSERT_EQ(Kinds(replies), std::vector<Kind>{Kind::kResponseBody});
    EXPECT_FALSE(replies[0].streamed);
  }
  EXPECT_EQ(fleet.ends.size(), 3u);
}

TEST_F(StreamTest, AnErrorResponseGivesNoOutputLength) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestHeaders(kGet, true, {});
  stream->ResponseHeaders({{":status", "500"}, {"content-type", "application/json"}}, false, {});
  stream->ResponseBody("{\"usage\": {\"completion_tokens\": 9}}", true);
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1);
  EXPECT_NE(picker.MetricsText().find("tactus_epp_ended_total{outcome=\"failed\"} 1"), std::string::npos);
}

TEST_F(StreamTest, OutputTokensAreReadFromTheUsage) {
  const auto tokens = [this](const http::Headers& headers, const std::string& body, size_t piece) {
    auto stream = Make(BodyMode::kFullDuplex);
    stream->RequestHeaders(kGet, true, {});
    stream->ResponseHeaders(headers, false, {});
    for (size_t at = 0; at < body.size(); at += piece) stream->ResponseBody(body.substr(at, piece), false);
    stream->ResponseBody("", true);
    return fleet.ends.back().output_tokens;
  };
  const std::string usage = "\"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 11}}";
  for (const size_t piece : {1, 7, 100'000}) {
    for (const size_t text : {20'000, 8'150}) {  // 8,150: the stored end is cut within the usage
      EXPECT_EQ(tokens(kJson, "{\"text\": \"" + std::string(text, 'x') + "\", " + usage, piece), 11) << text;
    }
    EXPECT_EQ(tokens(kEvents, "data: {\"a\": 1}\n\ndata: {" + usage + "\n\ndata: [DONE]\n\n", piece), 11);
    EXPECT_EQ(tokens(kEvents, "data: 1\n\n: ping\n\ndata: 2\n\ndata: [DONE]\n\n", piece), 2)
        << "an event counts as a token";
    EXPECT_EQ(tokens(kJson, "{\"object\": \"list\"}", piece), -1);
  }
  http::Headers packed = kEvents;
  packed.emplace_back("content-encoding", "gzip");
  EXPECT_EQ(tokens(packed, "data: 1\n\n", 100), -1) << "compressed bodies are not decompressed";
}

TEST_F(StreamTest, ResponsesCountAsSuccessOrFailureOfTheReplica) {
  const auto well = [this](int status, const char* type) {
    auto stream = Make(BodyMode::kFullDuplex);
    stream->RequestHeaders(kGet, true, {});
    stream->ResponseHeaders({{":status", std::to_string(status)}, {"content-type", type}}, true, {});
    return fleet.answers.back().second;
  };
  EXPECT_TRUE(well(200, "application/json"));
  EXPECT_TRUE(well(400, "application/json"));
  EXPECT_TRUE(well(503, "application/json")) << "it is full";
  EXPECT_FALSE(well(503, "text/plain")) << "the data plane could not reach it";
  EXPECT_FALSE(well(500, "application/json"));
  auto moved = Make(BodyMode::kFullDuplex);
  moved->RequestHeaders(kGet, true, {});
  moved->ResponseHeaders(kJson, true, {.served = AddressOf(2)});
  EXPECT_EQ(fleet.answers.back(), std::pair(2, true));
}

TEST_F(StreamTest, AClientThatDisconnectsEndsThePick) {
  auto before = Make(BodyMode::kFullDuplex);
  before->RequestHeaders(kPost, false, {});
  before->RequestBody("{\"pro", false, {});
  before.reset();
  EXPECT_TRUE(fleet.picks.empty());
  auto during = Make(BodyMode::kFullDuplex);
  during->RequestHeaders(kGet, true, {});
  during->ResponseHeaders(kEvents, false, {});
  during->ResponseBody("data: 1\n\n", false);
  during.reset();
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1);
  EXPECT_EQ(picker.streams(), 0);
  EXPECT_EQ(picker.outstanding(), 0);
  EXPECT_NE(picker.MetricsText().find("tactus_epp_body_bytes 0"), std::string::npos) << "its partial body is freed";
  EXPECT_NE(picker.MetricsText().find("tactus_epp_ended_total{outcome=\"aborted\"} 1"), std::string::npos);
}

TEST_F(StreamTest, AResponseWithUnseenBodyEndsWithTheStream) {
  auto stream = Make(BodyMode::kNone, BodyMode::kNone);
  stream->RequestHeaders(kPost, false, {});
  stream->ResponseHeaders(kEvents, false, {});
  EXPECT_TRUE(fleet.ends.empty());
  stream.reset();
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1) << "unseen events do not count as zero";
  EXPECT_NE(picker.MetricsText().find("tactus_epp_ended_total{outcome=\"unseen\"} 1"), std::string::npos);
}

TEST_F(StreamTest, TrailersAfterAnUnseenBodyEndItWithoutALength) {
  auto stream = Make(BodyMode::kNone, BodyMode::kNone);
  stream->RequestHeaders(kPost, false, {});
  stream->ResponseHeaders(kEvents, false, {});
  stream->ResponseTrailers();
  ASSERT_EQ(fleet.ends.size(), 1u);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1);
  EXPECT_NE(picker.MetricsText().find("tactus_epp_ended_total{outcome=\"completed\"} 1"), std::string::npos);
}

TEST_F(StreamTest, AResponseWithoutItsEndIsNotCompleted) {
  struct Gone {
    BodyMode mode;
    const http::Headers* headers;  // of the response; null: there is none
    const char* outcome;
  };
  const http::Headers bad = {{":status", "500"}, {"content-type", "application/json"}};
  std::map<std::string, int> wanted;
  for (const Gone& gone :
       {Gone{BodyMode::kNone, &kEvents, "unseen"}, Gone{BodyMode::kNone, &kJson, "unseen"},
        Gone{BodyMode::kNone, &bad, "failed"}, Gone{BodyMode::kNone, nullptr, "aborted"},
        Gone{BodyMode::kStreamed, &kEvents, "aborted"}, Gone{BodyMode::kBuffered, &kJson, "aborted"},
        Gone{BodyMode::kBufferedPartial, &kJson, "aborted"}, Gone{BodyMode::kFullDuplex, &kEvents, "aborted"},
        Gone{BodyMode::kFullDuplex, &bad, "aborted"}, Gone{BodyMode::kFullDuplex, nullptr, "aborted"}}) {
    auto stream = Make(BodyMode::kNone, gone.mode);
    stream->RequestHeaders(kGet, true, {});
    if (gone.headers != nullptr) stream->ResponseHeaders(*gone.headers, false, {});
    stream.reset();
    const int count = ++wanted[gone.outcome];
    const std::string text = picker.MetricsText();
    EXPECT_NE(text.find(fmt::format("tactus_epp_ended_total{{outcome=\"{}\"}} {}\n", gone.outcome, count)),
              std::string::npos)
        << text;
    EXPECT_EQ(fleet.ends.back().output_tokens, -1);
    EXPECT_EQ(picker.outstanding(), 0);
  }
  EXPECT_NE(picker.MetricsText().find("tactus_epp_ended_total{outcome=\"completed\"} 0\n"), std::string::npos);
}

TEST_F(StreamTest, TheReplicaThatServedTheRequestCountsIt) {
  auto stream = Make(BodyMode::kFullDuplex);
  const auto replies = stream->RequestHeaders(kGet, true, {});
  ASSERT_EQ(replies[0].destination, AddressOf(0));
  stream->ResponseHeaders(kEvents, false, {.served = AddressOf(2)});
  stream->ResponseBody("data: 1\n\ndata: [DONE]\n\n", true);
  ASSERT_EQ(fleet.ends.size(), 2u);
  EXPECT_EQ(fleet.ends[0].replica, 0);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1);
  EXPECT_EQ(fleet.ends[1].replica, 2);
  EXPECT_EQ(fleet.ends[1].output_tokens, 1);
}

TEST_F(StreamTest, TheSubsetMayComeWithAnyRequestMessage) {
  const StreamMetadata only = {.subset = {{AddressOf(1)}}};
  auto headers = Make(BodyMode::kFullDuplex);
  headers->RequestHeaders(kPost, false, only);
  EXPECT_EQ(headers->RequestBody(kBody, true, {})[0].destination, AddressOf(1));
  auto body = Make(BodyMode::kFullDuplex);
  body->RequestHeaders(kPost, false, {});
  EXPECT_EQ(body->RequestBody(kBody, true, only)[0].destination, AddressOf(1));
  auto none = Make(BodyMode::kFullDuplex);
  none->RequestHeaders(kPost, false, {.subset = std::vector<std::string>{}});
  const auto replies = none->RequestBody(kBody, true, {});
  ExpectRefused(*none, replies, 503);
}

TEST_F(StreamTest, ARefusalIsTheOnlyReply) {
  for (int32_t i = 0; i < 3; ++i) fleet.SetReady(i, false);
  for (const BodyMode mode : {BodyMode::kBuffered, BodyMode::kFullDuplex}) {
    auto stream = Make(mode);
    stream->RequestHeaders(kPost, false, {});
    const auto replies = stream->RequestBody(kBody, true, {});
    ExpectRefused(*stream, replies, 503);
    EXPECT_TRUE(stream->RequestBody(kBody, true, {}).empty());
    EXPECT_TRUE(stream->RequestTrailers({}).empty());
    EXPECT_TRUE(stream->ResponseHeaders(kJson, true, {}).empty());
  }
  auto streamed = Make(BodyMode::kStreamed);
  ExpectRefused(*streamed, streamed->RequestHeaders(kPost, false, {}), 503);
}

TEST_F(StreamTest, ABodyOverTheLimitIsRefusedAsSoonAsThatIsKnown) {
  auto stated = Make(BodyMode::kFullDuplex);
  http::Headers headers = kPost;
  headers.emplace_back("content-length", "200001");
  ExpectRefused(*stated, stated->RequestHeaders(headers, false, {}), 413);
  for (const BodyMode mode : {BodyMode::kFullDuplex, BodyMode::kBuffered}) {
    auto sent = Make(mode);
    sent->RequestHeaders(kPost, false, {});
    ExpectRefused(*sent, sent->RequestBody(std::string(200'001, 'x'), false, {}), 413);
  }
  auto exact = Make(BodyMode::kFullDuplex);
  headers.back().second = "200000";
  EXPECT_TRUE(exact->RequestHeaders(headers, false, {}).empty());
  EXPECT_TRUE(exact->RequestBody(std::string(199'999, 'x'), false, {}).empty());
  EXPECT_EQ(exact->RequestBody("x", true, {}).size(), 5u) << "the limit itself is allowed";
}

TEST_F(StreamTest, TheTotalOfAllBodiesIsLimited) {
  auto first = Make(BodyMode::kFullDuplex), second = Make(BodyMode::kFullDuplex), third = Make(BodyMode::kFullDuplex);
  for (Stream* stream : {first.get(), second.get(), third.get()}) stream->RequestHeaders(kPost, false, {});
  EXPECT_TRUE(first->RequestBody(std::string(180'000, 'x'), false, {}).empty());
  ExpectRefused(*second, second->RequestBody(std::string(180'000, 'x'), false, {}), 503);
  first.reset();
  EXPECT_TRUE(third->RequestBody(std::string(180'000, 'x'), false, {}).empty())
      << "a stream that ended frees its bytes";
}

TEST_F(StreamTest, ABodysBytesAreFreedOnceItIsPassedOn) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestHeaders(kPost, false, {});
  const auto held = [&](int64_t bytes) {
    return picker.MetricsText().find(fmt::format("tactus_epp_body_bytes {}\n", bytes)) != std::string::npos;
  };
  stream->RequestBody(std::string(1000, 'x'), false, {});
  stream->Passed();
  EXPECT_TRUE(held(1000)) << "its end has not arrived";
  const auto replies = stream->RequestBody(std::string(1000, 'x'), true, {});
  EXPECT_TRUE(held(2000)) << "the replies hold it";
  stream->Passed();
  EXPECT_TRUE(held(0)) << "this needs no response";
  EXPECT_EQ(Joined(replies).size(), 2000u);
}

TEST_F(StreamTest, ALateBodyIsRefusedAndItsBytesFreed) {
  auto stream = Make(BodyMode::kFullDuplex);
  EXPECT_TRUE(stream->waits_for_request() && !stream->seen()) << "nothing has arrived yet";
  stream->RequestHeaders(kPost, false, {});
  EXPECT_TRUE(stream->seen());
  EXPECT_TRUE(stream->waits_for_request());
  stream->RequestBody(std::string(1000, 'x'), false, {});
  EXPECT_TRUE(stream->waits_for_request());
  ExpectRefused(*stream, stream->BodyIsLate(), 408);
  EXPECT_FALSE(stream->waits_for_request());
  EXPECT_NE(picker.MetricsText().find("tactus_epp_body_bytes 0\n"), std::string::npos);
  EXPECT_NE(picker.MetricsText().find("tactus_epp_refused_total{reason=\"body_late\"} 1"), std::string::npos);
  auto whole = Make(BodyMode::kFullDuplex);
  whole->RequestHeaders(kPost, false, {});
  whole->RequestBody("x", true, {});
  EXPECT_FALSE(whole->waits_for_request());
}

TEST_F(StreamTest, AMessageCountsUntilItsRepliesArePassedOn) {
  const auto held = [this](int64_t bytes) {
    return picker.MetricsText().find(fmt::format("tactus_epp_body_bytes {}\n", bytes)) != std::string::npos;
  };
  const int64_t all = picker.options().max_body_total_bytes;
  auto stream = Make(BodyMode::kFullDuplex), other = Make(BodyMode::kFullDuplex);
  Stream::Replies replies;
  EXPECT_TRUE(stream->TakeMessage(all - 10, &replies) && replies.empty());
  EXPECT_TRUE(held(all - 10));
  EXPECT_FALSE(other->TakeMessage(11, &replies));
  ExpectRefused(*other, replies, 503);
  stream->Passed();
  EXPECT_TRUE(held(0));
  EXPECT_TRUE(stream->TakeMessage(10, &replies));
  stream.reset();
  EXPECT_TRUE(held(0)) << "a stream that ends frees its bytes";
}

TEST_F(StreamTest, AnInvalidBodyIsRoutedUnchanged) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestHeaders(kPost, false, {});
  const std::string rubbish("\x00\xff{{{", 5);
  const auto replies = stream->RequestBody(rubbish, true, {});
  ASSERT_EQ(Kinds(replies), (std::vector<Kind>{Kind::kRequestHeaders, Kind::kRequestBody}));
  EXPECT_EQ(replies[1].body, rubbish);
}

TEST_F(StreamTest, MessagesOutOfOrderTakeExactlyOnePick) {
  auto stream = Make(BodyMode::kFullDuplex);
  stream->RequestTrailers({});
  stream->RequestBody(kBody, true, {});
  stream->RequestHeaders(kPost, true, {});
  stream->RequestHeaders(kPost, true, {});
  stream->RequestTrailers({});
  stream->ResponseBody("x", true);
  stream->ResponseBody("x", true);
  stream->ResponseHeaders(kJson, true, {});
  stream->ResponseTrailers();
  EXPECT_EQ(fleet.picks.size(), 1u);
  EXPECT_EQ(fleet.ends.size(), 1u);
}

}  // namespace
}  // namespace tactus::fleet
