// Permitted endpoints of a request, the choice, and refusals.
#include "fleet/picker/picker.h"

#include <gtest/gtest.h>

#include "fleet/picker/scripted_fleet.h"

namespace tactus::fleet {
namespace {

using Subset = std::optional<std::vector<std::string>>;

struct PickerTest : testing::Test {
  Choice Choose(Picker& picker, const Subset& subset = std::nullopt) {
    return picker.Choose({.prompt_tokens = 10}, subset);
  }
  void End(Picker& picker, const Choice& choice) { picker.Ended(choice, 5, Picker::Outcome::kCompleted); }
  ManualClock clock;
  ScriptedFleet fleet{4};
};

TEST_F(PickerTest, PicksOnlyFromTheSubset) {
  Picker picker(fleet, {}, clock);
  for (int i = 0; i < 4; ++i) {
    const Choice choice = Choose(picker, Subset({AddressOf(2), " " + AddressOf(3), "10.0.0.9:8000"}));
    ASSERT_FALSE(choice.refusal);
    EXPECT_TRUE(choice.address == AddressOf(2) || choice.address == AddressOf(3)) << choice.address;
    EXPECT_EQ(choice.destination, choice.address);
    End(picker, choice);
  }
  EXPECT_EQ(fleet.picks[0].subset, (std::vector<std::string>{AddressOf(2), AddressOf(3)}));
}

TEST_F(PickerTest, ASubsetEntryWithoutPortMeansAllPorts) {
  Picker picker(fleet, {}, clock);
  const Choice choice = Choose(picker, Subset({"10.0.0.1"}));
  EXPECT_EQ(choice.address, AddressOf(1));
  End(picker, choice);
  const Choice prefix = Choose(picker, Subset({"10.0.0"}));
  ASSERT_TRUE(prefix.refusal);
  EXPECT_EQ(prefix.refusal->reason, Refusal::Reason::kNotInSubset);
}

TEST_F(PickerTest, AnEmptySubsetIsRefused) {
  Picker picker(fleet, {}, clock);
  for (const Subset& subset : {Subset(std::vector<std::string>{}), Subset({"10.9.9.9:8000"})}) {
    const Choice choice = Choose(picker, subset);
    ASSERT_TRUE(choice.refusal);
    EXPECT_EQ(choice.refusal->status, 503);
  }
  EXPECT_TRUE(fleet.picks.empty()) << "an empty span would mean all";
}

TEST_F(PickerTest, RefusesWith503IfNoneIsReady) {
  Picker picker(fleet, {}, clock);
  for (int32_t i = 0; i < 4; ++i) fleet.SetReady(i, i == 3);
  const Choice outside = Choose(picker, Subset({AddressOf(0), AddressOf(1)}));
  ASSERT_TRUE(outside.refusal);
  EXPECT_EQ(outside.refusal->status, 503);
  fleet.SetReady(3, false);
  const Choice none = Choose(picker);
  ASSERT_TRUE(none.refusal);
  EXPECT_EQ(none.refusal->status, 503);
  EXPECT_EQ(none.refusal->reason, Refusal::Reason::kNoneReady);
}

TEST_F(PickerTest, FallbacksAreOtherReadyEndpointsOfTheSubset) {
  Picker picker(fleet, {.fallbacks = 2}, clock);
  const Choice all = Choose(picker);
  EXPECT_EQ(all.destination, AddressOf(0) + "," + AddressOf(1) + "," + AddressOf(2));
  fleet.SetReady(2, false);
  const Choice ready = Choose(picker);
  EXPECT_EQ(ready.destination, AddressOf(1) + "," + AddressOf(3) + "," + AddressOf(0));
  const Choice subset = Choose(picker, Subset({AddressOf(3), AddressOf(0)}));
  EXPECT_EQ(subset.destination, AddressOf(3) + "," + AddressOf(0));
  EXPECT_EQ(subset.address, AddressOf(3));
  for (const Choice& choice : {all, ready, subset}) End(picker, choice);
}

TEST_F(PickerTest, RequestsOverTheLimitGet429UntilOneEnds) {
  Picker picker(fleet, {.max_requests_per_replica = 2}, clock);
  fleet.SetReady(0, false);
  fleet.SetReady(1, false);
  std::vector<Choice> choices;
  for (int i = 0; i < 4; ++i) {
    choices.push_back(Choose(picker));
    ASSERT_FALSE(choices.back().refusal) << i;
  }
  const Choice shed = Choose(picker);
  ASSERT_TRUE(shed.refusal);
  EXPECT_EQ(shed.refusal->status, 429);
  EXPECT_NE(shed.refusal->message.find("--max-requests-per-replica"), std::string::npos) << shed.refusal->message;
  End(picker, choices.back());
  choices.pop_back();
  choices.push_back(Choose(picker));
  EXPECT_FALSE(choices.back().refusal);
  for (const Choice& choice : choices) End(picker, choice);
  EXPECT_EQ(picker.outstanding(), 0);
}

TEST_F(PickerTest, AMovedRequestCountsAtItsNewReplica) {
  Picker picker(fleet, {}, clock);
  const RequestView view{.prompt_tokens = 10};
  Choice choice = picker.Choose(view, std::nullopt);
  ASSERT_EQ(choice.address, AddressOf(0));
  EXPECT_TRUE(picker.Moved(view, AddressOf(2), &choice));
  EXPECT_EQ(choice.address, AddressOf(2));
  EXPECT_FALSE(picker.Moved(view, "1.2.3.4:5", &choice))
      << "not of this fleet: the request still counts at its replica";
  EXPECT_EQ(choice.address, AddressOf(2));
  picker.Ended(choice, 7, Picker::Outcome::kCompleted);
  ASSERT_EQ(fleet.ends.size(), 2u);
  EXPECT_EQ(fleet.ends[0].replica, 0);
  EXPECT_EQ(fleet.ends[0].output_tokens, -1);
  EXPECT_EQ(fleet.ends[1].replica, 2);
  EXPECT_EQ(fleet.ends[1].output_tokens, 7);
}

TEST_F(PickerTest, MetricsHaveAllCounts) {
  Picker picker(fleet, {}, clock);
  fleet.SetReady(3, false);
  End(picker, Choose(picker));
  const Choice open = Choose(picker);
  picker.StreamBegan();
  Choose(picker, Subset(std::vector<std::string>{}));
  EXPECT_TRUE(picker.TakeRoom(100));
  const std::string text = picker.MetricsText();
  for (const char* line :
       {"tactus_epp_streams 1", "tactus_epp_requests_in_flight 1", "tactus_epp_body_bytes 100",
        "tactus_epp_refused_total{reason=\"not_in_subset\"} 1", "tactus_epp_refused_total{reason=\"none_ready\"} 0",
        "tactus_epp_ended_total{outcome=\"completed\"} 1", "tactus_epp_endpoint_ready{endpoint=\"10.0.0.0:8000\"} 1",
        "tactus_epp_endpoint_ready{endpoint=\"10.0.0.3:8000\"} 0", "scripted_fleet 1",
        "tactus_epp_pick_seconds_count 2"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
  picker.GiveRoom(100);
  End(picker, open);
}

TEST_F(PickerTest, BodyBytesAreLimited) {
  Picker picker(fleet, {.max_body_total_bytes = 100}, clock);
  EXPECT_TRUE(picker.TakeRoom(60));
  EXPECT_FALSE(picker.TakeRoom(41));
  EXPECT_TRUE(picker.TakeRoom(40));
  picker.GiveRoom(60);
  EXPECT_TRUE(picker.TakeRoom(60));
}

}  // namespace
}  // namespace tactus::fleet
