// A job is resumed exactly where it was, or reports why it cannot be.
#include "offline/job/job.h"

#include <sqlite3.h>

#include "offline/job/job_folder.h"

namespace tactus::offline {
namespace {

using JobTest = JobFolder;

std::vector<LineResult> Results(std::initializer_list<int64_t> lines, bool ok = true) {
  std::vector<LineResult> results;
  for (const int64_t line : lines) results.push_back({line, ok, "{\"line\":" + std::to_string(line) + "}\n"});
  return results;
}
std::vector<int64_t> Numbers(Job& job) {
  std::vector<int64_t> numbers;
  const std::vector<LinePlace> waiting = *job.Waiting(0, 100);
  for (const LinePlace& place : waiting) numbers.push_back(place.number);
  return numbers;
}

TEST_F(JobTest, LinesWithAResultAreNotRunAgain) {
  WriteInput(5);
  {
    const auto job = Open();
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    EXPECT_FALSE((*job)->resumed());
    EXPECT_EQ(Numbers(**job), (std::vector<int64_t>{1, 2, 3, 4, 5}));
    ASSERT_TRUE((*job)->Commit(Results({3, 1})).ok());
    ASSERT_TRUE((*job)->Commit(Results({4}, false)).ok());
  }
  const auto job = Open();
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_TRUE((*job)->resumed());
  EXPECT_EQ(Numbers(**job), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ((*job)->counts().out, 2);
  EXPECT_EQ((*job)->counts().errors, 1);
  EXPECT_EQ((*job)->counts().left(), 2);
  EXPECT_EQ((*job)->Waiting(2, 100)->front().number, 5);
  EXPECT_EQ((*job)->Waiting(0, 1)->size(), 1u);
  const auto place = (*job)->Waiting(0, 1)->front();
  EXPECT_EQ(*(*job)->Read(place) + "\n", Request("a1"));
  ASSERT_TRUE((*job)->Commit(Results({2, 5})).ok());
  EXPECT_EQ(Read(files_.output), "{\"line\":3}\n{\"line\":1}\n{\"line\":2}\n{\"line\":5}\n");
  EXPECT_EQ(Read(files_.errors), "{\"line\":4}\n");
}

// The process ends between a write and its record.
TEST_F(JobTest, ResultsWrittenButNotRecordedAreCutOff) {
  WriteInput(3);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  Append(files_.output, "{\"line\":1}\n{\"li");
  Append(files_.errors, "half a l");
  const auto job = Open();
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(Read(files_.output), "{\"line\":2}\n");
  EXPECT_EQ(Read(files_.errors), "");
  ASSERT_TRUE((*job)->Commit(Results({1, 3})).ok());
  EXPECT_EQ(Lines(files_.output).size(), 3u);
}

TEST_F(JobTest, ALineHasOneResult) {
  WriteInput(2);
  const auto job = Open();
  ASSERT_TRUE((*job)->Commit(Results({1})).ok());
  EXPECT_FALSE((*job)->Commit(Results({2, 1})).ok());
  EXPECT_EQ(Read(files_.output), "{\"line\":1}\n") << "a refused group is refused as a whole";
  EXPECT_EQ((*job)->counts().out, 1);
  ASSERT_TRUE((*job)->Commit(Results({2})).ok());
  EXPECT_FALSE((*job)->Commit(Results({3})).ok()) << "there is no such line";
}

TEST_F(JobTest, TheOffsetsOfResultsAreRecorded) {
  WriteInput(3);
  ASSERT_TRUE((*Open())->Commit(Results({3, 1})).ok());
  auto database = Database::Open(files_.state);
  ASSERT_TRUE(database.ok());
  const std::string text = Read(files_.output);
  for (const int64_t line : {1, 3}) {
    const std::string where = " FROM line WHERE number = " + std::to_string(line);
    const auto offset = (*database)->Number("SELECT result_offset" + where),
               bytes = (*database)->Number("SELECT result_bytes" + where);
    EXPECT_EQ(text.substr(static_cast<size_t>(*offset), static_cast<size_t>(*bytes)),
              "{\"line\":" + std::to_string(line) + "}\n");
  }
}

TEST_F(JobTest, TheFirstLineWithAnIdIsTheOneThatRuns) {
  Write(files_.input, Request("a") + Request("b") + Request("a") + "{broken\n" + Request("b") + Request("c"));
  const auto job = Open();
  ASSERT_TRUE(job.ok());
  std::vector<int64_t> duplicate_of;
  const std::vector<LinePlace> waiting = *(*job)->Waiting(0, 100);
  for (const LinePlace& place : waiting) duplicate_of.push_back(place.duplicate_of);
  EXPECT_EQ(duplicate_of, (std::vector<int64_t>{0, 0, 1, 0, 2, 0}));
}

TEST_F(JobTest, MissingOrTruncatedResultsAreReported) {
  WriteInput(2);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  const std::string text = Read(files_.output);
  Write(files_.output, text.substr(1));
  EXPECT_NE(Refusal().find("has 10 bytes but the job has recorded 11 in it: it was truncated"), std::string::npos)
      << Refusal();
  std::filesystem::remove(files_.output);
  EXPECT_NE(Refusal().find("is missing but the job has recorded 11 bytes"), std::string::npos) << Refusal();
  Write(files_.output, text);
  EXPECT_EQ(Refusal(), "opened");
}

TEST_F(JobTest, FilesOfNoJobAreNotChanged) {
  WriteInput(1);
  for (const std::string& path : {files_.output, files_.errors}) {
    Write(path, "precious");
    EXPECT_NE(Refusal().find("'" + path + "' exists but belongs to no job"), std::string::npos) << Refusal();
    EXPECT_NE(Refusal().find("--overwrite"), std::string::npos);
    EXPECT_EQ(Read(path), "precious");
    EXPECT_FALSE(std::filesystem::exists(files_.state)) << "the next run would regard the file as a job's";
    std::filesystem::remove(path);
  }
  Write(files_.state,
        "precious text that is longer than the head of a database file, which is a hundred bytes long.....");
  EXPECT_NE(Refusal().find("is not the state of a job"), std::string::npos) << Refusal();
  EXPECT_NE(Refusal({.overwrite = true}).find("is not the state of a job"), std::string::npos);
  EXPECT_EQ(Read(files_.state).substr(0, 8), "precious");
}

TEST_F(JobTest, OverwriteBeginsAgain) {
  WriteInput(2);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  WriteInput(3);
  const auto job = Open({.overwrite = true});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_FALSE((*job)->resumed());
  EXPECT_EQ((*job)->counts().left(), 3);
  EXPECT_EQ(Read(files_.output), "");
}

TEST_F(JobTest, AChangedInputAndAnotherInputAreReported) {
  WriteInput(2);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  const std::string text = Read(files_.input);
  std::string other = text;
  other[other.size() - 10] ^= 1;
  Write(files_.input, other);
  EXPECT_NE(Refusal().find("has changed since its job began"), std::string::npos) << Refusal();
  Append(files_.input, "x");
  EXPECT_NE(Refusal().find("has changed since its job began"), std::string::npos) << "its length";
  files_.input = Path("moved.jsonl");
  Write(files_.input, other);
  EXPECT_NE(Refusal().find("is the job of another input, '" + Path("in.jsonl") + "'"), std::string::npos) << Refusal();
  Write(files_.input, text);
  EXPECT_EQ(Refusal(), "opened") << "the same content elsewhere";
}

TEST_F(JobTest, AnInputThatChangesWhileTheJobRunsEndsIt) {
  WriteInput(2);
  const auto job = Open();
  Append(files_.input, Request("late"));
  EXPECT_NE((*job)->Commit(Results({1})).message().find("was modified while the job ran"), std::string::npos);
  EXPECT_EQ((*job)->counts().done(), 0);
}

TEST_F(JobTest, AJobWithResultsIsBoundToItsSettings) {
  WriteInput(2);
  const JobOptions begun{.settings = {{"model", "m"}, {"--dtype", "auto"}}};
  ASSERT_TRUE((*Open({.settings = {{"model", "old"}}}))->CheckSettings({{"kernels", "scalar"}}).ok());
  {
    const auto job = Open(begun);
    ASSERT_TRUE(job.ok()) << "a job without results is not bound: " << job.status().ToString();
    ASSERT_TRUE((*job)->CheckSettings({{"kernels", "avx2"}}).ok());
    ASSERT_TRUE((*job)->Commit(Results({1})).ok());
  }
  EXPECT_EQ(Refusal(begun), "opened");
  const std::string refusal = Refusal({.settings = {{"model", "m"}, {"--dtype", "float32"}}});
  EXPECT_NE(refusal.find("began with --dtype 'auto', but this run has 'float32'"), std::string::npos) << refusal;
  EXPECT_FALSE((*Open(begun))->CheckSettings({{"kernels", "avx512"}}).ok());
  EXPECT_NE(Refusal({.most_line_bytes = 100, .settings = begun.settings}).find("max-line"), std::string::npos);
}

TEST_F(JobTest, SettingsAreComparedBeforeTheInputIsRead) {
  WriteInput(2);
  ASSERT_TRUE((*Open({.settings = {{"model", "m"}}}))->Commit(Results({1})).ok());
  int read = 0;
  const auto progress = [&read](int64_t) { return ++read > 0; };
  const std::string refusal = Refusal({.settings = {{"model", "other"}}, .progress = progress});
  EXPECT_NE(refusal.find("began with model 'm'"), std::string::npos) << refusal;
  EXPECT_EQ(read, 0);
  // A job refused for its input records no settings.
  std::string other = Read(files_.input);
  other[other.size() - 10] ^= 1;
  const std::string text = Read(files_.input);
  Write(files_.input, other);
  EXPECT_NE(Refusal({.settings = {{"new", "1"}}}).find("has changed since"), std::string::npos);
  Write(files_.input, text);
  EXPECT_EQ(Refusal({.settings = {{"new", "2"}}, .progress = progress}), "opened");
  EXPECT_EQ(read, 1);
}

TEST_F(JobTest, AnInputWithoutLinesIsRefusedAndLeavesNothing) {
  Write(files_.input, "");
  EXPECT_EQ(Refusal(), "'" + files_.input + "' has no lines; add at least one request");
  EXPECT_EQ(Open({.progress = [](int64_t) { return false; }}).status().code(), StatusCode::kInvalidArgument);
  WriteInput(2);
  EXPECT_EQ(Open({.progress = [](int64_t) { return false; }}).status().code(), StatusCode::kCancelled);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename(), "in.jsonl") << "left behind";
  EXPECT_EQ(Refusal(), "opened");
}

TEST_F(JobTest, AJobWithoutResultsBeginsAgain) {
  WriteInput(2);
  ASSERT_TRUE(Open().ok());
  Append(files_.output, "written and not recorded\n");
  WriteInput(3);
  {
    const auto job = Open();
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    EXPECT_FALSE((*job)->resumed());
    EXPECT_EQ((*job)->counts().left(), 3);
    EXPECT_EQ(Read(files_.output), "");
  }
  Write(files_.input, "");
  EXPECT_NE(Refusal().find("has no lines"), std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename(), "in.jsonl") << "left behind";
}

// A mistyped name must not destroy a file: only files that the job itself created are cut.
TEST_F(JobTest, FilesOfOthersAreNotCut) {
  WriteInput(3);
  for (const bool resumed : {false, true}) {
    const std::string notes = Path("notes.txt");
    Write(notes, "written over many years\n");
    ASSERT_TRUE(Open().ok());
    if (resumed) {
      ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
    }
    const JobFiles own = files_;
    for (std::string* result : {&files_.output, &files_.errors}) {
      *result = notes;
      const std::string refusal = Refusal();
      EXPECT_NE(refusal.find("it is another file"), std::string::npos) << refusal;
      EXPECT_EQ(Read(notes), "written over many years\n");
      files_ = own;
    }
    EXPECT_EQ(Refusal(), "opened");
  }
}

// All of a job's files may be moved together, even with unrecorded results.
TEST_F(JobTest, AMovedJobIsResumed) {
  WriteInput(3);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  Append(files_.output, "{\"li");
  std::filesystem::create_directories(folder_ / "there");
  for (std::string* path : {&files_.input, &files_.output, &files_.errors, &files_.state}) {
    const std::filesystem::path there = folder_ / "there" / std::filesystem::path(*path).filename();
    std::filesystem::rename(*path, there);
    *path = there.string();
  }
  const auto job = Open();
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(Read(files_.output), "{\"line\":2}\n");
}

// A process that ended while reading its input leaves a state without an index, and no other file.
TEST_F(JobTest, AStateWithoutAnIndexBeginsAgain) {
  WriteInput(2);
  ASSERT_TRUE(JobStore::Open(files_.state).ok());
  const auto job = Open();
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_FALSE((*job)->resumed());
  EXPECT_EQ((*job)->counts().left(), 2);
}

TEST_F(JobTest, TwoRunsDoNotWorkOnOneJob) {
  WriteInput(2);
  const auto job = Open();
  const auto second = Open();
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable) << second.status().ToString();
  EXPECT_NE(second.status().message().find("another run works on this job"), std::string::npos);
  EXPECT_EQ(Open({.overwrite = true}).status().code(), StatusCode::kUnavailable) << "nor may a second run overwrite it";
  ASSERT_TRUE((*job)->Commit(Results({1})).ok());
}

TEST_F(JobTest, TwoRunsDoNotResumeOneJob) {
  WriteInput(2);
  ASSERT_TRUE((*Open())->Commit(Results({1})).ok());
  const auto job = Open();
  EXPECT_EQ(Open().status().code(), StatusCode::kUnavailable) << "even before the first run has written a result";
  ASSERT_TRUE((*job)->Commit(Results({2})).ok());
}

TEST_F(JobTest, TheFourFilesMustBeDistinctAndRegular) {
  WriteInput(2);
  const JobFiles good = files_;
  files_.output = good.input;
  EXPECT_NE(Refusal({.overwrite = true}).find("the input and --output are the same file"), std::string::npos);
  files_ = good;
  files_.errors = (folder_ / "." / "out.jsonl").string();
  EXPECT_NE(Refusal().find("--output and --errors are the same file"), std::string::npos) << Refusal();
  files_ = good;
  files_.output = "/dev/null";
  EXPECT_NE(Refusal({.overwrite = true}).find("'/dev/null' is not a regular file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists("/dev/null"));
  files_.output = folder_.string();
  EXPECT_NE(Refusal().find("is a folder; choose a file"), std::string::npos) << Refusal();
  files_ = good;
  files_.output = Path("new/deep/out.jsonl");
  EXPECT_EQ(Refusal(), "opened") << "missing folders are created";
}

TEST_F(JobTest, AnotherDatabaseOrADamagedStateIsReported) {
  WriteInput(2);
  {
    auto other = Database::Open(files_.state);
    ASSERT_TRUE((*other)->Run("CREATE TABLE theirs (x)").ok());
  }
  EXPECT_NE(Refusal().find("(another program's)"), std::string::npos) << Refusal();
  std::filesystem::remove(files_.state);
  ASSERT_TRUE((*Open())->Commit(Results({2})).ok());
  {
    auto state = Database::Open(files_.state);
    ASSERT_TRUE((*state)->Run("PRAGMA user_version = 9").ok());
  }
  EXPECT_NE(Refusal({.overwrite = true}).find("version 9, but this program needs version 1"), std::string::npos);
}

TEST_F(JobTest, SeedsDependOnTheJobAndOnEachRequest) {
  WriteInput(2);
  uint64_t first = 0;
  {
    const auto job = Open();
    first = (*job)->SeedOf(1, 0);
    ASSERT_TRUE((*job)->Commit(Results({2})).ok());
    EXPECT_NE(first, (*job)->SeedOf(1, 1));
    EXPECT_NE(first, (*job)->SeedOf(2, 0));
  }
  EXPECT_EQ((*Open())->SeedOf(1, 0), first) << "resumed";
  EXPECT_NE((*Open({.overwrite = true}))->SeedOf(1, 0), first) << "another job";
  const uint64_t stated = (*Open({.overwrite = true, .seed = 7}))->SeedOf(1, 0);
  EXPECT_EQ((*Open({.overwrite = true, .seed = 7}))->SeedOf(1, 0), stated);
}

}  // namespace
}  // namespace tactus::offline
