#include "compute/packing/weight_cache.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/unfinished_file.h"

namespace tactus::compute {
namespace {

namespace fs = std::filesystem;

// Incremented whenever the same head would describe other bytes: another layout in compute/kernels/packed/packed.h,
// another way to quantise.
constexpr int kLayoutVersion = 2;
constexpr size_t kPage = 4096;
constexpr int64_t kChunk = int64_t{1} << 20;
constexpr size_t kHashedHead = 64 << 10;  // of a source file: header, names, shapes
constexpr size_t kChecksumChars = 33;     // hex and a newline, after the head

std::string Hex(const Hash128& h) {
  return fmt::format("{:016x}{:016x}", h.high, h.low);
}

uint64_t Checksum(const std::byte* data, int64_t bytes, ThreadPool& pool) {
  const int64_t chunks = (bytes + kChunk - 1) / kChunk;
  std::vector<uint64_t> sums(static_cast<size_t>(chunks));
  pool.ParallelFor(chunks, [&](int64_t i, int32_t) {
    sums[static_cast<size_t>(i)] =
        tactus::Checksum(data + i * kChunk, static_cast<size_t>(std::min(kChunk, bytes - i * kChunk)));
  });
  uint64_t sum = static_cast<uint64_t>(bytes);
  for (const uint64_t s : sums) sum = MixHash(sum, s);
  return sum;
}

std::string TailText(uint64_t checksum) {
  return fmt::format("{:032x}\n", checksum);
}

size_t DataOffset(const WeightCacheKey& key) {
  return (key.head.size() + kChecksumChars + kPage - 1) / kPage * kPage;
}

struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
};

Status WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, std::min(size, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status(StatusCode::kResourceExhausted, std::strerror(errno));
    data += n;
    size -= static_cast<size_t>(n);
  }
  return Status();
}

constexpr std::string_view kUnfinished = ".tmp";  // PATH.XXXXXX.tmp, locked by its writer

// Removes unfinished files of starts that died while writing: their locks are free. A file that was created just now
// may not be locked yet; its writer then finds it removed and reports that.
void RemoveUnfinished(const std::string& path) {
  const fs::path place(path);
  const std::string begins = place.filename().string() + ".";
  std::error_code error;
  for (auto it = fs::directory_iterator(place.parent_path(), error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(begins) || !name.ends_with(kUnfinished)) continue;
    const OpenFile file{open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (file.fd >= 0 && flock(file.fd, LOCK_EX | LOCK_NB) == 0) unlink(it->path().c_str());
  }
}

Status WriteTo(int fd, const WeightCacheKey& key, const std::byte* memory, uint64_t checksum) {
  if (fd < 0 || fchmod(fd, 0644) != 0) return InvalidArgument(std::strerror(errno));
  (void)flock(fd, LOCK_EX | LOCK_NB);  // a file system without locks removes nothing either: flock fails there
  std::string head = key.head + TailText(checksum);
  head.resize(DataOffset(key), '\0');
  TACTUS_RETURN_IF_ERROR(WriteAll(fd, head.data(), head.size()));
  TACTUS_RETURN_IF_ERROR(WriteAll(fd, reinterpret_cast<const char*>(memory), static_cast<size_t>(key.bytes)));
  return Status();  // no fsync: a file half written by a crash has a wrong checksum
}

}  // namespace

Result<WeightCacheKey> MakeWeightCacheKey(const std::string& folder, const std::string& model_path,
                                          const TensorSet& tensors, const PackPlan& plan) {
  constexpr Hash128 kKey{0x74616374, 0x7573};
  std::error_code error;
  const fs::path model = fs::weakly_canonical(model_path, error);
  WeightCacheKey key;
  key.bytes = plan.bytes;
  std::string files, matrices;
  for (const auto& file : tensors.files) {
    struct stat info = {};
    if (stat(file->path().c_str(), &info) != 0)
      return InvalidArgument("cannot stat " + file->path() + ": " + std::strerror(errno));
    const auto bytes = file->bytes();
    files +=
        fmt::format("file {} bytes {} modified {}.{:09} head {}\n", fs::weakly_canonical(file->path(), error).string(),
                    bytes.size(), info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                    Hex(SipHash128(kKey, bytes.data(), std::min(bytes.size(), kHashedHead))));
  }
  if (!tensors.quantization.empty()) files += "quantised by " + tensors.quantization + "\n";
  std::string forms;
  for (const PackedSlot& s : plan.slots) {
    const PackedMatrix& m = s.form;
    const std::string form =
        fmt::format("code {} block {} zero {} minimum {} zeros {} nested {}", static_cast<int>(m.code), m.block, m.zero,
                    m.has_minimum ? 1 : 0, m.has_zeros ? 1 : 0, m.nested_scales ? 1 : 0);
    forms += form;
    matrices += fmt::format("matrix {} from {} {} rows {} cols {} panel {} at {}\n", s.name,
                            InfoOf(s.source.dtype).name, form, m.rows, m.cols, m.panel_bytes, s.offset);
  }
  key.head = fmt::format("tactus packed weights, layout {}\n", kLayoutVersion) + files + matrices +
             fmt::format("bytes {}\n", plan.bytes);
  if (plan.calibrate) {
    constexpr const char* kHow = "int4 by least squares, calibration 1\n";  // incremented when the same plan yields
                                                                            // other bytes
    key.head += kHow;
    forms += kHow;  // a separate file
  }
  const std::string what = model.string() + "\n" + forms;
  const std::string name = model.has_filename() ? model.stem().string() : model.parent_path().filename().string();
  key.path =
      fmt::format("{}/{}-{}.packed", folder, name, Hex(SipHash128(kKey, what.data(), what.size())).substr(0, 16));
  return key;
}

Result<CachedWeights> OpenWeightCache(const WeightCacheKey& key, ThreadPool& pool) {
  CachedWeights cached;
  TACTUS_ASSIGN_OR_RETURN(cached.file, MappedFile::Open(key.path));
  const auto bytes = cached.file->bytes();
  const size_t offset = DataOffset(key), size = offset + static_cast<size_t>(key.bytes);
  if (bytes.size() < key.head.size() || std::memcmp(bytes.data(), key.head.data(), key.head.size()) != 0) {
    return DataLoss("it was made from other files or for another form");
  }
  if (bytes.size() != size) return DataLoss(fmt::format("it has {} bytes and should have {}", bytes.size(), size));
  cached.memory = bytes.data() + offset;
  const std::string tail = TailText(Checksum(cached.memory, key.bytes, pool));
  if (std::memcmp(bytes.data() + key.head.size(), tail.data(), tail.size()) != 0)
    return DataLoss("its checksum is wrong: it is damaged");
  return cached;
}

Status WriteWeightCache(const WeightCacheKey& key, const std::byte* memory, ThreadPool& pool) {
  std::error_code error;
  fs::create_directories(fs::path(key.path).parent_path(), error);
  RemoveUnfinished(key.path);
  std::string beside = fmt::format("{}.XXXXXX{}", key.path, kUnfinished);
  const OpenFile file{mkostemps(beside.data(), static_cast<int>(kUnfinished.size()), O_CLOEXEC)};
  const UnfinishedFile unfinished(beside);
  Status status = WriteTo(file.fd, key, memory, Checksum(memory, key.bytes, pool));
  if (status.ok() && rename(beside.c_str(), key.path.c_str()) != 0) status = InvalidArgument(std::strerror(errno));
  if (!status.ok()) {
    unlink(beside.c_str());
    return Status(status.code(), key.path + " cannot be written: " + status.message(), "weight-cache");
  }
  return Status();
}

}  // namespace tactus::compute
