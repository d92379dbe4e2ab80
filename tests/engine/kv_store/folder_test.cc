// The folder of --kv-cache-dir: each of its faults is reported by name, with what to do.
#include "engine/kv_store/folder.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/kv_store/store_fixture.h"

namespace tactus::engine {
namespace {

class FolderTest : public test::StoreTest {
 protected:
  std::string Refusal() const {
    const auto folder = KvFolder::Open(folder_.string());
    if (folder.ok()) return "it opened";
    EXPECT_EQ(folder.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(folder.status().param(), "kv-cache-dir");
    EXPECT_NE(folder.status().message().find(folder_.string()), std::string::npos) << folder.status().message();
    return folder.status().message();
  }
  std::filesystem::path File() const { return folder_ / "kv-cache"; }
  void Write(const std::string& text) const { std::ofstream(File(), std::ios::binary) << text; }
  std::string Read() const {
    std::ifstream in(File(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void ExpectHas(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
};

TEST_F(FolderTest, TheSecretIsDrawnOnceAndIsTheOwnersAlone) {
  Hash128 secret;
  for (int round = 0; round < 2; ++round) {
    const auto folder = KvFolder::Open((folder_ / "below").string());
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    if (round == 1) {
      EXPECT_EQ((*folder)->secret(), secret);
    }
    secret = (*folder)->secret();
    EXPECT_NE(secret, Hash128());
  }
  struct stat at{};
  ASSERT_EQ(stat((folder_ / "below" / "kv-cache").c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder_ / "below").c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 0777, 0700u);
}

TEST_F(FolderTest, OnlyOneProcessAtATimeMayOpenAFolder) {
  const auto first = KvFolder::Open(folder_.string());
  ASSERT_TRUE(first.ok());
  ExpectHas(Refusal(), "another process uses it");
  const pid_t child = fork();
  if (child == 0) _exit(KvFolder::Open(folder_.string()).ok() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "another process opened it";
}

TEST_F(FolderTest, AFileIsRefused) {
  std::ofstream(folder_) << "text";
  ExpectHas(Refusal(), "it is a file; choose a folder");
}

TEST_F(FolderTest, AFolderWithOtherFilesIsLeftAlone) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "letter.txt") << "text";
  ExpectHas(Refusal(), "not empty and has no file 'kv-cache'");
  EXPECT_FALSE(std::filesystem::exists(File()));
}

TEST_F(FolderTest, AFolderThatCannotBeWrittenIsRefused) {
  if (getuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::create_directories(folder_);
  chmod(folder_.c_str(), 0500);
  ExpectHas(Refusal(), "not writable");
  chmod(folder_.c_str(), 0700);
}

TEST_F(FolderTest, AFolderBelowAFileCannotBeCreated) {
  std::ofstream(folder_) << "text";
  const auto below = KvFolder::Open((folder_ / "below").string());
  ASSERT_FALSE(below.ok());
  ExpectHas(below.status().message(), "cannot be created");
}

TEST_F(FolderTest, ANewerFormatIsRefusedByNumber) {
  ASSERT_TRUE(KvFolder::Open(folder_.string()).ok());
  std::string text = Read();
  text.replace(text.find("format 1"), 8, "format 2");
  Write(text);
  ExpectHas(Refusal(), "it has format 2, but this program needs format 1");
  EXPECT_EQ(Read(), text);
}

TEST_F(FolderTest, ADamagedSecretIsRefusedWhereverItIsHurt) {
  ASSERT_TRUE(KvFolder::Open(folder_.string()).ok());
  const std::string whole = Read();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string hurt = whole;
    hurt[at] = static_cast<char>(hurt[at] ^ 2);
    Write(hurt);
    const std::string refusal = Refusal();
    EXPECT_TRUE(refusal.find("is damaged; remove the folder") != std::string::npos ||
                refusal.find("it has format 3") != std::string::npos)
        << "byte " << at << ": " << refusal;
  }
  for (size_t size = 1; size < whole.size(); ++size) {
    Write(whole.substr(0, size));
    ExpectHas(Refusal(), "is damaged; remove the folder");
  }
  Write(whole + "x");
  ExpectHas(Refusal(), "is damaged; remove the folder");
  // As left by a process that was killed before it wrote the secret.
  Write("");
  EXPECT_TRUE(KvFolder::Open(folder_.string()).ok());
}

TEST_F(FolderTest, ASecretThatOthersMayReadIsRefused) {
  ASSERT_TRUE(KvFolder::Open(folder_.string()).ok());
  chmod(File().c_str(), 0644);
  ExpectHas(Refusal(), "can be read by others than its owner; chmod 600 it");
}

}  // namespace
}  // namespace tactus::engine
