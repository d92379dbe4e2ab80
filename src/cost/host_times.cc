#include "cost/host_times.h"

#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "cost/embedded_data.h"
#include "cost/json_record.h"

namespace tactus::cost {
namespace {

struct Backend {
  const char* name;
  double step_ns;  // below 0: from host.json
};
// docs/concepts/cost_model.md, "CPU overhead", explains these.
constexpr Backend kBackends[] = {{"", 50e3}, {"vllm", 500e3}, {"sglang", 100e3}, {"trtllm", 100e3}, {"vllm-ray", -1}};

// Devices without measurements: their hosts are assumed to equal those of A100s.
constexpr char kUsual[] = "a100";

struct MeasuredHost {
  std::string backend, fit;
  int32_t tp = 1;
  HostTimes times;
};
struct MeasuredHosts {
  std::vector<MeasuredHost> hosts;
  std::vector<std::pair<std::string, double>> all_reduce_ns, layer_ns;  // by fit
};

// The file is part of the program: a broken one is a bug, not an input error.
MeasuredHosts ReadHosts() {
  constexpr double kMostUs = 1e6;
  MeasuredHosts found;
  const Status status = JsonRecord::Read(EmbeddedText("host.json"), "host.json", [&](JsonRecord& file) {
    file.Text("source");
    file.Each("errors", [](JsonRecord& record) {  // for readers only
      record.Text("op");
      record.Text("left_out");
      for (const char* key : {"median", "p90", "rows"}) record.Number(key, 0, 1e9);
    });
    file.Each("host", [&](JsonRecord& record) {
      const auto line = [&record](const char* base, const char* sequence) {
        return HostLine{record.Number(base, 0, kMostUs) * 1e3, record.Number(sequence, 0, kMostUs) * 1e3};
      };
      MeasuredHost host{
          record.Text("backend"), record.Text("fit"), static_cast<int32_t>(record.Integer("tp", 1, 1024)), {}};
      host.times.step = line("step_us", "step_sequence_us");
      host.times.stage = line("stage_us", "stage_sequence_us");
      host.times.sampler = line("sampler_us", "sampler_sequence_us");
      found.hosts.push_back(std::move(host));
    });
    for (const auto& [key, table] :
         {std::pair("all_reduce", &found.all_reduce_ns), std::pair("layer", &found.layer_ns)}) {
      file.Each(key, [table = table](JsonRecord& record) {
        table->emplace_back(record.Text("fit"), record.Number("us", 0, kMostUs) * 1e3);
      });
    }
  });
  TACTUS_CHECK_MSG(status.ok(), status.message());
  return found;
}

const MeasuredHosts& Hosts() {
  static const MeasuredHosts hosts = ReadHosts();
  return hosts;
}

// The measured number of devices with the nearest ratio, the smaller of two equally near.
const HostTimes& NearestFit(const std::string& backend, const std::string& fit, int32_t devices) {
  const HostTimes* best = nullptr;
  double least = INFINITY;
  for (const MeasuredHost& host : Hosts().hosts) {
    if (host.backend != backend || host.fit != fit) continue;
    const double distance = std::abs(std::log2(static_cast<double>(host.tp) / devices));
    if (distance < least) least = distance, best = &host.times;
  }
  TACTUS_CHECK_MSG(best != nullptr, "host.json has no row for " + backend + " on " + fit);
  return *best;
}

bool Measured(const std::string& backend, const std::string& fit) {
  for (const MeasuredHost& host : Hosts().hosts) {
    if (host.backend == backend && host.fit == fit) return true;
  }
  return false;
}

double LaunchNs(const std::vector<std::pair<std::string, double>>& by_fit, const std::string& fit) {
  double usual = 0;
  for (const auto& [of, ns] : by_fit) {
    if (of == fit) return ns;
    if (of == kUsual) usual = ns;
  }
  return usual;
}

// The driver communicates with the workers of all stages; a stage's devices share their inputs.
HostTimes MeasuredTimes(const std::string& backend, const DeviceSpec& device, int32_t tp, int32_t pp) {
  const std::string fit = Measured(backend, device.fit) ? device.fit : kUsual;
  HostTimes times = NearestFit(backend, fit, tp);
  times.step = NearestFit(backend, fit, tp * pp).step;
  times.all_reduce_ns = LaunchNs(Hosts().all_reduce_ns, device.fit);
  times.layer_ns = LaunchNs(Hosts().layer_ns, device.fit);
  return times;
}

}  // namespace

Result<HostTimes> FindHostTimes(const std::string& backend, DurationNs stated_ns, const DeviceSpec& device, int32_t tp,
                                int32_t pp) {
  for (const Backend& b : kBackends) {
    if (backend != b.name) continue;
    HostTimes times;
    if (b.step_ns < 0) times = MeasuredTimes(backend, device, tp, pp);
    if (stated_ns >= 0 || b.step_ns >= 0) {
      times.step = {stated_ns >= 0 ? static_cast<double>(stated_ns) : b.step_ns, 0};
      times.stage = times.sampler = {};
    }
    return times;
  }
  return InvalidArgument(
      fmt::format("backend '{}' is not known; known are vllm, vllm-ray, sglang, trtllm, or none", backend), "backend");
}

std::string Describe(const HostTimes& host, int32_t stages) {
  if (host.stage.base_ns == 0 && host.step.sequence_ns == 0)
    return fmt::format("{:.0f} us of host time per step", host.step.base_ns / 1e3);
  double one_ns = 0, more_ns = 0;  // of a step without sequences, and per sequence
  for (int32_t stage = 0; stage < stages; ++stage) {
    one_ns += host.StageNs(stage, stages, 0);
    more_ns += host.StageNs(stage, stages, 1) - host.StageNs(stage, stages, 0);
  }
  return fmt::format("{:.0f} us of host time per step and {:.0f} per sequence in it", one_ns / 1e3, more_ns / 1e3);
}

}  // namespace tactus::cost
