#include "base/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tactus {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;

}  // namespace

InputFile::InputFile(std::string name, int fd, bool owned, int64_t limit_bytes, int32_t wait_ms)
    : name_(std::move(name)), fd_(fd), owned_(owned), limit_bytes_(limit_bytes), wait_ms_(wait_ms) {}

InputFile::InputFile(InputFile&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(other.fd_),
      owned_(other.owned_),
      limit_bytes_(other.limit_bytes_),
      read_bytes_(other.read_bytes_),
      line_(other.line_),
      wait_ms_(other.wait_ms_),
      buffer_(std::move(other.buffer_)),
      at_(other.at_),
      gunzip_(std::move(other.gunzip_)),
      packed_(std::move(other.packed_)),
      packed_at_(other.packed_at_),
      packed_end_(other.packed_end_),
      unpacked_bytes_(other.unpacked_bytes_) {
  other.owned_ = false;
}

InputFile::~InputFile() {
  if (owned_) close(fd_);
}

Result<InputFile> InputFile::Open(const std::string& path, int64_t limit_bytes, int32_t wait_ms) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string reason = "cannot open '" + path + "': " + std::strerror(errno);
    return errno == ENOENT || errno == ENOTDIR ? NotFound(reason) : InvalidArgument(reason);
  }
  InputFile file(path, fd, true, limit_bytes, wait_ms);
  struct stat info = {};
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) return InvalidArgument("'" + path + "' is a folder; name a file");
  return file;
}

InputFile InputFile::StandardInput(int64_t limit_bytes) {
  return {"standard input", STDIN_FILENO, false, limit_bytes, -1};
}

Status InputFile::Unpack() {
  while (buffer_.size() - at_ < 2) {
    TACTUS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
  }
  if (!IsGzip(std::string_view(buffer_).substr(at_))) return Status();
  packed_ = buffer_.substr(at_);
  buffer_.clear();
  at_ = 0;
  gunzip_.emplace(name_);
  return Status();
}

Result<bool> InputFile::Fill() {
  return gunzip_ ? FillUnpacked() : FillPacked();
}

Result<bool> InputFile::FillUnpacked() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  while (buffer_.size() == before) {
    if (packed_at_ == packed_.size() && !packed_end_) {
      // FillPacked appends to buffer_, so buffer_ and packed_ are swapped around it.
      std::string kept;
      kept.swap(buffer_);
      auto more = FillPacked();
      packed_.swap(buffer_);
      packed_at_ = 0;
      buffer_.swap(kept);
      if (!more.ok()) return more.status();
      packed_end_ = !*more;
    }
    if (packed_at_ == packed_.size() && packed_end_) {
      TACTUS_RETURN_IF_ERROR(gunzip_->End());
      return false;
    }
    std::string_view rest = std::string_view(packed_).substr(packed_at_);
    const auto most = static_cast<size_t>(std::min<int64_t>(kPieceBytes, limit_bytes_ - unpacked_bytes_)) + 1;
    TACTUS_RETURN_IF_ERROR(gunzip_->Take(&rest, most, &buffer_));
    packed_at_ = packed_.size() - rest.size();
  }
  unpacked_bytes_ += static_cast<int64_t>(buffer_.size() - before);
  return unpacked_bytes_ > limit_bytes_ ? Result<bool>(TooLarge()) : true;
}

Status InputFile::TooLarge() const {
  return Status(StatusCode::kTooLarge, "'" + name_ + "' has more than the " + std::to_string(limit_bytes_) +
                                           " bytes allowed; shorten or split it");
}

Result<bool> InputFile::FillPacked() {
  pollfd ready{fd_, POLLIN, 0};
  const int polled = poll(&ready, 1, wait_ms_);
  if (polled == 0) {
    return Status(StatusCode::kDeadlineExceeded,
                  "'" + name_ + "': no data for " + std::to_string(wait_ms_) + " ms; does anything write to it?");
  }
  buffer_.erase(0, at_);
  at_ = 0;
  // One byte beyond the limit distinguishes a file of exactly the limit from a longer one.
  const auto most = static_cast<size_t>(std::min<int64_t>(kPieceBytes, limit_bytes_ - read_bytes_)) + 1;
  const size_t before = buffer_.size();
  buffer_.resize(before + most);
  const ssize_t n = polled < 0 ? -1 : read(fd_, buffer_.data() + before, most);
  const int why = errno;
  buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n < 0 && why == EAGAIN) return true;
  if (n < 0 && why == EINTR) return Status(StatusCode::kCancelled, "interrupted while reading '" + name_ + "'");
  if (n < 0) return InvalidArgument("cannot read '" + name_ + "': " + std::strerror(why));
  read_bytes_ += n;
  if (read_bytes_ > limit_bytes_) return TooLarge();
  return n > 0;
}

Result<std::string> InputFile::ReadAll() {
  std::string all;
  while (true) {
    all.append(buffer_, at_);
    at_ = buffer_.size();
    TACTUS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return all;
  }
}

Result<std::string> InputFile::ReadSome(size_t most_bytes) {
  while (buffer_.size() - at_ < most_bytes) {
    TACTUS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
  }
  std::string some = buffer_.substr(at_, most_bytes);
  at_ += some.size();
  return some;
}

Result<bool> InputFile::ReadLine(std::string* line, int64_t line_limit_bytes) {
  ++line_;
  const auto limit = static_cast<size_t>(line_limit_bytes);
  size_t searched = at_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    const bool whole = end != std::string::npos;
    const size_t length = (whole ? end : buffer_.size()) - at_;
    if (length > limit) {
      return Status(StatusCode::kTooLarge, "'" + name_ + "', line " + std::to_string(line_) + " has more than the " +
                                               std::to_string(limit) + " bytes that a line may have");
    }
    if (whole) {
      line->assign(buffer_, at_, length);
      at_ = end + 1;
      return true;
    }
    searched = length;  // Fill moves the line to the buffer's start
    TACTUS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (more) continue;
    line->assign(buffer_, at_, std::string::npos);
    at_ = buffer_.size();
    return !line->empty();
  }
}

Status CheckReadable(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || access(path.c_str(), R_OK) != 0) {
    const std::string reason = "cannot open '" + path + "': " + std::strerror(errno);
    return errno == ENOENT || errno == ENOTDIR ? NotFound(reason) : InvalidArgument(reason);
  }
  return S_ISDIR(info.st_mode) ? InvalidArgument("'" + path + "' is a folder; name a file") : Status();
}

Result<std::string> ReadInputFile(const std::string& path, int64_t limit_bytes, int32_t wait_ms) {
  TACTUS_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path, limit_bytes, wait_ms));
  return file.ReadAll();
}

}  // namespace tactus
