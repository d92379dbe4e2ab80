// The number of cores that this process can use: a container with a quota of two cores on a 64-core machine gets two.
#include "compute/kernels/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "compute/kernels/thread_pool.h"

namespace tactus::compute {
namespace {

int32_t AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));  // more than 1024 cores
}

// A quota in whole cores, since a step's threads wait for each other; 0: no quota.
int32_t CoresOf(double quota_us, double period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  return std::max(1, static_cast<int32_t>(quota_us / period_us + 1e-6));
}

int32_t QuotaV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period_us = 0;
  if (!(file >> quota >> period_us) || quota == "max") return 0;
  return CoresOf(std::strtod(quota.c_str(), nullptr), period_us);
}

int32_t QuotaV1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota_us = 0, period_us = 0;
  if (!(quota_file >> quota_us) || !(period_file >> period_us)) return 0;
  return CoresOf(quota_us, period_us);
}

// The smallest quota of `path` and every group above it; parents' quotas also apply.
template <class ReadQuota>
int32_t SmallestQuota(const std::string& mount, std::string path, ReadQuota read_quota) {
  int32_t smallest = 0;
  while (true) {
    const int32_t cores = read_quota(mount + path);
    if (cores > 0 && (smallest == 0 || cores < smallest)) smallest = cores;
    if (path.empty() || path == "/") return smallest;
    path.resize(path.find_last_of('/'));
  }
}

}  // namespace

int32_t QuotaCores(const std::string& root) {
  int32_t smallest = 0;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // id:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    int32_t cores = 0;
    if (controllers == ",,") {
      cores = SmallestQuota(root + "/sys/fs/cgroup", path, QuotaV2);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      cores = SmallestQuota(root + "/sys/fs/cgroup/cpu", path, QuotaV1);
    }
    if (cores > 0 && (smallest == 0 || cores < smallest)) smallest = cores;
  }
  return smallest;
}

int32_t UsableCores() {
  const int32_t affinity = AffinityCores(), quota = QuotaCores();
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

}  // namespace tactus::compute
