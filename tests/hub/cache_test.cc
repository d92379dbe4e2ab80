#include "hub/cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "hub/cached_models.h"
#include "hub/fetch.h"
#include "hub/file_lock.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(settings_.cache);
    fs::create_directories(folder_.path() + "/blobs");
  }
  // A file with its content.
  void Add(const std::string& commit, const std::string& file, const std::string& hash, const std::string& text = "x") {
    std::ofstream(folder_.Blob(hash)) << text;
    ASSERT_TRUE(folder_.Link(commit, file, hash).ok());
  }
  static Settings MakeSettings() {
    Settings settings;
    settings.cache = testing::TempDir() + "/hub_cache";
    return settings;
  }
  Result<Fetched> Find(const std::string& text) const {
    return FindCached(**ParseRemoteName(text, settings_.endpoint), settings_);
  }
  Result<int64_t> Remove(const std::string& text) const {
    return RemoveCached(**ParseRemoteName(text, settings_.endpoint), settings_);
  }

  const Settings settings_ = MakeSettings();
  const RepositoryFolder folder_{settings_.cache, "org/m"};
  const std::string a_ = std::string(40, 'a'), b_ = std::string(40, 'b');
};

TEST_F(CacheTest, LinksAreRelativeAndReplaced) {
  Add(a_, "x/y/f.json", "h1", "one");
  EXPECT_EQ(fs::read_symlink(folder_.File(a_, "x/y/f.json")), "../../../../blobs/h1");
  Add(a_, "x/y/f.json", "h2", "two!");
  const auto files = folder_.Files(a_);
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(files[0].path, "x/y/f.json");
  EXPECT_EQ(files[0].bytes, 4);
}

TEST_F(CacheTest, ALinkWithoutContentIsNoFile) {
  Add(a_, "f.json", "h1");
  fs::remove(folder_.Blob("h1"));
  EXPECT_TRUE(folder_.Files(a_).empty());
}

TEST_F(CacheTest, ReferencesLeadToCommits) {
  ASSERT_TRUE(folder_.SetReference("refs/pr/1", a_).ok());
  ASSERT_TRUE(folder_.SetReference(b_, b_).ok());  // a commit needs none
  EXPECT_EQ(folder_.CommitOf("refs/pr/1"), a_);
  EXPECT_EQ(folder_.CommitOf(b_), b_);
  EXPECT_EQ(folder_.CommitOf("main"), "");
  EXPECT_EQ(folder_.References(), std::vector<std::string>{"refs/pr/1"});
  std::ofstream(folder_.path() + "/refs/main") << "../../../x";
  EXPECT_EQ(folder_.CommitOf("main"), "");
}

TEST_F(CacheTest, ACompleteModelIsFoundAndAPartOfOneIsNot) {
  EXPECT_EQ(Find("hf:org/m").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(folder_.SetReference("main", a_).ok());
  Add(a_, "config.json", "c", "{}");
  Add(a_, "model.safetensors.index.json", "i", R"({"weight_map": {"t": "1.safetensors", "u": "2.safetensors"}})");
  Add(a_, "1.safetensors", "w1", "12345");
  EXPECT_NE(Find("hf:org/m").status().message().find("2.safetensors is missing"), std::string::npos);
  Add(a_, "2.safetensors", "w2", "12345");
  EXPECT_NE(Find("hf:org/m").status().message().find("the tokeniser is missing"), std::string::npos);
  Add(a_, "tokenizer.json", "t", "{}");
  const auto found = Find("hf:org/m");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->path, folder_.Snapshot(a_));
  EXPECT_EQ(found->commit, a_);
  EXPECT_EQ(found->bytes, 2 + 60 + 5 + 5 + 2);
  EXPECT_FALSE(Find("hf:org/m@" + b_).ok());
}

TEST_F(CacheTest, RemovingAModelKeepsWhatOthersUse) {
  ASSERT_TRUE(folder_.SetReference("main", a_).ok());
  Add(a_, "m-Q4_0.gguf", "q4", std::string(5000, 'x'));
  Add(a_, "m-Q8_0.gguf", "q8");
  Add(b_, "m-Q8_0.gguf", "q8");
  std::ofstream(folder_.Partial("q2")) << "a part";
  const auto freed = Remove("hf:org/m:Q4_0");
  ASSERT_TRUE(freed.ok()) << freed.status().message();
  EXPECT_GE(*freed, 5000);
  EXPECT_FALSE(fs::exists(folder_.Blob("q4")) || fs::exists(folder_.Partial("q2")));
  EXPECT_EQ(folder_.Files(a_).size(), 1);
  ASSERT_TRUE(Remove("hf:org/m:Q8_0").ok());
  EXPECT_EQ(folder_.Commits(), std::vector<std::string>{b_});
  EXPECT_TRUE(folder_.References().empty());
  EXPECT_TRUE(fs::exists(folder_.Blob("q8")));
  ASSERT_TRUE(Remove("hf:org/m@" + b_).ok());
  EXPECT_FALSE(fs::exists(folder_.path()));
}

TEST_F(CacheTest, ARepositoryIsRemovedWhole) {
  Add(a_, "m-Q4_0.gguf", "q4");
  Add(b_, "README.md", "r");
  const RepositoryFolder other(settings_.cache, "org/n");
  fs::create_directories(other.path());
  ASSERT_TRUE(Remove("hf:org/m").ok());
  EXPECT_FALSE(fs::exists(folder_.path()));
  EXPECT_TRUE(fs::exists(other.path()));
}

TEST_F(CacheTest, NothingIsRemovedDuringADownload) {
  Add(a_, "m-Q4_0.gguf", "q4");
  const auto lock = FileLock::Try(folder_.Lock("q4"));
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(Remove("hf:org/m").status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(fs::exists(folder_.Blob("q4")));
}

TEST_F(CacheTest, ListedNamesAreNamesOfTheSameModel) {
  ASSERT_TRUE(folder_.SetReference("main", a_).ok());
  ASSERT_TRUE(folder_.SetReference("v1", b_).ok());
  const std::string c = std::string(40, 'c');
  for (const std::string& commit : {a_, b_, c}) {
    Add(commit, "m-Q4_0.gguf", "q4" + commit);
    Add(commit, "sub/n-Q4_0.gguf", "n" + commit);
  }
  std::vector<std::string> names;
  for (const CachedModel& model : ListCached(settings_)) {
    names.push_back(model.name);
    const auto found = Find(model.name);
    ASSERT_TRUE(found.ok()) << model.name << ": " << found.status().message();
    EXPECT_EQ(found->path, model.path);
    EXPECT_EQ(model.format, "gguf");
    EXPECT_EQ(model.use.bytes, 1);
  }
  EXPECT_EQ(names.size(), 6);
  EXPECT_EQ(names[0], "hf:org/m:m-Q4_0.gguf");
  EXPECT_EQ(names.back(), "hf:org/m@v1:sub/n-Q4_0.gguf");
}

}  // namespace
}  // namespace tactus::hub
