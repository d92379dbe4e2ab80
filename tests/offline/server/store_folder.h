// A folder for the files and batches of one test, and a clock that the test advances.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "offline/server/files.h"
#include "offline/server/store.h"

namespace tactus::offline {

class StoreFolder : public testing::Test {
 protected:
  StoreFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (std::filesystem::temp_directory_path() /
               ("tactus_batches_" + std::string(test->name()) + "_" + std::to_string(getpid())))
                  .string();
    std::filesystem::remove_all(folder_);
  }
  ~StoreFolder() override { std::filesystem::remove_all(folder_); }

  UnixClock Clock() {
    return [this] { return now_s_.load(); };
  }
  std::unique_ptr<Store> OpenStore() const {
    auto store = Store::Open(folder_);
    if (!store.ok()) throw std::runtime_error(store.status().ToString());
    return std::move(*store);
  }
  std::vector<std::string> In(const std::string& part) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + part))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static FileRow AddFile(Files& files, const std::string& owner, const std::string& text,
                         const std::string& name = "in.jsonl", int64_t live_s = 0) {
    auto draft = files.Begin(owner, 0);
    Status status = draft.status();
    if (status.ok()) status = (*draft)->Write(text);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    auto row = (*draft)->Finish(name, live_s);
    if (!row.ok()) throw std::runtime_error(row.status().ToString());
    return *row;
  }
  // Polls the condition for at most 20 s.
  static void Until(const std::string& what, const std::function<bool()>& condition) {
    for (int looks = 0; looks < 4000; ++looks) {
      if (condition()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw std::runtime_error("not within 20 s: " + what);
  }

  std::string folder_;
  std::atomic<int64_t> now_s_{1'800'000'000};
};

}  // namespace tactus::offline
