#include "hub/file_lock.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tactus::hub {
namespace {

TEST(FileLock, IsHeldOnceAndFreedAtItsEnd) {
  const std::string path = testing::TempDir() + "/locks/a/b.lock";
  auto lock = FileLock::Try(path);
  ASSERT_TRUE(lock.ok());
  ASSERT_NE(*lock, nullptr);
  EXPECT_EQ(*FileLock::Try(path), nullptr);
  lock->reset();
  EXPECT_NE(*FileLock::Try(path), nullptr);
}

TEST(FileLock, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_EQ(FileLock::Try("/proc/none/b.lock").status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tactus::hub
