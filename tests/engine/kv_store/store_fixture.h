// A separate folder for each test, and blocks whose bytes follow from their number.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/kv_store/block_store.h"

namespace tactus::test {

constexpr int64_t kBlockBytes = 200;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tactus_kv_store_") + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
               std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<engine::BlockStore>> TryOpen(int64_t max_bytes = int64_t{1} << 20,
                                                      const std::string& identity = "m") {
    said_.clear();
    TACTUS_ASSIGN_OR_RETURN(auto folder, engine::KvFolder::Open(folder_.string()));
    return engine::BlockStore::Open(std::move(folder), {identity, kBlockBytes, max_bytes},
                                    [this](const std::string& line) { said_ += line + "\n"; });
  }
  std::unique_ptr<engine::BlockStore> Open(int64_t max_bytes = int64_t{1} << 20, const std::string& identity = "m") {
    auto store = TryOpen(max_bytes, identity);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }
  static Hash128 Key(int i) { return SipHash128({7, 7}, &i, sizeof(i)); }
  static std::vector<std::byte> Bytes(int i) {
    std::vector<std::byte> bytes(kBlockBytes);
    for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(i * 31 + static_cast<int>(at) * 7);
    return bytes;
  }
  static void Put(engine::BlockStore& store, int begin, int end) {
    for (int i = begin; i < end; ++i) ASSERT_TRUE(store.Append(Key(i), Bytes(i).data())) << i;
  }
  // Whether the block is stored. Its bytes must be those written.
  static bool Has(engine::BlockStore& store, int i) {
    std::vector<std::byte> bytes(kBlockBytes);
    const bool there = store.Read(Key(i), bytes.data());
    if (there) {
      EXPECT_EQ(bytes, Bytes(i)) << "block " << i << " came back wrong";
    }
    return there;
  }
  // The segment files with this extension, sorted.
  std::vector<std::filesystem::path> Files(const std::string& extension) const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == extension) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  int64_t BytesOfSegments() const {
    int64_t bytes = 0;
    for (const char* extension : {".index", ".blocks"}) {
      for (const auto& file : Files(extension)) bytes += static_cast<int64_t>(std::filesystem::file_size(file));
    }
    return bytes;
  }
  static void FlipBit(const std::filesystem::path& file, int64_t at, int bit) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ (1 << bit)));
  }

  std::filesystem::path folder_;
  std::string said_;
};

}  // namespace tactus::test
