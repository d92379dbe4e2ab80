// --device, and the library of a device's backend: fakes of it, built from fake_device_library.cc.
#include "compute/exec/device_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "compute/exec/make_backend.h"
#include "support/source_path.h"

namespace tactus::compute {
namespace {

class DeviceLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto description = DescribeModel(test::SourcePath("tests/golden/data/llama-gqa"));
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    description_ = *description;
    options_.threads = 1;
  }
  void TearDown() override { unsetenv("TACTUS_CUDA_LIBRARY"); }

  // `file`: of the library, by TACTUS_CUDA_LIBRARY. `has_device`: whether the machine has a device's file.
  Result<std::unique_ptr<Backend>> Make(const std::string& device, const std::string& file, bool has_device = true) {
    setenv("TACTUS_CUDA_LIBRARY", file.c_str(), 1);
    options_.device = device;
    const std::string device_file = has_device ? test::SourcePath("README.md") : "/nowhere/nvidiactl";
    return MakeBackendOf({device_file, DeviceLibraryPaths()}, options_, description_, clock_);
  }
  static std::string DeviceOf(const Result<std::unique_ptr<Backend>>& backend) {
    return backend.ok() ? (*backend)->Info().devices.at(0).name : backend.status().ToString();
  }

  ModelDescription description_;
  EngineOptions options_;
  ManualClock clock_{1000};
};

TEST_F(DeviceLibraryTest, CudaUsesTheLibrarysBackend) {
  EXPECT_EQ(DeviceOf(Make("cuda", FAKE_DEVICE_LIBRARY)), "fake device");
  EXPECT_EQ(DeviceOf(Make("cuda", FAKE_DEVICE_LIBRARY, false)), "fake device");
}

TEST_F(DeviceLibraryTest, AutoUsesTheDeviceOnlyWhereOneIs) {
  EXPECT_EQ(DeviceOf(Make("auto", FAKE_DEVICE_LIBRARY)), "fake device");
  const auto without = Make("auto", FAKE_DEVICE_LIBRARY, false);
  EXPECT_EQ(DeviceOf(without).rfind("cpu (", 0), 0u);
  EXPECT_EQ((*without)->Info().hint.find("GPU"), std::string::npos);
}

TEST_F(DeviceLibraryTest, CpuLoadsNoLibrary) {
  EXPECT_EQ(DeviceOf(Make("cpu", FAKE_DEVICE_LIBRARY_OTHER)).rfind("cpu (", 0), 0u);
  EXPECT_EQ((*Make("cpu", FAKE_DEVICE_LIBRARY_OTHER))->Info().hint.find("GPU"), std::string::npos);
}

TEST_F(DeviceLibraryTest, AutoFallsBackToTheCpuAndHintsWhy) {
  options_.dtype = "float32";
  const auto backend = Make("auto", FAKE_DEVICE_LIBRARY);
  EXPECT_EQ(DeviceOf(backend).rfind("cpu (", 0), 0u);
  EXPECT_EQ((*backend)->Info().hint, "the GPU of this machine is not used: no driver is installed");
}

TEST_F(DeviceLibraryTest, LibraryCanBeHidden) {
  const auto backend = Make("auto", "none");
  EXPECT_EQ(DeviceOf(backend).rfind("cpu (", 0), 0u);
  EXPECT_EQ((*backend)->Info().hint.find("GPU"), std::string::npos);
  EXPECT_EQ(Make("cuda", "none").status().code(), StatusCode::kUnavailable);
}

TEST_F(DeviceLibraryTest, CudaReportsWhatTheBackendReports) {
  options_.dtype = "float32";
  const Status missing = Make("cuda", FAKE_DEVICE_LIBRARY).status();
  EXPECT_EQ(missing.code(), StatusCode::kUnavailable);
  EXPECT_EQ(missing.message(), "--device cuda: no driver is installed");
  EXPECT_EQ(missing.param(), "device");
  options_.dtype = "auto";
  options_.kernels = "avx2";
  const Status refused = Make("cuda", FAKE_DEVICE_LIBRARY).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.param(), "kernels");
}

TEST_F(DeviceLibraryTest, MissingLibraryIsAnErrorWithThePlaces) {
  const Status status = Make("cuda", "/nowhere/libtactus_cuda.so").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("(looked for: /nowhere/libtactus_cuda.so)"), std::string::npos) << status.message();
}

TEST_F(DeviceLibraryTest, LibraryOfAnotherBuildIsRefusedWithBothVersions) {
  const Status status = Make("cuda", FAKE_DEVICE_LIBRARY_OTHER).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("of another build (tactus 0.0.9)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(DeviceLibraryVersion()), std::string::npos);
}

TEST_F(DeviceLibraryTest, LibraryWithoutTheFunctionIsRefused) {
  const Status status = Make("cuda", FAKE_DEVICE_LIBRARY_EMPTY).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("it has no tactus_device_library"), std::string::npos) << status.message();
}

TEST_F(DeviceLibraryTest, FileThatIsNoLibraryIsRefused) {
  const Status status = Make("cuda", test::SourcePath("README.md")).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("cannot be loaded"), std::string::npos) << status.message();
}

TEST_F(DeviceLibraryTest, LibraryIsLookedForBesideTheProgramAndInItsLibFolders) {
  unsetenv("TACTUS_CUDA_LIBRARY");
  const std::vector<std::string> paths = DeviceLibraryPaths();
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  ASSERT_GE(paths.size(), 2u);
  EXPECT_EQ(paths[0], own / "libtactus_cuda.so");
  EXPECT_EQ(paths[1], own.parent_path() / "lib/tactus/libtactus_cuda.so");
}

}  // namespace
}  // namespace tactus::compute
