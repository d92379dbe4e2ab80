// The acceptor of connections for a foreign server.
#include "http/acceptor.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <vector>

#include "http_fixture.h"

namespace tactus::http {
namespace {

class AcceptorTest : public testing::Test {
 protected:
  void Listen(int64_t connections) {
    auto listening = Acceptor::Listen({.host = "127.0.0.1", .max_connections = connections, .refusal = "full"});
    ASSERT_TRUE(listening.ok()) << listening.status().ToString();
    acceptor_ = std::move(*listening);
    acceptor_->Start([this](int socket) {
      std::lock_guard lock(mutex_);
      taken_.push_back(socket);
    });
  }
  ~AcceptorTest() override {
    acceptor_.reset();
    while (!taken_.empty()) CloseOne();
  }
  std::unique_ptr<RawSocket> From(const char* address) {
    return std::make_unique<RawSocket>(acceptor_->port(), 0, address);
  }
  void AwaitTaken(size_t count) {
    Until("connections to be handed over", [&] {
      std::lock_guard lock(mutex_);
      return taken_.size() == count;
    });
  }
  void CloseOne() {
    std::lock_guard lock(mutex_);
    close(taken_.back());
    taken_.pop_back();
  }

  std::mutex mutex_;
  std::vector<int> taken_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, PassesConnectionsOnUpToItsLimits) {
  Listen(4);
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 2; ++i) sockets.push_back(From("127.0.0.1"));
  AwaitTaken(2);
  EXPECT_EQ(From("127.0.0.1")->ReadAll(), "full");  // one client may have at most half
  for (int i = 0; i < 2; ++i) sockets.push_back(From("127.0.0.2"));
  AwaitTaken(4);
  EXPECT_EQ(From("127.0.0.3")->ReadAll(), "full");
  EXPECT_EQ(acceptor_->refused(), 2);
  CloseOne();  // the owner closes one, so there is room again
  sockets.push_back(From("127.0.0.3"));
  AwaitTaken(4);
  EXPECT_EQ(From("127.0.0.4")->ReadAll(), "full");
}

// A closed descriptor may be reused by another file.
TEST_F(AcceptorTest, AReusedDescriptorIsNotCountedAsAConnection) {
  Listen(2);
  auto first = From("127.0.0.1"), second = From("127.0.0.2");
  AwaitTaken(2);
  const int file = taken_.back();
  CloseOne();
  const int other = socket(AF_INET, SOCK_STREAM, 0);
  if (other != file) {
    ASSERT_EQ(dup2(other, file), file);
    close(other);
  }
  auto third = From("127.0.0.3");
  AwaitTaken(2);
  close(file);
}

TEST_F(AcceptorTest, ErrorsOfListenAreReported) {
  Listen(1);
  const auto taken = Acceptor::Listen({.host = "127.0.0.1", .port = acceptor_->port(), .max_connections = 1});
  EXPECT_EQ(taken.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Acceptor::Listen({.host = "no such host.invalid", .max_connections = 1}).status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tactus::http
