#include "base/cpu_limits.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace tactus {
namespace {

constexpr int32_t kMostCpus = 1 << 16;

// The value of a line "key value".
int64_t FieldOf(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  int64_t value = 0;
  while (in >> word >> value) {
    if (word == key) return value;
  }
  return 0;
}

double CoresOf(double quota_us, double period_us) {
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

CpuQuota QuotaV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period_us = 0;
  if (!(file >> quota >> period_us) || quota == "max") return {};
  const std::string stat = folder + "/cpu.stat";
  return {CoresOf(std::strtod(quota.c_str(), nullptr), period_us), FieldOf(stat, "nr_throttled"),
          FieldOf(stat, "throttled_usec") * kMicrosecond};
}

CpuQuota QuotaV1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota_us = 0, period_us = 0;
  if (!(quota_file >> quota_us) || !(period_file >> period_us)) return {};
  const std::string stat = folder + "/cpu.stat";
  return {CoresOf(quota_us, period_us), FieldOf(stat, "nr_throttled"), FieldOf(stat, "throttled_time")};
}

void KeepSmaller(const CpuQuota& other, CpuQuota* quota) {
  if (other.cores > 0 && (quota->cores == 0 || other.cores < quota->cores)) *quota = other;
}

// The smallest quota of `path` and every group above it; parents' quotas also apply.
template <class ReadQuota>
CpuQuota SmallestQuota(const std::string& mount, std::string path, ReadQuota read_quota) {
  CpuQuota smallest;
  while (true) {
    KeepSmaller(read_quota(mount + path), &smallest);
    if (path.empty() || path == "/") return smallest;
    path.resize(path.find_last_of('/'));
  }
}

}  // namespace

std::string SystemLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::vector<int32_t> ParseCpuList(const std::string& text) {
  std::vector<int32_t> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int32_t first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc() || first < 0 || first >= kMostCpus) break;
    int32_t last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc() || last < first || last >= kMostCpus) break;
    }
    for (int32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (read.ptr == end || *read.ptr != ',') break;
    at = read.ptr + 1;
  }
  return cpus;
}

CpuQuota ReadCpuQuota(const std::string& root) {
  CpuQuota smallest;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // id:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (path.starts_with("/..")) path = "/";  // a group outside the mount, whose top is visible
    if (controllers == ",,") {
      KeepSmaller(SmallestQuota(root + "/sys/fs/cgroup", path, QuotaV2), &smallest);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      KeepSmaller(SmallestQuota(root + "/sys/fs/cgroup/cpu", path, QuotaV1), &smallest);
    }
  }
  return smallest;
}

std::vector<int32_t> AllowedCpus(const std::string& root) {
  std::vector<int32_t> allowed;
  std::ifstream status(root + "/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kName = "Cpus_allowed_list:";
    if (!line.starts_with(kName)) continue;
    const size_t at = line.find_first_not_of(" \t", kName.size());
    if (at != std::string::npos) allowed = ParseCpuList(line.substr(at));
  }
  // The mask may name CPUs that are offline or that the machine could get.
  const std::vector<int32_t> online = ParseCpuList(SystemLine(root + "/sys/devices/system/cpu/online"));
  if (online.empty()) return allowed;
  std::vector<int32_t> usable;
  std::set_intersection(allowed.begin(), allowed.end(), online.begin(), online.end(), std::back_inserter(usable));
  return usable;
}

int32_t OnlineCpus(const std::string& root) {
  return static_cast<int32_t>(ParseCpuList(SystemLine(root + "/sys/devices/system/cpu/online")).size());
}

int32_t PhysicalCores(const std::vector<int32_t>& cpus, const std::string& root) {
  std::set<std::vector<int32_t>> cores;
  for (const int32_t cpu : cpus) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string siblings = SystemLine(folder + "core_cpus_list");
    if (siblings.empty()) siblings = SystemLine(folder + "thread_siblings_list");  // before Linux 5.3
    std::vector<int32_t> core = ParseCpuList(siblings);
    if (core.empty()) return 0;
    cores.insert(std::move(core));
  }
  return static_cast<int32_t>(cores.size());
}

}  // namespace tactus
