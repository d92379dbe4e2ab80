// main() of every GoogleTest program. Each process gets its own temporary folder, which testing::TempDir() and
// std::filesystem::temp_directory_path() return and which is removed at the end: ctest runs the cases of one program in
// parallel, and their files must not collide.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path() / "tactus_test_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "cannot create a temporary folder at %s; set TMPDIR to a writable folder\n", folder.c_str());
    return 1;
  }
  setenv("TEST_TMPDIR", folder.c_str(), 1);
  setenv("TMPDIR", folder.c_str(), 1);
  setenv("TACTUS_GRAMMAR_HELPER", TACTUS_PROGRAMS "/tactus-grammar", 0);  // of this build
  const int failed = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder, error);
  return failed;
}
