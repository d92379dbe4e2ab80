// Host times of the backends: stated, estimated or measured.
#include "cost/host_times.h"

#include <gtest/gtest.h>

#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

HostTimes Of(const std::string& backend, const char* device, int32_t tp = 1, int32_t pp = 1, DurationNs stated = -1) {
  const auto found = FindHostTimes(backend, stated, *FindDevice(device), tp, pp);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.value();
}

TEST(HostTimes, UnmeasuredBackendHasOneFigure) {
  const HostTimes ours = Of("", "h100", 4, 2);
  EXPECT_EQ(ours.StageNs(0, 2, 100), 50e3);
  EXPECT_EQ(ours.StageNs(1, 2, 100), 0);
  EXPECT_EQ(ours.all_reduce_ns, 0) << "a captured graph";
  EXPECT_EQ(Of("vllm", "h100").step.base_ns, 500e3);
  EXPECT_EQ(Describe(ours, 2), "50 us of host time per step");
}

// cpu_overhead.csv, Llama-2-70B, 32 sequences, in ms: four A100 0.52 + 0.68 + 6.67 (driver), 0.89 (worker), 0.65
// (sampling); four A40 0.74 + 1.62 + 5.05, 1.55 and 7.01.
TEST(HostTimes, PythonEngineMatchesItsMeasurements) {
  const HostTimes a100 = Of("vllm-ray", "a100", 4), a40 = Of("vllm-ray", "a40", 4);
  EXPECT_NEAR(a100.step.At(32), 7.87e6, 0.25e6);
  EXPECT_NEAR(a100.stage.At(32), 0.89e6, 0.03e6);
  EXPECT_NEAR(a100.sampler.At(32), 0.65e6, 0.1e6);
  EXPECT_NEAR(a40.StageNs(0, 1, 32), 15.97e6, 1.2e6);
  EXPECT_GT(a40.step.At(128), a40.step.At(8) + 5e6) << "Python iterates over the sequences";
  // One device needs no Ray.
  EXPECT_LT(Of("vllm-ray", "a100").step.At(0), 0.3e6);
}

TEST(HostTimes, UnmeasuredDeviceOrSplitUsesTheNearest) {
  EXPECT_EQ(Of("vllm-ray", "h100", 4).step.base_ns, Of("vllm-ray", "a100", 4).step.base_ns);
  EXPECT_EQ(Of("vllm-ray", "a100", 8).stage.base_ns, Of("vllm-ray", "a100", 4).stage.base_ns);
  EXPECT_EQ(Of("vllm-ray", "a100", 3).stage.base_ns, Of("vllm-ray", "a100", 4).stage.base_ns) << "nearest ratio";
  // The driver calls the workers of both stages; inputs are prepared for a stage's devices.
  const HostTimes two_stages = Of("vllm-ray", "a40", 4, 2);
  EXPECT_EQ(two_stages.step.base_ns, Of("vllm-ray", "a40", 8).step.base_ns);
  EXPECT_EQ(two_stages.stage.base_ns, Of("vllm-ray", "a40", 4).stage.base_ns);
  // All-reduces outside graphs: 45 us instead of 5 on A100, 21 on H100.
  EXPECT_NEAR(Of("vllm-ray", "a100", 2).all_reduce_ns, 39e3, 1e3);
  EXPECT_NEAR(Of("vllm-ray", "h100", 2).all_reduce_ns, 17e3, 1e3);
  EXPECT_EQ(Of("vllm-ray", "a40", 2).all_reduce_ns, Of("vllm-ray", "a100", 2).all_reduce_ns);
}

// A decode step of Llama-2-70B (80 layers) takes 45 ms on four and on eight A100, 30 ms on eight H100.
TEST(HostTimes, LayerLaunchesTakeTheMeasuredTime) {
  EXPECT_NEAR(Of("vllm-ray", "a100", 8).layer_ns, (45.0 - 8.1) / 80 * 1e6, 15e3);
  EXPECT_NEAR(Of("vllm-ray", "h100", 8).layer_ns, (30.0 - 8.1) / 80 * 1e6, 15e3);
  EXPECT_EQ(Of("vllm", "a100", 8).layer_ns, 0);
}

// A stated time replaces all other host time, except the launches of all-reduces.
TEST(HostTimes, StatedTimeCountsOncePerStep) {
  const HostTimes stated = Of("vllm-ray", "a100", 4, 2, 7000);
  EXPECT_EQ(stated.StageNs(0, 2, 100), 7000);
  EXPECT_EQ(stated.StageNs(1, 2, 100), 0);
  EXPECT_GT(stated.all_reduce_ns, 0);
  EXPECT_EQ(Of("trtllm", "a100", 1, 1, 0).step.base_ns, 0);
}

TEST(HostTimes, MeasuredHostIsDescribedPerStepAndSequence) {
  HostTimes host;
  host.step = {6'000'000, 30'000};
  host.stage = {700'000, 5'000};
  host.sampler = {500'000, 6'000};
  EXPECT_EQ(Describe(host, 1), "7200 us of host time per step and 41 per sequence in it");
  EXPECT_EQ(Describe(host, 2), "7900 us of host time per step and 46 per sequence in it");
}

TEST(HostTimes, AnUnknownBackendIsRefused) {
  const auto none = FindHostTimes("mystery", -1, *FindDevice("a100"), 1, 1);
  EXPECT_EQ(none.status().param(), "backend");
  EXPECT_NE(none.status().message().find("vllm-ray"), std::string::npos) << none.status().message();
}

}  // namespace
}  // namespace tactus::cost
