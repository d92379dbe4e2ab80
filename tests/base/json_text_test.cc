// What is said of JSON that is none.
#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tactus {
namespace {

std::string Complaint(const std::string& text) {
  const auto parsed = json_text::ParseJson(text, {});
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.status().message();
}

TEST(JsonText, AFaultIsToldWithItsPlaceAndNothingOfTheInput) {
  EXPECT_EQ(Complaint("{\"a\": 1e999}"), "invalid JSON at line 1, column 11: number overflow parsing");
  const std::string cut = Complaint("[1,\n 2,");
  EXPECT_EQ(cut.find("invalid JSON at line 2, column "), 0u) << cut;
  const std::string bad = Complaint("{\"a\": \"\x01 secret\"}");
  EXPECT_EQ(bad.find("secret"), std::string::npos) << bad;
  EXPECT_NE(bad.find("control character"), std::string::npos) << bad;
}

}  // namespace
}  // namespace tactus
