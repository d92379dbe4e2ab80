#include "http/client_counts.h"

#include <gtest/gtest.h>

#include <optional>

namespace tactus::http {
namespace {

TEST(ClientLimitTest, IsThreeQuartersOfTheQueueUnlessStated) {
  EXPECT_EQ(ClientLimit(0, 2048), 1536);
  EXPECT_EQ(ClientLimit(0, 100), 75);
  EXPECT_EQ(ClientLimit(0, 1), 1);  // at least one place for each client
  EXPECT_EQ(ClientLimit(1, 2048), 1);
  EXPECT_EQ(ClientLimit(5000, 2048), 5000);
}

TEST(ClientCountsTest, TheLimitItselfIsAllowedAndOneMoreIsNot) {
  ClientCounts counts(3);
  EXPECT_EQ(counts.limit(), 3);
  auto two = counts.Enter("a", 2);
  auto one = counts.Enter("a");
  ASSERT_TRUE(two.ok() && one.ok());
  EXPECT_EQ(counts.open("a"), 3);
  const auto refused = counts.Enter("a");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kTooManyRequests);
  EXPECT_EQ(refused.status().message(),
            "3 sequences of this client are open and this request has 1: more than 3, the limit "
            "(--max-streams-per-client); try again when some have ended");
  EXPECT_EQ(counts.open("a"), 3);          // a refusal takes no place
  EXPECT_TRUE(counts.Enter("b", 3).ok());  // another client has its own limit
  EXPECT_EQ(counts.open("b"), 0);          // the destroyed result has released its places
}

TEST(ClientCountsTest, RequestsBeyondTheLimitAreInvalidArguments) {
  ClientCounts counts(3);
  EXPECT_TRUE(counts.Enter("a", 3).ok());
  const auto never = counts.Enter("a", 4);
  EXPECT_EQ(never.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(never.status().param(), "n");
  EXPECT_EQ(never.status().message(),
            "n: a request of 4 sequences (prompts times n) is beyond 3, the limit of one client "
            "(--max-streams-per-client)");
  auto one = counts.Enter("a");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->Add(3).code(), StatusCode::kInvalidArgument);  // includes its own place
  EXPECT_EQ(one->count(), 1);
  EXPECT_TRUE(one->Add(2).ok());
  EXPECT_EQ(one->count(), 3);
  EXPECT_EQ(counts.open("a"), 3);
}

TEST(ClientCountsTest, RefusalSeparatesOpenSequencesFromTheRequestsOwn) {
  ClientCounts counts(10);
  auto others = counts.Enter("a", 8);
  auto mine = counts.Enter("a");
  ASSERT_TRUE(others.ok() && mine.ok());
  const Status refused = mine->Add(2);
  EXPECT_EQ(refused.code(), StatusCode::kTooManyRequests);
  EXPECT_NE(refused.message().find("8 sequences of this client are open and this request has 3"), std::string::npos)
      << refused.message();
  EXPECT_TRUE(mine->Add(1).ok());
}

TEST(ClientCountsTest, PlacesAreReleasedInPartsAndWithTheirOwner) {
  ClientCounts counts(10);
  {
    auto entered = counts.Enter("a", 6);
    ASSERT_TRUE(entered.ok());
    ClientCounts::Places places = std::move(*entered);
    EXPECT_EQ(counts.open("a"), 6);
    places.Release(1);
    EXPECT_EQ(counts.open("a"), 5);
    {
      ClientCounts::Places part = places.Split(2);
      EXPECT_EQ(part.count(), 2);
      EXPECT_EQ(places.count(), 3);
      EXPECT_EQ(counts.open("a"), 5);  // Split only changes the owner
      part.Release(7);                 // at most its own places
      EXPECT_EQ(counts.open("a"), 3);
    }
    EXPECT_EQ(counts.open("a"), 3);
    ClientCounts::Places rest = places.Split(99);
    EXPECT_EQ(rest.count(), 3);
    EXPECT_EQ(places.count(), 0);
    places = std::move(rest);
    EXPECT_EQ(counts.open("a"), 3);
    places = ClientCounts::Places();  // releases its places
    EXPECT_EQ(counts.open("a"), 0);
    places.Release(1);
    places.ReleaseAll();
  }
  EXPECT_EQ(counts.open("a"), 0);
}

TEST(ClientCountsTest, PlacesMayOutliveTheCounts) {
  std::optional<ClientCounts> counts(std::in_place, 2);
  auto places = counts->Enter("a", 2);
  counts.reset();
  places->ReleaseAll();
  EXPECT_EQ(places->count(), 0);
}

}  // namespace
}  // namespace tactus::http
