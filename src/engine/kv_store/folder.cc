#include "engine/kv_store/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_set>

#include "base/on_exit.h"
#include "base/system_random.h"

namespace tactus::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOption = "kv-cache-dir";
constexpr const char* kFile = "kv-cache";
constexpr std::string_view kTitle = "tactus KV cache, format ";
constexpr int kFormat = 1;
constexpr size_t kLongestFile = 256;  // bytes

Status Bad(const std::string& path, const std::string& what) {
  return InvalidArgument(fmt::format("--kv-cache-dir '{}': {}", path, what), kOption);
}

std::string Hex(const Hash128& bits) {
  return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

// A check of the secret itself, so that a flipped bit is not read as another secret.
uint64_t CheckOfSecret(const Hash128& secret) {
  constexpr std::string_view kUse = "kv-cache secret";
  return SipHash128(secret, kUse.data(), kUse.size()).low;
}

std::string FileText(const Hash128& secret) {
  return fmt::format("{}{}\nsecret {} {:016x}\n", kTitle, kFormat, Hex(secret), CheckOfSecret(secret));
}

bool HexDigits(std::string_view text, uint64_t* value) {
  *value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return false;
    *value = *value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

// Returns the fault; empty: *secret has been read.
std::string ParseFile(std::string_view text, Hash128* secret) {
  const std::string damaged = fmt::format(
      "its file '{}' is damaged; remove the folder: lost blocks can be computed "
      "again",
      kFile);
  if (!text.starts_with(kTitle)) return damaged;
  const std::string_view rest = text.substr(kTitle.size());
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits > 9) return damaged;
  const int format = std::stoi(std::string(rest.substr(0, digits)));
  if (format != kFormat) {
    return fmt::format("it has format {}, but this program needs format {}; choose another folder, or remove this one",
                       format, kFormat);
  }
  constexpr std::string_view kSecret = "\nsecret ";
  const std::string_view line = rest.substr(digits);
  const bool read = line.size() >= kSecret.size() + 32 && HexDigits(line.substr(kSecret.size(), 16), &secret->high) &&
                    HexDigits(line.substr(kSecret.size() + 16, 16), &secret->low);
  if (!read || text != FileText(*secret)) return damaged;  // includes the check
  return {};
}

bool IsSegmentStem(const std::string& name) {
  return name.size() == 8 && name.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Result<std::unique_ptr<KvFolder>> KvFolder::Open(const std::string& path) {
  struct stat at{};
  if (stat(path.c_str(), &at) == 0 && !S_ISDIR(at.st_mode))
    return Bad(path, "it is a file; choose a folder, which need not exist");
  std::error_code error;
  const bool existed = fs::is_directory(path, error);
  if (!existed) {
    fs::create_directories(path, error);
    if (error) return Bad(path, fmt::format("it cannot be created: {}", error.message()));
    (void)chmod(path.c_str(), 0700);
  }
  const std::string file = path + "/" + kFile;
  if (existed && access(file.c_str(), F_OK) != 0) {
    const bool empty = fs::is_empty(path, error);
    if (error) return Bad(path, fmt::format("it cannot be read: {}", error.message()));
    if (!empty) return Bad(path, fmt::format("it is not empty and has no file '{}'; choose an empty folder", kFile));
  }
  if (access(path.c_str(), W_OK) != 0) return Bad(path, fmt::format("not writable: {}", std::strerror(errno)));
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Bad(path, fmt::format("'{}' cannot be opened: {}", kFile, std::strerror(errno)));
  std::unique_ptr<KvFolder> folder(new KvFolder());
  folder->path_ = path;
  folder->lock_ = fd;  // closed by the destructor
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Bad(path, "another process uses it; only one process may use a folder: choose another one");
    return Bad(path, fmt::format("it cannot be locked: {}", std::strerror(errno)));
  }
  if (fstat(fd, &at) != 0 || (at.st_mode & 077) != 0) {
    return Bad(path,
               fmt::format("its file '{}' can be read by others than its owner; chmod 600 it, or remove the folder if "
                           "others may have read it",
                           kFile));
  }
  std::string text(kLongestFile, '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  if (got < 0) return Bad(path, fmt::format("'{}' cannot be read: {}", kFile, std::strerror(errno)));
  text.resize(static_cast<size_t>(got));
  if (!text.empty()) {
    const std::string wrong = ParseFile(text, &folder->secret_);
    return wrong.empty() ? Result<std::unique_ptr<KvFolder>>(std::move(folder)) : Bad(path, wrong);
  }
  TACTUS_ASSIGN_OR_RETURN(folder->secret_, SystemRandom());
  text = FileText(folder->secret_);
  if (pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || fsync(fd) != 0) {
    const std::string why = std::strerror(errno);
    (void)ftruncate(fd, 0);
    return Bad(path, fmt::format("'{}' cannot be written: {}", kFile, why));
  }
  return folder;
}

KvFolder::~KvFolder() {
  if (lock_ >= 0) close(lock_);
}

Result<std::vector<KvFolder::SegmentFiles>> KvFolder::Segments() const {
  std::vector<SegmentFiles> all;
  std::unordered_set<std::string> seen;
  std::error_code error;
  for (fs::directory_iterator sub(path_, error), end; !error && sub != end; sub.increment(error)) {
    std::error_code inner;
    if (sub->symlink_status(inner).type() != fs::file_type::directory) continue;
    for (fs::directory_iterator file(sub->path(), inner), last; !inner && file != last; file.increment(inner)) {
      // A .blocks file without an index is from a process that was killed before it wrote the first record.
      const fs::path& p = file->path();
      if (p.extension() != ".index" && p.extension() != ".blocks") continue;
      if (!IsSegmentStem(p.stem().string())) continue;
      SegmentFiles s;
      s.stem = (p.parent_path() / p.stem()).string();
      s.subfolder = sub->path().filename().string();
      if (!seen.insert(s.stem).second) continue;
      for (const char* extension : {".index", ".blocks"}) {
        struct stat at{};
        if (stat((s.stem + extension).c_str(), &at) != 0) continue;
        s.bytes += at.st_size;
        s.used_ns = std::max(s.used_ns, int64_t{at.st_mtim.tv_sec} * 1'000'000'000 + at.st_mtim.tv_nsec);
      }
      all.push_back(std::move(s));
    }
  }
  if (error) return Bad(path_, fmt::format("it cannot be read: {}", error.message()));
  std::sort(all.begin(), all.end(), [](const SegmentFiles& a, const SegmentFiles& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.stem < b.stem;
  });
  return all;
}

int64_t KvFolder::FreeBytes() const {
  struct statvfs disk{};
  if (statvfs(path_.c_str(), &disk) != 0) return -1;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

Result<std::string> KvFolder::Subfolder(const std::string& identity) const {
  const Hash128 name = SipHash128({0x69, 0x64}, identity.data(), identity.size());
  const std::string sub = path_ + "/" + Hex(name);
  if (mkdir(sub.c_str(), 0700) != 0 && errno != EEXIST)
    return Bad(path_, fmt::format("no subfolder can be created in it: {}", std::strerror(errno)));
  const std::string about = sub + "/about";
  const int fd = open(about.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd >= 0) {  // for people; the program does not read it
    (void)!write(fd, identity.data(), identity.size());
    close(fd);
  }
  return sub;
}

bool RemoveSegment(const std::string& stem) {
  // A segment without an index is invalid, so the index is removed first.
  for (const char* extension : {".index", ".blocks"}) {
    if (unlink((stem + extension).c_str()) != 0 && errno != ENOENT) return false;
  }
  return true;
}

}  // namespace tactus::engine
