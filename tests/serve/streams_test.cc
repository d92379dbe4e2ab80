// Many streams, disconnects, time limits, shutdown.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/json.h"
#include "http/raw_socket.h"
#include "serve/run_server.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class StreamsTest : public ServerTest {
 protected:
  static std::string Body(int max_tokens, bool stream = true) {
    return json({{"prompt", "abc"}, {"max_tokens", max_tokens}, {"stream", stream}}).dump();
  }
  static std::string Http(const std::string& body) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
};

TEST_F(StreamsTest, AThousandStreamsAtOnceComplete) {
  constexpr size_t kStreams = 1000;
  StartServer();
  engine_.Hold();
  Calls calls(url_);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (size_t i = 0; i < kStreams; ++i) recorders.push_back(calls.Post("/v1/completions", Body(5)));
  calls.Start();
  engine_.AwaitLive(kStreams);  // all of them are open, none refused
  EXPECT_EQ(Call("GET", "/health").status, 200);
  engine_.Release();
  calls.Join();
  for (const auto& r : recorders) {
    ASSERT_TRUE(r->done && r->status.ok()) << r->status.ToString();
    ASSERT_EQ(r->http_status, 200);
    ASSERT_EQ(r->events.size(), 6u);
    EXPECT_EQ(r->events.back(), "[DONE]");
  }
  EXPECT_EQ(engine_.most_live(), kStreams);
}

TEST_F(StreamsTest, DisconnectedClientsAreCancelledInEveryState) {
  StartServer();
  engine_.Hold();
  size_t cancelled = 0;
  for (const bool stream : {true, false}) {
    for (const bool reset : {true, false}) {
      RawSocket socket(server_->port());
      socket.Send(Http(Body(100, stream)));
      engine_.AwaitLive(1);
      if (reset)
        socket.Reset();
      else
        socket.Close();
      engine_.AwaitCancelled(++cancelled);
      engine_.AwaitLive(0);
    }
  }
}

TEST_F(StreamsTest, AClientThatLeavesInMidStreamIsCancelled) {
  StartServer();
  engine_.HoldAfter(3);
  RawSocket socket(server_->port());
  socket.Send(Http(Body(100)));
  EXPECT_NE(socket.ReadUntil("\"text\"", 3).find(" wor"), std::string::npos);
  socket.Close();
  engine_.AwaitCancelled(1);
  engine_.AwaitLive(0);
}

// generation_test.cc tests the times of pings; this test checks that the option is used and that the server ticks.
TEST_F(StreamsTest, QueuedStreamsArePinged) {
  ServeOptions options;
  options.ping_interval.ns = 7 * kSecond;
  StartServer(options, true, clock_);
  engine_.Hold();
  RawSocket socket(server_->port());
  socket.Send(Http(Body(2)));
  const std::string head = socket.ReadUntil("\r\n\r\n");
  EXPECT_NE(head.find("text/event-stream"), std::string::npos);
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(7 * kSecond);
    EXPECT_NE(socket.ReadUntil(": ping\n\n").find(": ping\n\n"), std::string::npos) << i;
  }
  engine_.Release();
  EXPECT_NE(socket.ReadUntil("[DONE]").find("Hel"), std::string::npos);
}

TEST_F(StreamsTest, RequestsThatTakeTooLongAreCancelledWithAnError) {
  ServeOptions options;
  options.request_timeout.ns = 9 * kSecond;
  StartServer(options, true, clock_);
  engine_.Hold();
  RawSocket whole(server_->port()), stream(server_->port());
  whole.Send(Http(Body(5, false)));
  stream.Send(Http(Body(5)));
  EXPECT_NE(stream.ReadUntil("\r\n\r\n").find("HTTP/1.1 200"), std::string::npos);
  engine_.AwaitLive(2);
  clock_.Advance(9 * kSecond);
  engine_.AwaitCancelled(2);
  const std::string answer = whole.ReadUntil("}}");
  EXPECT_NE(answer.find("HTTP/1.1 408"), std::string::npos) << answer;
  EXPECT_NE(answer.find("9000 ms, the limit (--request-timeout)"), std::string::npos) << answer;
  const std::string event = stream.ReadUntil("}}");
  EXPECT_NE(event.find("data: {\"error\""), std::string::npos) << event;
  EXPECT_NE(event.find("9000 ms, the limit"), std::string::npos) << event;
}

TEST_F(StreamsTest, BadBodiesNeverReachTheEngine) {
  StartServer();
  const std::string deep = "{\"prompt\":" + std::string(100000, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1]"), std::string("{\"prompt\":\"\xff\xfe\"}"), deep,
        std::string(R"({"prompt":"a","prompt":"b"})"), std::string(R"({"prompt":"a","temperature":1e999})"),
        std::string(R"({"prompt":"a","max_tokens":99999999999999999999})"), std::string(R"({"prompt":"\ud800"})")}) {
    const auto response = Post("/v1/completions", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 60);
    EXPECT_FALSE(json::parse(response.body)["error"]["message"].get<std::string>().empty());
  }
  EXPECT_EQ(engine_.submitted().size(), 0u);
}

TEST_F(StreamsTest, DrainingFinishesRunningRequestsAndRefusesNewOnes) {
  StartServer();
  engine_.Hold();
  RawSocket running(server_->port());
  running.Send(Http(Body(5)));
  engine_.AwaitLive(1);
  server_->StopAdmission();
  const auto refused = Post("/v1/completions", Body(5));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(*refused.Find("Retry-After"), "1");
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  engine_.Release();
  EXPECT_EQ(engine_.Drain(kCallLimit), 0);
  EXPECT_NE(running.ReadAll().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(server_->WaitUntilIdle(kCallLimit));
}

TEST_F(StreamsTest, DestroyingTheServerCancelsRunningRequests) {
  StartServer();
  engine_.Hold();
  RawSocket socket(server_->port());
  socket.Send(Http(Body(5)));
  engine_.AwaitLive(1);
  server_.reset();
  engine_.AwaitCancelled(1);
}

// RunServer on a thread of this process; signals are sent to the process, whose other threads block them.
class RunServerTest : public testing::Test {
 protected:
  RunServerTest() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    options_.port = 0;
    options_.shutdown_timeout.ns = 5 * kSecond;
  }
  ~RunServerTest() override {
    if (!thread_.joinable()) return;  // the test has joined it
    if (!Returned()) kill(getpid(), SIGTERM);
    if (!AwaitLine("returned", false)) {
      std::fprintf(stderr, "RunServer did not return after SIGTERM; its log: %s\n", Said().c_str());
      std::abort();  // the thread still uses this object
    }
    thread_.join();
  }
  // Call after an event that makes RunServer return.
  void Join() {
    AwaitLine("returned");
    thread_.join();
  }
  void Start() {
    thread_ = std::thread([this] {
      status_ = RunServer(
          EngineOptions(), options_,
          [this](const EngineOptions&, const Engine::Progress&) -> Result<std::unique_ptr<Engine>> {
            auto engine = std::make_unique<FakeEngine>();
            engine->Hold();
            engine_ = engine.get();
            return std::unique_ptr<Engine>(std::move(engine));
          },
          [this](std::string_view line) { Log(line); }, &result_);
      Log("returned");
    });
    AwaitLine("ready");
    std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      const size_t host = line.find("http://");
      if (line.rfind("ready", 0) == 0)
        url_.port = static_cast<uint16_t>(std::stoi(line.substr(line.find(':', host + 7) + 1)));
    }
    url_.host = "127.0.0.1";
  }
  void Log(std::string_view line) {
    std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
    changed_.notify_all();
  }
  bool AwaitLine(const std::string& start, bool must = true) {
    {
      std::unique_lock lock(mutex_);
      const auto said = [&] {
        return std::any_of(lines_.begin(), lines_.end(), [&](const auto& l) { return l.rfind(start, 0) == 0; });
      };
      if (changed_.wait_for(lock, kAwaitLimit, said)) return true;
    }
    if (must) throw std::runtime_error("no line '" + start + "' in the log of RunServer: " + Said());
    return false;
  }
  bool Returned() {
    std::lock_guard lock(mutex_);
    return !lines_.empty() && lines_.back() == "returned";
  }
  std::string Said() {
    std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

  ServeOptions options_;
  FakeEngine* engine_ = nullptr;
  http::Url url_;
  std::optional<RunResult> result_;
  Status status_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

TEST_F(RunServerTest, SigtermFinishesRunningRequestsAndReturnsOk) {
  Start();
  RawSocket socket(url_.port);
  const std::string body = R"({"prompt":"abc","max_tokens":3,"stream":true})";
  socket.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  engine_->AwaitLive(1);
  kill(getpid(), SIGTERM);
  AwaitLine("stopping");
  engine_->Release();
  EXPECT_NE(socket.ReadAll().find("[DONE]"), std::string::npos);
  Join();
  EXPECT_TRUE(status_.ok()) << status_.ToString();
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->completed, FakeEngine::kCompleted);
}

TEST_F(RunServerTest, RequestsBeyondTheShutdownTimeoutGetAnError) {
  options_.shutdown_timeout.ns = kMillisecond;
  Start();
  RawSocket socket(url_.port);
  const std::string body = R"({"prompt":"abc","max_tokens":3,"stream":true})";
  socket.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  socket.ReadUntil("\r\n\r\n");
  kill(getpid(), SIGINT);
  const std::string rest = socket.ReadAll();
  EXPECT_NE(rest.find("data: {\"error\""), std::string::npos) << rest;
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  Join();
  EXPECT_TRUE(status_.ok());
}

TEST_F(RunServerTest, AnEngineThatFailedEndsTheServer) {
  Start();
  engine_->SetHealthy(false);
  Join();
  EXPECT_EQ(status_.code(), StatusCode::kInternal);
}

TEST_F(RunServerTest, AStuckStepFailsHealthAndIsLoggedWithTheStepsBeforeIt) {
  const auto status_of = [this](const char* path) {
    const auto response = http::Fetch(url_, {"GET", path, {}, ""}, 30 * kSecond, SystemClock());
    return response.ok() ? fmt::format("{} {}", response->status, response->body) : response.status().ToString();
  };
  Start();
  EXPECT_TRUE(status_of("/health").starts_with("200"));
  engine_->SetStep(42, SystemClock().NowNs() - 100 * kSecond, kMillisecond);
  AwaitLine("ended before: step 41: slow");
  EXPECT_NE(Said().find("error: step 42 has no result after 10"), std::string::npos) << Said();
  EXPECT_NE(Said().find("ended before: step 40: fine"), std::string::npos) << Said();
  EXPECT_EQ(status_of("/health"), "503 {\"status\":\"stuck\"}");
  EXPECT_EQ(status_of("/ready"), "503 {\"status\":\"stuck\"}");
  EXPECT_TRUE(status_of("/v1/models").starts_with("503"));
  EXPECT_NE(status_of("/metrics").find("\ntactus_step_stuck 1\n"), std::string::npos);
  engine_->SetStep(-1);
  AwaitLine("warning: the result of step 42 came");
  EXPECT_TRUE(status_of("/health").starts_with("200"));
  EXPECT_TRUE(status_of("/ready").starts_with("200"));
  kill(getpid(), SIGTERM);
  Join();
  EXPECT_TRUE(status_.ok());
}

// A process whose step hangs cannot end its threads.
TEST_F(RunServerTest, AStuckStepDelaysNoEndOfTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [this](bool exits) {
    options_.step_watchdog_exit = exits;
    Start();
    engine_->SetStep(42, SystemClock().NowNs() - 100 * kSecond, kMillisecond);
    AwaitLine("error: step 42");
    if (!exits) kill(getpid(), SIGTERM);
    AwaitLine("nothing that is ever logged", false);
  };
  EXPECT_EXIT(run(true), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(run(false), testing::ExitedWithCode(1), "");
}

TEST_F(RunServerTest, WarnsAboutAnOpenServerAndReportsAPortInUse) {
  options_.host = "0.0.0.0";
  Start();
  AwaitLine("warning: http://0.0.0.0");
  ServeOptions second;
  second.port = url_.port;
  const Status in_use = RunServer(EngineOptions(), second, nullptr, nullptr);
  EXPECT_EQ(in_use.code(), StatusCode::kUnavailable);
  EXPECT_NE(in_use.message().find(std::to_string(url_.port)), std::string::npos);
  kill(getpid(), SIGTERM);
  Join();
}

}  // namespace
}  // namespace tactus
