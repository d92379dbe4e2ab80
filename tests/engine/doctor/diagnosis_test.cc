// The rules of `tactus doctor`, over injected facts and measurements.
#include "engine/doctor/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

namespace tactus::engine {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// An idle machine of four cores that runs as fast as it can.
Diagnosis Healthy() {
  Diagnosis d;
  d.machine.processor = "CPU";
  d.machine.online_cpus = 4;
  d.machine.cpus = {0, 1, 2, 3};
  d.machine.cores = 4;
  d.machine.pages.huge = "madvise";
  d.machine.nodes = {{.id = 0, .cpus = 4, .memory_bytes = 8 * kGib}};
  d.machine.governor = "schedutil";
  d.machine.now_mhz = 3900;
  d.machine.most_mhz = 4000;
  d.machine.memory_bytes = 8 * kGib;
  d.choice.kernels = {.ops = compute::SelectOps("ref"), .why = "the fastest", .runnable = {"ref"}, .fastest = "ref"};
  d.choice.threads = {4, "one for each of 4 CPUs"};
  d.choice.pages = {.huge = true, .why = "on request"};
  d.best_threads = d.choice.threads;
  d.available_bytes = 6 * kGib;
  d.one = {.f32_flops = 1e11, .bf16_flops = 2e11, .int8_ops = 4e11, .read_bytes = 2e10};
  d.all = {.f32_flops = 4e11, .bf16_flops = 8e11, .int8_ops = 16e11, .read_bytes = 4e10};
  ModelSpeed model;
  model.architecture = "llama";
  model.weight_format = "q8_0";
  model.threads = 4;
  model.resident = {2 * kGib, 19 * kGib / 10};
  // Reading 4e9 bytes takes 100 ms, of which the step takes 125.
  model.steps = {{.decodes = 1, .context = 128, .step_ms = 125, .work = {.memory_bytes = 4'000'000'000}}};
  d.model = model;
  return d;
}

// The one finding with this name.
Finding Only(const Diagnosis& d, const std::string& what) {
  const std::vector<Finding> found = FindingsOf(d);
  EXPECT_EQ(found.size(), 1u) << DiagnosisText(d);
  for (const Finding& f : found) {
    if (f.what != what) continue;
    EXPECT_NE(f.value, "");
    EXPECT_NE(f.limit, "");
    EXPECT_NE(f.advice, "");
    return f;
  }
  ADD_FAILURE() << "no finding about " << what << " in\n" << DiagnosisText(d);
  return {};
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Findings, AreNoneOnAHealthyMachine) {
  EXPECT_TRUE(FindingsOf(Healthy()).empty()) << DiagnosisText(Healthy());
  EXPECT_TRUE(Has(DiagnosisText(Healthy()), "Nothing found that costs speed."));
}

TEST(Findings, NameAForcedKernelSet) {
  Diagnosis d = Healthy();
  d.choice.kernels.why = "TACTUS_KERNELS";
  d.choice.kernels.fastest = "amx";
  const Finding f = Only(d, "kernel set");
  EXPECT_TRUE(Has(f.limit, "amx")) << f.limit;
  EXPECT_TRUE(Has(f.advice, "TACTUS_KERNELS")) << f.advice;
}

TEST(Findings, NameThreadsThatAStartWouldNotChoose) {
  Diagnosis d = Healthy();
  d.choice.threads = {8, "--threads"};
  d.all = {.f32_flops = 4e11, .bf16_flops = 8e11, .int8_ops = 16e11, .read_bytes = 4e10};
  EXPECT_TRUE(Has(Only(d, "threads").advice, "more threads than cores"));
  d.choice.threads = {2, "--threads"};
  d.model->threads = 2;
  EXPECT_TRUE(Has(Only(d, "threads").limit, "4: one for each of 4 CPUs"));
}

TEST(Findings, NameHugePagesThatAreOff) {
  Diagnosis d = Healthy();
  d.choice.pages = {.huge = false, .why = "off (never)", .advice = "turn them on"};
  d.model->resident.huge_bytes = 0;
  d.model->hint = "off (never): turn them on";
  EXPECT_EQ(Only(d, "huge pages").advice, "turn them on") << "once, though a start's advice repeats it";
}

TEST(Findings, NameAModelInSmallPages) {
  Diagnosis d = Healthy();
  d.model->resident = {2 * kGib, kGib};
  EXPECT_TRUE(Has(Only(d, "huge pages").value, "50 % of 2.0 GiB"));
  d.model->resident = {kGib / 8, 0};
  EXPECT_TRUE(FindingsOf(d).empty()) << "a small model does not notice";
}

TEST(Findings, NameAnAffinityAndAQuota) {
  Diagnosis d = Healthy();
  d.machine.online_cpus = 16;
  EXPECT_EQ(Only(d, "affinity").value, "4 of 16 CPUs");
  d = Healthy();
  d.machine.quota_cores = 2.5;
  EXPECT_EQ(Only(d, "CPU quota").value, "2.5 CPUs");
  d.machine.quota_cores = 4;
  EXPECT_TRUE(FindingsOf(d).empty()) << "a quota of all CPUs takes nothing";
}

TEST(Findings, NameThreadsThatShareACore) {
  Diagnosis d = Healthy();
  d.all.int8_ops = 2.2 * d.one.int8_ops;
  EXPECT_EQ(Only(d, "scaling").value, "4 threads multiply 2.2 times as fast as one");
  d.neighbours.other_cpus = 1;
  Only(d, "other processes");  // explains it
  d.neighbours.other_cpus = 0;
  d.machine.cores = 2;
  EXPECT_TRUE(FindingsOf(d).empty()) << "known hyperthreads were chosen because they are faster";
}

TEST(Findings, NameALowFrequencyOnlyWithAGovernorThatLowersIt) {
  Diagnosis d = Healthy();
  d.machine.now_mhz = 2000;
  EXPECT_TRUE(Has(Only(d, "frequency").value, "2000 MHz under load, governor schedutil"));
  d.machine.governor = "performance";
  EXPECT_TRUE(FindingsOf(d).empty());
}

TEST(Findings, NameSeveralNodes) {
  Diagnosis d = Healthy();
  d.machine.nodes = {{.id = 0, .cpus = 2}, {.id = 1, .cpus = 2}};
  EXPECT_TRUE(Has(Only(d, "NUMA").advice, "node 1"));
  d.machine.nodes[1].cpus = 0;
  EXPECT_TRUE(FindingsOf(d).empty()) << "all CPUs are on one";
}

TEST(Findings, NameLittleMemoryAndSwapping) {
  Diagnosis d = Healthy();
  d.available_bytes = kGib / 2;
  EXPECT_EQ(Only(d, "memory").value, "0.5 GiB left");
  d.available_bytes = -1;
  EXPECT_TRUE(FindingsOf(d).empty()) << "unknown is not little";
  d.neighbours.swapped_pages = 9;
  EXPECT_TRUE(Has(Only(d, "swap").value, "9 pages"));
}

TEST(Findings, NameEveryKindOfNeighbour) {
  Diagnosis d = Healthy();
  d.neighbours.other_cpus = 0.5;
  d.neighbours.switches_per_s = 1000;
  EXPECT_TRUE(Has(Only(d, "other processes").value, "0.5 CPUs")) << "which explains the switches";
  d.neighbours.other_cpus = 0.2;
  EXPECT_TRUE(Has(Only(d, "lost cores").value, "1000 times a second"));
  d = Healthy();
  d.neighbours.stolen_share = 0.03;
  EXPECT_EQ(Only(d, "stolen time").value, "3.0 %");
  d = Healthy();
  d.neighbours.throttled_share = 0.1;
  EXPECT_EQ(Only(d, "throttling").value, "10.0 % of the time");
}

TEST(Findings, NameAStepFarFromItsFloor) {
  Diagnosis d = Healthy();
  d.model->steps[0].step_ms = 250;
  const Finding f = Only(d, "decode of 1");
  EXPECT_EQ(f.value, "40 % of its floor");
  EXPECT_TRUE(Has(f.advice, "report it")) << f.advice;
  d.neighbours.other_cpus = 1;
  const std::vector<Finding> both = FindingsOf(d);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(Has(both[1].advice, "mend the findings above")) << both[1].advice;
}

TEST(Findings, ExpectNoShareOfTheRateOfMatrixTiles) {
  Diagnosis d = Healthy();
  compute::Ops tiles = *d.choice.kernels.ops;
  tiles.name = "amx";
  d.choice.kernels.ops = &tiles;
  d.choice.kernels.fastest = "amx";
  d.model->steps[0].work = {.integer_products = 4'000'000'000};  // 2.5 of the 125 ms
  EXPECT_TRUE(FindingsOf(d).empty()) << DiagnosisText(d);
  d.choice.kernels.ops = compute::SelectOps("ref");
  d.choice.kernels.fastest = "ref";
  EXPECT_EQ(Only(d, "decode of 1").value, "2 % of its floor");
}

TEST(Floor, IsTheLargerOfReadingAndProductsByTheirArithmetic) {
  const compute::Ceilings all = {.f32_flops = 1e11, .bf16_flops = 2e11, .int8_ops = 4e11, .read_bytes = 1e10};
  StepSpeed step;
  step.work = {.memory_bytes = 1'000'000'000,
               .integer_products = 40'000'000'000,
               .bf16_products = 20'000'000'000,
               .f32_products = 10'000'000'000};
  StepFloor floor = FloorOf(step, all, 0);
  EXPECT_NEAR(floor.memory_ms, 100, 1e-6);
  EXPECT_NEAR(floor.arithmetic_ms, 300, 1e-6) << "100 ms each";
  EXPECT_NEAR(floor.floor_ms(), 300, 1e-6);
  EXPECT_FALSE(floor.cached);
  EXPECT_TRUE(FloorOf(step, all, 2 * kGib).cached);
  floor = FloorOf(step, {.f32_flops = 1e11, .read_bytes = 1e10}, 0);
  EXPECT_NEAR(floor.arithmetic_ms, 700, 1e-6) << "without instructions of their own, products are f32's";
  EXPECT_EQ(FloorOf(StepSpeed(), all, 2 * kGib).floor_ms(), 0) << "nothing counted";
  EXPECT_FALSE(FloorOf(StepSpeed(), all, 2 * kGib).cached);
}

TEST(Neighbours, AreDifferencesOfCounters) {
  const MachineCounters begin = {.busy_ns = kSecond, .stolen_ns = 5, .own_ns = kSecond, .swapped_pages = 3};
  MachineCounters middle = begin;
  middle.busy_ns += 3 * kSecond / 2;
  middle.own_ns += kSecond / 2;
  MachineCounters end = middle;
  end.stolen_ns += kSecond / 5;
  end.involuntary_switches = 60;
  end.throttled_ns = kSecond;
  end.swapped_pages += 2;
  const Neighbours n = NeighboursOf(begin, middle, end, 2 * kSecond, 3 * kSecond, 2);
  EXPECT_DOUBLE_EQ(n.other_cpus, 0.5);
  EXPECT_DOUBLE_EQ(n.stolen_share, 0.02) << "of five seconds of two CPUs";
  EXPECT_DOUBLE_EQ(n.switches_per_s, 20);
  EXPECT_DOUBLE_EQ(n.throttled_share, 1.0 / 6);
  EXPECT_EQ(n.swapped_pages, 2);
  EXPECT_EQ(NeighboursOf(middle, begin, begin, kSecond, kSecond, 1).other_cpus, 0) << "never below 0";
}

TEST(DiagnosisJson, HasNullForWhatIsUnknown) {
  const Json empty = DiagnosisJson({});
  EXPECT_TRUE(empty.at("machine").at("processor").is_null());
  EXPECT_TRUE(empty.at("machine").at("cpus").is_null());
  EXPECT_TRUE(empty.at("machine").at("available_bytes").is_null());
  EXPECT_TRUE(empty.at("choice").at("kernels").is_null());
  EXPECT_TRUE(empty.at("one_thread").at("read_bytes_per_s").is_null());
  EXPECT_TRUE(empty.at("model").is_null());
  const Json full = DiagnosisJson(Healthy());
  EXPECT_EQ(full.at("machine").at("cpus"), 4);
  EXPECT_TRUE(full.at("machine").at("quota_cpus").is_null());
  EXPECT_NEAR(full.at("model").at("steps").at(0).at("share").get<double>(), 0.8, 1e-6);
}

TEST(DiagnosisText, HasUnknownsOfAnEmptyMachine) {
  const std::string text = DiagnosisText({});
  EXPECT_TRUE(Has(text, "processor   unknown")) << text;
}

}  // namespace
}  // namespace tactus::engine
