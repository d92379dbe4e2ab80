#include "cli/options/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace tactus::cli {
namespace {

// Between the prompt and the read behind it there is time for a Ctrl-C, which interrupts no read then.
TEST(Interrupt, ACtrlCBeforeAWaitForInputIsSeenByIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  CatchInterrupt(8);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(WaitForInput(ends[0]));
  raise(SIGINT);
  EXPECT_EQ(InterruptCount(), 1);
  EXPECT_FALSE(WaitForInput(ends[0]));
  ClearInterrupt();
  EXPECT_TRUE(WaitForInput(ends[0])) << "what was cleared is not seen again";
  close(ends[1]);
  char read_before = 0;
  ASSERT_EQ(read(ends[0], &read_before, 1), 1);
  EXPECT_TRUE(WaitForInput(ends[0])) << "an end of file can be read";
  close(ends[0]);
}

}  // namespace
}  // namespace tactus::cli
