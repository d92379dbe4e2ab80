#include "cli/options/nearest.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(Nearest, MisspeltWordsFindTheirWord) {
  const std::vector<std::string> known = {"port", "host", "max-num-seqs", "max-queue", "scheduler"};
  EXPECT_EQ(Nearest("prot", known), "port") << "swapped neighbours are one edit";
  EXPECT_EQ(Nearest("hst", known), "host");
  EXPECT_EQ(Nearest("max-num-sequences", known), "max-num-seqs");
  EXPECT_EQ(Nearest("sched", known), "scheduler") << "a beginning is one edit";
}

TEST(Nearest, FarWordsFindNone) {
  const std::vector<std::string> known = {"port", "h", "scheduler"};
  EXPECT_EQ(Nearest("zzzz", known), "");
  EXPECT_EQ(Nearest("x", known), "") << "one letter is near to every word";
  EXPECT_EQ(Nearest("hh", known), "") << "short options are not suggested";
  EXPECT_EQ(Nearest(std::string(1000, 'p'), known), "");
}

TEST(Nearest, TheFirstOfEquallyNearWordsIsChosen) {
  EXPECT_EQ(Nearest("bast", {"best", "last"}), "best");
}

}  // namespace
}  // namespace tactus::cli
