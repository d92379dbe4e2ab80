#include "http/access.h"

#include <gtest/gtest.h>

#include <set>

namespace tactus::http {
namespace {

std::optional<size_t> Find(const ApiKeys& keys, const std::string& header) {
  return keys.Find(&header);
}

TEST(ApiKeysTest, FindReturnsTheIndexOfTheKey) {
  const ApiKeys keys({"one", "", "two", "one", "three"});
  EXPECT_EQ(keys.size(), 3u);  // empty and repeated keys are ignored
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(Find(keys, "Bearer one"), 0u);
  EXPECT_EQ(Find(keys, "Bearer two"), 1u);
  EXPECT_EQ(Find(keys, "bearer three"), 2u);
  EXPECT_EQ(Find(keys, "BEARER two"), 1u);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "Bearer  one", "Bearer one ", "one",
                            "Basic one", "Bearer ONE", "Bearerone"}) {
    EXPECT_EQ(Find(keys, wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(keys.Find(nullptr), std::nullopt);
}

TEST(ApiKeysTest, KeysHaveTheClassesInTheirOrder) {
  const ApiKeys keys({"one", "two", "one", "three"}, {"chat", "none", "batch", "batch"});
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys.ClassOf(0), "chat") << "a repeated key keeps its first class";
  EXPECT_EQ(keys.ClassOf(1), "");
  EXPECT_EQ(keys.ClassOf(2), "batch");
  EXPECT_EQ(ApiKeys({"one"}).ClassOf(0), "");
}

// The index is the key's name in quotas, files and schedules: another key must never get it.
TEST(ApiKeysTest, AReplacedKeyMatchesNoLongerAndItsIndexIsNotUsedAgain) {
  ApiKeys keys({"one", "two"}, {"chat", "none"});
  const std::string salt = keys.Salt(1);
  keys.Replace({"three", "two"}, {"batch", "chat"});
  EXPECT_EQ(Find(keys, "Bearer one"), std::nullopt);
  EXPECT_EQ(Find(keys, "Bearer two"), 1u);
  EXPECT_EQ(Find(keys, "Bearer three"), 2u);
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys.indexes(), 3u);
  EXPECT_EQ(keys.ClassOf(1), "chat");
  EXPECT_EQ(keys.ClassOf(2), "batch");
  EXPECT_EQ(keys.Salt(1), salt);
  keys.Replace({"one"}, {});
  EXPECT_EQ(Find(keys, "Bearer one"), 0u) << "a key that returns has its own index";
  EXPECT_EQ(keys.ClassOf(0), "");
  EXPECT_EQ(Find(keys, "Bearer two"), std::nullopt);
  EXPECT_EQ(keys.size(), 1u);
}

TEST(ApiKeysTest, ClassesOfKeysAreDeclaredAndAsManyAsKeys) {
  const std::vector<std::string> declared = {"chat:ttft=1s", "batch"};
  EXPECT_TRUE(CheckKeyClasses({"a", "b", "c"}, {"chat", "none", "batch"}, declared).ok());
  EXPECT_TRUE(CheckKeyClasses({"a", "b"}, {}, {}).ok());
  const Status few = CheckKeyClasses({"a", "b"}, {"chat"}, declared);
  EXPECT_EQ(few.param(), "api-key-class");
  EXPECT_NE(few.message().find("1 classes for 2 keys"), std::string::npos) << few.message();
  const Status unknown = CheckKeyClasses({"a"}, {"gold"}, declared);
  EXPECT_EQ(unknown.param(), "api-key-class");
  EXPECT_NE(unknown.message().find("'gold' is declared by no --slo-class"), std::string::npos) << unknown.message();
  EXPECT_EQ(CheckKeyClasses({"a"}, {"chat"}, {"chat:ttft"}).param(), "slo-class");
}

TEST(ApiKeysTest, KeysThatNoHeaderCanCarryAreRefusedByPosition) {
  EXPECT_TRUE(CheckApiKeys({"one", "t-w_o"}).ok());
  for (const char* bad : {"ab c", "ab\tc", "ab\x7f"}) {
    const Status refused = CheckApiKeys({"one", bad});
    EXPECT_EQ(refused.param(), "api-key");
    EXPECT_NE(refused.message().find("--api-key: number 2 has white space"), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("(byte 3)"), std::string::npos) << refused.message();
  }
}

TEST(ApiKeysTest, NoKeysAcceptNothing) {
  const ApiKeys keys({""});
  EXPECT_TRUE(keys.empty());
  EXPECT_EQ(Find(keys, "Bearer "), std::nullopt);
}

TEST(ApiKeysTest, SaltsDifferByKeyAndAreTheSameAtEveryStart) {
  const ApiKeys keys({"one", "two"}), again({"two", "one"});
  EXPECT_EQ(keys.Salt(0).size(), 32u);
  EXPECT_NE(keys.Salt(0), keys.Salt(1));
  EXPECT_EQ(keys.Salt(0), again.Salt(1)) << "prompts on disk would not be found after a restart";
  const ApiKeys fleet({"one", "two"}, {}, FleetKeysOf("a secret of sixteen bytes"));
  EXPECT_NE(keys.Salt(0), fleet.Salt(0)) << "other members see a fleet's salts, so they must depend on its secret";
}

TEST(RequestIdTest, OneTo256VisibleCharacters) {
  EXPECT_TRUE(ValidRequestId("a"));
  EXPECT_TRUE(ValidRequestId("!~"));
  EXPECT_TRUE(ValidRequestId(std::string(256, 'x')));
  EXPECT_FALSE(ValidRequestId(""));
  EXPECT_FALSE(ValidRequestId(std::string(257, 'x')));
  EXPECT_FALSE(ValidRequestId("a b"));
  EXPECT_FALSE(ValidRequestId("a\x7f"));
  EXPECT_FALSE(ValidRequestId("a\x1f"));
  EXPECT_FALSE(ValidRequestId("\xc3\xa9"));
}

TEST(RequestIdTest, GeneratedIdsAreHexadecimalAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = RandomId();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

Headers Cors(const Origins& origins, Headers request, bool preflight) {
  HttpRequest http;
  http.headers = std::move(request);
  Headers headers;
  origins.AppendHeaders(http, preflight, &headers);
  return headers;
}

TEST(OriginsTest, ThisServersOwnPageMayCall) {
  HttpRequest request;
  request.authority = "host.example:8000";
  const Origins none({});
  for (const auto& [origin, allowed] : {std::pair("http://host.example:8000", true),
                                        {"https://host.example:8000", true},
                                        {"http://host.example", false},
                                        {"http://other.example:8000", false},
                                        {"null", false}}) {
    request.headers = {{"Origin", origin}};
    EXPECT_EQ(none.Allow(request), allowed) << origin;
  }
  request.headers.clear();
  EXPECT_TRUE(none.Allow(request)) << "a request of no page";
}

TEST(OriginsTest, NoHeadersWithoutAnAllowedOrigin) {
  EXPECT_TRUE(Cors(Origins({}), {{"Origin", "https://a"}}, true).empty());
  EXPECT_TRUE(Cors(Origins({"https://a"}), {}, true).empty());
  EXPECT_TRUE(Cors(Origins({"https://a"}), {{"Origin", "https://b"}}, true).empty());
  EXPECT_TRUE(Cors(Origins({"https://a"}), {{"Origin", "https://aa"}}, false).empty());
}

TEST(OriginsTest, ANamedOriginIsEchoedAndVaries) {
  EXPECT_EQ(Cors(Origins({"https://a", "https://b"}), {{"origin", "https://b"}}, false),
            (Headers{{"Access-Control-Allow-Origin", "https://b"},
                     {"Vary", "Origin"},
                     {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"}}));
}

TEST(OriginsTest, AnyOriginAndPreflight) {
  EXPECT_EQ(Cors(Origins({"*"}), {{"Origin", "https://b"}}, true),
            (Headers{{"Access-Control-Allow-Origin", "*"},
                     {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                     {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                     {"Access-Control-Allow-Headers",
                      "authorization, content-type, x-api-key, anthropic-version, x-request-id"},
                     {"Access-Control-Max-Age", "600"}}));
  const auto asked =
      Cors(Origins({"*"}), {{"Origin", "https://b"}, {"Access-Control-Request-Headers", "x-mine"}}, true);
  EXPECT_EQ(*FindHeader(asked, "Access-Control-Allow-Headers"), "x-mine");
}

}  // namespace
}  // namespace tactus::http
