// The number of cores that this process can use: a container with a quota of two cores on a 64-core machine gets two.
#include "compute/kernels/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/cpu_limits.h"
#include "compute/kernels/thread_pool.h"

namespace tactus::compute {
namespace {

int32_t AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));  // more than 1024 cores
}

}  // namespace

int32_t QuotaCores(const std::string& root) {
  const double cores = ReadCpuQuota(root).cores;
  return cores > 0 ? std::max(1, static_cast<int32_t>(cores + 1e-6)) : 0;
}

int32_t UsableCores() {
  const int32_t affinity = AffinityCores(), quota = QuotaCores();
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

}  // namespace tactus::compute
