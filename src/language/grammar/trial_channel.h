// Sockets between a server and its helper that tries rules: pairs on one machine, never a network. Internal to
// grammar/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tactus/status.h"

namespace tactus::language {

// A descriptor, closed by its destructor and on exec; -1: none.
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

// Two connected ends; kResourceExhausted: no descriptors left.
Result<std::pair<Descriptor, Descriptor>> MakePair();

// Sends one descriptor; never blocks.
enum class Sent : uint8_t { kYes, kFull, kGone };  // kFull: the other end has not received the earlier ones
Sent SendDescriptor(int channel, const Descriptor& sent);
// Receives one, owned by the caller; not open if the other end is gone.
Descriptor ReceiveDescriptor(int channel);

// Whether the other end is gone; for an end that receives nothing.
bool IsGone(int fd);

// Waits until the end is readable or the other end is gone. False: neither within the time.
bool WaitToRead(int fd, int timeout_ms);

// Writes all bytes. False: the other end is gone, or has accepted nothing for `timeout_ms` (-1: no limit) and `go_on`,
// if given, then returns false.
bool WriteAll(int fd, const void* bytes, size_t size, int timeout_ms = -1, const std::function<bool()>& go_on = {});
bool ReadAll(int fd, void* bytes, size_t size, int timeout_ms = -1);

}  // namespace tactus::language
