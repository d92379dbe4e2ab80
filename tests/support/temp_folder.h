// A temporary folder of a test, with the files that it writes there. It can also replace "/" for readers of /proc and
// /sys.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tactus::test {

// A folder that is removed when the test ends.
class TempFolder {
 public:
  TempFolder() {
    // mkdtemp replaces the six X by a name that no other folder has.
    std::string pattern = (std::filesystem::temp_directory_path() / "tactus_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& content) const {
    const std::string file = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::string path_;
};

}  // namespace tactus::test
