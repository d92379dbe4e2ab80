#include "engine/doctor/examine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/available_memory.h"
#include "base/shortage.h"

namespace tactus::engine {
namespace {

constexpr DurationNs kQuiet = kSecond;              // long enough for clock ticks of 10 ms
constexpr DurationNs kLongestPrompt = 4 * kSecond;  // of one measured step
constexpr DurationNs kCeilingsTime = 4 * kSecond;   // of measuring ceilings, which neighbours make longer
constexpr int kRounds = 5;                          // of measuring ceilings: neighbours disturb some of them

compute::Ceilings Better(const compute::Ceilings& a, const compute::Ceilings& b) {
  return {std::max(a.f32_flops, b.f32_flops), std::max(a.bf16_flops, b.bf16_flops), std::max(a.int8_ops, b.int8_ops),
          std::max(a.read_bytes, b.read_bytes)};
}

// A gigabyte, or less on a small machine; too little to leave the caches: none.
int64_t ReadBytes(int64_t available_bytes) {
  constexpr int64_t kLeast = int64_t{128} << 20;
  if (available_bytes < 0) return compute::CeilingMeter::kReadBytes;
  const int64_t bytes = std::min(compute::CeilingMeter::kReadBytes, available_bytes / 4);
  return bytes < kLeast ? 0 : bytes;
}

void MeasureCeilings(Diagnosis* d, const Backend::Say& say, Clock& clock) {
  say("measuring memory and products");
  compute::CeilingMeter meter(clock, ReadBytes(d->available_bytes));
  const compute::CeilingLoops loops = compute::LoopsOf(d->choice.kernels.ops->name);
  compute::ThreadPool one(1, clock), all(d->choice.threads.threads, clock);
  const TimeNs begin_ns = clock.NowNs();
  for (int round = 0; round < kRounds && (round == 0 || clock.NowNs() - begin_ns < kCeilingsTime); ++round) {
    d->one = Better(d->one, meter.Measure(one, loops));
    d->all = Better(d->all, meter.Measure(all, loops));
  }
}

Result<Diagnosis> Measure(const EngineOptions& options, bool with_model, const Backend::Say& say, Clock& clock) {
  Diagnosis d;
  TACTUS_ASSIGN_OR_RETURN(d.choice, compute::ChooseForMachine(options, clock));
  EngineOptions unforced = options;
  unforced.threads = 0;
  TACTUS_ASSIGN_OR_RETURN(const compute::MachineChoice best, compute::ChooseForMachine(unforced, clock));
  d.best_threads = best.threads;
  if (with_model) {
    TACTUS_ASSIGN_OR_RETURN(d.model, MeasureModelSpeed(options, kLongestPrompt, say, clock));
  }
  d.machine = ReadMachineFacts();
  d.available_bytes = AvailableMemoryBytes();
  const std::vector<int32_t>& cpus = d.machine.cpus;
  say("watching other processes");
  const MachineCounters begin = ReadMachineCounters(cpus);
  const TimeNs begin_ns = clock.NowNs();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kQuiet));
  const MachineCounters middle = ReadMachineCounters(cpus);
  const TimeNs middle_ns = clock.NowNs();
  MeasureCeilings(&d, say, clock);
  const MachineCounters end = ReadMachineCounters(cpus);
  d.neighbours = NeighboursOf(begin, middle, end, middle_ns - begin_ns, clock.NowNs() - middle_ns,
                              static_cast<int32_t>(cpus.size()));
  d.machine.now_mhz = ReadMachineFacts().now_mhz;  // still as under load
  return d;
}

}  // namespace

Result<Diagnosis> Examine(const EngineOptions& options, bool with_model, const Backend::Say& say, Clock& clock) {
  return CatchShortage([&] { return Measure(options, with_model, say, clock); });
}

}  // namespace tactus::engine
