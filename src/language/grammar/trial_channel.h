// Sockets between a server and its helper that tries rules: pairs within one machine, never a network. Internal to
// grammar/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tactus/status.h"

namespace tactus::language {

// A descriptor that is closed with this; -1: none. Closed on exec.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// Two connected ends; kResourceExhausted: no descriptor is left.
Result<std::pair<Descriptor, Descriptor>> MakePair();

// Sends one descriptor; waits for nothing.
enum class Sent : uint8_t { kYes, kFull, kGone };  // kFull: the other end has not taken those before it
Sent SendDescriptor(int channel, const Descriptor& sent);
// Receives one, which the caller then owns; not open where the other end is gone.
Descriptor ReceiveDescriptor(int channel);

// The other end is gone. Of an end at which nothing is received.
bool IsGone(int fd);

// Waits until the end has something to read or the other end is gone. False: neither within the time.
bool WaitToRead(int fd, int timeout_ms);

// All of it. False: the other end is gone, or has taken nothing for `timeout_ms` (-1: any time), and then `go_on`,
// where there is one, does not say to go on.
bool WriteAll(int fd, const void* bytes, size_t size, int timeout_ms = -1, const std::function<bool()>& go_on = {});
bool ReadAll(int fd, void* bytes, size_t size, int timeout_ms = -1);

}  // namespace tactus::language
