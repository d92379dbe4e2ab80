// The view of `tactus top`: its state from events, and its text.
#include "cli/top/live_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/top/live_text.h"

namespace tactus::cli {
namespace {

constexpr const char* kHello = R"({"version":"1.2","model":"m","scheduler":"tactus","device":"CPU"})";

std::string Frame(const std::string& members) {
  return fmt::format(R"({{"frame":1,"lost_frames":0,"lost_records":0{}}})", members.empty() ? "" : "," + members);
}
std::string Stream(int64_t request, const std::string& id, int tokens, const std::string& gaps,
                   const std::string& slo_class = "") {
  return fmt::format(
      R"({{"request":{},"id":{},"class":"{}","prompt_tokens":100,"cached_tokens":0,"objectives_ms":{{"tbt":50}},)"
      R"("choices":[{{"choice":0,"computed_tokens":100,"completion_tokens":{},"ttft_ms":12,"longest_gap_ms":60,)"
      R"("late_gaps":1,"gaps_ms":[{}]}}]}})",
      request, id.empty() ? "null" : "\"" + id + "\"", slo_class, tokens, gaps);
}

void Feed(LiveView* view, const std::string& data, TimeNs at_ns = 0) {
  const Status taken = view->Take(data, at_ns);
  EXPECT_TRUE(taken.ok()) << taken.message() << " in " << data;
}

std::string Drawn(const LiveView& view, ViewChoices choices = {}, DrawOptions options = {.width = 120}) {
  std::string text;
  for (const Line& line : Draw(view, &choices, options)) text += LineText(line, options.width, false) + "\n";
  return text;
}

TEST(LiveViewTest, AStreamKeepsItsLastGapUntilTheNextAndEndsWithItsRequest) {
  LiveView view;
  Feed(&view, kHello);
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(7, "seven", 3, "5,8") + "]"));
  ASSERT_EQ(view.rows().size(), 1u);
  EXPECT_EQ(view.rows()[0].last_gap_ms, 8);
  Feed(&view, Frame(R"("whole":false,"streams":[)" + Stream(7, "seven", 3, "") + "]"));
  EXPECT_EQ(view.rows()[0].last_gap_ms, 8) << "a frame without gaps has lost the last one";
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(7, "seven", 4, "") + "]"));
  EXPECT_EQ(view.rows()[0].last_gap_ms, 8) << "a whole frame has lost the last gap";
  Feed(&view, Frame(R"("finished":[{"request":7,"id":"seven","finish_reason":"length","completion_tokens":4,)"
                    R"("misses":{"tbt":"passed_over"}}])"));
  EXPECT_TRUE(view.rows().empty());
  ASSERT_EQ(view.ended_rows().size(), 1u);
  EXPECT_EQ(view.ended_rows()[0].misses, "tbt: passed over");
  EXPECT_EQ(view.ended_rows()[0].finish, "length");
}

TEST(LiveViewTest, AWholeFrameDropsRequestsThatItDoesNotHave) {
  LiveView view;
  Feed(&view, kHello);
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(1, "a", 1, "1") + "," + Stream(2, "b", 1, "1") + "]"));
  EXPECT_EQ(view.rows().size(), 2u);
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(2, "b", 1, "1") + "]"));
  ASSERT_EQ(view.rows().size(), 1u);
  EXPECT_EQ(view.rows()[0].name, "b");
}

TEST(LiveViewTest, RatesAreOverTheLastSecondsAndBeginWithTheSecondFrame) {
  LiveView view;
  Feed(&view, kHello);
  const auto totals = [](int n) { return Frame(fmt::format(R"("totals":{{"generation_tokens":{}}})", n)); };
  Feed(&view, totals(1000), 0);
  EXPECT_FALSE(view.Rate("generation_tokens").has_value());
  for (int s = 1; s <= 10; ++s) Feed(&view, totals(1000 + (s <= 5 ? 0 : 20 * (s - 5))), s * kSecond);
  EXPECT_DOUBLE_EQ(view.Rate("generation_tokens").value_or(-1), 20) << "frames of more than three seconds ago count";
  Feed(&view, kHello, 11 * kSecond);
  EXPECT_FALSE(view.Rate("generation_tokens").has_value()) << "counts of a server before its restart";
}

TEST(LiveViewTest, EventsOfWrongShapesAreNoFault) {
  LiveView view;
  Feed(&view, R"({"version":"1","model":7,"fleet":"yes"})");
  for (const char* members : {R"("streams":7)", R"("streams":[7,null,{"request":"x","choices":[[]]}])", R"("steps":{})",
                              R"("totals":[1])", R"("totals":{"steps":"many"})", R"("classes":{"a":7})",
                              R"("finished":[{"misses":[]}])", R"("kv_blocks":{"total":-5,"in_use":1e300})"}) {
    Feed(&view, Frame(members));
    EXPECT_NE(Drawn(view), "");
  }
  for (const char* data : {"", "{", "[]", "7", R"({"a":1})"})
    EXPECT_EQ(view.Take(data, 0).code(), StatusCode::kInvalidArgument) << data;
}

TEST(LiveViewTest, RowsAndTextsOfAServerAreBounded) {
  LiveView view;
  Feed(&view, kHello);
  for (int part = 0; part < 3; ++part) {
    std::string streams;
    for (int i = 0; i < 2000; ++i)
      streams += (i > 0 ? "," : "") + Stream(2000 * part + i, std::string(1000, 'x'), 1, "1");
    Feed(&view, Frame(R"("whole":false,"streams":[)" + streams + "]"));
  }
  EXPECT_EQ(view.rows().size(), LiveView::kMostRows);
  EXPECT_LT(view.rows()[0].name.size(), 200u);
}

TEST(LiveViewTest, NamesWithControlSequencesReachNoTerminal) {
  LiveView view;
  Feed(&view, R"({"version":"1","model":"m\u001b[2J"})");
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(1, R"(a\u001b]0;x\u0007\u009b2Jb)", 1, "1") + "]"));
  const std::string text = Drawn(view);
  EXPECT_EQ(text.find('\033'), std::string::npos) << text;
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
}

TEST(LiveTextTest, AViewFitsIntoEverySize) {
  LiveView view;
  Feed(&view, kHello);
  std::string streams, finished, steps;
  for (int i = 0; i < 50; ++i) {
    streams += (i > 0 ? "," : "") + Stream(i, fmt::format("日本語-{}", i), i, "1");
    finished += fmt::format(R"({}{{"request":{},"id":"e{}"}})", i > 0 ? "," : "", 1000 + i, i);
    steps += fmt::format(R"({}{{"step":{},"ms":{}}})", i > 0 ? "," : "", i, i);
  }
  Feed(&view,
       Frame(fmt::format(R"("whole":true,"streams":[{}],"finished":[{}],"steps":[{}])", streams, finished, steps)));
  for (const int width : {1, 2, 10, 40, 80, 200}) {
    for (const int height : {1, 2, 5, 10, 24, 100}) {
      ViewChoices choices;
      const auto lines = Draw(view, &choices, {.width = width, .height = height, .blocks = true});
      EXPECT_LE(lines.size(), static_cast<size_t>(height)) << width << " x " << height;
      for (const Line& line : lines) EXPECT_LE(ColumnsOf(LineText(line, width, false)), width);
    }
  }
  const std::string all = Drawn(view);
  EXPECT_NE(all.find("日本語-49"), std::string::npos);
  EXPECT_NE(all.find("e0"), std::string::npos) << "without a height every row is shown";
}

TEST(LiveTextTest, FilterSortAndScrollChooseTheRows) {
  LiveView view;
  Feed(&view, kHello);
  Feed(&view, Frame(R"("whole":true,"streams":[)" + Stream(1, "alpha", 9, "1", "fast") + "," +
                    Stream(2, "beta", 30, "1", "slow") + "," + Stream(3, "gamma", 20, "1", "fast") + "]"));
  const auto order = [&](ViewChoices choices, int height = 0) {
    const std::string text = Drawn(view, choices, {.width = 120, .height = height});
    std::vector<std::pair<size_t, std::string>> at;
    for (const char* name : {"alpha", "beta", "gamma"})
      if (text.find(name) != std::string::npos) at.emplace_back(text.find(name), name);
    std::sort(at.begin(), at.end());
    std::string names;
    for (const auto& [place, name] : at) names += name + " ";
    return names;
  };
  EXPECT_EQ(order({}), "gamma beta alpha ");
  EXPECT_EQ(order({.sort = 1}), "beta gamma alpha ") << "by tokens";
  EXPECT_EQ(order({.sort = 1, .reverse = true}), "alpha gamma beta ");
  EXPECT_EQ(order({.filter = "FAST"}), "gamma alpha ") << "by class, in any case";
  EXPECT_EQ(order({.filter = "et"}), "beta ");
  EXPECT_EQ(order({.filter = "none"}), "");
  ViewChoices far{.first_row = 1000};
  EXPECT_NE(order(far, 12), "") << "scrolled beyond the end";
}

TEST(LiveTextTest, ALineIsCutAtWholeCharactersAndColoursOnlyOnATerminal) {
  const Line line = {{"ab", Style::kBold}, {"日本", Style::kBad}};
  EXPECT_EQ(LineText(line, 5, false), "ab日") << "half a wide character does not fit";
  EXPECT_EQ(LineText(line, 6, true), "\033[1mab\033[0m\033[31m日本\033[0m");
  EXPECT_EQ(ColumnsOf("e\xcc\x81"), 1) << "a mark takes no column";
}

TEST(LiveTextTest, AFleetShowsItsReplicas) {
  LiveView view;
  Feed(&view, R"({"fleet":true,"version":"1.2","balancer":"sal"})");
  Feed(&view, Frame(R"("fleet":{"model":"m","ready":1,"replicas":[)"
                    R"({"url":"http://a:1","state":"ready","in_flight":2,"running":3,"waiting":1,"kv_tokens":100,)"
                    R"("free_kv_tokens":25,"requests":9},{"url":"http://b:2","state":"down","why":"refused"}]},)"
                    R"("totals":{"answers":12,"failed":1,"migrations":{"done":4}})"));
  const std::string text = Drawn(view);
  for (const char* part : {"balancer sal", "ready 1 of 2", "moved 4", "http://a:1", "75.0 %", "down: refused"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
}

}  // namespace
}  // namespace tactus::cli
