// The CPUs that this process may use, as the system describes them in /proc and /sys. Every function takes the folder
// that replaces "/" in tests; what cannot be read is empty, 0 or -1 as documented. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace tactus {

// The first line of a file of /proc or /sys, without spaces at its end; empty: unreadable.
std::string SystemLine(const std::string& path);
// "0-3,8": {0, 1, 2, 3, 8}. What is no number ends the list.
std::vector<int32_t> ParseCpuList(const std::string& text);

// The CPU limits of this process's cgroup and all above it (v1 or v2).
struct CpuQuota {
  double cores = 0;             // the smallest quota, in CPUs; 0: none
  int64_t throttled_times = 0;  // of the group with that quota, since it exists
  DurationNs throttled_ns = 0;  // likewise, summed over its CPUs
};
CpuQuota ReadCpuQuota(const std::string& root = "");

// CPUs that the affinity of this process allows and that are online, ascending; empty: unknown.
std::vector<int32_t> AllowedCpus(const std::string& root = "");
// CPUs of the machine that are online; 0: unknown.
int32_t OnlineCpus(const std::string& root = "");
// Physical cores that `cpus` are on: hyperthreads of one core count once. 0: unknown.
int32_t PhysicalCores(const std::vector<int32_t>& cpus, const std::string& root = "");

}  // namespace tactus
