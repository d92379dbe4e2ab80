#include <fmt/format.h>

#include <algorithm>

#include "engine/doctor/diagnosis.h"

namespace tactus::engine {
namespace {

std::string Size(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 20);
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

// A fact: its name in a column, then the text.
std::string Fact(const char* name, const std::string& text) {
  return fmt::format("{:<11} {}\n", name, text);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

std::string ProcessorText(const MachineFacts& m) {
  std::string text = m.processor.empty() ? "unknown" : m.processor;
  if (m.virtual_machine) text += " (virtual machine)";
  if (m.cache_bytes > 0) text += fmt::format(", last-level cache {}", Size(m.cache_bytes));
  if (m.now_mhz > 0) text += fmt::format(", {} of {} MHz under load", m.now_mhz, m.most_mhz);
  return text + (m.governor.empty() ? "" : ", governor " + m.governor);
}

std::string CpusText(const MachineFacts& m) {
  if (m.cpus.empty()) return "unknown";
  std::string text = fmt::format("{} of {}", m.cpus.size(), m.online_cpus);
  if (m.cores > 0) {
    text += m.cores < static_cast<int32_t>(m.cpus.size()) ? fmt::format(", hyperthreads of {} cores", m.cores)
                                                          : ", each a core";
  }
  text += m.quota_cores > 0 ? fmt::format(", quota {:g}", m.quota_cores) : ", no quota";
  const auto nodes = std::count_if(m.nodes.begin(), m.nodes.end(), [](const NumaNode& n) { return n.cpus > 0; });
  return text + (nodes > 0 ? fmt::format(", {} NUMA node{}", nodes, nodes == 1 ? "" : "s") : "");
}

std::string MemoryText(const Diagnosis& d) {
  std::string text = d.available_bytes < 0 ? "unknown" : Size(d.available_bytes) + " left";
  if (d.machine.memory_bytes > 0) text += fmt::format(" of {}", Size(d.machine.memory_bytes));
  text += d.machine.swap_bytes > 0
              ? fmt::format(", swap {} of {} used", Size(d.machine.swap_used_bytes), Size(d.machine.swap_bytes))
              : ", no swap";
  return text;
}

std::string NeighboursText(const Neighbours& n) {
  return fmt::format(
      "other processes use {:.1f} CPUs; stolen {:.1f} %, throttled {:.1f} %, a core lost {:.0f} times a second",
      n.other_cpus, 100 * n.stolen_share, 100 * n.throttled_share, n.switches_per_s);
}

std::string RateRow(const char* name, double one, double all, const char* unit) {
  const auto rate = [](double per_s) { return per_s > 0 ? fmt::format("{:.1f}", per_s * 1e-9) : std::string("-"); };
  return fmt::format("  {:<22} {:>10} {:>12}  {}\n", name, rate(one), rate(all), unit);
}

std::string RatesText(const Diagnosis& d) {
  const int32_t threads = d.choice.threads.threads;
  const char* const note =
      d.neighbours.other_cpus >= kOtherCpus ? "  beside other processes; an idle machine reaches more\n" : "";
  return fmt::format("\n{:<24} {:>10} {:>12}\n", "Measured", "one thread",
                     threads == 1 ? "" : fmt::format("{} threads", threads)) +
         RateRow("memory, read", d.one.read_bytes, d.all.read_bytes, "GB/s") +
         RateRow("products of 8 bits", d.one.int8_ops, d.all.int8_ops, "Gop/s, a multiply-add is two") +
         RateRow("products of bf16", d.one.bf16_flops, d.all.bf16_flops, "Gop/s") +
         RateRow("products of f32", d.one.f32_flops, d.all.f32_flops, "Gop/s") + note;
}

std::string StepsText(const Diagnosis& d) {
  const ModelSpeed& m = *d.model;
  std::string text = fmt::format("\nModel: {}, {:.1f} M parameters, weights {}; {}; {} threads\n", m.architecture,
                                 static_cast<double>(m.parameters) * 1e-6, m.weight_format, m.arithmetic, m.threads);
  text += fmt::format("  {:<34} {:>10} {:>10} {:>10}  {:<10} {:>6}\n", "step", "time, ms", "tokens/s", "floor, ms",
                      "bound by", "share");
  bool cached = false;
  for (const StepSpeed& s : m.steps) {
    const std::string name = s.decodes > 0 ? fmt::format("decode, {} sequence{} of {} tokens", s.decodes,
                                                         s.decodes == 1 ? "" : "s", s.context)
                                           : fmt::format("prompt of {} tokens", s.prompt_tokens);
    const StepFloor floor = FloorOf(s, d.all, d.machine.cache_bytes);
    const bool known = floor.floor_ms() > 0;
    const bool memory = floor.memory_ms > floor.arithmetic_ms;
    cached |= memory && floor.cached;
    text += fmt::format("  {:<34} {:>10.2f} {:>10.0f} {:>10}  {:<10} {:>6}\n", name, s.step_ms,
                        static_cast<double>(s.tokens()) / s.step_ms * 1e3,
                        known ? fmt::format("{:.2f}", floor.floor_ms()) : "-",
                        !known   ? "-"
                        : memory ? (floor.cached ? "memory *" : "memory")
                                 : "products",
                        known ? fmt::format("{:.0f} %", 100 * floor.floor_ms() / s.step_ms) : "-");
  }
  if (cached) text += "  * all of it fits the last-level cache, which may be faster than memory\n";
  if (m.resident.huge_bytes >= 0) {
    text +=
        fmt::format("  {} of {} resident memory in huge pages\n", Size(m.resident.huge_bytes), Size(m.resident.bytes));
  }
  return text;
}

}  // namespace

std::string DiagnosisText(const Diagnosis& d) {
  const compute::MachineChoice& c = d.choice;
  std::string text = Fact("processor", ProcessorText(d.machine)) + Fact("CPUs", CpusText(d.machine)) +
                     Fact("kernels", fmt::format("{}, {} (of {})", c.kernels.ops == nullptr ? "?" : c.kernels.ops->name,
                                                 c.kernels.why, Joined(c.kernels.runnable))) +
                     Fact("threads", fmt::format("{}, {}", c.threads.threads, c.threads.why)) +
                     Fact("pages", c.pages.why) + Fact("memory", MemoryText(d)) +
                     Fact("neighbours", NeighboursText(d.neighbours)) + RatesText(d);
  if (d.model) text += StepsText(d);
  const std::vector<Finding> findings = FindingsOf(d);
  if (findings.empty()) return text + "\nNothing found that costs speed.\n";
  text += "\nWhat costs speed:\n";
  for (const Finding& f : findings) {
    text += fmt::format("  {}: {} (expected: {})\n      {}\n", f.what, f.value, f.limit, f.advice);
  }
  return text;
}

}  // namespace tactus::engine
