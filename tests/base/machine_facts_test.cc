// Facts and counters of a machine, read from a fake /proc and /sys.
#include "base/machine_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temp_folder.h"

namespace tactus {
namespace {

using Cpus = std::vector<int32_t>;

TEST(ParseCpuList, ReadsRangesAndEndsAtWhatIsNoNumber) {
  EXPECT_EQ(ParseCpuList("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(ParseCpuList("5"), Cpus{5});
  EXPECT_EQ(ParseCpuList(""), Cpus{});
  EXPECT_EQ(ParseCpuList("1,x,3"), Cpus{1}) << "what follows a bad entry cannot be trusted";
  EXPECT_EQ(ParseCpuList("3-1"), Cpus{}) << "a range that runs backwards";
  EXPECT_EQ(ParseCpuList("0-4000000000"), Cpus{}) << "no list of billions";
}

TEST(CpuQuota, V2HasFractionsAndTheThrottlingOfTheSmallestGroup) {
  test::TempFolder root;
  EXPECT_EQ(ReadCpuQuota(root.path()).cores, 0) << "nothing to read is no quota";
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  root.Write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  root.Write("sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nnr_periods 8\nnr_throttled 3\nthrottled_usec 1500\n");
  const CpuQuota quota = ReadCpuQuota(root.path());
  EXPECT_DOUBLE_EQ(quota.cores, 2.5);
  EXPECT_EQ(quota.throttled_times, 3);
  EXPECT_EQ(quota.throttled_ns, 1500 * kMicrosecond) << "v2 counts microseconds";
}

TEST(CpuQuota, V1CountsNanoseconds) {
  test::TempFolder root;
  root.Write("proc/self/cgroup", "5:cpu,cpuacct:/x\n");
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n");
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  root.Write("sys/fs/cgroup/cpu/x/cpu.stat", "nr_periods 8\nnr_throttled 2\nthrottled_time 77\n");
  const CpuQuota quota = ReadCpuQuota(root.path());
  EXPECT_DOUBLE_EQ(quota.cores, 1.5);
  EXPECT_EQ(quota.throttled_times, 2);
  EXPECT_EQ(quota.throttled_ns, 77);
}

TEST(CpuQuota, OfAGroupOutsideTheMountIsThatOfTheMount) {
  test::TempFolder root;
  root.Write("proc/self/cgroup", "0::/../other\n");
  root.Write("sys/fs/other/cpu.max", "100000 100000\n");
  root.Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(ReadCpuQuota(root.path()).cores, 3);
}

TEST(AllowedCpus, AreThoseOfTheMaskThatAreOnline) {
  test::TempFolder root;
  EXPECT_EQ(AllowedCpus(root.path()), Cpus{});
  root.Write("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
  EXPECT_EQ(AllowedCpus(root.path()), (Cpus{0, 1, 2, 3, 4, 5, 6, 7})) << "online CPUs are unknown";
  root.Write("sys/devices/system/cpu/online", "0-1,3\n");
  EXPECT_EQ(AllowedCpus(root.path()), (Cpus{0, 1, 3}));
  EXPECT_EQ(OnlineCpus(root.path()), 3);
}

TEST(PhysicalCores, CountHyperthreadsOfACoreOnce) {
  test::TempFolder root;
  const auto siblings = [&](int cpu, const char* file, const char* list) {
    root.Write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file, list);
  };
  siblings(0, "core_cpus_list", "0,2");
  siblings(2, "core_cpus_list", "0,2");
  siblings(1, "thread_siblings_list", "1,3");  // the older name
  EXPECT_EQ(PhysicalCores({0, 1, 2}, root.path()), 2);
  EXPECT_EQ(PhysicalCores({0, 2}, root.path()), 1);
  EXPECT_EQ(PhysicalCores({0, 3}, root.path()), 0) << "a CPU without topology: unknown";
  EXPECT_EQ(PhysicalCores({}, root.path()), 0);
}

TEST(PageFacts, AreTheWordsInBracketsAndTheProcessesOwnLimit) {
  test::TempFolder root;
  EXPECT_EQ(ReadPageFacts(root.path()).huge, "");
  EXPECT_FALSE(ReadPageFacts(root.path()).forbidden) << "an old kernel does not say";
  root.Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  root.Write("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n");
  root.Write("proc/self/status", "THP_enabled:\t0\n");
  const PageFacts facts = ReadPageFacts(root.path());
  EXPECT_EQ(facts.huge, "never");
  EXPECT_EQ(facts.defrag, "madvise");
  EXPECT_TRUE(facts.forbidden);
}

TEST(MachineFacts, AreReadFromProcAndSys) {
  test::TempFolder root;
  root.Write("proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor sse\nmodel name\t: Other\n");
  root.Write("proc/self/status", "Cpus_allowed_list:\t0-1\n");
  root.Write("sys/devices/system/cpu/online", "0-3\n");
  root.Write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  root.Write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
  root.Write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2100000\n");
  root.Write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4000000\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index1/level", "3\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index1/size", "32768K\n");
  root.Write("sys/devices/system/node/online", "0-2\n");
  root.Write("sys/devices/system/node/node0/cpulist", "0,2\n");
  root.Write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       1024 kB\n");
  root.Write("sys/devices/system/node/node1/cpulist", "1,3\n");
  root.Write("proc/meminfo", "MemTotal:  4096 kB\nSwapTotal:  300 kB\nSwapFree:  100 kB\n");
  root.Write("proc/sys/kernel/osrelease", "6.1.0-x\n");
  const MachineFacts facts = ReadMachineFacts(root.path());
  EXPECT_EQ(facts.processor, "Some CPU @ 2 GHz");
  EXPECT_TRUE(facts.virtual_machine);
  EXPECT_EQ(facts.kernel, "6.1.0-x");
  EXPECT_EQ(facts.online_cpus, 4);
  EXPECT_EQ(facts.cpus, (Cpus{0, 1}));
  EXPECT_EQ(facts.governor, "performance, powersave");
  EXPECT_EQ(facts.now_mhz, 2100);
  EXPECT_EQ(facts.most_mhz, 4000);
  EXPECT_EQ(facts.cache_bytes, 32 << 20) << "of the highest level";
  ASSERT_EQ(facts.nodes.size(), 2u) << "node 2 has neither CPUs nor memory";
  EXPECT_EQ(facts.nodes[0].cpus, 1) << "CPU 2 is not allowed";
  EXPECT_EQ(facts.nodes[0].memory_bytes, 1 << 20);
  EXPECT_EQ(facts.nodes[1].cpus, 1);
  EXPECT_EQ(facts.memory_bytes, 4 << 20);
  EXPECT_EQ(facts.swap_bytes, 300 * 1024);
  EXPECT_EQ(facts.swap_used_bytes, 200 * 1024);
}

TEST(MachineFacts, OfAnEmptySystemAreUnknown) {
  test::TempFolder root;
  const MachineFacts facts = ReadMachineFacts(root.path());
  EXPECT_EQ(facts.processor, "");
  EXPECT_EQ(facts.online_cpus, 0);
  EXPECT_TRUE(facts.cpus.empty());
  EXPECT_EQ(facts.cores, 0);
  EXPECT_EQ(facts.cache_bytes, 0);
  EXPECT_TRUE(facts.nodes.empty());
  EXPECT_EQ(ReadResidentMemory(root.path()).bytes, -1);
}

TEST(MachineCounters, AddTheAllowedCpusAndSeparateStolenTime) {
  test::TempFolder root;
  root.Write("proc/stat",
             "cpu  999 999 999 999 999 999 999 999 0 0\n"
             "cpu0 1 2 3 1000 50 4 5 6 0 0\ncpu1 10 0 0 1000 0 0 0 7 0 0\ncpu2 100 0 0 0 0 0 0 100 0 0\nintr 3\n");
  root.Write("proc/self/stat", "7 (a) b (c)) S 1 1 1 0 -1 0 0 0 0 0 30 12 0 0 20 0 1 0\n");
  root.Write("proc/vmstat", "nr_free_pages 5\npswpin 3\npswpout 4\n");
  const MachineCounters counters = ReadMachineCounters({0, 1}, root.path());
  const DurationNs tick = kSecond / sysconf(_SC_CLK_TCK);
  EXPECT_EQ(counters.busy_ns, 25 * tick) << "without idle, waiting and stolen time, and without CPU 2";
  EXPECT_EQ(counters.stolen_ns, 13 * tick);
  EXPECT_EQ(counters.own_ns, 42 * tick) << "behind a name with parentheses and spaces";
  EXPECT_EQ(counters.swapped_pages, 7);
}

TEST(ResidentMemory, HasHugePagesOfEveryKind) {
  test::TempFolder root;
  root.Write("proc/self/smaps_rollup",
             "5555-7fff ---p 00000000 00:00 0    [rollup]\nRss:    100 kB\nPss:  90 kB\nAnonHugePages:  64 kB\n"
             "ShmemPmdMapped:  2 kB\nFilePmdMapped:  4 kB\n");
  const ResidentMemory memory = ReadResidentMemory(root.path());
  EXPECT_EQ(memory.bytes, 100 * 1024);
  EXPECT_EQ(memory.huge_bytes, 70 * 1024);
}

}  // namespace
}  // namespace tactus
