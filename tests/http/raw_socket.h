// A blocking TCP client, for bytes that a well-behaved HTTP client never sends. Nothing blocks longer than
// kPatienceSeconds: a longer wait fails the test with a message.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

namespace tactus {

constexpr int kPatienceSeconds = 15;

class RawSocket {
 public:
  // `from`: the loopback address of the client.
  explicit RawSocket(uint16_t port, int receive_bytes = 0, const char* from = "127.0.0.1") {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const timeval limit{kPatienceSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in source{};
    source.sin_family = AF_INET;
    inet_pton(AF_INET, from, &source.sin_addr);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&source), sizeof source), 0) << from;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawSocket() { Close(); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool connected() const { return connected_; }
  // False if the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) ADD_FAILURE() << "the server read nothing for " << kPatienceSeconds << " s";
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Sends the text repeatedly until the socket is full, at most `limit` bytes. Returns the sent bytes.
  size_t Fill(std::string_view text, size_t limit) {
    size_t sent = 0;
    while (sent < limit) {
      const ssize_t n = send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    return sent;
  }
  // Whether data or the end can be read within `wait_ms`.
  bool Readable(int wait_ms) {
    pollfd one{fd_, POLLIN, 0};
    return poll(&one, 1, wait_ms) == 1;
  }
  // Everything until the server closes.
  std::string ReadAll() {
    std::string all;
    while (ReadSome(&all)) {
    }
    return all;
  }
  // Reads until `text` has arrived `count` times, or the server closes. Returns all bytes read.
  std::string ReadUntil(std::string_view text, int count = 1) {
    std::string all;
    for (;;) {
      int seen = 0;
      for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + text.size())) ++seen;
      if (seen >= count || !ReadSome(&all)) return all;
    }
  }
  void FinishSending() { shutdown(fd_, SHUT_WR); }
  // Closes with a reset, as a killed client does.
  void Reset() {
    const linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    Close();
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  bool ReadSome(std::string* all) {
    char buffer[65536];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) {
      ADD_FAILURE() << "no data for " << kPatienceSeconds << " s after: " << all->substr(0, 2000);
    }
    if (n <= 0) return false;
    all->append(buffer, static_cast<size_t>(n));
    return true;
  }
  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace tactus
