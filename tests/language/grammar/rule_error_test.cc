#include "language/grammar/rule_error.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace tactus::language {
namespace {

using Kind = OutputRule::Kind;

TEST(RuleError, AFailedAssertionIsAFaultOfTheRule) {
  const Status status =
      RuleError(Kind::kLark, "panic: index out of bounds\n<backtrace>\n 0: foo\n</backtrace>", nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "lark: the grammar library fails on this rule (index out of bounds); write it in another way");
}

TEST(RuleError, TheLibrarysNoiseIsRemoved) {
  EXPECT_EQ(RuleError(Kind::kLark, "at 3(7): wrong\n   3 | foo\n         ^\n\n<non-verbose/>", nullptr).message(),
            "lark: line 3, column 7: wrong");
  EXPECT_EQ(RuleError(Kind::kRegex, "NoExtensionBias\n<non-verbose/>", nullptr).message(),
            "regex: no answer can match it");
  EXPECT_LE(RuleError(Kind::kLark, std::string(5000, 'x'), nullptr).message().size(), 700u);
}

TEST(RuleError, AnyMessageBecomesAnError) {
  const Json schema = Json::object();
  for (const char* said : {"", "(", "at ", "at 1(", "): ", "'", "regex parse error:", "error: ",
                           "Unimplemented keys: [", "invalid regex (in regex): regex parse error:\n^\n"}) {
    for (const auto& of : {static_cast<const Json*>(nullptr), &schema}) {
      const Status status = RuleError(of != nullptr ? Kind::kJsonSchema : Kind::kLark, said, of);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << said;
    }
  }
}

}  // namespace
}  // namespace tactus::language
