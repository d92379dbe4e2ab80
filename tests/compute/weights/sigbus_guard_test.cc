#include "compute/weights/sigbus_guard.h"

#include <unistd.h>

#include "compute/weights/mapped_file.h"
#include "model_files.h"

namespace tactus::compute {
namespace {

// Maps two pages, truncates the file to nothing, and reads: the kernel sends SIGBUS.
void ReadAfterShrink(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok() || truncate(path.c_str(), 0) != 0) _exit(7);
  InstallSigbusGuard();
  const volatile std::byte* data = (*file)->bytes().data();
  _exit(static_cast<int>(data[5000]) == 1 ? 8 : 9);
}

TEST(SigbusGuardDeathTest, NamesTheFileThatShrank) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  test::TempFolder folder;
  const std::string path = folder.Write("weights.gguf", std::string(8192, 'x'));
  EXPECT_EXIT(ReadAfterShrink(path), ::testing::ExitedWithCode(1),
              "weights file .*weights.gguf shrank or became unreadable");
}

TEST(SigbusGuardDeathTest, LeavesOtherFaultsAlone) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        InstallSigbusGuard();
        kill(getpid(), SIGBUS);
        _exit(7);  // its signal has arrived when kill returns: reached only if a handler swallowed it
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFile, SlotsAreReused) {
  test::TempFolder folder;
  const std::string path = folder.Write("w", "hello");
  for (int i = 0; i < 3000; ++i) {  // more than the table's entries
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok());
  }
  const int slot = RegisterMappedRange(path.data(), path.size(), "x");
  EXPECT_GE(slot, 0);
  UnregisterMappedRange(slot);
}

TEST(MappedFile, SmallFilesHaveALimit) {
  test::TempFolder folder;
  const std::string path = folder.Write("t", "hello");
  EXPECT_EQ(*ReadSmallFile(path, 5), "hello");
  EXPECT_REFUSED(ReadSmallFile(path, 4).status(), StatusCode::kTooLarge, "5 bytes", "limit is 4");
}

}  // namespace
}  // namespace tactus::compute
