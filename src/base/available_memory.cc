#include "base/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace tactus {
namespace {

std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;  // "max": no limit
  return value;
}

std::optional<int64_t> ReadInt(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return ParseInt(word);
}

// The value of a line "key value" or "key: value kB".
std::optional<int64_t> ReadField(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word, value;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    if (fields >> word >> value && word == key) return ParseInt(value);
  }
  return std::nullopt;
}

void Lower(int64_t bytes, int64_t* available) {
  *available = *available < 0 ? bytes : std::min(*available, bytes);
}

struct CgroupFiles {
  const char *limit, *usage, *inactive_file;
};

// The memory that one cgroup leaves. Droppable page cache, such as mapped weights, does not count as used.
std::optional<int64_t> CgroupLeft(const std::string& folder, const CgroupFiles& names) {
  const std::optional<int64_t> limit = ReadInt(folder + "/" + names.limit);
  if (!limit || *limit > (int64_t{1} << 60)) return std::nullopt;  // v1 writes about 2^63 for "none"
  const int64_t usage = ReadInt(folder + "/" + names.usage).value_or(0);
  const int64_t cache = ReadField(folder + "/memory.stat", names.inactive_file).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, usage - cache));
}

// Applies the limits of the cgroup and of all its ancestors up to the mount.
void LowerToCgroups(const std::string& mount, std::string relative, const CgroupFiles& names, int64_t* available) {
  while (true) {
    if (const auto left = CgroupLeft(mount + relative, names)) {
      Lower(*left, available);
    }
    if (relative.empty() || relative == "/") return;
    relative.resize(relative.find_last_of('/'));
  }
}

// A line of /proc/self/limits: "Max address space   <soft>   <hard>   bytes"; no number: unlimited.
std::optional<int64_t> SoftLimit(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::string soft;
    if (rest >> soft) return ParseInt(soft);
  }
  return std::nullopt;
}

// All mapped memory counts against these limits, used or not.
void LowerToProcessLimits(const std::string& root, int64_t* available) {
  const struct {
    const char *limit, *used;
  } kLimits[] = {{"Max address space", "VmSize:"}, {"Max data size", "VmData:"}};
  for (const auto& [name, used] : kLimits) {
    const std::optional<int64_t> limit = SoftLimit(root + "/proc/self/limits", name);
    if (!limit) continue;
    const int64_t mapped = ReadField(root + "/proc/self/status", used).value_or(0) * 1024;
    Lower(std::max<int64_t>(0, *limit - mapped), available);
  }
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  int64_t available = -1;
  if (const auto kib = ReadField(root + "/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  constexpr CgroupFiles kV2 = {"memory.max", "memory.current", "inactive_file"};
  constexpr CgroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  std::ifstream cgroups(root + "/proc/self/cgroup");
  bool any = false;
  for (std::string line; std::getline(cgroups, line);) {  // "0::/path" (v2) or "5:memory:/path" (v1)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/' || path.find("/../") != std::string::npos) continue;
    any = true;
    if (controllers == ",,") LowerToCgroups(root + "/sys/fs/cgroup", path, kV2, &available);
    if (controllers.find(",memory,") != std::string::npos) {
      LowerToCgroups(root + "/sys/fs/cgroup/memory", path, kV1, &available);
    }
  }
  if (!any) LowerToCgroups(root + "/sys/fs/cgroup", "", kV2, &available);
  LowerToProcessLimits(root, &available);
  return available;
}

}  // namespace tactus
