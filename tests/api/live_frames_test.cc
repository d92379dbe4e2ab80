// Frames of GET /events from records.
#include "api/live_frames.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace tactus::api {
namespace {

class LiveFramesTest : public testing::Test {
 protected:
  LiveFramesTest() {
    RequestTimeline& known = known_[7];
    known.handle = 7;
    known.id = "id-7";
    known.owner = "key 1";
    known.slo_class = "chat";
    known.slo.tbt_ns = 20 * kMs;
    known.prompt_tokens = 40;
  }
  Json Frame(std::string_view owner = "key 1", bool whole = false, const EngineStats& stats = {}) {
    return Json::parse("{" + frames_.Members(stats, 5 * kMs, owner, whole) + "}");
  }
  void Add(const std::vector<LiveRecord>& records, int64_t lost = 0) { frames_.Add(records, lost); }

  static constexpr int64_t kMs = 1'000'000;
  std::map<RequestHandle, RequestTimeline> known_;
  int asked_ = 0;
  std::vector<RequestHandle> live_;
  LiveFrames frames_{[this](RequestHandle request) {
                       ++asked_;
                       return known_.contains(request) ? std::vector<RequestTimeline>{known_[request]}
                                                       : std::vector<RequestTimeline>{};
                     },
                     [this] { return live_; }};
};

TEST_F(LiveFramesTest, AStepHasItsChunksAndTimes) {
  LiveStep step{.step = 3, .begin_ns = 2 * kMs, .end_ns = 9 * kMs, .predicted_ns = 6 * kMs, .budget_tokens = 512};
  step.decodes = 2;
  step.prompt_tokens = 30;
  step.kv_blocks_in_use = 11;
  Add({LiveChunk{3, 7, 0, 0, 30}, step});
  const Json s = Frame()["steps"][0];
  EXPECT_EQ(s["step"], 3);
  EXPECT_EQ(s["begin_ms"], 2.0);
  EXPECT_EQ(s["ms"], 7.0);
  EXPECT_EQ(s["predicted_ms"], 6.0);
  EXPECT_EQ(s["budget_tokens"], 512);
  EXPECT_EQ(s["decodes"], 2);
  EXPECT_EQ(s["kv_blocks_in_use"], 11);
  EXPECT_EQ(s["chunks"], Json::parse(R"([{"request":7,"choice":0,"from":0,"tokens":30}])"));
}

TEST_F(LiveFramesTest, UnknownPredictionsAndMissingBudgetsAreNull) {
  Add({LiveStep{.step = 1, .end_ns = kMs, .budget_tokens = int64_t{1} << 40}});
  EXPECT_EQ(Frame()["steps"][0]["predicted_ms"], nullptr);
  EXPECT_EQ(Frame()["steps"][0]["budget_tokens"], nullptr);
}

TEST_F(LiveFramesTest, AStreamHasItsProgressAndGaps) {
  Add({LiveStart{7, 40, 16}, LiveChunk{0, 7, 0, 16, 24}, LiveTokens{7, 0, 1, 1, true, 50 * kMs}});
  Add({LiveTokens{7, 0, 2, 3, false, 12 * kMs}, LiveTokens{7, 0, 1, 4, false, 25 * kMs}});
  const Json stream = Frame()["streams"][0];
  EXPECT_EQ(stream["id"], "id-7");
  EXPECT_EQ(stream["class"], "chat");
  EXPECT_EQ(stream["prompt_tokens"], 40);
  EXPECT_EQ(stream["cached_tokens"], 16);
  EXPECT_EQ(stream["objectives_ms"], Json::parse(R"({"tbt":20.0})"));
  const Json choice = stream["choices"][0];
  EXPECT_EQ(choice["computed_tokens"], 40);
  EXPECT_EQ(choice["completion_tokens"], 4);
  EXPECT_EQ(choice["ttft_ms"], 50.0);
  EXPECT_EQ(choice["gaps_ms"], Json::parse("[12.0,25.0]"));
  EXPECT_EQ(choice["longest_gap_ms"], 25.0);
  EXPECT_EQ(choice["late_gaps"], 1);
  EXPECT_EQ(asked_, 1) << "a stream is looked up once";
}

TEST_F(LiveFramesTest, AFrameHasWhatIsNewAndAWholeOneEveryStream) {
  Add({LiveTokens{7, 0, 1, 1, true, kMs}, LiveTokens{8, 0, 1, 1, true, kMs}});
  frames_.Next();
  EXPECT_TRUE(frames_.empty());
  EXPECT_EQ(Frame()["streams"].size(), 0u);
  Add({LiveTokens{8, 0, 1, 2, false, kMs}});
  EXPECT_FALSE(frames_.empty());
  ASSERT_EQ(Frame()["streams"].size(), 1u);
  EXPECT_EQ(Frame()["streams"][0]["request"], 8);
  const Json whole = Frame("key 1", true);
  EXPECT_EQ(whole["whole"], true);
  ASSERT_EQ(whole["streams"].size(), 2u);
  EXPECT_EQ(whole["streams"][0]["choices"][0]["gaps_ms"].size(), 0u) << "gaps are those of the frame";
  EXPECT_EQ(whole["streams"][1]["choices"][0]["gaps_ms"].size(), 1u);
}

TEST_F(LiveFramesTest, IdsAreForTheirOwnerOnly) {
  LiveEnd end{.request = 7};
  Add({LiveTokens{7, 0, 1, 1, true, kMs}});
  EXPECT_EQ(Frame("key 0")["streams"][0]["id"], nullptr);
  EXPECT_EQ(Frame("")["streams"][0]["id"], nullptr);
  Add({end});
  EXPECT_EQ(Frame("key 0")["finished"][0]["id"], nullptr);
  EXPECT_EQ(Frame("key 1")["finished"][0]["id"], "id-7");
}

TEST_F(LiveFramesTest, AnEndNamesTheCauseOfEachMiss) {
  LiveEnd end{.request = 7, .finish = FinishReason::kLength};
  end.ttft_ns = 30 * kMs;
  end.gaps = 3;
  end.longest_gap_ns = 25 * kMs;
  end.misses[static_cast<size_t>(Objective::kTbt)] = {true, Cause::kPassedOver, 5 * kMs};
  Add({LiveTokens{7, 0, 1, 4, false, 25 * kMs}, end});
  const Json frame = Frame();
  EXPECT_EQ(frame["streams"].size(), 0u) << "it is no stream any more";
  const Json ended = frame["finished"][0];
  EXPECT_EQ(ended["finish_reason"], "length");
  EXPECT_EQ(ended["ttft_ms"], 30.0);
  EXPECT_EQ(ended["longest_gap_ms"], 25.0);
  EXPECT_EQ(ended["misses"], Json::parse(R"({"tbt":"passed_over"})"));
  frames_.Next();
  EXPECT_EQ(Frame()["finished"].size(), 0u);
}

TEST_F(LiveFramesTest, AfterALossStreamsThatHaveEndedAreDropped) {
  Add({LiveTokens{7, 0, 1, 1, true, kMs}, LiveTokens{8, 0, 1, 1, true, kMs}, LiveTokens{9, 0, 1, 1, true, kMs}});
  frames_.Next();
  const int before = asked_;
  live_ = {9, 3};  // in any order
  Add({}, 3);
  EXPECT_EQ(asked_, before) << "a search for every stream, each while a pass of the loop waits";
  const Json frame = Frame("key 1", true);
  EXPECT_EQ(frame["lost_records"], 3);
  ASSERT_EQ(frame["streams"].size(), 1u);
  EXPECT_EQ(frame["streams"][0]["request"], 9);
  frames_.Next();
  EXPECT_EQ(Frame()["lost_records"], 0);
}

TEST_F(LiveFramesTest, StateAndSpeculationAreTheEngines) {
  EngineStats stats{.running = 2, .waiting = 1};
  stats.kv_blocks_total = 9;
  stats.ngram_drafts = {.drafts = 3, .draft_tokens = 8, .accepted_tokens = 5};
  const Json frame = Frame("", false, stats);
  EXPECT_EQ(frame["now_ms"], 5.0);
  EXPECT_EQ(frame["running"], 2);
  EXPECT_EQ(frame["waiting"], 1);
  EXPECT_EQ(frame["kv_blocks"]["total"], 9);
  EXPECT_EQ(frame["speculation"]["ngram"]["accepted_tokens"], 5);
}

TEST(LivePrefixTree, ABranchNamesItsParentAndSize) {
  PrefixOutline outline;
  outline.blocks = 9;
  outline.branches = {{-1, 0, 4, 5, 3, 2}, {0, 4, 5, 0, 1, 1}};
  EXPECT_EQ(Json::parse("{" + LivePrefixTree(outline) + "}")["prefix_tree"], Json::parse(R"({
    "blocks": 9, "too_large": false, "branches": [
      {"parent": null, "depth": 0, "blocks": 4, "below": 5, "in_use": 3, "sequences": 2},
      {"parent": 0, "depth": 4, "blocks": 5, "below": 0, "in_use": 1, "sequences": 1}]})"));
}

TEST(LiveHello, NamesOfModelsAreQuoted) {
  ModelInfo model;
  model.name = "<b>\"&\"</b>";
  model.other_names = {"second"};
  model.architecture = "llama";
  model.num_parameters = 7;
  const Json hello = Json::parse(LiveHello(model, EngineStats{.step_tokens = 512}, "tactus"));
  EXPECT_EQ(hello["model"], model.name);
  EXPECT_EQ(hello["names"], Json::parse(R"(["<b>\"&\"</b>", "second"])"));
  EXPECT_EQ(hello["architecture"], "llama");
  EXPECT_EQ(hello["parameters"], 7);
  EXPECT_EQ(hello["scheduler"], "tactus");
  EXPECT_EQ(hello["step_tokens"], 512);
}

TEST(LiveClasses, AClassHasItsCountsAndTheObjectivesThatWereStated) {
  RunResult result;
  ClassFigures& chat = result.classes["chat"];
  chat.completed = 4;
  chat.stated = 4, chat.kept = 3;
  chat.tbt = {4, 3, 0, 0};
  EXPECT_EQ(Json::parse("{" + LiveClasses(result) + "}")["classes"]["chat"],
            Json::parse(R"({"completed":4,"failed":0,"rejected":0,"all":{"stated":4,"kept":3},
                            "tbt":{"stated":4,"kept":3}})"));
}

}  // namespace
}  // namespace tactus::api
