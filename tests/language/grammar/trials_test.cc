// Rules tried in the helper: what ends them, and the life of the helper. Skipped where llguidance's library is not
// installed (scripts/get_llguidance.sh).
#include "language/grammar/trials.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "language/grammar/llguidance.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/small_vocabulary.h"
#include "time_limit.h"

namespace tactus::language {
namespace {

using End = TrialVerdict::End;

// The states of conditions that must hold together are their product: this would run forever.
const std::string kEndless = [] {
  std::string text = "start: A\nA: /(.{2})*/";
  for (const int count : {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) text += " & /(.{" + std::to_string(count) + "})*/";
  return text;
}();

// Names the helper in the environment, for one test.
class HelperNamed {
 public:
  explicit HelperNamed(const char* path) : before_(std::getenv("TACTUS_GRAMMAR_HELPER")) {
    setenv("TACTUS_GRAMMAR_HELPER", path, 1);
  }
  ~HelperNamed() { setenv("TACTUS_GRAMMAR_HELPER", before_.c_str(), 1); }

 private:
  const std::string before_;
};

std::vector<pid_t> ChildrenOf(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

// Does not exist, or only as a zombie.
bool Gone(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return !(file >> number >> name >> state) || state == "Z" || state == "X";
}

template <class Condition>
void WaitUntil(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

class TrialsTest : public testing::Test {
 protected:
  void SetUp() override {
    TACTUS_NEEDS_LLGUIDANCE();
    const auto llg = LoadLlguidance();
    trials_ = std::make_unique<Trials>(SmallVocabulary(), (*llg)->path);
  }
  static TrialTask Task(const char* kind, std::string text, int64_t cpu_ms = 60'000, int64_t mib = 64) {
    return {.cpu_ms = cpu_ms, .memory_bytes = mib << 20, .kind = kind, .text = std::move(text)};
  }
  static bool Never() { return false; }
  Result<TrialVerdict> Try(const TrialTask& task, const std::function<bool()>& given_up = Never) {
    return trials_->Run(task, 120'000, given_up);
  }
  void ExpectItWorks() {
    const auto verdict = Try(Task("regex", "[ab]+"));
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    EXPECT_EQ(verdict->end, End::kCompiled) << verdict->said;
    EXPECT_GT(verdict->bytes, 1000);
  }
  // Starts, on a separate thread, a trial that runs until its caller gives up.
  std::thread Begin(std::atomic<bool>* give_up, Result<TrialVerdict>* verdict) {
    std::thread thread(
        [this, give_up, verdict] { *verdict = Try(Task("lark", kEndless), [=] { return give_up->load(); }); });
    WaitUntil([this] { return trials_->helper() > 0 && !ChildrenOf(trials_->helper()).empty(); });
    return thread;
  }

  const test::TimeLimit limit_{"a trial", 120};
  std::unique_ptr<Trials> trials_;
};

TEST_F(TrialsTest, TrialsReuseTheHelperProcess) {
  ExpectItWorks();
  const pid_t helper = trials_->helper();
  EXPECT_GT(helper, 0);
  EXPECT_NE(helper, getpid());
  ExpectItWorks();
  EXPECT_EQ(trials_->helper(), helper);
}

TEST_F(TrialsTest, ARefusedRuleReturnsTheLibrarysMessage) {
  const auto verdict = Try(Task("lark", "start: cat"));
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->end, End::kRefused);
  EXPECT_NE(verdict->said.find("unknown name"), std::string::npos) << verdict->said;
}

TEST_F(TrialsTest, ForcedTextIsCounted) {
  const auto verdict = Try(Task("lark", "start: \"" + std::string(100'000, 'x') + "\"", 60'000, 4096));
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->end, End::kForced) << verdict->said;
  EXPECT_GT(verdict->forced_bytes, 65536);
}

TEST_F(TrialsTest, ATrialIsKilledAtItsTimeLimit) {
  const auto verdict = Try(Task("lark", kEndless, 200, 4096));
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->end, End::kTooLong) << verdict->said;
  WaitUntil([&] { return ChildrenOf(trials_->helper()).empty(); });
  ExpectItWorks();
}

TEST_F(TrialsTest, ATrialIsKilledAtItsMemoryLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory alone exceeds this test's limit";
#endif
  const auto verdict = Try(Task("lark", kEndless, 60'000, 24));
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->end, End::kTooLarge) << verdict->said;
  ExpectItWorks();
}

TEST_F(TrialsTest, ADyingTrialReportsItsCause) {
  std::atomic<bool> give_up = false;
  Result<TrialVerdict> verdict = TrialVerdict{};
  std::thread trial = Begin(&give_up, &verdict);
  kill(ChildrenOf(trials_->helper()).at(0), SIGABRT);  // sanitizers do not handle it
  trial.join();
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->end, End::kDied);
  EXPECT_EQ(verdict->said, "Aborted");
  ExpectItWorks();
}

TEST_F(TrialsTest, ATrialWhoseCallerLeavesIsKilled) {
  std::atomic<bool> give_up = false;
  Result<TrialVerdict> verdict = TrialVerdict{};
  std::thread trial = Begin(&give_up, &verdict);
  const pid_t child = ChildrenOf(trials_->helper()).at(0);
  ExpectItWorks();  // beside the abandoned trial
  give_up = true;
  trial.join();
  WaitUntil([&] { return Gone(child); });
  ExpectItWorks();
}

TEST_F(TrialsTest, AHelperThatDiesIsRestartedWithItsTrial) {
  ExpectItWorks();
  const pid_t first = trials_->helper();
  kill(first, SIGKILL);
  ExpectItWorks();
  EXPECT_NE(trials_->helper(), first);

  std::atomic<bool> give_up = false;
  Result<TrialVerdict> verdict = TrialVerdict{};
  std::thread trial = Begin(&give_up, &verdict);
  const pid_t second = trials_->helper(), child = ChildrenOf(second).at(0);
  kill(second, SIGKILL);
  WaitUntil([&] { return Gone(child); });
  WaitUntil(
      [&] { return trials_->helper() > 0 && trials_->helper() != second && !ChildrenOf(trials_->helper()).empty(); });
  give_up = true;
  trial.join();
  EXPECT_TRUE(verdict.ok()) << verdict.status().message();
  ExpectItWorks();
}

// A child without memory for its task ends while the task is being written: it reports that, and other trials continue.
TEST_F(TrialsTest, AChildWithoutMemoryForItsTaskReportsIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process";
#endif
  std::atomic<bool> give_up = false;
  Result<TrialVerdict> other = TrialVerdict{};
  std::thread trial = Begin(&give_up, &other);
  const pid_t helper = trials_->helper(), child = ChildrenOf(helper).at(0);
  rlimit before{};
  const rlimit none{size_t{1} << 20, RLIM_INFINITY};
  ASSERT_EQ(prlimit(helper, RLIMIT_AS, &none, &before), 0);
  for (int i = 0; i < 3; ++i) {
    const auto verdict = Try(Task("regex", std::string(size_t{40} << 20, 'a')));
    EXPECT_EQ(verdict.status().code(), StatusCode::kResourceExhausted) << verdict.status().message();
    EXPECT_NE(verdict.status().message().find("try again later"), std::string::npos) << verdict.status().message();
  }
  ASSERT_EQ(prlimit(helper, RLIMIT_AS, &before, nullptr), 0);
  EXPECT_EQ(trials_->helper(), helper);
  EXPECT_FALSE(Gone(child)) << "another client's trial";
  ExpectItWorks();
  // A child killed by the kernel is not an error in its rule.
  kill(child, SIGKILL);
  trial.join();
  EXPECT_EQ(other.status().code(), StatusCode::kResourceExhausted) << other.status().message();
  EXPECT_EQ(trials_->helper(), helper);
}

// A stopped helper, and a socket full of descriptors that it has not received.
TEST_F(TrialsTest, AStoppedHelperDelaysNoOtherThreadAndRefusesNoRule) {
  ExpectItWorks();
  const pid_t helper = trials_->helper();
  kill(helper, SIGSTOP);
  const auto not_tried = trials_->Run(Task("regex", "a"), 50, [] { return false; });
  EXPECT_EQ(not_tried.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(not_tried.status().message().find("does not answer"), std::string::npos) << not_tried.status().message();
  const std::string large(size_t{4} << 20, 'a');
  bool full = false;
  for (int i = 0; i < 3000 && !full; ++i) {
    int looks = 0;
    const auto verdict = trials_->Run(Task("regex", large), 60'000, [&] { return ++looks > 1; });
    full = verdict.status().code() == StatusCode::kResourceExhausted;
    if (full) break;
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    EXPECT_EQ(verdict->end, End::kTooLong);
  }
  EXPECT_TRUE(full);
  const auto verdict = trials_->Run(Task("regex", "a"), 50, [] { return false; });
  EXPECT_EQ(verdict.status().code(), StatusCode::kResourceExhausted) << verdict.status().message();
  // A waiting thread blocks neither other threads nor the shutdown.
  std::thread waits([&] { (void)trials_->Run(Task("regex", "a"), 60'000, [] { return false; }); });
  EXPECT_EQ(trials_->helper(), helper);
  trials_->Close();
  waits.join();
  EXPECT_TRUE(Gone(helper));
}

// A time limit that expires while the verdict is written does not cut it.
TEST_F(TrialsTest, AVerdictIsNeverCutByTheTimeLimit) {
  ExpectItWorks();
  const pid_t helper = trials_->helper();
  // The library quotes the rule.
  const std::string text = "start: \"a\" " + std::string(300'000, ' ') + "unknown_name_" + std::string(100'000, 'x');
  for (int64_t cpu_ms = 1; cpu_ms < 40; ++cpu_ms) {
    const auto verdict = Try(Task("lark", text, cpu_ms));
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    EXPECT_TRUE(verdict->end == End::kTooLong || verdict->end == End::kRefused) << static_cast<int>(verdict->end);
  }
  EXPECT_EQ(trials_->helper(), helper);
}

TEST_F(TrialsTest, AMissingProgramIsNamedWithInstructions) {
  const HelperNamed nowhere("/nowhere/tactus-grammar");
  const Status status = trials_->Start();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("scripts/build.sh"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("/nowhere/tactus-grammar"), std::string::npos) << status.message();
  EXPECT_EQ(Try(Task("regex", "a")).status().code(), StatusCode::kUnavailable);
}

TEST_F(TrialsTest, AProgramThatDiesAtOnceIsNotUsed) {
  {
    const HelperNamed failing("/bin/false");
    EXPECT_EQ(Try(Task("regex", "a")).status().code(), StatusCode::kUnavailable);
  }
  ExpectItWorks();  // once there is a helper
}

TEST_F(TrialsTest, AMissingLibraryIsReported) {
  Trials trials(SmallVocabulary(), "/nowhere/library.so");
  const auto verdict = trials.Run(Task("regex", "a"), 60'000, [] { return false; });
  EXPECT_EQ(verdict.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(verdict.status().message().find("/nowhere/library.so"), std::string::npos) << verdict.status().message();
}

TEST_F(TrialsTest, TheHelperInheritsNothingOfTheServer) {
  const std::string path = testing::TempDir() + "/secret";
  const int secret = open(path.c_str(), O_CREAT | O_RDWR, 0600);  // would stay open across an exec
  ASSERT_GE(secret, 0);
  ExpectItWorks();
  int descriptors = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(trials_->helper()) + "/fd")) {
    std::error_code error;
    EXPECT_NE(std::filesystem::read_symlink(entry.path(), error), path);
    ++descriptors;
  }
  EXPECT_GE(descriptors, 4);
  EXPECT_LE(descriptors, 6);  // standard streams, the socket, the server's end
  close(secret);
}

TEST_F(TrialsTest, TheHelperEndsWithTheEngine) {
  std::atomic<bool> give_up = false;
  Result<TrialVerdict> verdict = TrialVerdict{};
  std::thread trial = Begin(&give_up, &verdict);
  const pid_t helper = trials_->helper(), child = ChildrenOf(helper).at(0);
  trials_->Close();
  EXPECT_TRUE(Gone(helper));
  WaitUntil([&] { return Gone(child); });
  trial.join();
  EXPECT_EQ(verdict.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(trials_->helper(), -1);
}

// The helper ends even if another process, such as one forked by the server (as Python does), holds the socket's other
// end. This program delays the helper's start, so that its server has ended before the helper checks.
class SlowHelper {
 public:
  SlowHelper() {
    const std::string folder = testing::TempDir() + "slow_helper_" + std::to_string(getpid());
    path_ = folder + "/tactus-grammar";
    std::filesystem::create_directories(folder);
    std::ofstream(path_) << "#!/bin/sh\nsleep 0.3\nexec '" << HelperPaths().front() << "' \"$@\"\n";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  ~SlowHelper() { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }
  const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

void TheHelperEndsWithItsServer() {
  const test::TimeLimit limit("the end of a helper whose server was killed", 20);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const auto llg = LoadLlguidance();
  const pid_t server = fork();
  if (server == 0) {
    Trials own(SmallVocabulary(), (*llg)->path);
    if (!own.Start().ok()) _exit(1);
    const pid_t helper = own.helper(), sleeper = fork();
    if (sleeper == 0) {
      sleep(120);
      _exit(0);
    }
    const pid_t both[2] = {helper, sleeper};
    if (write(pipe_ends[1], both, sizeof both) != sizeof both) _exit(1);
    for (;;) pause();
  }
  pid_t both[2] = {-1, -1};
  ASSERT_EQ(read(pipe_ends[0], both, sizeof both), static_cast<ssize_t>(sizeof both));
  EXPECT_FALSE(Gone(both[0]));
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  WaitUntil([&] { return Gone(both[0]); });
  kill(both[1], SIGKILL);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(TrialsTest, TheHelperEndsWithAServerThatIsKilled) {
  TheHelperEndsWithItsServer();
}

TEST_F(TrialsTest, AHelperStartedAfterItsServersEndEnds) {
  const SlowHelper slow;
  const HelperNamed named(slow.path());
  TheHelperEndsWithItsServer();
}

TEST(TrialVocabulary, SurvivesSerialisation) {
  const Vocabulary v = SmallVocabulary();
  const std::string bytes = VocabularyBytes(v);
  const auto read = ReadVocabulary(bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->size, v.size);
  EXPECT_EQ(read->tokens, v.tokens);
  EXPECT_EQ(read->special, v.special);
  EXPECT_EQ(read->end_ids, v.end_ids);
  for (size_t length = 0; length < bytes.size(); length += 37)
    EXPECT_EQ(ReadVocabulary(bytes.substr(0, length)).status().code(), StatusCode::kDataLoss) << length;
}

}  // namespace
}  // namespace tactus::language
