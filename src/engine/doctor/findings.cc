#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/doctor/diagnosis.h"

namespace tactus::engine {
namespace {

// Below these nothing is reported: what an idle machine does, and the spread of short measurements.
constexpr double kStolen = 0.02;           // of the time
constexpr double kThrottled = 0.005;       // of the time
constexpr double kSwitchesPerThread = 50;  // a second
constexpr double kScaling = 0.6;           // of the rate that threads would have on whole cores
constexpr double kHugeShare = 0.8;         // of resident memory
constexpr double kFrequency = 0.7;         // of the highest
constexpr double kStepShare = 0.5;         // of the floor
constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr int64_t kMuchMemory = int64_t{256} << 20;  // in which small pages are noticed

using Findings = std::vector<Finding>;

std::string Gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

void Choices(const Diagnosis& d, Findings* found) {
  const compute::KernelChoice& kernels = d.choice.kernels;
  if (kernels.ops != nullptr && kernels.fastest != kernels.ops->name) {
    found->push_back({"kernel set", fmt::format("{}, by {}", kernels.ops->name, kernels.why),
                      fmt::format("{} is the fastest that this machine runs", kernels.fastest),
                      fmt::format("leave out {}", kernels.why)});
  }
  const int32_t threads = d.choice.threads.threads, best = d.best_threads.threads;
  if (threads != best) {
    found->push_back({"threads", fmt::format("{}, by {}", threads, d.choice.threads.why),
                      fmt::format("{}: {}", best, d.best_threads.why),
                      threads > best ? "leave out --threads: more threads than cores wait for each other"
                                     : "leave out --threads to use all of them"});
  }
  if (!d.choice.pages.advice.empty()) {
    found->push_back({"huge pages", d.choice.pages.why, "weights and KV in huge pages need fewer page walks",
                      d.choice.pages.advice});
  }
}

void Cpus(const Diagnosis& d, Findings* found) {
  const MachineFacts& m = d.machine;
  const auto cpus = static_cast<int32_t>(m.cpus.size());
  if (cpus > 0 && cpus < m.online_cpus) {
    found->push_back({"affinity", fmt::format("{} of {} CPUs", cpus, m.online_cpus), "all CPUs of the machine",
                      "if the others are free: start without taskset, or give the container more CPUs (cpuset)"});
  }
  if (m.quota_cores > 0 && (cpus == 0 || m.quota_cores < cpus)) {
    found->push_back({"CPU quota", fmt::format("{:g} CPUs", m.quota_cores), fmt::format("{} CPUs", cpus),
                      "raise the container's CPU limit (docker --cpus, Kubernetes limits.cpu); a whole number of CPUs "
                      "wastes nothing"});
  }
  const bool hyperthreads = m.cores > 0 && d.choice.threads.threads > m.cores;
  const double one = std::max(d.one.int8_ops, d.one.f32_flops), all = std::max(d.all.int8_ops, d.all.f32_flops);
  const double threads = std::min<double>(d.choice.threads.threads, cpus > 0 ? cpus : d.choice.threads.threads);
  const bool disturbed = d.neighbours.other_cpus >= kOtherCpus;  // a finding that explains it
  if (threads > 1 && !hyperthreads && !disturbed && one > 0 && all < kScaling * threads * one) {
    found->push_back(
        {"scaling", fmt::format("{:g} threads multiply {:.1f} times as fast as one", threads, all / one),
         fmt::format("{:g} times on {:g} free cores", threads, threads),
         "the CPUs may be hyperthreads of fewer cores, or shared with other machines: ask for whole cores"});
  }
  if (!m.governor.empty() && m.governor != "performance" && m.most_mhz > 0 && m.now_mhz < kFrequency * m.most_mhz) {
    found->push_back({"frequency", fmt::format("{} MHz under load, governor {}", m.now_mhz, m.governor),
                      fmt::format("{} MHz", m.most_mhz), "as root: cpupower frequency-set -g performance"});
  }
  int nodes = 0;
  for (const NumaNode& node : m.nodes) nodes += node.cpus > 0 ? 1 : 0;
  if (nodes > 1) {
    found->push_back({"NUMA", fmt::format("CPUs of {} nodes", nodes), "one node: its memory is nearer",
                      fmt::format("one server for each node: numactl --cpunodebind=0 --membind=0 tactus serve ..., and "
                                  "so on up to node {}; `tactus route` shares the requests",
                                  m.nodes.back().id)});
  }
}

void Memory(const Diagnosis& d, Findings* found) {
  if (d.available_bytes >= 0 && d.available_bytes < kLittleMemory) {
    found->push_back({"memory", Gib(d.available_bytes) + " left", "weights, KV and 1 GiB more",
                      "end other processes, raise the container's memory limit, or use a smaller model"});
  }
  if (d.neighbours.swapped_pages > 0) {
    found->push_back({"swap", fmt::format("{} pages moved during the measurement", d.neighbours.swapped_pages), "none",
                      "free memory: what is swapped out is read from the disk"});
  }
  if (!d.model || !d.choice.pages.huge) return;
  const ResidentMemory& r = d.model->resident;
  if (r.huge_bytes < 0 || r.bytes < kMuchMemory) return;
  const double share = static_cast<double>(r.huge_bytes) / static_cast<double>(r.bytes);
  if (share < kHugeShare) {
    found->push_back({"huge pages", fmt::format("{:.0f} % of {} resident", 100 * share, Gib(r.bytes)),
                      fmt::format("{:.0f} % or more", 100 * kHugeShare),
                      "free memory is in pieces: as root echo 1 > /proc/sys/vm/compact_memory, then start again; files "
                      "of --weight-cache are always in small pages"});
  }
}

void Others(const Diagnosis& d, Findings* found) {
  const Neighbours& n = d.neighbours;
  if (n.other_cpus >= kOtherCpus) {
    found->push_back({"other processes", fmt::format("{:.1f} CPUs while this one waited", n.other_cpus),
                      fmt::format("less than {:g}", kOtherCpus),
                      "end or move them, or give each its own CPUs (taskset, cpuset): a step waits for its slowest "
                      "thread"});
  } else if (n.switches_per_s > kSwitchesPerThread * d.choice.threads.threads) {
    found->push_back(
        {"lost cores", fmt::format("{:.0f} times a second", n.switches_per_s),
         fmt::format("less than {:.0f}", kSwitchesPerThread * d.choice.threads.threads),
         "other processes use the cores in bursts: give the server CPUs that they may not use (taskset, cpuset)"});
  }
  if (n.stolen_share >= kStolen) {
    found->push_back({"stolen time", fmt::format("{:.1f} %", 100 * n.stolen_share),
                      fmt::format("less than {:g} %", 100 * kStolen),
                      "the hypervisor gives the CPUs to other machines: use a machine with dedicated CPUs"});
  }
  if (n.throttled_share >= kThrottled) {
    found->push_back({"throttling", fmt::format("{:.1f} % of the time", 100 * n.throttled_share), "none",
                      "the CPU quota stops all threads at once: raise it, or lower --threads below it"});
  }
}

void Steps(const Diagnosis& d, Findings* found) {
  const bool explained = !found->empty();
  const compute::Ops* const ops = d.choice.kernels.ops;
  const bool tiles = ops != nullptr && std::string_view(ops->name) == "amx";
  // The advice for pages is a finding already.
  if (!d.model->hint.empty() && d.choice.pages.advice.empty()) {
    found->push_back({"weights", d.model->hint, "integer or bfloat16 products", "the options named there"});
  }
  for (const StepSpeed& step : d.model->steps) {
    const StepFloor floor = FloorOf(step, d.all, d.machine.cache_bytes);
    const double floor_ms = floor.floor_ms();
    // Products of quantised blocks and attention reach a small part of the tiles' rate on any machine (arm_amx.md).
    if (tiles && floor.arithmetic_ms >= floor.memory_ms) continue;
    if (floor_ms <= 0 || step.step_ms <= 0 || floor_ms >= kStepShare * step.step_ms) continue;
    const std::string what =
        step.decodes > 0 ? fmt::format("decode of {}", step.decodes) : fmt::format("prompt of {}", step.prompt_tokens);
    found->push_back({what, fmt::format("{:.0f} % of its floor", 100 * floor_ms / step.step_ms),
                      fmt::format("{:.0f} % or more", 100 * kStepShare),
                      explained ? "mend the findings above, then measure again"
                                : "nothing on this machine explains it: report it with `tactus doctor --json`"});
  }
}

}  // namespace

Neighbours NeighboursOf(const MachineCounters& begin, const MachineCounters& middle, const MachineCounters& end,
                        DurationNs quiet_ns, DurationNs loaded_ns, int32_t cpus) {
  const auto per = [](auto amount, auto of) {
    return of > 0 ? std::max(0.0, static_cast<double>(amount) / static_cast<double>(of)) : 0.0;
  };
  Neighbours n;
  n.quiet_ns = quiet_ns;
  n.loaded_ns = loaded_ns;
  n.other_cpus = per((middle.busy_ns - begin.busy_ns) - (middle.own_ns - begin.own_ns), quiet_ns);
  n.stolen_share = per(end.stolen_ns - begin.stolen_ns, (quiet_ns + loaded_ns) * std::max(1, cpus));
  n.switches_per_s = per(end.involuntary_switches - middle.involuntary_switches, loaded_ns) * 1e9;
  n.throttled_share = per(end.throttled_ns - middle.throttled_ns, loaded_ns * std::max(1, cpus));
  n.swapped_pages = std::max<int64_t>(0, end.swapped_pages - begin.swapped_pages);
  return n;
}

StepFloor FloorOf(const StepSpeed& step, const compute::Ceilings& all, int64_t cache_bytes) {
  const auto ms = [](int64_t work, double per_second) {
    return per_second > 0 ? static_cast<double>(work) / per_second * 1e3 : 0.0;
  };
  // A set without an instruction multiplies these values as f32.
  const double bf16 = all.bf16_flops > 0 ? all.bf16_flops : all.f32_flops;
  const double int8 = all.int8_ops > 0 ? all.int8_ops : bf16;
  StepFloor floor;
  floor.memory_ms = ms(step.work.memory_bytes, all.read_bytes);
  floor.arithmetic_ms = ms(step.work.integer_products, int8) + ms(step.work.bf16_products, bf16) +
                        ms(step.work.f32_products, all.f32_flops);
  floor.cached = step.work.memory_bytes > 0 && step.work.memory_bytes < cache_bytes;
  return floor;
}

std::vector<Finding> FindingsOf(const Diagnosis& diagnosis) {
  Findings found;
  Choices(diagnosis, &found);
  Cpus(diagnosis, &found);
  Memory(diagnosis, &found);
  Others(diagnosis, &found);
  if (diagnosis.model) Steps(diagnosis, &found);
  return found;
}

}  // namespace tactus::engine
