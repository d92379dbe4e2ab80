#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "hub/size_text.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeastPiece = int64_t{1} << 20, kMostPiece = int64_t{64} << 20;
constexpr int64_t kPiecesPerConnection = 8;
constexpr int64_t kMostRecordBytes = int64_t{16} << 20;

int64_t IntegerOf(const SortedJson& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : -1;
}

}  // namespace

Result<PartialFile> PartialFile::Open(const std::string& path, int64_t bytes, int connections) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return DataLoss(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  PartialFile file(path, fd, bytes);
  file.Divide(connections);
  file.continued_ = file.TakeRecord();
  if (!file.continued_) file.Divide(connections);
  if (ftruncate(fd, std::max<int64_t>(bytes, 0)) != 0) return file.WriteError("cannot be made so large", bytes);
  return file;
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      continued_(other.continued_),
      validator_(std::move(other.validator_)),
      pieces_(std::move(other.pieces_)) {}

PartialFile::~PartialFile() {
  if (fd_ >= 0) close(fd_);
}

void PartialFile::Divide(int connections) {
  pieces_.clear();
  validator_.clear();
  if (bytes_ < 0) {
    pieces_.push_back({0, -1, 0});
    return;
  }
  const int64_t size = std::clamp(bytes_ / (connections * kPiecesPerConnection), kLeastPiece, kMostPiece);
  for (int64_t begin = 0; begin < bytes_; begin += size) pieces_.push_back({begin, std::min(size, bytes_ - begin), 0});
  if (pieces_.empty()) pieces_.push_back({0, 0, 0});
}

// False: no record that fits.
bool PartialFile::TakeRecord() {
  std::error_code error;
  if (bytes_ < 0 || !fs::is_regular_file(RecordPath(), error)) return false;
  const auto text = ReadInputFile(RecordPath(), kMostRecordBytes);
  if (!text.ok()) return false;
  const auto record = json_text::ParseSortedJson(*text);
  if (!record.ok() || !record->is_object() || IntegerOf(*record, "bytes") != bytes_) return false;
  const int64_t size = IntegerOf(*record, "piece_bytes");
  const auto done = record->find("done"), validator = record->find("validator");
  if (size <= 0 || done == record->end() || !done->is_array() || validator == record->end() || !validator->is_string())
    return false;
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin < bytes_; begin += size) {
    if (pieces.size() >= done->size()) return false;
    const SortedJson& count = (*done)[pieces.size()];
    const Piece piece{begin, std::min(size, bytes_ - begin), count.is_number_integer() ? count.get<int64_t>() : -1};
    if (piece.done < 0 || piece.done > piece.bytes) return false;
    pieces.push_back(piece);
  }
  if (pieces.size() != done->size() || pieces.empty()) return false;
  // A file that is shorter than its record was damaged from outside.
  if (static_cast<int64_t>(fs::file_size(path_, error)) < bytes_ || error) return false;
  pieces_ = std::move(pieces);
  validator_ = validator->get<std::string>();
  return this->done() > 0;
}

int64_t PartialFile::done() const {
  int64_t sum = 0;
  for (const Piece& piece : pieces_) sum += piece.done;
  return sum;
}

bool PartialFile::complete() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.complete(); });
}

int64_t PartialFile::Contiguous() const {
  for (const Piece& piece : pieces_) {
    if (!piece.complete()) return piece.begin + piece.done;
  }
  return bytes_;
}

Status PartialFile::WriteError(const char* what, int64_t at) const {
  const int why = errno;
  if (why != ENOSPC && why != EDQUOT && why != EFBIG)
    return DataLoss(fmt::format("{} {}: {}", path_, what, std::strerror(why)));
  const char* cause = why == ENOSPC   ? "its disk is full"
                      : why == EDQUOT ? "the disk quota is used up"
                                      : "files have a size limit here (ulimit -f)";
  return Status(
      StatusCode::kResourceExhausted,
      fmt::format("{} {} at {}{}: {}. Free some space, or set HF_HUB_CACHE to a folder with more of it; what has "
                  "arrived is kept",
                  path_, what, SizeText(at), bytes_ < 0 ? "" : " of " + SizeText(bytes_), cause));
}

Status PartialFile::Write(size_t piece, std::string_view data) {
  Piece& p = pieces_[piece];
  if (p.bytes >= 0 && static_cast<int64_t>(data.size()) > p.bytes - p.done)
    return DataLoss(fmt::format("{}: the server sent more than the file has ({})", path_, SizeText(bytes_)));
  while (!data.empty()) {
    const ssize_t written = pwrite(fd_, data.data(), data.size(), p.begin + p.done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return WriteError("cannot be written", done());
    data.remove_prefix(static_cast<size_t>(written));
    p.done += written;
  }
  return Status();
}

void PartialFile::EndAt(int64_t bytes) {
  bytes_ = bytes;
  pieces_ = {{0, bytes, bytes}};
}

Status PartialFile::Restart() {
  continued_ = false;
  validator_.clear();
  pieces_ = {{0, bytes_, 0}};
  std::error_code error;
  fs::remove(RecordPath(), error);
  if (ftruncate(fd_, 0) != 0 || (bytes_ > 0 && ftruncate(fd_, bytes_) != 0))
    return WriteError("cannot be made so large", bytes_);
  return Status();
}

Result<size_t> PartialFile::Read(int64_t at, char* data, size_t size) const {
  while (true) {
    const ssize_t got = pread(fd_, data, size, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataLoss(fmt::format("{} cannot be read: {}", path_, std::strerror(errno)));
    return static_cast<size_t>(got);
  }
}

void PartialFile::Save() const {
  if (bytes_ < 0) return;  // without a size nothing can be continued
  SortedJson record = {{"bytes", bytes_},
                       {"piece_bytes", pieces_.front().bytes},
                       {"validator", validator_},
                       {"done", SortedJson::array()}};
  for (const Piece& piece : pieces_) record["done"].push_back(piece.done);
  (void)ReplaceFile(RecordPath(), record.dump(-1, ' ', false, SortedJson::error_handler_t::replace), "");
}

Status PartialFile::MoveTo(const std::string& path) {
  std::error_code error;
  if (bytes_ >= 0 && ftruncate(fd_, bytes_) != 0) return WriteError("cannot be cut", bytes_);
  if (fsync(fd_) != 0) return WriteError("cannot be written", bytes_);
  fs::rename(path_, path, error);
  // Where locks have no effect, another process may have moved the same content there.
  if (error && !fs::exists(path)) return DataLoss(fmt::format("{} cannot become {}: {}", path_, path, error.message()));
  fs::remove(RecordPath(), error);
  return Status();
}

void PartialFile::Remove() {
  std::error_code error;
  fs::remove(path_, error);
  fs::remove(RecordPath(), error);
}

}  // namespace tactus::hub
