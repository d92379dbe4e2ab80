// Work on parse threads ends once its request is over, and a failure ends only its own request.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/json.h"
#include "base/worker_pool.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

// Work that runs until it is stopped, or until a limit that only a broken server reaches.
class LongWork {
 public:
  void operator()(StopToken stop) {
    begun_.fetch_add(1);
    for (int k = 0; k < 1000 && !stop.stopped() && !released_.load(); ++k)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (stop.stopped()) stopped_.fetch_add(1);
    ended_.fetch_add(1);
  }
  void Release() { released_.store(true); }
  int begun() const { return begun_.load(); }
  int stopped() const { return stopped_.load(); }
  // False: not within 10 s.
  bool AwaitBegun(int count) const {
    return Await([&] { return begun_.load() >= count; });
  }
  bool AwaitEnded(int count) const {
    return Await([&] { return ended_.load() >= count; });
  }

 private:
  template <class Condition>
  static bool Await(Condition condition) {
    for (int k = 0; k < 1000 && !condition(); ++k) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  }
  std::atomic<int> begun_{0}, ended_{0}, stopped_{0};
  std::atomic<bool> released_{false};
};

class ParseThreadsTest : public ServerTest {
 protected:
  static std::string Chat() { return R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2})"; }
  static std::string Text() { return R"({"prompt":"hi"})"; }
  void TearDown() override {
    engine_.OnText({});
    work_->Release();
    server_.reset();
  }
  void Work() {
    engine_.OnText([work = work_](StopToken stop) { (*work)(stop); });
  }
  std::shared_ptr<LongWork> work_ = std::make_shared<LongWork>();
};

// More waiting tasks than threads, of one client and of several: light tasks run, and so does the task of a later
// client.
TEST(WorkerPoolTest, TasksInTurnThatWaitDelayNoOtherTask) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> done{0};
  WorkerPool pool(2);
  const auto wait_long = [&, gone] {
    const WorkerPool::Waiting wait;
    gone.wait_for(std::chrono::seconds(60));
    ++done;
  };
  for (int i = 0; i < 40; ++i) pool.PostInTurn("hostile", wait_long);
  for (int i = 0; i < 6; ++i) pool.PostInTurn("other", wait_long);
  std::promise<void> plain, honest;
  pool.PostInTurn("honest", [&] { honest.set_value(); });
  pool.Post([&] { plain.set_value(); });
  EXPECT_EQ(plain.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(honest.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  // As many waiting clients as the pool allows: no further client's task begins, but other tasks run.
  for (int client = 0; client < 20; ++client) {
    for (int i = 0; i < 4; ++i) pool.PostInTurn(std::to_string(client), wait_long);
  }
  std::promise<void> later;
  pool.Post([&] { later.set_value(); });
  EXPECT_EQ(later.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(60 * kSecond));
  EXPECT_EQ(done, 126);
}

// More computing tasks in turn than threads: one thread is left for light tasks.
TEST(WorkerPoolTest, TasksInTurnThatComputeLeaveOneThread) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> running{0}, most{0};
  WorkerPool pool(2);
  for (int i = 0; i < 6; ++i) {
    pool.PostInTurn(std::to_string(i % 2), [&, gone] {
      most = std::max(most.load(), ++running);
      gone.wait_for(std::chrono::seconds(60));
      --running;
    });
  }
  std::promise<void> light;
  pool.Post([&] { light.set_value(); });
  EXPECT_EQ(light.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(60 * kSecond));
  EXPECT_EQ(most, 1);
}

// A client that returns after its task has ended does not overtake a client that has waited since.
TEST(WorkerPoolTest, AClientThatComesBackWaitsForItsTurn) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::string order;  // of tasks, which run one at a time
  WorkerPool pool(1);
  const auto post = [&](const std::string& client) { pool.PostInTurn(client, [&order, client] { order += client; }); };
  post("a");
  EXPECT_TRUE(pool.WaitUntilIdle(60 * kSecond));
  pool.Post([gone] { gone.wait_for(std::chrono::seconds(60)); });
  for (const char* client : {"z", "z", "a", "b"}) post(client);
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(60 * kSecond));
  EXPECT_EQ(order, "azabz");
}

TEST(WorkerPoolTest, TasksThatWaitDelayNoOtherTask) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> waiting{0}, most{0}, computing{0};
  std::promise<void> ran;
  WorkerPool pool(2);
  for (int i = 0; i < 4; ++i) {
    pool.Post([&, gone] {
      const WorkerPool::Waiting wait;
      waiting.fetch_add(1);
      gone.wait_for(std::chrono::seconds(60));
    });
  }
  pool.Post([&] { ran.set_value(); });
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready)
      << "all threads wait, and a computing task is not started";
  // At most two tasks still compute at the same time.
  for (int i = 0; i < 6; ++i) {
    pool.Post([&] {
      const int now = computing.fetch_add(1) + 1;
      for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      computing.fetch_sub(1);
    });
  }
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(30 * kSecond));
  EXPECT_EQ(waiting.load(), 4);
  EXPECT_LE(most.load(), 2);
}

TEST_F(ParseThreadsTest, NoMemoryIs503ForOnlyThatRequest) {
  ServeOptions options;
  options.max_streams_per_client = 1;  // a place that is not released refuses the next request
  StartServer(options);
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const std::string body = path[1] == 'v' ? Chat() : Text();
    engine_.OnText([](StopToken) { throw std::bad_alloc(); });
    const auto refused = Post(path, body);
    EXPECT_EQ(refused.status, 503) << path << ": " << refused.body;
    EXPECT_NE(refused.body.find("no memory"), std::string::npos) << refused.body;
    EXPECT_NE(refused.Find("Retry-After"), nullptr);
    engine_.OnText({});
    EXPECT_EQ(Post(path, body).status, 200) << path << " after a request without memory";
  }
}

TEST_F(ParseThreadsTest, AnotherExceptionIs500ForOnlyThatRequest) {
  StartServer();
  engine_.OnText([](StopToken) { throw std::runtime_error("a secret of the inside"); });
  const auto failed = Post("/v1/chat/completions", Chat());
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body.find("secret"), std::string::npos) << failed.body;
  engine_.OnText({});
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 200);
}

TEST_F(ParseThreadsTest, NoMemoryOnTheDeliveryThreadEndsOnlyThatAnswer) {
  StartServer();
  // Token strings are created for logprobs, as tokens arrive.
  engine_.OnText([](StopToken) { throw std::bad_alloc(); });
  const auto failed = Post("/v1/completions", R"({"prompt":[1,2],"max_tokens":2,"logprobs":1})");
  EXPECT_EQ(failed.status, 503) << failed.body;
  const auto stream = Stream("/v1/completions", R"({"prompt":[1,2],"max_tokens":2,"logprobs":1,"stream":true})");
  ASSERT_FALSE(stream->events.empty());
  EXPECT_NE(stream->events.back().find("no memory"), std::string::npos) << stream->events.back();
  engine_.OnText({});
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":[1,2],"max_tokens":2,"logprobs":1})").status, 200);
}

TEST_F(ParseThreadsTest, TheTimeOutEndsRunningWork) {
  ServeOptions options;
  options.request_timeout.ns = 200 * kMillisecond;
  StartServer(options);
  Work();
  int ended = 0;
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const auto late = Post(path, path[1] == 'v' ? Chat() : Text());
    EXPECT_EQ(late.status, 408) << path << ": " << late.body;
    ASSERT_TRUE(work_->AwaitEnded(++ended));
    EXPECT_EQ(work_->stopped(), ended) << path << ": the work continued after the answer";
  }
}

TEST_F(ParseThreadsTest, ADisconnectEndsRunningWork) {
  StartServer();
  Work();
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const int before = work_->begun();
    const std::string body = path[1] == 'v' ? Chat() : Text();
    auto gone = http::Fetch(url_, {"POST", path, {{"Content-Type", "application/json"}}, body}, 300 * kMillisecond,
                            SystemClock());
    EXPECT_FALSE(gone.ok());
    ASSERT_TRUE(work_->AwaitEnded(before + 1));
    EXPECT_EQ(work_->stopped(), before + 1) << path << ": the work continued after the disconnect";
  }
}

TEST_F(ParseThreadsTest, QueuedWorkOfALateRequestIsAnsweredAndNeverRun) {
  ServeOptions options;
  options.http_workers = 1;
  options.request_timeout.ns = 300 * kMillisecond;
  StartServer(options);
  // Blocks the only thread, and does not check its flag.
  engine_.OnText([work = work_](StopToken) { (*work)({}); });
  std::thread first([&] { EXPECT_EQ(Post("/tokenize", Text()).status, 408); });
  EXPECT_TRUE(work_->AwaitBegun(1));
  EXPECT_EQ(Post("/tokenize", Text()).status, 408) << "queued";
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 408) << "queued";
  first.join();
  engine_.OnText([work = work_](StopToken stop) { (*work)(stop); });
  work_->Release();
  EXPECT_TRUE(work_->AwaitEnded(1));
  EXPECT_EQ(Post("/tokenize", Text()).status, 200) << "after the queued requests";
  EXPECT_EQ(work_->begun(), 2) << "work of answered requests was run";
}

TEST_F(ParseThreadsTest, ShutdownEndsRunningWorkWith503) {
  StartServer();
  Work();
  http::HttpResponse answer;
  std::thread client([&] { answer = Post("/tokenize", Text()); });
  EXPECT_TRUE(work_->AwaitBegun(1));
  server_->StopAdmission();
  server_->FinishParsing(0);
  EXPECT_TRUE(server_->WaitUntilIdle(10 * kSecond));
  client.join();
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_NE(answer.body.find("shutting down"), std::string::npos) << answer.body;
  EXPECT_TRUE(work_->AwaitEnded(1));
  EXPECT_EQ(work_->stopped(), 1);
}

TEST_F(ParseThreadsTest, TokenizingCountsAmongAClientsRequests) {
  ServeOptions options;
  options.max_streams_per_client = 1;
  StartServer(options);
  Work();
  std::thread client([&] { EXPECT_EQ(Post("/tokenize", Text()).status, 200); });
  EXPECT_TRUE(work_->AwaitBegun(1));
  EXPECT_EQ(Post("/tokenize", Text()).status, 429);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[1]})").status, 429);
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 429);
  work_->Release();
  client.join();
  EXPECT_EQ(Post("/tokenize", Text()).status, 200) << "the place was not released";
}

TEST_F(ParseThreadsTest, APromptThatCanNeverFitIsRefusedBeforeTokenising) {
  StartServer();
  engine_.SetLongestToken(4);
  std::atomic<int> tokenised{0};
  engine_.OnText([&](StopToken) { ++tokenised; });
  const auto refused = Post("/v1/completions", json{{"prompt", std::string(40000, ' ')}}.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("prompt of at least 10000 tokens + an answer of 1 exceed the context of 4096 tokens"),
            std::string::npos)
      << refused.body;
  EXPECT_EQ(tokenised.load(), 0) << "it was tokenised first";
  ASSERT_EQ(engine_.refused().size(), 1u) << "the engine's result counts it";
  EXPECT_NE(refused.body.find(engine_.refused()[0]), std::string::npos);
  EXPECT_EQ(Post("/v1/completions", json{{"prompt", std::string(400, ' ')}, {"max_tokens", 1}}.dump()).status, 200);
}

TEST_F(ParseThreadsTest, TooManyJsonKeysAre400WithTheLimit) {
  StartServer();
  json kwargs = json::object();
  for (int k = 0; k < 20000; ++k) kwargs["k" + std::to_string(k)] = 1;
  const auto refused =
      Post("/v1/chat/completions",
           json{{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"chat_template_kwargs", kwargs}}.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("at least 16385 keys; the limit is 16384"), std::string::npos) << refused.body;
}

TEST(WorkerPool, HeavyTasksLeaveAThreadToTheOthers) {
  WorkerPool pool(2);
  std::promise<void> go;
  const std::shared_future<void> gone(go.get_future());
  std::atomic<int> heavy{0};
  std::promise<void> light;
  for (int i = 0; i < 3; ++i) {
    pool.Post([&heavy, gone] { ++heavy, gone.wait_for(std::chrono::seconds(20)); }, true);
  }
  pool.Post([&] { light.set_value(); });
  EXPECT_EQ(light.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready)
      << "three heavy tasks hold both threads";
  EXPECT_LE(heavy.load(), 1);
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(10 * kSecond)) << heavy.load() << " of 3 heavy tasks have run";
  EXPECT_EQ(heavy.load(), 3);
}

TEST(WorkerPool, OneThreadDoesEverythingInOrder) {
  WorkerPool pool(1);
  std::promise<void> go;
  const std::shared_future<void> gone(go.get_future());
  std::string order;
  pool.Post([gone] { gone.wait_for(std::chrono::seconds(10)); });
  for (const char c : {'a', 'B', 'c', 'D', 'E', 'f'}) pool.Post([&order, c] { order += c; }, c < 'a');
  go.set_value();
  EXPECT_TRUE(pool.WaitUntilIdle(10 * kSecond)) << order;
  EXPECT_EQ(order, "aBcDEf");
}

TEST(WorkerPool, ATaskThatThrowsEndsAlone) {
  WorkerPool pool(1);
  std::atomic<int> ran{0};
  pool.Post([&] {
    ++ran;
    throw std::bad_alloc();
  });
  pool.Post([&] {
    ++ran;
    throw 1;
  });
  pool.Post([&] { ++ran; });
  EXPECT_TRUE(pool.WaitUntilIdle(10 * kSecond));
  EXPECT_EQ(ran.load(), 3);
}

}  // namespace
}  // namespace tactus
