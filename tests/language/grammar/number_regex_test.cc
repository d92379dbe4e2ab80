// Numbers between bounds as expressions, compared with the numbers themselves.
#include "language/grammar/number_regex.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace tactus::language {
namespace {

using Ends = std::pair<const char*, const char*>;  // null: none

NumberBounds Bounds(const char* least, const char* most, bool above = false, bool below = false) {
  NumberBounds bounds;
  if (least != nullptr) bounds.least = ReadDecimal(least);
  if (most != nullptr) bounds.most = ReadDecimal(most);
  bounds.above_least = above;
  bounds.below_most = below;
  return bounds;
}

bool Inside(const Decimal& number, const NumberBounds& b) {
  const bool above = !b.least || (b.above_least ? number > *b.least : number >= *b.least);
  const bool below = !b.most || (b.below_most ? number < *b.most : number <= *b.most);
  return above && below;
}

void Check(const NumberBounds& bounds, bool integer, const std::vector<std::string>& numbers) {
  const auto text = integer ? std::optional(IntegerRegex(bounds)) : NumberRegex(bounds);
  ASSERT_TRUE(text);
  const std::regex regex(text->empty() ? "(?!)" : *text);
  for (const std::string& number : numbers)
    EXPECT_EQ(std::regex_match(number, regex), Inside(*ReadDecimal(number), bounds)) << number << " by " << *text;
}

TEST(NumberRegex, IntegerRangesMatchExactlyTheirIntegers) {
  std::vector<std::string> numbers;
  for (int i = -1250; i <= 1250; ++i) numbers.push_back(std::to_string(i));
  for (const auto& [least, most] :
       {Ends(nullptr, nullptr), Ends("-7", "12"), Ends("0", "0"), Ends("9", "1001"), Ends("-1001", "-99"),
        Ends(nullptr, "-10"), Ends("-10", nullptr), Ends("17", nullptr), Ends(nullptr, "0"), Ends("1.5", "99.5"),
        Ends("-2.5", "-0.5"), Ends("100", "1e3")}) {
    for (const bool exclusive : {false, true}) Check(Bounds(least, most, exclusive, exclusive), true, numbers);
  }
  EXPECT_EQ(IntegerRegex(Bounds("3", "2")), "");
  EXPECT_EQ(IntegerRegex(Bounds("3", "3", true)), "");
}

TEST(NumberRegex, IntegersBeyondDoublesAreExact) {
  const std::vector<std::string> near = {"0",
                                         "-1",
                                         "9007199254740992",
                                         "9007199254740993",
                                         "9223372036854775806",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775807",
                                         "-9223372036854775808",
                                         "-9223372036854775809",
                                         "18446744073709551614",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "99999999999999999999",
                                         "1234567890123456788",
                                         "1234567890123456789",
                                         "1234567890123456790",
                                         "1234567890123456791"};
  Check(Bounds("-9223372036854775808", "9223372036854775807"), true, near);
  Check(Bounds("0", "18446744073709551615"), true, near);
  Check(Bounds("0", "18446744073709551616", false, true), true, near);
  Check(Bounds("1234567890123456789", "1234567890123456790"), true, near);
  Check(Bounds("9007199254740992", nullptr, true), true, near);
}

TEST(NumberRegex, NumbersHaveFractionsAndHugeBoundsAllowExponents) {
  const std::vector<std::string> numbers = {"0",     "-0.5",  "0.5",    "1",    "1.0",  "-1",   "-1.5",
                                            "2.00",  "2.01",  "19.999", "20",   "20.0", "20.1", "-20",
                                            "-20.0", "-20.5", "100",    "-100", "3.25", "9.75"};
  for (const auto& [least, most] : {Ends("-20", "20"), Ends("0", "20"), Ends("2", "20"), Ends("-20", "-1"),
                                    Ends("1", nullptr), Ends(nullptr, "-1"), Ends(nullptr, "0"), Ends("0", nullptr)}) {
    for (const bool exclusive : {false, true}) Check(Bounds(least, most, exclusive, exclusive), false, numbers);
  }
  EXPECT_FALSE(NumberRegex(Bounds("0.5", "1e20")));
  const std::regex all(*NumberRegex(Bounds("-1.5e105", "1.5e105")));
  for (const char* in : {"1e10", "-6.02E+23", "1.5e-7", "0", "12345678901234567890.5"})
    EXPECT_TRUE(std::regex_match(in, all)) << in;
  for (const char* out : {"1e999", "1e106", "01", "1.", ".5"}) EXPECT_FALSE(std::regex_match(out, all)) << out;
  const std::regex positive(*NumberRegex(Bounds("0", "1.5e105")));
  EXPECT_FALSE(std::regex_match("-1e5", positive));
  EXPECT_TRUE(std::regex_match("1e5", positive));
}

}  // namespace
}  // namespace tactus::language
