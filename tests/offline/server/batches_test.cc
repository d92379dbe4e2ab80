// Batches on a scripted engine: turns, cancel, expiry, restart, a full disk. In every case each line has one result.
#include "offline/server/batches.h"
#include "base/json.h"

#include <signal.h>
#include <sys/resource.h>

#include <map>
#include <mutex>

#include "api/chat/conversation.h"
#include "offline/plan/prompt_set.h"
#include "offline/server/objects.h"
#include "serve/fake_engine.h"
#include "store_folder.h"

namespace tactus::offline {
namespace {

using json = SortedJson;

class BatchesTest : public StoreFolder {
 protected:
  void Open(BatchLimits limits = {}, BackgroundShare share = {}, JobSettings settings = {}) {
    Close();
    store_ = OpenStore();
    files_ = std::make_unique<Files>(store_.get(), FileLimits(), Clock());
    batches_ = std::make_unique<Batches>(store_.get(), files_.get(), limits, Clock(), [this](std::string_view line) {
      std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    });
    BatchService service;
    service.engine = &engine_;
    service.limits = api::LimitsOf(engine_, 100);
    service.seed = 5;
    service.share = share;
    service.settings = std::move(settings);
    service.client = [](const std::string& owner) { return BatchClient{"batch of " + owner, owner, ""}; };
    service.clock = &SystemClock();
    ASSERT_TRUE(batches_->Start(std::move(service)).ok());
  }
  void Close() {
    batches_.reset();
    files_.reset();
    store_.reset();
  }
  ~BatchesTest() override { Close(); }

  // The first `brief` lines have one token, the others three: an engine on hold after one token completes the first.
  static std::string Lines(int count, const std::string& name = "a", int brief = 0) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += json{{"custom_id", name + std::to_string(i)},
                   {"method", "POST"},
                   {"url", "/v1/completions"},
                   {"body", {{"prompt", "ab"}, {"max_tokens", i < brief ? 1 : 3}}}}
                  .dump() +
              "\n";
    }
    return text;
  }
  std::string Create(const std::string& input, const std::string& owner = "", const std::string& window = "24h") {
    const FileRow file = AddFile(*files_, owner, input);
    return CreateOf(file.id, owner, window);
  }
  std::string CreateOf(const std::string& file, const std::string& owner, const std::string& window) {
    const json body = {{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", window}};
    const auto batch = batches_->Create(owner, body.dump());
    if (!batch.ok()) throw std::runtime_error(batch.status().ToString());
    return batch->id;
  }
  BatchRow Row(const std::string& id, const std::string& owner = "") {
    const auto row = batches_->Find(owner, id);
    if (!row.ok()) throw std::runtime_error(row.status().ToString());
    return *row;
  }
  void AwaitState(const std::string& id, BatchState state, const std::string& owner = "") {
    Until(id + " is " + kBatchStateNames[static_cast<size_t>(state)], [&] { return Row(id, owner).state == state; });
  }
  // The row in the store, while no server uses it.
  BatchRow Stored(const std::string& id) { return **OpenStore()->FindBatch("", id); }

  // custom_id to error code; "" for an answer. A duplicate custom_id fails the test.
  std::map<std::string, std::string> Results(const std::string& id) {
    std::map<std::string, std::string> found;
    const BatchRow row = Row(id);
    for (const auto& [has, file] :
         {std::pair(row.has_output, row.output_file_id), std::pair(row.has_errors, row.error_file_id)}) {
      if (!has) continue;
      EXPECT_TRUE(*store_->FindFile(row.owner, file)) << "results are files";
      std::istringstream text(Read(store_->FilePath(file)));
      for (std::string line; std::getline(text, line);) {
        const json result = json::parse(line);
        const std::string name = result["custom_id"];
        EXPECT_EQ(found.count(name), 0u) << name << " twice";
        found[name] = result["error"].is_null() ? "" : result["error"]["code"].get<std::string>();
      }
    }
    return found;
  }
  static int64_t CountOf(const std::map<std::string, std::string>& results, const std::string& code) {
    return std::count_if(results.begin(), results.end(), [&](const auto& r) { return r.second == code; });
  }

  // Number of log lines that contain `what`.
  int64_t Logged(const std::string& what) {
    std::lock_guard lock(log_mutex_);
    return std::count_if(log_.begin(), log_.end(), [&](const auto& l) { return l.find(what) != std::string::npos; });
  }

  std::mutex log_mutex_;
  std::vector<std::string> log_;
  FakeEngine engine_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Batches> batches_;
};

TEST_F(BatchesTest, ABatchPassesItsStatesAndProducesFiles) {
  Open();
  engine_.Hold();
  const std::string id = Create(Lines(3));
  AwaitState(id, BatchState::kInProgress);
  EXPECT_EQ(Row(id).counts.lines, 3);
  EXPECT_FALSE(Row(id).has_output);
  const auto used = store_->DeleteFile("", Row(id).input_file_id);
  EXPECT_EQ(used.status().code(), StatusCode::kInvalidArgument) << "its input is in use";
  engine_.Release();
  AwaitState(id, BatchState::kCompleted);
  EXPECT_EQ(CountOf(Results(id), ""), 3);
  EXPECT_EQ(Row(id).output_tokens, 9);
  EXPECT_FALSE(Row(id).has_errors);
  EXPECT_EQ(In("jobs").size(), 0u);
  EXPECT_EQ(In("files").size(), 2u) << "no empty error file";
  EXPECT_EQ(files_->stats().files, 2);
  EXPECT_TRUE(*store_->DeleteFile("", Row(id).input_file_id));
  EXPECT_EQ(batches_->metrics().lines_out, 3);
  EXPECT_EQ(batches_->metrics().by_state[static_cast<size_t>(BatchState::kCompleted)], 1);
}

TEST_F(BatchesTest, TurnsGoToTheClientWithTheFewestRunningBatches) {
  Open({.running = 2});
  engine_.Hold();
  std::vector<std::string> of_a;
  for (int i = 0; i < 3; ++i) of_a.push_back(Create(Lines(1), "a"));
  AwaitState(of_a[0], BatchState::kInProgress, "a");
  AwaitState(of_a[1], BatchState::kInProgress, "a");
  const std::string of_b = Create(Lines(1), "b");
  EXPECT_EQ(Row(of_a[2], "a").state, BatchState::kValidating);
  EXPECT_EQ(batches_->Cancel("a", of_a[0]).status().code(), StatusCode::kOk);
  AwaitState(of_b, BatchState::kInProgress, "b");
  EXPECT_EQ(Row(of_a[2], "a").state, BatchState::kValidating) << "b has none running";
  engine_.Release();
  AwaitState(of_a[2], BatchState::kCompleted, "a");
  AwaitState(of_b, BatchState::kCompleted, "b");
}

TEST_F(BatchesTest, ACancelledBatchKeepsFinishedLines) {
  Open({.running = 1}, {.sequences = 2});
  engine_.HoldAfter(1);
  const std::string running = Create(Lines(50, "a", 5)), waiting = Create(Lines(4));
  engine_.AwaitSubmitted(7);
  EXPECT_EQ(batches_->Cancel("", waiting)->state, BatchState::kCancelling);
  AwaitState(waiting, BatchState::kCancelled);  // without a turn
  EXPECT_EQ(CountOf(Results(waiting), "batch_cancelled"), 4);
  Until("five lines are done", [&] { return Row(running).counts.out == 5; });
  ASSERT_TRUE(batches_->Cancel("", running).ok());
  AwaitState(running, BatchState::kCancelled);
  const auto results = Results(running);
  EXPECT_EQ(results.size(), 50u);
  EXPECT_EQ(CountOf(results, ""), 5);
  EXPECT_EQ(CountOf(results, "batch_cancelled"), 45);
  EXPECT_EQ(batches_->Cancel("", running).status().code(), StatusCode::kInvalidArgument) << "it has ended";
}

TEST_F(BatchesTest, AnExpiredWindowEndsTheRemainingLines) {
  Open({.running = 1}, {.sequences = 2});
  engine_.HoldAfter(1);
  const std::string running = Create(Lines(10), "", "1h"), waiting = Create(Lines(3), "", "1h");
  engine_.AwaitSubmitted(2);
  now_s_ += 3600;
  AwaitState(running, BatchState::kExpired);
  AwaitState(waiting, BatchState::kExpired);
  EXPECT_EQ(CountOf(Results(running), "batch_expired"), 10);
  EXPECT_EQ(CountOf(Results(waiting), "batch_expired"), 3);
  EXPECT_EQ(Row(running).entered_s[static_cast<size_t>(BatchState::kExpired)], now_s_);
  engine_.AwaitLive(0);
}

TEST_F(BatchesTest, TheNextServerResumesEveryBatch) {
  Open({.running = 1}, {.sequences = 4});
  engine_.HoldAfter(1);
  const std::string running = Create(Lines(200, "a", 50)), waiting = Create(Lines(3, "w"));
  Until("50 lines are done", [&] { return Row(running).counts.out == 50; });
  Close();
  engine_.AwaitLive(0);
  engine_.Release();
  const size_t before = engine_.submitted().size();
  Open({.running = 1});
  AwaitState(running, BatchState::kCompleted);
  AwaitState(waiting, BatchState::kCompleted);
  EXPECT_EQ(CountOf(Results(running), ""), 200);
  EXPECT_EQ(engine_.submitted().size() - before, 153u) << "finished lines do not run again";
}

TEST_F(BatchesTest, ACancelIsStoredBeforeItTakesEffect) {
  Open({.running = 1}, {.sequences = 1});
  engine_.Hold();
  engine_.HearNoCancel(true);
  const std::string id = Create(Lines(5));
  engine_.AwaitSubmitted(1);
  ASSERT_TRUE(batches_->Cancel("", id).ok());
  EXPECT_EQ(Row(id).state, BatchState::kCancelling);
  EXPECT_TRUE(batches_->Cancel("", id).ok()) << "a second cancel changes nothing";
  EXPECT_EQ((*store_->FindBatch("", id))->state, BatchState::kCancelling) << "on the disk";
  engine_.HearNoCancel(false);
  AwaitState(id, BatchState::kCancelled);
  EXPECT_EQ(CountOf(Results(id), "batch_cancelled"), 5);
}

TEST_F(BatchesTest, AnotherModelDoesNotResumeABatch) {
  Open({.running = 1}, {.sequences = 1}, {{"model", "one"}});
  engine_.HoldAfter(1);
  const std::string id = Create(Lines(50, "a", 5), "", "1h");
  Until("some lines are done", [&] { return Row(id).counts.out == 5; });
  Close();
  engine_.Release();
  const size_t before = engine_.submitted().size();
  Open({}, {}, {{"model", "two"}});
  const std::string other = Create(Lines(2));
  AwaitState(other, BatchState::kCompleted);
  EXPECT_EQ(Row(id).state, BatchState::kInProgress) << "it waits for its model";
  EXPECT_EQ(engine_.submitted().size(), before + 2);
  now_s_ += 3600;
  AwaitState(id, BatchState::kExpired);
  EXPECT_EQ(CountOf(Results(id), ""), 5);
  EXPECT_EQ(CountOf(Results(id), "batch_expired"), 45);
}

TEST_F(BatchesTest, AFailingBatchIsTriedLessAndLessOften) {
  Open({.running = 1}, {.sequences = 1}, {{"model", "one"}});
  engine_.HoldAfter(1);
  const std::string id = Create(Lines(50, "a", 5));
  Until("some lines are done", [&] { return Row(id).counts.out == 5; });
  Close();
  engine_.Release();
  Open({.running = 1}, {}, {{"model", "two"}});
  const auto tries_by_now = [&] {
    // A new batch runs after those that are tried again.
    AwaitState(Create(Lines(1)), BatchState::kCompleted);
    return Logged("batch " + id + " waits");
  };
  EXPECT_EQ(tries_by_now(), 1);
  int64_t tries = 1;
  for (const int64_t pause_s : {10, 20, 40, 80, 160, 320, 600, 600}) {
    now_s_ += pause_s - 1;
    if (pause_s == 20 || pause_s == 600) {
      EXPECT_EQ(tries_by_now(), tries) << "too early: " << pause_s;
    }
    now_s_ += 1;
    EXPECT_EQ(tries_by_now(), ++tries) << pause_s;
  }
  ASSERT_TRUE(batches_->Cancel("", id).ok());
  now_s_ += 10;
  AwaitState(id, BatchState::kCancelled);
  EXPECT_EQ(CountOf(Results(id), "batch_cancelled"), 45);
}

TEST_F(BatchesTest, AnUnusableInputFailsItsBatch) {
  Open({.lines = 3});
  const std::string empty = Create(""), many = Create(Lines(4)), right = Create(Lines(3));
  AwaitState(empty, BatchState::kFailed);
  AwaitState(many, BatchState::kFailed);
  AwaitState(right, BatchState::kCompleted);
  EXPECT_EQ(Row(empty).errors.at(0).code, "empty_file");
  EXPECT_EQ(Row(many).errors.at(0).code, "too_many_lines");
  const std::string lost = [this] {
    const FileRow file = AddFile(*files_, "", Lines(1));
    std::filesystem::remove(store_->FilePath(file.id));
    return CreateOf(file.id, "", "24h");
  }();
  AwaitState(lost, BatchState::kFailed);
  EXPECT_EQ(Row(lost).errors.at(0).code, "input_lost");
}

TEST_F(BatchesTest, AFailedBatchKeepsItsResults) {
  Open({.running = 1}, {.sequences = 4});
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    engine_.HoldAfter(1);
    ids.push_back(Create(Lines(50, "a", 5)));
    Until("five lines are done", [&] { return Row(ids.back()).counts.out == 5; });
    Close();
    engine_.Release();
    engine_.AwaitLive(0);
    // The next server does not run the remaining lines, since the input is missing.
    std::filesystem::remove(folder_ + "/files/" + Stored(ids.back()).input_file_id);
    if (i == 1) {
      std::ofstream(folder_ + "/jobs/" + ids[1], std::ios::trunc)
          << "no state of a job, but a text that is long enough";
      std::ofstream(folder_ + "/files/" + Stored(ids[1]).output_file_id, std::ios::app) << "half a li";
    }
    Open({.running = 1}, {.sequences = 4});
    AwaitState(ids.back(), BatchState::kFailed);
  }
  for (const std::string& id : ids) {
    EXPECT_EQ(Row(id).errors.at(0).code, "input_lost");
    EXPECT_EQ(Row(id).counts.out, 5);
    EXPECT_EQ(Results(id).size(), 5u);
    EXPECT_FALSE(Row(id).has_errors);
  }
  EXPECT_EQ(Row(ids[0]).counts.lines, 50);
  EXPECT_EQ(Row(ids[0]).output_tokens, 5);
}

TEST_F(BatchesTest, ABatchTooLargeForAPlanRunsInTheOrderOfItsFile) {
  // Planner memory for three sequences without prompt keys.
  const int64_t room = PlannerMemory(3, 0);
  Open({.planner_bytes = room});
  const std::string planned = Create(Lines(3)), large = Create(Lines(40));
  AwaitState(planned, BatchState::kCompleted);
  AwaitState(large, BatchState::kCompleted);
  EXPECT_EQ(CountOf(Results(large), ""), 40);
  EXPECT_EQ(Logged("runs in the order of its file"), 1) << "one of the two is too large, and this is logged once";
  EXPECT_EQ(Logged("waits"), 0);
}

TEST_F(BatchesTest, AnInputThatCannotBeOpenedNowIsTriedAgain) {
  Open();
  const FileRow file = AddFile(*files_, "", Lines(3));
  const std::string path = store_->FilePath(file.id);
  std::filesystem::rename(path, path + "x");
  std::filesystem::create_symlink(path, path);  // to itself
  const std::string id = CreateOf(file.id, "", "24h");
  Until("the batch has been tried", [&] { return Logged("batch " + id + " waits: cannot open") == 1; });
  EXPECT_EQ(Row(id).state, BatchState::kValidating);
  std::filesystem::rename(path + "x", path);
  now_s_ += 10;
  AwaitState(id, BatchState::kCompleted);
  EXPECT_EQ(CountOf(Results(id), ""), 3);
}

TEST_F(BatchesTest, AFullDiskIsTriedAgain) {
  Open();
  signal(SIGXFSZ, SIG_IGN);
  engine_.Hold();
  const std::string id = Create(Lines(40));
  AwaitState(id, BatchState::kInProgress);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  engine_.Release();
  Until("no batch runs any more", [&] { return batches_->metrics().running == 0; });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(Row(id).state, BatchState::kInProgress);
  now_s_ += 10;
  AwaitState(id, BatchState::kCompleted);
  EXPECT_EQ(CountOf(Results(id), ""), 40);
}

TEST_F(BatchesTest, AClientsOpenBatchesAreLimited) {
  Open({.running = 1, .open_per_owner = 2});
  engine_.Hold();
  const FileRow file = AddFile(*files_, "a", Lines(1));
  CreateOf(file.id, "a", "24h");
  CreateOf(file.id, "a", "24h");
  const json body = {{"input_file_id", file.id}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  EXPECT_EQ(batches_->Create("a", body.dump()).status().code(), StatusCode::kTooManyRequests);
  Create(Lines(1), "b");
  engine_.Release();
}

TEST_F(BatchesTest, AfterTheStopSignalNoLineStarts) {
  Open({}, {.sequences = 2});
  engine_.HoldAfter(1);
  const std::string id = Create(Lines(20));
  engine_.AwaitSubmitted(2);
  Until("both lines have a token", [&] { return engine_.begun() == 2; });
  batches_->StopBeginning();
  engine_.Release();
  Until("the batch has stopped", [&] { return batches_->metrics().running == 0; });
  EXPECT_EQ(Row(id).state, BatchState::kInProgress);
  EXPECT_EQ(Row(id).counts.out, 2) << "lines that generated run to their end";
  EXPECT_EQ(engine_.submitted().size(), 2u) << "a line started after the stop";
}

TEST_F(BatchesTest, AfterTheStopSignalNoBatchIsEnded) {
  Open({.running = 0});
  const std::string id = Create(Lines(3), "", "1h");
  const FileRow other = AddFile(*files_, "", "x", "x", 3600);
  batches_->StopBeginning();
  now_s_ += 3600;
  // The sweep that deletes expired files runs after the check for expired batches.
  Until("the expired file is deleted", [&] { return !*store_->FindFile("", other.id); });
  Close();
  EXPECT_EQ(Stored(id).state, BatchState::kValidating);
  Open();
  AwaitState(id, BatchState::kExpired);
  EXPECT_EQ(CountOf(Results(id), "batch_expired"), 3) << "the next server ends the batch";
}

}  // namespace
}  // namespace tactus::offline
