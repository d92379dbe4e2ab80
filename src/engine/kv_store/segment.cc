#include "engine/kv_store/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"

namespace tactus::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "the files have the machine's byte order");

constexpr char kMagic[8] = {'T', 'A', 'C', 'T', 'U', 'S', 'K', 'V'};
constexpr uint64_t kVersion = 1;
constexpr int64_t kMostPlaces = int64_t{1} << 24;
constexpr int64_t kRecordsAtOnce = 4096;

struct Header {
  char magic[8];
  uint64_t version;
  Hash128 identity;
  uint64_t block_bytes;
  uint64_t zero[2];
  uint64_t check;
};
static_assert(sizeof(Header) == kSegmentHeaderBytes);

struct Record {
  Hash128 key;
  uint64_t check;  // of the block
  uint64_t place;  // so that a record copied to another place is invalid
  uint64_t record_check;
};
static_assert(sizeof(Record) == kSegmentRecordBytes);

uint64_t CheckOf(const Hash128& secret, const void* data, size_t size) {
  return SipHash128(secret, data, size).low;
}

Header HeaderOf(const SegmentFormat& format) {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.version = kVersion;
  h.identity = format.identity;
  h.block_bytes = static_cast<uint64_t>(format.block_bytes);
  h.check = CheckOf(format.secret, &h, offsetof(Header, check));
  return h;
}

// Reads all of it. False: errno has the cause; a file that ends too early is also an error.
bool ReadAll(int fd, void* to, size_t size, int64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(fd, static_cast<char*>(to) + done, size - done, at + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}
bool WriteAll(int fd, const void* from, size_t size, int64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = pwrite(fd, static_cast<const char*>(from) + done, size - done, at + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

int64_t SizeOf(int fd) {
  struct stat at{};
  return fstat(fd, &at) == 0 ? at.st_size : -1;
}

}  // namespace

uint64_t CheckOfBlock(const Hash128& key, const std::byte* bytes, int64_t size) {
  return MixHash(MixHash(Checksum(bytes, static_cast<size_t>(size)), key.low), key.high);
}

Segment::~Segment() {
  if (index_ >= 0) close(index_);
  if (blocks_ >= 0) close(blocks_);
}

Status Segment::OpenFiles(int flags) {
  const auto open_one = [&](const char* extension, int* fd) {
    *fd = open((stem_ + extension).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    return *fd >= 0 ? Status() : DataLoss(fmt::format("'{}{}': {}", stem_, extension, std::strerror(errno)));
  };
  TACTUS_RETURN_IF_ERROR(open_one(".blocks", &blocks_));
  return open_one(".index", &index_);
}

Result<std::unique_ptr<Segment>> Segment::Create(const std::string& stem, const SegmentFormat& format) {
  std::unique_ptr<Segment> segment(new Segment(stem, format));
  TACTUS_RETURN_IF_ERROR(segment->OpenFiles(O_CREAT | O_TRUNC));
  const Header header = HeaderOf(format);
  if (!WriteAll(segment->index_, &header, sizeof(header), 0))
    return DataLoss(fmt::format("'{}.index': {}", stem, std::strerror(errno)));
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Open(const std::string& stem, const SegmentFormat& format,
                                               std::vector<StoredBlock>* blocks, int64_t* dropped) {
  std::unique_ptr<Segment> segment(new Segment(stem, format));
  // If one file is missing it is created; then the segment is either empty or has lost its header.
  TACTUS_RETURN_IF_ERROR(segment->OpenFiles(O_CREAT));
  if (SizeOf(segment->index_) < kSegmentHeaderBytes && SizeOf(segment->blocks_) == 0)
    return NotFound(fmt::format("'{}' is empty", stem));
  Header header{};
  const Header right = HeaderOf(format);
  if (!ReadAll(segment->index_, &header, sizeof(header), 0) || std::memcmp(&header, &right, sizeof(header)) != 0)
    return DataLoss(fmt::format("'{}.index' has a damaged header", stem));
  const int64_t index_bytes = SizeOf(segment->index_), block_file_bytes = SizeOf(segment->blocks_);
  const int64_t places = std::min(kMostPlaces, (index_bytes - kSegmentHeaderBytes) / kSegmentRecordBytes);
  const int64_t there = block_file_bytes / format.block_bytes;
  // Read in pieces: a forged file may have any length. Records without a block are not read.
  const int64_t looked_at = std::min(places, there);
  *dropped += places - looked_at;
  std::vector<Record> records;
  for (int64_t first = 0; first < looked_at; first += kRecordsAtOnce) {
    records.resize(static_cast<size_t>(std::min(kRecordsAtOnce, looked_at - first)));
    const int64_t at = kSegmentHeaderBytes + first * kSegmentRecordBytes;
    if (!ReadAll(segment->index_, records.data(), records.size() * sizeof(Record), at))
      return DataLoss(fmt::format("'{}.index' cannot be read", stem));
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& r = records[i];
      const int64_t place = first + static_cast<int64_t>(i);
      const bool sound = r.place == static_cast<uint64_t>(place) &&
                         r.record_check == CheckOf(format.secret, &r, offsetof(Record, record_check));
      if (!sound) {
        ++*dropped;
        continue;
      }
      blocks->push_back({r.key, r.check, static_cast<int32_t>(place)});
    }
  }
  segment->size_ = static_cast<int32_t>(std::min(places, there));
  // Cut off partial records, and blocks without one, so that the next is written in their place. Files without such a
  // remainder keep their time of last use.
  const auto cut = [](int fd, int64_t bytes, int64_t to) { return bytes == to || ftruncate(fd, to) == 0; };
  if (!cut(segment->index_, index_bytes, kSegmentHeaderBytes + segment->size_ * kSegmentRecordBytes) ||
      !cut(segment->blocks_, block_file_bytes, segment->size_ * format.block_bytes))
    return DataLoss(fmt::format("'{}' cannot be cut to its complete records: {}", stem, std::strerror(errno)));
  return segment;
}

Result<StoredBlock> Segment::Append(const Hash128& key, const std::byte* bytes) {
  Record record{};
  record.key = key;
  record.check = CheckOfBlock(key, bytes, format_.block_bytes);
  record.place = static_cast<uint64_t>(size_);
  record.record_check = CheckOf(format_.secret, &record, offsetof(Record, record_check));
  const int64_t block_at = size_ * format_.block_bytes;
  const int64_t record_at = kSegmentHeaderBytes + size_ * kSegmentRecordBytes;
  if (!WriteAll(blocks_, bytes, static_cast<size_t>(format_.block_bytes), block_at) ||
      !WriteAll(index_, &record, sizeof(record), record_at)) {
    const Status why = DataLoss(fmt::format("'{}': {}", stem_, std::strerror(errno)));
    (void)!ftruncate(index_, record_at);
    (void)!ftruncate(blocks_, block_at);
    return why;
  }
  return StoredBlock{key, record.check, size_++};
}

bool Segment::Read(const StoredBlock& block, std::byte* to) const {
  return ReadAll(blocks_, to, static_cast<size_t>(format_.block_bytes), block.place * format_.block_bytes) &&
         CheckOfBlock(block.key, to, format_.block_bytes) == block.check;
}

void Segment::Touch() const {
  (void)futimens(index_, nullptr);
}

}  // namespace tactus::engine
