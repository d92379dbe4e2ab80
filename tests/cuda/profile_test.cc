// `tactus profile` on a device: the library of the backend over the emulated device, behind the doors of a program.
// Its times mean nothing.
#include "engine/step_times/profile_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/clock.h"
#include "compute/exec/make_backend.h"
#include "engine/step_times/find_step_times.h"
#include "support/source_path.h"
#include "tactus/engine.h"

namespace tactus::engine {
namespace {

constexpr int32_t kSequences = 4, kStepTokens = 24, kContext = 64;

EngineOptions OnDevice() {
  setenv("TACTUS_CUDA_LIBRARY", TACTUS_EMULATED_CUDA, 1);
  EngineOptions o;
  o.model = test::SourcePath("tests/golden/data/llama-gqa");
  o.device = "cuda";
  o.threads = 1;
  o.max_num_seqs = kSequences;
  o.token_budget = kStepTokens;
  o.kv_cache_memory.bytes = 1 << 20;
  o.scheduler = "sarathi-serve";
  o.tbt_slo.ns = kSecond;
  return o;
}

// Every point once, whatever the time.
ProfileOptions OncePerPoint() {
  ProfileOptions options;
  options.time_limit_ns = 1;
  options.max_points = options.least_points = 14;
  options.longest_step_ns = 3600 * kSecond;
  options.enough_ns = 1;
  options.max_context = kContext;
  return options;
}

TEST(DeviceProfile, HasTheDevicesStepsUpToItsLimits) {
  auto measured = ProfileModel(OnDevice(), OncePerPoint(), SystemClock());
  ASSERT_TRUE(measured.ok()) << measured.status().ToString();
  EXPECT_EQ(measured->remarks.at("device"), "emulated device");
  EXPECT_EQ(measured->remarks.at("driver"), "emulator");
  EXPECT_NE(measured->remarks.at("dtype").find("bf16 activations, KV bf16"), std::string::npos)
      << measured->remarks.at("dtype");
  ASSERT_EQ(measured->samples.size(), 14u);
  cost::StepSample most;
  for (const cost::StepSample& s : measured->samples) {
    EXPECT_GT(s.step_ms, 0);
    most.prefill_tokens = std::max(most.prefill_tokens, s.prefill_tokens);
    most.prefill_context = std::max(most.prefill_context, s.prefill_context);
    most.decodes = std::max(most.decodes, s.decodes);
    most.decode_context_tokens = std::max(most.decode_context_tokens, s.decode_context_tokens);
  }
  EXPECT_EQ(most.prefill_tokens, kStepTokens);
  EXPECT_GE(most.prefill_context, kContext - kStepTokens);
  EXPECT_EQ(most.decodes, kSequences);
  EXPECT_EQ(most.decode_context_tokens, kSequences * kContext);

  const auto fitted = FitMeasured(&*measured);
  ASSERT_TRUE(fitted.ok()) << fitted.status().ToString();
  const auto read = cost::ParseStepProfile("profile.csv", ProfileText(*measured));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ((*read)->remarks(), measured->remarks);
  const auto overlap = cost::NotedOverlap(measured->remarks);
  EXPECT_TRUE(overlap.ok() && !overlap->has_value()) << "steps run in one part";
}

TEST(DeviceProfile, MeasuresStepsInTwoPartsIfTheServerRunsThem) {
  EngineOptions options = OnDevice();
  options.overlap = "nano";
  auto measured = ProfileModel(options, OncePerPoint(), SystemClock());
  ASSERT_TRUE(measured.ok()) << measured.status().ToString();
  EXPECT_EQ(measured->remarks.at("overlap"), "nano");
  ASSERT_GE(measured->split_steps.size(), 6u);
  for (const cost::SplitSample& s : measured->split_steps) {
    EXPECT_GE(s.tokens, 2) << "a step of one token is in one part";
    for (const double t : {s.times.compute, s.times.memory, s.times.together, s.times.whole, s.times.split}) {
      EXPECT_GT(t, 0);
    }
    EXPECT_LT(s.times.compute, s.times.whole) << "the emulated device counts launches";
    EXPECT_LT(s.times.memory, s.times.whole);
  }
  ASSERT_TRUE(FitMeasured(&*measured).ok());
  const auto overlap = cost::NotedOverlap(measured->remarks);
  ASSERT_TRUE(overlap.ok() && overlap->has_value());
  EXPECT_EQ((*overlap)->interference, 0) << "the emulated device counts the work of each stream by itself";
}

TEST(DeviceProfile, DefaultFileIsNamedByTheDevice) {
  const auto gpu = DefaultProfilePath(OnDevice(), SystemClock());
  ASSERT_TRUE(gpu.ok()) << gpu.status().ToString();
  EXPECT_NE(gpu->find("/profiles/llama-gqa-emulated-device.csv"), std::string::npos) << *gpu;
  EngineOptions cpu = OnDevice();
  cpu.device = "cpu";
  EXPECT_NE(*gpu, *DefaultProfilePath(cpu, SystemClock()));
}

// A server finds the file, and uses it if device, types of values and overlap are its own.
TEST(DeviceProfile, ServerUsesTheStepTimesOfItsDeviceAndArithmetic) {
  const std::string cache = ::testing::TempDir() + "device_profile_cache";
  setenv("TACTUS_CACHE_DIR", cache.c_str(), 1);
  EngineOptions options = OnDevice();
  const std::string path = *DefaultProfilePath(options, SystemClock());
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  MeasuredProfile profile;
  const auto description = compute::DescribeModel(options.model);
  const auto backend = [&] {
    auto made = compute::MakeBackend(options, *description, SystemClock());
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return std::move(made).value();
  };
  profile.remarks = backend()->Info().remarks;
  for (int32_t i = 0; i < 16; ++i) profile.samples.push_back({i, 0, 4, 100 + 10 * i, 1.0 + i});
  cost::NoteOverlap({.interference = 0.3, .least_split_tokens = 77}, &profile.remarks);
  const auto find = [&](const std::map<std::string, std::string>& changed) {
    MeasuredProfile written = profile;
    for (const auto& [key, value] : changed) written.remarks[key] = value;
    std::ofstream(path) << ProfileText(written);
    auto found = FindStepTimes(options, *description, backend()->Info());
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    return std::move(found).value();
  };
  EXPECT_NE(find({}).profile, nullptr);
  EXPECT_FALSE(find({}).overlap.has_value()) << "--overlap is off";
  for (const char* key : {"device", "driver", "kernels", "arithmetic", "overlap"}) {
    const FoundStepTimes found = find({{key, "another"}});
    EXPECT_EQ(found.profile, nullptr) << key;
    ASSERT_EQ(found.notes.size(), 1u) << key;
    EXPECT_NE(found.notes[0].find(std::string("measured with ") + key), std::string::npos) << found.notes[0];
  }
  options.overlap = "nano";
  const FoundStepTimes nano = find({{"overlap", "nano"}});
  ASSERT_TRUE(nano.overlap.has_value());
  EXPECT_EQ(nano.overlap->least_split_tokens, 77);
  EXPECT_EQ(nano.overlap->interference, 0.3);
  const auto start = [&] {
    std::string lines;
    const auto engine = Engine::Create(options, [&](std::string_view line) { lines += std::string(line) + "\n"; });
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return lines;
  };
  EXPECT_NE(start().find("steps of 77 tokens or more run in two parts (measured)"), std::string::npos) << start();
  const FoundStepTimes damaged = find({{"overlap", "nano"}, {"overlap interference", "much"}});
  EXPECT_NE(damaged.profile, nullptr) << "a wrong remark prevents a start";
  EXPECT_FALSE(damaged.overlap.has_value());
  ASSERT_EQ(damaged.notes.size(), 2u);
  EXPECT_NE(damaged.notes[0].find("'overlap interference' is 'much'"), std::string::npos) << damaged.notes[0];
  std::filesystem::remove(path);
  EXPECT_NE(start().find("steps of 256 tokens or more run in two parts (a default"), std::string::npos) << start();
  std::filesystem::remove_all(cache);
  unsetenv("TACTUS_CACHE_DIR");
}

}  // namespace
}  // namespace tactus::engine
