#include "compute/cuda/device_support.h"

#include <gtest/gtest.h>

namespace tactus::compute::cuda {
namespace {

TEST(DeviceSupport, CodeRunsOnLaterCardsOfItsMajorVersion) {
  EXPECT_TRUE(HasCodeFor("80,86,90a", 80));
  EXPECT_TRUE(HasCodeFor("80,86,90a", 89));
  EXPECT_FALSE(HasCodeFor("86,90a", 80));
  EXPECT_FALSE(HasCodeFor("80,86", 75));
  EXPECT_FALSE(HasCodeFor("80", 90));
  EXPECT_FALSE(HasCodeFor("", 80));
}

TEST(DeviceSupport, CodeOfAnArchitectureWithALetterRunsOnThatAlone) {
  EXPECT_TRUE(HasCodeFor("90a", 90));
  EXPECT_FALSE(HasCodeFor("100a", 103));
  EXPECT_TRUE(HasCodeFor("100", 103));
  EXPECT_TRUE(HasCodeFor("100a,120a", 120));
}

TEST(DeviceSupport, MissingCodeNamesWhatTheBuildHas) {
  EXPECT_EQ(NoCodeText("NVIDIA B300", 103, "80,90a,100a"),
            "NVIDIA B300 has compute capability 10.3, and this build has code for 8.0, 9.0, 10.0: configure it with "
            "-DTACTUS_CUDA_ARCHITECTURES=103");
}

TEST(DeviceSupport, DriverReleaseIsReadFromTheModulesLine) {
  EXPECT_EQ(DriverReleaseOf("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jun  3 2025"),
            "580.159.04");
  EXPECT_EQ(DriverReleaseOf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"),
            "570.86.15");
  EXPECT_EQ(DriverReleaseOf(""), "");
  EXPECT_EQ(DriverReleaseOf("no release"), "");
}

TEST(DeviceSupport, DriverTextsNameWhatIsThereAndWhatIsNeeded) {
  EXPECT_EQ(OldDriverText(0, "", 13000),
            "no NVIDIA driver is installed (libcuda.so.1 is missing, or its kernel module is not loaded); CUDA 13.0 "
            "needs release 580 or later");
  EXPECT_EQ(OldDriverText(0, "580.65", 13000),
            "the kernel module of the NVIDIA driver 580.65 is loaded, but libcuda.so.1 is missing; CUDA 13.0 needs "
            "release 580 or later");
  EXPECT_EQ(OldDriverText(12020, "535.104", 12080).find("the NVIDIA driver 535.104 is too old: it supports CUDA 12.2"),
            0u);
  EXPECT_NE(OldDriverText(12020, "535.104", 12080).find("release 525"), std::string::npos);
}

}  // namespace
}  // namespace tactus::compute::cuda
