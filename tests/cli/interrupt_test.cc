#include "cli/options/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace tactus::cli {
namespace {

// A Ctrl-C between the prompt and the following read does not interrupt that read.
TEST(Interrupt, WaitForInputReportsAnEarlierCtrlC) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  CatchInterrupt(8);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(WaitForInput(ends[0]));
  raise(SIGINT);
  EXPECT_EQ(InterruptCount(), 1);
  EXPECT_FALSE(WaitForInput(ends[0]));
  ClearInterrupt();
  EXPECT_TRUE(WaitForInput(ends[0])) << "a cleared Ctrl-C does not count again";
  close(ends[1]);
  char read_before = 0;
  ASSERT_EQ(read(ends[0], &read_before, 1), 1);
  EXPECT_TRUE(WaitForInput(ends[0])) << "an end of file can be read";
  close(ends[0]);
}

}  // namespace
}  // namespace tactus::cli
