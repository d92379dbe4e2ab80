#include "offline/job/job_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/gunzip.h"
#include "base/hash.h"

namespace tactus::offline {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // the hash depends on it

// Cuts pieces into lines. The beginning of a line that continues in the next piece is kept, unless it is already too
// long.
class LineCutter {
 public:
  LineCutter(int64_t most_bytes, const JobInput::OnLine& on_line)
      : most_bytes_(static_cast<size_t>(most_bytes)), on_line_(on_line) {}

  Status Take(std::string_view piece) {
    while (!piece.empty()) {
      const size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      if (end == std::string_view::npos) {
        Keep(part);
        return Status();
      }
      TACTUS_RETURN_IF_ERROR(End(part));
      piece.remove_prefix(end + 1);
    }
    return Status();
  }
  Status TakeEnd() { return place_.bytes > 0 ? End({}) : Status(); }

 private:
  void Keep(std::string_view part) {
    place_.bytes += static_cast<int64_t>(part.size());
    if (TooLong())
      kept_ = {};
    else
      kept_ += part;
  }
  bool TooLong() const { return static_cast<size_t>(place_.bytes) > most_bytes_; }
  Status End(std::string_view part) {
    std::string_view text = part;  // a line within one piece is not copied
    if (place_.bytes == 0) {
      place_.bytes = static_cast<int64_t>(part.size());
    } else {
      Keep(part);
      text = kept_;
    }
    TACTUS_RETURN_IF_ERROR(on_line_(place_, TooLong() ? std::string_view() : text));
    kept_.clear();
    place_ = {place_.number + 1, place_.offset + place_.bytes + 1, 0, 0};
    return Status();
  }

  const size_t most_bytes_;
  const JobInput::OnLine& on_line_;
  LinePlace place_{1, 0, 0, 0};
  std::string kept_;
};

// Errors of the file itself; others (no more file descriptors, a disk that fails) may be temporary.
StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

Result<std::unique_ptr<JobInput>> JobInput::Open(const std::string& path, const UnpackRoom& room,
                                                 const Progress& progress) {
  std::unique_ptr<JobInput> input(new JobInput(path));
  input->fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not wait for its writer
  if (input->fd_ < 0) return Status(CodeOf(errno), fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  struct stat info{};
  if (fstat(input->fd_, &info) != 0)
    return Status(StatusCode::kUnavailable, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format(
        "'{}' is not a regular file, and a resumed job reads its input again; write it to a file first", path));
  }
  input->opened_ = input->LastWritten();
  input->bytes_ = input->opened_.bytes;
  char begin[2] = {};
  TACTUS_ASSIGN_OR_RETURN(const size_t some, input->ReadAt(0, begin, sizeof(begin)));
  if (IsGzip(std::string_view(begin, some))) TACTUS_RETURN_IF_ERROR(input->Unpack(room, progress));
  return input;
}

namespace {

// Creates a file without a name.
int OpenNameless(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;  // otherwise the file system lacks O_TMPFILE
  std::string name = folder + "/tactus-unpacked-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

bool WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

Status JobInput::Unpack(const UnpackRoom& room, const Progress& progress) {
  std::error_code none;
  const std::string folder = room.folder.empty() ? std::filesystem::temp_directory_path(none).string() : room.folder;
  const auto no_room = [&](int error) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("'{}' is gzipped and cannot be unpacked in '{}': {}; make room there, or unpack it yourself", path_,
                    folder, std::strerror(error)));
  };
  const int unpacked = OpenNameless(folder);
  if (unpacked < 0) return no_room(errno);
  packed_fd_ = std::exchange(fd_, unpacked);
  Gunzip gunzip(path_);
  std::string piece(kPieceBytes, '\0'), content;
  bytes_ = 0;
  for (int64_t offset = 0;;) {
    TACTUS_ASSIGN_OR_RETURN(const size_t got, ReadFrom(packed_fd_, offset, piece.data(), piece.size()));
    if (got == 0) {
      const Status end = gunzip.End();
      return end.ok() ? end : InvalidArgument(end.message(), "gzip");
    }
    offset += static_cast<int64_t>(got);
    for (std::string_view rest(piece.data(), got); !rest.empty();) {
      content.clear();
      if (const Status taken = gunzip.Take(&rest, kPieceBytes, &content); !taken.ok())
        return InvalidArgument(taken.message(), "gzip");
      bytes_ += static_cast<int64_t>(content.size());
      if (room.most_bytes > 0 && bytes_ > room.most_bytes) {
        return InvalidArgument(fmt::format("'{}' is gzipped, and its content exceeds the limit of {} bytes; divide it",
                                           path_, room.most_bytes),
                               "gzip");
      }
      if (!WriteAll(fd_, content)) return no_room(errno);
      if (progress && !progress(bytes_))
        return Status(StatusCode::kCancelled, fmt::format("interrupted while unpacking '{}'", path_));
    }
  }
}

JobInput::~JobInput() {
  for (const int fd : {fd_, packed_fd_}) {
    if (fd >= 0) close(fd);
  }
}

JobInput::Written JobInput::LastWritten() const {
  struct stat info{};
  if (fstat(packed_fd_ >= 0 ? packed_fd_ : fd_, &info) != 0) return {};
  return {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

bool JobInput::Changed() const {
  return LastWritten() != opened_;
}

Result<size_t> JobInput::ReadAt(int64_t offset, char* data, size_t bytes) const {
  return ReadFrom(fd_, offset, data, bytes);
}

// Reads fewer bytes only at the end of the file.
Result<size_t> JobInput::ReadFrom(int fd, int64_t offset, char* data, size_t bytes) const {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = pread(fd, data + got, bytes - got, static_cast<off_t>(offset) + static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return DataLoss(fmt::format("cannot read '{}': {}", path_, std::strerror(errno)));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

Result<std::string> JobInput::Pieces(const std::function<Status(std::string_view piece)>& on_piece,
                                     const Progress& progress) const {
  Hash128 hash{0x7461637475732d62, 0x617463682d696e70};
  std::string piece(kPieceBytes, '\0');
  int64_t offset = 0;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const size_t bytes, ReadAt(offset, piece.data(), piece.size()));
    if (bytes == 0) return fmt::format("{:016x}{:016x}", hash.high, hash.low);
    hash = SipHash128(hash, piece.data(), bytes);
    offset += static_cast<int64_t>(bytes);
    TACTUS_RETURN_IF_ERROR(on_piece(std::string_view(piece).substr(0, bytes)));
    if (progress && !progress(offset))
      return Status(StatusCode::kCancelled, fmt::format("interrupted while reading '{}'", path_));
  }
}

Result<std::string> JobInput::Hash(const Progress& progress) const {
  return Pieces([](std::string_view) { return Status(); }, progress);
}

Result<std::string> JobInput::Scan(int64_t most_bytes, const OnLine& on_line, const Progress& progress) const {
  LineCutter cutter(most_bytes, on_line);
  auto hash = Pieces([&cutter](std::string_view piece) { return cutter.Take(piece); }, progress);
  if (hash.ok()) TACTUS_RETURN_IF_ERROR(cutter.TakeEnd());
  return hash;
}

Result<std::string> JobInput::Read(const LinePlace& place) const {
  std::string text(static_cast<size_t>(place.bytes), '\0');
  TACTUS_ASSIGN_OR_RETURN(const size_t bytes, ReadAt(place.offset, text.data(), text.size()));
  if (bytes == text.size()) return text;
  return DataLoss(fmt::format("'{}' was cut while the job ran: line {} is gone", path_, place.number));
}

}  // namespace tactus::offline
