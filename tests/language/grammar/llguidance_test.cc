// Where the library is searched, and the errors for other files. Needs no library.
#include "language/grammar/llguidance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tactus::language {
namespace {

// Sets an environment variable for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

TEST(Llguidance, IsSearchedBesideTheProgramAndInTheCache) {
  const Variable given("TACTUS_LLGUIDANCE", "");
  const Variable cache("TACTUS_CACHE_DIR", "/somewhere/cache");
  const std::vector<std::string> paths = LlguidancePaths();
  ASSERT_EQ(paths.size(), 3u);
  const auto own = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  EXPECT_EQ(paths[0], (own / "lib/tactus/libllguidance-1.9.1.so").string());
  EXPECT_EQ(paths[1], (own / "tactus/libllguidance-1.9.1.so").string());
  EXPECT_EQ(paths[2], "/somewhere/cache/lib/libllguidance-1.9.1.so");
  const Variable other("TACTUS_LLGUIDANCE", "/a/file.so");
  EXPECT_EQ(LlguidancePaths(), std::vector<std::string>{"/a/file.so"});
}

TEST(Llguidance, AMissingLibraryIsNamedWithInstructions) {
  const auto loaded = OpenLlguidance({"/nowhere/libllguidance.so"});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(loaded.status().message().find("scripts/get_llguidance.sh"), std::string::npos);
  EXPECT_NE(loaded.status().message().find("/nowhere/libllguidance.so"), std::string::npos);
}

TEST(Llguidance, AnotherFileIsNotUsed) {
  const std::string path = testing::TempDir() + "/not_a_library.so";
  std::ofstream(path) << "text";
  const auto text = OpenLlguidance({"/nowhere/libllguidance.so", path});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(text.status().message().find(path), std::string::npos);
}

TEST(Llguidance, AnotherLibraryIsNotUsed) {
  std::string path;
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"}) {
    const std::string file = std::string(folder) + "/libm.so.6";
    if (path.empty() && std::filesystem::exists(file)) path = file;
  }
  if (path.empty()) GTEST_SKIP() << "libm is in none of its usual places";
  const auto loaded = OpenLlguidance({path});
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("is not llguidance's library"), std::string::npos);
}

}  // namespace
}  // namespace tactus::language
