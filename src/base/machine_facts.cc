#include "base/machine_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace tactus {
namespace {

int64_t Number(const std::string& text) {
  int64_t value = 0;
  const size_t at = std::min(text.find_first_of("0123456789"), text.size());
  std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

// The number in the first line that has `key` and a colon; `missing` without such a line.
int64_t NumberOf(const std::string& path, std::string_view key, int64_t missing = 0) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !std::string_view(line).substr(0, colon).ends_with(key)) continue;
    return Number(line.substr(colon));
  }
  return missing;
}

// The word in brackets of "always [madvise] never".
std::string Chosen(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']', open);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

// Processor's name and whether it is virtual, from /proc/cpuinfo.
void ReadProcessor(const std::string& root, MachineFacts* facts) {
  std::ifstream in(root + "/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (facts->processor.empty() && line.starts_with("model name")) facts->processor = line.substr(colon + 2);
    if (line.starts_with("flags")) {
      facts->virtual_machine = (line + " ").find(" hypervisor ") != std::string::npos;
      break;
    }
  }
}

void ReadFrequencies(const std::string& root, MachineFacts* facts) {
  std::set<std::string> governors;
  for (const int32_t cpu : facts->cpus) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/";
    if (std::string governor = SystemLine(folder + "scaling_governor"); !governor.empty()) governors.insert(governor);
    const auto mhz = [&](const char* file) { return static_cast<int32_t>(Number(SystemLine(folder + file)) / 1000); };
    facts->now_mhz = std::max(facts->now_mhz, mhz("scaling_cur_freq"));
    facts->most_mhz = std::max(facts->most_mhz, mhz("cpuinfo_max_freq"));
  }
  for (const std::string& g : governors) facts->governor += (facts->governor.empty() ? "" : ", ") + g;
}

std::vector<NumaNode> ReadNodes(const std::vector<int32_t>& cpus, const std::string& root) {
  std::vector<NumaNode> nodes;
  for (const int32_t id : ParseCpuList(SystemLine(root + "/sys/devices/system/node/online"))) {
    const std::string folder = root + "/sys/devices/system/node/node" + std::to_string(id);
    NumaNode node{.id = id};
    for (const int32_t cpu : ParseCpuList(SystemLine(folder + "/cpulist"))) {
      node.cpus += std::binary_search(cpus.begin(), cpus.end(), cpu) ? 1 : 0;
    }
    node.memory_bytes = NumberOf(folder + "/meminfo", "MemTotal") * 1024;
    if (node.cpus > 0 || node.memory_bytes > 0) nodes.push_back(node);
  }
  return nodes;
}

// The size of the highest level that the first allowed CPU has.
int64_t ReadCache(const std::vector<int32_t>& cpus, const std::string& root) {
  if (cpus.empty()) return 0;
  int64_t highest = 0, bytes = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string folder =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpus[0]) + "/cache/index" + std::to_string(i) + "/";
    const int64_t level = Number(SystemLine(folder + "level"));
    const std::string size = SystemLine(folder + "size");  // "32768K"
    if (level <= highest || size.empty()) continue;
    highest = level;
    bytes = Number(size) * (size.back() == 'M' ? int64_t{1} << 20 : size.back() == 'K' ? 1024 : 1);
  }
  return bytes;
}

// CPU time in /proc/stat and /proc/self/stat.
DurationNs Ticks(int64_t ticks) {
  const int64_t per_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return ticks * (kSecond / per_second);
}

void ReadCpuTimes(const std::vector<int32_t>& cpus, const std::string& root, MachineCounters* counters) {
  std::ifstream in(root + "/proc/stat");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("cpu") || line.size() < 4 || line[3] == ' ') continue;  // the sum of all
    if (!std::binary_search(cpus.begin(), cpus.end(), static_cast<int32_t>(Number(line)))) continue;
    std::istringstream fields(line);
    std::string name;
    int64_t user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
    fields >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> steal;
    counters->busy_ns += Ticks(user + nice + system + irq + softirq);
    counters->stolen_ns += Ticks(steal);
  }
}

// Fields 14 and 15 of /proc/self/stat, counted behind the name, which may hold spaces.
DurationNs OwnCpuTime(const std::string& root) {
  const std::string line = SystemLine(root + "/proc/self/stat");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  int64_t user = 0, system = 0;
  fields >> user >> system;
  return Ticks(user + system);
}

int64_t SwappedPages(const std::string& root) {
  std::ifstream in(root + "/proc/vmstat");
  int64_t pages = 0, value = 0;
  for (std::string key; in >> key >> value;) {
    if (key == "pswpin" || key == "pswpout") pages += value;
  }
  return pages;
}

}  // namespace

PageFacts ReadPageFacts(const std::string& root) {
  const std::string folder = root + "/sys/kernel/mm/transparent_hugepage/";
  PageFacts facts;
  facts.huge = Chosen(SystemLine(folder + "enabled"));
  facts.defrag = Chosen(SystemLine(folder + "defrag"));
  facts.forbidden = NumberOf(root + "/proc/self/status", "THP_enabled", 1) == 0;
  return facts;
}

std::string ProcessorName(const std::string& root) {
  MachineFacts facts;
  ReadProcessor(root, &facts);
  return facts.processor;
}

MachineFacts ReadMachineFacts(const std::string& root) {
  MachineFacts facts;
  ReadProcessor(root, &facts);
  facts.kernel = SystemLine(root + "/proc/sys/kernel/osrelease");
  facts.online_cpus = OnlineCpus(root);
  facts.cpus = AllowedCpus(root);
  facts.cores = PhysicalCores(facts.cpus, root);
  facts.quota_cores = ReadCpuQuota(root).cores;
  ReadFrequencies(root, &facts);
  facts.pages = ReadPageFacts(root);
  facts.nodes = ReadNodes(facts.cpus, root);
  facts.cache_bytes = ReadCache(facts.cpus, root);
  const std::string meminfo = root + "/proc/meminfo";
  facts.memory_bytes = NumberOf(meminfo, "MemTotal") * 1024;
  facts.swap_bytes = NumberOf(meminfo, "SwapTotal") * 1024;
  facts.swap_used_bytes = facts.swap_bytes - NumberOf(meminfo, "SwapFree") * 1024;
  return facts;
}

MachineCounters ReadMachineCounters(const std::vector<int32_t>& cpus, const std::string& root) {
  MachineCounters counters;
  ReadCpuTimes(cpus, root, &counters);
  counters.own_ns = OwnCpuTime(root);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) counters.involuntary_switches = usage.ru_nivcsw;
  const CpuQuota quota = ReadCpuQuota(root);
  counters.throttled_ns = quota.throttled_ns;
  counters.throttled_times = quota.throttled_times;
  counters.swapped_pages = SwappedPages(root);
  return counters;
}

ResidentMemory ReadResidentMemory(const std::string& root) {
  const std::string rollup = root + "/proc/self/smaps_rollup";
  ResidentMemory memory;
  const int64_t resident = NumberOf(rollup, "Rss", -1);
  if (resident < 0) return memory;
  memory.bytes = resident * 1024;
  memory.huge_bytes =
      (NumberOf(rollup, "AnonHugePages") + NumberOf(rollup, "FilePmdMapped") + NumberOf(rollup, "ShmemPmdMapped")) *
      1024;
  return memory;
}

}  // namespace tactus
