#include "base/json.h"
#include "engine/doctor/diagnosis.h"
#include "tactus/version.h"

namespace tactus::engine {
namespace {

Json Known(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}
template <class T>
Json Above(T value, T nothing) {
  return value > nothing ? Json(value) : Json();
}
Json Positive(double value) {
  return Above(value, 0.0);
}
Json Bytes(int64_t value) {
  return Above<int64_t>(value, -1);
}

Json MachineJson(const Diagnosis& d) {
  const MachineFacts& m = d.machine;
  Json nodes = Json::array();
  for (const NumaNode& n : m.nodes) nodes.push_back({{"cpus", n.cpus}, {"memory_bytes", n.memory_bytes}});
  return {{"processor", Known(m.processor)},
          {"virtual_machine", m.virtual_machine},
          {"kernel_release", Known(m.kernel)},
          {"online_cpus", Above(m.online_cpus, 0)},
          {"cpus", Above<int64_t>(static_cast<int64_t>(m.cpus.size()), 0)},
          {"cores", Above(m.cores, 0)},
          {"quota_cpus", Positive(m.quota_cores)},
          {"governor", Known(m.governor)},
          {"mhz", Above(m.now_mhz, 0)},
          {"highest_mhz", Above(m.most_mhz, 0)},
          {"last_level_cache_bytes", Above<int64_t>(m.cache_bytes, 0)},
          {"numa_nodes", std::move(nodes)},
          {"memory_bytes", Above<int64_t>(m.memory_bytes, 0)},
          {"available_bytes", Bytes(d.available_bytes)},
          {"swap_bytes", m.swap_bytes},
          {"swap_used_bytes", m.swap_used_bytes},
          {"transparent_huge_pages", Known(m.pages.huge)},
          {"huge_page_defrag", Known(m.pages.defrag)}};
}

Json ChoiceJson(const compute::MachineChoice& c) {
  return {{"kernels", c.kernels.ops == nullptr ? Json() : Json(c.kernels.ops->name)},
          {"kernels_why", c.kernels.why},
          {"runnable_kernels", c.kernels.runnable},
          {"threads", c.threads.threads},
          {"threads_why", c.threads.why},
          {"huge_pages", c.pages.huge},
          {"pages_why", c.pages.why}};
}

Json RatesJson(const compute::Ceilings& c) {
  return {{"read_bytes_per_s", Positive(c.read_bytes)},
          {"int8_ops_per_s", Positive(c.int8_ops)},
          {"bf16_ops_per_s", Positive(c.bf16_flops)},
          {"f32_ops_per_s", Positive(c.f32_flops)}};
}

Json NeighboursJson(const Neighbours& n) {
  return {{"other_cpus", n.other_cpus},
          {"stolen_share", n.stolen_share},
          {"throttled_share", n.throttled_share},
          {"involuntary_switches_per_s", n.switches_per_s},
          {"swapped_pages", n.swapped_pages}};
}

Json ModelJson(const Diagnosis& d) {
  if (!d.model) return nullptr;
  const ModelSpeed& m = *d.model;
  Json steps = Json::array();
  for (const StepSpeed& s : m.steps) {
    const StepFloor floor = FloorOf(s, d.all, d.machine.cache_bytes);
    const double floor_ms = floor.floor_ms();
    steps.push_back({{"decodes", s.decodes},
                     {"context", s.context},
                     {"prompt_tokens", s.prompt_tokens},
                     {"step_ms", s.step_ms},
                     {"memory_floor_ms", Positive(floor.memory_ms)},
                     {"arithmetic_floor_ms", Positive(floor.arithmetic_ms)},
                     {"fits_cache", floor.cached},
                     {"share", floor_ms > 0 ? Json(floor_ms / s.step_ms) : Json()}});
  }
  return {{"architecture", m.architecture},
          {"parameters", m.parameters},
          {"weights", m.weight_format},
          {"arithmetic", m.arithmetic},
          {"threads", m.threads},
          {"resident_bytes", Bytes(m.resident.bytes)},
          {"huge_page_bytes", Bytes(m.resident.huge_bytes)},
          {"steps", std::move(steps)}};
}

}  // namespace

Json DiagnosisJson(const Diagnosis& d) {
  Json findings = Json::array();
  for (const Finding& f : FindingsOf(d)) {
    findings.push_back({{"what", f.what}, {"value", f.value}, {"limit", f.limit}, {"advice", f.advice}});
  }
  return {{"version", Version()},
          {"build", BuildInfo()},
          {"machine", MachineJson(d)},
          {"choice", ChoiceJson(d.choice)},
          {"one_thread", RatesJson(d.one)},
          {"all_threads", RatesJson(d.all)},
          {"neighbours", NeighboursJson(d.neighbours)},
          {"model", ModelJson(d)},
          {"findings", std::move(findings)}};
}

}  // namespace tactus::engine
