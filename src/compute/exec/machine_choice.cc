#include "compute/exec/machine_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "compute/ceilings/product_rate.h"
#include "compute/kernels/usable_cores.h"

namespace tactus::compute {
namespace {

// The measured gain of `threads` over one for each of `cores`.
double MeasuredGain(const Ops& ops, int32_t cores, int32_t threads, Clock& clock) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int32_t>, double> gains;
  std::lock_guard lock(mutex);
  const auto [found, added] = gains.try_emplace({ops.name, threads}, 1.0);
  if (added && &ops != RunnableOps().front()) {  // ref is too slow to be measured, and serves nothing
    ThreadPool few(cores, clock), all(threads, clock);
    const double few_rate = MeasureProductRate(few, ops, clock);
    found->second = MeasureProductRate(all, ops, clock) / few_rate;
  }
  return found->second;
}

}  // namespace

CpuBounds ReadCpuBounds(const std::string& root) {
  const std::vector<int32_t> cpus = AllowedCpus(root);
  CpuBounds bounds;
  bounds.cpus = cpus.empty() ? UsableCores() : static_cast<int32_t>(cpus.size());
  bounds.cores = PhysicalCores(cpus, root);
  bounds.quota_cores = ReadCpuQuota(root).cores;
  return bounds;
}

ThreadChoice ChooseThreads(int64_t wanted, const CpuBounds& bounds, const ThreadGain& gain) {
  if (wanted > 0) return {static_cast<int32_t>(wanted), "--threads"};
  const int32_t cores = bounds.cores > 0 ? std::min(bounds.cores, bounds.cpus) : bounds.cpus;
  const int32_t quota =
      bounds.quota_cores > 0 ? std::max(1, static_cast<int32_t>(bounds.quota_cores + 1e-6)) : bounds.cpus;
  if (quota <= cores && quota < bounds.cpus) {
    return {quota, fmt::format("the cgroup's quota is {:g} of {} CPUs", bounds.quota_cores, bounds.cpus)};
  }
  if (cores == bounds.cpus) {
    return {cores, cores == 1 ? "the one CPU of this process" : fmt::format("one for each of {} CPUs", cores)};
  }
  const int32_t all = std::min(bounds.cpus, quota);
  const double by = gain(all);
  if (by >= kLeastGain) {
    return {all, fmt::format("hyperthreads of {} cores, {:.2f} times as fast as one thread for each core", cores, by)};
  }
  return {cores,
          fmt::format("one for each of {} cores; their {} hyperthreads are {:.2f} times as fast", cores, all, by)};
}

Result<KernelChoice> ChooseKernels(const std::string& wanted) {
  KernelChoice choice;
  choice.ops = SelectOps(wanted);
  const char* const forced = std::getenv("TACTUS_KERNELS");
  std::string runnable;
  const std::vector<const Ops*> sets = RunnableOps();
  for (const Ops* ops : sets) {
    runnable += (runnable.empty() ? "" : ", ") + std::string(ops->name);
    choice.runnable.emplace_back(ops->name);
  }
  choice.fastest = choice.runnable.back();
  if (choice.ops == nullptr) {
    return InvalidArgument("--kernels " + (wanted.empty() && forced != nullptr ? std::string(forced) : wanted) +
                               ": this program runs " + runnable +
                               " here; leave --kernels and TACTUS_KERNELS out to get the fastest; a first build has "
                               "this machine's sets only, and `scripts/build.sh release programs` builds all",
                           "kernels");
  }
  const bool by_variable = forced != nullptr && *forced != '\0' && (wanted.empty() || wanted == forced);
  choice.why = by_variable ? "TACTUS_KERNELS" : !wanted.empty() ? "--kernels" : "the fastest that this machine runs";
  return choice;
}

PageChoice ChoosePages(const PageFacts& facts) {
  if (facts.forbidden) {
    return {false, "huge pages are forbidden for this process (prctl PR_SET_THP_DISABLE)",
            "start the program without that limit, which its parent process or container set"};
  }
  if (facts.huge == "never") {
    return {false, "huge pages are off on this machine (never)",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
  }
  if (facts.huge.empty()) return {false, "the system does not say whether it has huge pages", ""};
  return {true,
          facts.huge == "always" ? "the system uses huge pages for all memory (always)"
                                 : fmt::format("the system grants huge pages on request ({})", facts.huge),
          ""};
}

Result<MachineChoice> ChooseForMachine(const EngineOptions& options, Clock& clock) {
  MachineChoice choice;
  TACTUS_ASSIGN_OR_RETURN(choice.kernels, ChooseKernels(options.kernels));
  const CpuBounds bounds = ReadCpuBounds();
  choice.threads = ChooseThreads(options.threads, bounds, [&](int32_t threads) {
    return MeasuredGain(*choice.kernels.ops, bounds.cores, threads, clock);
  });
  choice.pages = ChoosePages(ReadPageFacts());
  return choice;
}

}  // namespace tactus::compute
