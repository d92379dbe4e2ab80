// What a start chooses by the machine.
#include "compute/exec/machine_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/temp_folder.h"

namespace tactus::compute {
namespace {

double NotMeasured(int32_t) {
  ADD_FAILURE() << "there are no hyperthreads whose gain could be measured";
  return 1;
}

ThreadChoice Choose(int64_t wanted, const CpuBounds& bounds, const ThreadGain& gain = NotMeasured) {
  return ChooseThreads(wanted, bounds, gain);
}

TEST(ChooseThreads, AreOnePerCpuWithoutHyperthreads) {
  EXPECT_EQ(Choose(0, {.cpus = 4, .cores = 4}).threads, 4);
  EXPECT_EQ(Choose(0, {.cpus = 4, .cores = 0}).threads, 4) << "unknown cores";
  EXPECT_EQ(Choose(0, {.cpus = 1, .cores = 1}).threads, 1);
  EXPECT_EQ(Choose(7, {.cpus = 4, .cores = 2}).threads, 7) << "--threads decides";
}

TEST(ChooseThreads, AQuotaOfWholeCpusBoundsThem) {
  EXPECT_EQ(Choose(0, {.cpus = 8, .cores = 8, .quota_cores = 2.5}).threads, 2);
  EXPECT_EQ(Choose(0, {.cpus = 8, .cores = 8, .quota_cores = 0.5}).threads, 1);
  EXPECT_EQ(Choose(0, {.cpus = 2, .cores = 2, .quota_cores = 6}).threads, 2);
  EXPECT_EQ(Choose(0, {.cpus = 8, .cores = 4, .quota_cores = 3}).threads, 3) << "fewer than cores: nothing to measure";
  EXPECT_NE(Choose(0, {.cpus = 8, .cores = 8, .quota_cores = 2.5}).why.find("quota is 2.5 of 8"), std::string::npos);
}

TEST(ChooseThreads, HyperthreadsAreUsedIfTheyAreFaster) {
  int32_t asked = 0;
  const auto gain = [&](double by) {
    return [&asked, by](int32_t threads) {
      asked = threads;
      return by;
    };
  };
  EXPECT_EQ(Choose(0, {.cpus = 16, .cores = 8}, gain(1.2)).threads, 16);
  EXPECT_EQ(asked, 16);
  EXPECT_EQ(Choose(0, {.cpus = 16, .cores = 8}, gain(1.02)).threads, 8) << "not worth a second thread";
  EXPECT_EQ(Choose(0, {.cpus = 16, .cores = 8, .quota_cores = 12}, gain(1.2)).threads, 12);
  EXPECT_EQ(asked, 12) << "the gain of as many as the quota leaves";
}

TEST(CpuBounds, AreReadFromTheSystem) {
  test::TempFolder root;
  root.Write("proc/self/status", "Cpus_allowed_list:\t0-1\n");
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  for (const char* cpu : {"cpu0", "cpu1"})
    root.Write(std::string("sys/devices/system/cpu/") + cpu + "/topology/core_cpus_list", "0-1\n");
  const CpuBounds bounds = ReadCpuBounds(root.path());
  EXPECT_EQ(bounds.cpus, 2);
  EXPECT_EQ(bounds.cores, 1);
  EXPECT_DOUBLE_EQ(bounds.quota_cores, 1.5);
}

TEST(ChooseKernels, NamesTheForceAndTheFastest) {
  ASSERT_EQ(unsetenv("TACTUS_KERNELS"), 0);
  const auto fastest = ChooseKernels("");
  ASSERT_TRUE(fastest.ok()) << fastest.status().message();
  EXPECT_EQ(fastest->ops->name, fastest->fastest);
  EXPECT_EQ(fastest->runnable.back(), fastest->fastest);
  const auto forced = ChooseKernels("ref");
  ASSERT_TRUE(forced.ok()) << forced.status().message();
  EXPECT_STREQ(forced->ops->name, "ref");
  EXPECT_EQ(forced->why, "--kernels");
  EXPECT_EQ(forced->fastest, fastest->fastest);
  ASSERT_EQ(setenv("TACTUS_KERNELS", "ref", 1), 0);
  EXPECT_EQ(ChooseKernels("")->why, "TACTUS_KERNELS");
  ASSERT_EQ(unsetenv("TACTUS_KERNELS"), 0);
  const auto none = ChooseKernels("sse9");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("this program runs ref"), std::string::npos) << none.status().message();
}

TEST(ChoosePages, AdviseOnlyWhereHugePagesAreOff) {
  EXPECT_TRUE(ChoosePages({.huge = "madvise"}).huge);
  EXPECT_EQ(ChoosePages({.huge = "madvise"}).advice, "");
  EXPECT_TRUE(ChoosePages({.huge = "always"}).huge);
  const PageChoice never = ChoosePages({.huge = "never"});
  EXPECT_FALSE(never.huge);
  EXPECT_NE(never.advice.find("transparent_hugepage/enabled"), std::string::npos) << never.advice;
  EXPECT_FALSE(ChoosePages({.huge = "always", .forbidden = true}).huge);
  EXPECT_NE(ChoosePages({.huge = "always", .forbidden = true}).advice, "");
  EXPECT_FALSE(ChoosePages({}).huge);
  EXPECT_EQ(ChoosePages({}).advice, "") << "nothing is known to be wrong";
}

}  // namespace
}  // namespace tactus::compute
