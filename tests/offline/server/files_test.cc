// Files: what is stored and counted, and that nothing is left behind.
#include "offline/server/files.h"

#include <signal.h>
#include <sys/resource.h>

#include "store_folder.h"

namespace tactus::offline {
namespace {

class FilesTest : public StoreFolder {
 protected:
  void Open(FileLimits limits = {}) {
    files_.reset();
    store_.reset();
    store_ = OpenStore();
    files_ = std::make_unique<Files>(store_.get(), limits, Clock());
    ASSERT_TRUE(files_->CountStored().ok());
  }
  std::unique_ptr<Store> store_;
  std::unique_ptr<Files> files_;
};

TEST_F(FilesTest, AFileSurvivesItsServer) {
  Open();
  const FileRow file = AddFile(*files_, "me", "content", "a.jsonl");
  EXPECT_EQ(file.created_s, now_s_);
  const Hash128 secret = store_->secret();
  Open();
  const auto found = store_->FindFile("me", file.id);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->name, "a.jsonl");
  EXPECT_EQ((*found)->bytes, 7);
  EXPECT_EQ(Read(store_->FilePath(file.id)), "content");
  EXPECT_EQ(files_->stats().bytes, 7);
  EXPECT_TRUE(store_->secret() == secret) << "owners are identified by it";
  EXPECT_FALSE(*store_->FindFile("you", file.id)) << "the file has another owner";
}

TEST_F(FilesTest, OnlyTheRemainsOfAKilledServerAreRemoved) {
  Open();
  const FileRow file = AddFile(*files_, "", "content");
  const std::string digits = "0123456789abcdef0123456789abcdef";
  for (const char* stray : {"/uploads/file-", "/files/file-", "/jobs/batch_"})
    std::ofstream(folder_ + stray + digits) << "x";
  std::ofstream(folder_ + "/jobs/batch_" + digits + "-journal") << "x";
  const std::vector<std::string> others = {"/uploads/thesis.pdf", "/files/file-1", "/files/file-" + digits + "0",
                                           "/jobs/batch_x"};
  for (const std::string& other : others) std::ofstream(folder_ + other) << "x";
  Open();
  EXPECT_EQ(In("uploads"), std::vector<std::string>{"thesis.pdf"});
  EXPECT_EQ(In("jobs"), std::vector<std::string>{"batch_x"});
  EXPECT_EQ(In("files").size(), 3u);
  for (const std::string& other : others) EXPECT_EQ(Read(folder_ + other), "x") << other;
  EXPECT_EQ(Read(store_->FilePath(file.id)), "content");
}

// The folder of another program that contains such a name, or one whose database was lost.
TEST_F(FilesTest, AFolderWithFilesAndNoDatabaseIsRefused) {
  std::filesystem::create_directories(folder_ + "/jobs");
  std::ofstream(folder_ + "/jobs/mine") << "x";
  const auto store = Store::Open(folder_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(store.status().message().find("jobs' is not empty"), std::string::npos) << store.status().message();
  EXPECT_EQ(Read(folder_ + "/jobs/mine"), "x");
}

TEST_F(FilesTest, AnUnfinishedDraftLeavesNothing) {
  Open();
  {
    auto draft = files_->Begin("me", 0);
    ASSERT_TRUE((*draft)->Write("half").ok());
    EXPECT_EQ(files_->stats().writing_bytes, 4);
    EXPECT_EQ(In("uploads").size(), 1u);
  }
  EXPECT_EQ(files_->stats().writing_bytes, 0);
  EXPECT_EQ(In("uploads").size(), 0u);
  EXPECT_EQ(In("files").size(), 0u);
}

TEST_F(FilesTest, QuotasCountStoredFilesAndDrafts) {
  Open({.file_bytes = 60, .all_bytes = 150, .owner_bytes = 100, .owner_files = 3});
  const auto begin = [this](const char* owner, int64_t announced) { return files_->Begin(owner, announced); };
  AddFile(*files_, "a", std::string(50, 'x'));
  auto writing = begin("a", 0);
  ASSERT_TRUE((*writing)->Write(std::string(45, 'x')).ok());
  EXPECT_EQ(begin("a", 6).status().code(), StatusCode::kTooLarge) << "refused by its announced length";
  auto second = begin("a", 5);
  ASSERT_TRUE(second.ok());
  const Status full = (*second)->Write(std::string(6, 'x'));
  EXPECT_EQ(full.code(), StatusCode::kTooLarge);
  EXPECT_NE(full.message().find("more than 100 bytes"), std::string::npos) << full.message();
  EXPECT_EQ(begin("a", 0).status().message(), "this client has 3 files, the limit; delete some");
  auto other = begin("b", 0);
  EXPECT_EQ((*other)->Write(std::string(61, 'x')).message(),
            "the file is larger than 60 bytes, the limit (--max-file-size)");
  EXPECT_TRUE((*other)->Write(std::string(55, 'x')).ok());
  EXPECT_NE((*other)->Write("x").message().find("all files together"), std::string::npos);
  writing->reset();
  EXPECT_TRUE((*other)->Write("x").ok()) << "the bytes of an unfinished draft are returned";
  EXPECT_TRUE((*second)->Write(std::string(6, 'x')).ok());
}

TEST_F(FilesTest, AnOwnerWithoutRoomMayStoreNoFurtherResults) {
  Open({.file_bytes = 60, .all_bytes = 150, .owner_bytes = 100, .owner_files = 3});
  AddFile(*files_, "bytes", std::string(60, 'x'));
  EXPECT_TRUE(files_->CheckRoomForResults("bytes").ok());
  AddFile(*files_, "bytes", std::string(40, 'x'));
  EXPECT_EQ(files_->CheckRoomForResults("bytes").code(), StatusCode::kTooLarge);
  for (int i = 0; i < 2; ++i) AddFile(*files_, "count", "x");
  EXPECT_TRUE(files_->CheckRoomForResults("count").ok());
  AddFile(*files_, "count", "x");
  EXPECT_EQ(files_->CheckRoomForResults("count").message(), "this client has 3 files, the limit; delete some");
  EXPECT_TRUE(files_->CheckRoomForResults("another owner").ok());
}

TEST_F(FilesTest, AFullDiskIsAnErrorAndLeavesNothing) {
  Open();
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &small);
  auto draft = files_->Begin("me", 0);
  const Status full = (*draft)->Write(std::string(200'000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("no space is left on the disk of --files-dir"), std::string::npos) << full.message();
  draft->reset();
  EXPECT_EQ(In("uploads").size(), 0u);
  EXPECT_EQ(files_->stats().writing_bytes, 0);
  EXPECT_EQ(files_->Begin("me", int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted)
      << "refused before any byte is written";
}

TEST_F(FilesTest, ExpiredFilesAreDeleted) {
  Open();
  const FileRow brief = AddFile(*files_, "", "x", "brief", 3600);
  const FileRow kept = AddFile(*files_, "", "x", "kept");
  now_s_ += 3599;
  files_->DeleteExpired();
  EXPECT_EQ(In("files").size(), 2u);
  now_s_ += 1;
  files_->DeleteExpired();
  EXPECT_EQ(In("files"), std::vector<std::string>{kept.id});
  EXPECT_FALSE(*store_->FindFile("", brief.id));
  EXPECT_EQ(files_->stats().files, 1);
}

TEST_F(FilesTest, FileNamesAreLabelsAndNotPaths) {
  EXPECT_EQ(FileName("in.jsonl"), "in.jsonl");
  EXPECT_EQ(FileName("../../etc/passwd"), "passwd");
  EXPECT_EQ(FileName("C:\\folder\\in.jsonl"), "in.jsonl");
  EXPECT_EQ(FileName("a\nb\x7f"), "a_b_");
  for (const char* none : {"", "..", ".", "/", "a/.."}) EXPECT_EQ(FileName(none), "file") << none;
  EXPECT_EQ(FileName("\xff"), "\xEF\xBF\xBD");
  EXPECT_LE(FileName(std::string(1000, '\xff')).size(), 255u);
}

TEST_F(FilesTest, ListsArePaged) {
  Open();
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(AddFile(*files_, "me", "x").id);
  AddFile(*files_, "you", "x");
  const auto page = [this](const std::string& after, bool ascending) {
    std::vector<std::string> found;
    const auto listed = store_->ListFiles("me", "", {after, 2, ascending});
    for (const FileRow& file : listed->rows) found.push_back(file.id);
    found.push_back(listed->more ? "more" : "end");
    return found;
  };
  using Found = std::vector<std::string>;
  EXPECT_EQ(page("", false), (Found{ids[4], ids[3], "more"}));
  EXPECT_EQ(page(ids[3], false), (Found{ids[2], ids[1], "more"}));
  EXPECT_EQ(page(ids[1], false), (Found{ids[0], "end"}));
  EXPECT_EQ(page(ids[2], true), (Found{ids[3], ids[4], "end"}));
  EXPECT_EQ(store_->ListFiles("me", "", {"file-none", 2, false}).status().param(), "after");
  EXPECT_EQ(store_->ListFiles("me", kOutputPurpose, {})->rows.size(), 0u);
}

TEST_F(FilesTest, UnusableFoldersAreRefused) {
  Open();
  const auto second = Store::Open(folder_);
  // SQLite's lock belongs to the process: tests/e2e tests another server as another process.
  EXPECT_TRUE(second.ok() || second.status().code() == StatusCode::kUnavailable);
  const std::string foreign = folder_ + "/other";
  std::filesystem::create_directories(foreign);
  std::ofstream(foreign + "/batches.db") << std::string(4096, 'x');
  EXPECT_EQ(Store::Open(foreign).status().code(), StatusCode::kDataLoss);
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(Store::Open(file).status().param(), "files-dir");
}

}  // namespace
}  // namespace tactus::offline
