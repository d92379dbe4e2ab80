// A folder of a few small files that replaces "/" for readers of /proc and /sys.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tactus {

class FakeRoot {
 public:
  FakeRoot() {
    // mkdtemp replaces the six X by a name that no other folder has.
    std::string pattern = (std::filesystem::temp_directory_path() / "tactus_root_XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~FakeRoot() { std::filesystem::remove_all(path); }
  void Write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << content;
  }
  std::string path;
};

}  // namespace tactus
