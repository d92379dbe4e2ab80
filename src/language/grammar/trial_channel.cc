#include "language/grammar/trial_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tactus::language {
namespace {

bool WaitFor(int fd, short events, int timeout_ms) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

void Descriptor::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Result<std::pair<Descriptor, Descriptor>> MakePair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("no descriptor to try a rule with ({}); try again later", std::strerror(errno)));
  }
  return std::pair(Descriptor(ends[0]), Descriptor(ends[1]));
}

Sent SendDescriptor(int channel, const Descriptor& sent) {
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = sent.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ssize_t count;
  do {
    count = sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  // ETOOMANYREFS: descriptors in transit exceed this process's limit of open files.
  const bool full = count < 0 && (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM);
  return count == 1 ? Sent::kYes : full ? Sent::kFull : Sent::kGone;
}

Descriptor ReceiveDescriptor(int channel) {
  char byte;
  iovec content{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  ssize_t count;
  do {
    count = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  const cmsghdr* const header = count == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Descriptor(fd);
}

bool IsGone(int fd) {
  pollfd entry{fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

bool WaitToRead(int fd, int timeout_ms) {
  return WaitFor(fd, POLLIN, timeout_ms);
}

bool WriteAll(int fd, const void* bytes, size_t size, int timeout_ms, const std::function<bool()>& go_on) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      at += count;
      size -= static_cast<size_t>(count);
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      return false;
    } else if (errno == EAGAIN && !WaitFor(fd, POLLOUT, timeout_ms) && !(go_on && go_on())) {
      return false;
    }
  }
  return true;
}

bool ReadAll(int fd, void* bytes, size_t size, int timeout_ms) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t count = recv(fd, at, size, MSG_DONTWAIT);
    if (count > 0) {
      at += count;
      size -= static_cast<size_t>(count);
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      return false;
    } else if (errno == EAGAIN && !WaitToRead(fd, timeout_ms)) {
      return false;
    }
  }
  return true;
}

}  // namespace tactus::language
