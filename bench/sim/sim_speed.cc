// The speed of a simulation: a fixed configuration, and a million requests. One JSON line per case on stdout.
//   bench_sim [speed|million|caching]       TACTUS_DATA: the folder with azure2023_conv.csv; otherwise the built-in
//   `chat` lengths
// speed: codellama-34b on two a100, sarathi-serve with 512 tokens, closed loop sized for a mean batch of 37 (checked:
// +- 1). million: the same engine, Poisson arrivals at 80 % of the throughput of the closed loop with a full batch,
// 1,000,000 requests. caching: `speed` with every request's blocks cached (--identities all) against prefix caching
// off, in turn. Metrics on, step trace off; the lengths share no text, so there are no prefix cache hits. Speeds use
// the thread's CPU time; wall-clock speeds are printed too.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "sim/sim_options.h"
#include "tactus/version.h"

namespace tactus {
namespace {

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double StatusMiB(const char* field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(field, 0) == 0) return std::atof(line.c_str() + std::strlen(field) + 1) / 1024;
  }
  return 0;
}

sim::SimOptions Base() {
  sim::SimOptions o;
  o.model = "codellama-34b";
  o.device = "a100";
  o.tp = 2;
  o.token_budget = 512;
  o.max_model_len = 16384;
  o.default_max_tokens = 1024;
  o.ignore_eos = false;  // an answer ends by itself
  o.identities = "stated";
  o.workload = std::getenv("TACTUS_DATA") != nullptr ? "lengths:azure2023_conv.csv" : "chat";
  o.seed = 1;
  return o;
}

struct Outcome {
  RunResult result;
  double cpu_s = 0, wall_s = 0, rss_early_mib = 0, rss_end_mib = 0;
};

Outcome Run(const sim::SimOptions& o) {
  auto setup = sim::SetUpSimulation(o, {});
  if (!setup.ok()) {
    std::fprintf(stderr, "%s\n", setup.status().message().c_str());
    std::exit(2);
  }
  auto sim = sim::Simulation::Create(setup->config, setup->workload.get());
  if (!sim.ok()) {
    std::fprintf(stderr, "%s\n", sim.status().message().c_str());
    std::exit(2);
  }
  Outcome out;
  const double cpu = CpuSeconds();
  const TimeNs wall = SystemClock().NowNs();
  const Status run = (*sim)->Run([&](const sim::SimProgress& p) {
    if (out.rss_early_mib == 0 && p.ended * 10 > p.total) out.rss_early_mib = StatusMiB("VmRSS:");
    return true;
  });
  if (!run.ok()) std::exit(1);
  out.cpu_s = CpuSeconds() - cpu;
  out.wall_s = static_cast<double>(SystemClock().NowNs() - wall) * 1e-9;
  out.rss_end_mib = StatusMiB("VmRSS:");
  out.result = (*sim)->Outcome();
  return out;
}

void Print(const char* name, const sim::SimOptions& o, const Outcome& out) {
  const auto steps = static_cast<double>(out.result.engine->steps);
  const auto requests = static_cast<double>(out.result.completed);
  std::printf(
      "{\"bench\":\"sim\",\"case\":\"%s\",\"workload\":\"%s\",\"requests\":%.0f,\"steps\":%.0f,\"mean_batch\":%.2f,"
      "\"steps_per_cpu_s\":%.0f,\"requests_per_cpu_s\":%.0f,\"cpu_s\":%.2f,\"wall_s\":%.2f,\"steps_per_wall_s\":%.0f,"
      "\"rss_at_10_percent_mib\":%.1f,\"rss_at_end_mib\":%.1f,\"peak_rss_mib\":%.1f,\"plan_hash\":\"%016" PRIx64
      "\",\"version\":"
      "\"%s\"}\n",
      name, o.workload.c_str(), requests, steps, out.result.engine->mean_batch.value_or(0), steps / out.cpu_s,
      requests / out.cpu_s, out.cpu_s, out.wall_s, steps / out.wall_s, out.rss_early_mib, out.rss_end_mib,
      StatusMiB("VmHWM:"), out.result.engine->plan_hash, Version());
}

int Speed() {
  sim::SimOptions o = Base();
  o.concurrency = 38;
  o.requests = 60000;
  const Outcome out = Run(o);
  Print("speed", o, out);
  const auto batch = out.result.engine->mean_batch.value_or(0);
  if (batch >= 36 && batch <= 38) return 0;
  std::fprintf(stderr, "the mean batch is %.2f and has to be 37 +- 1\n", batch);
  return 1;
}

int Million() {
  sim::SimOptions o = Base();
  o.max_num_seqs = 128;
  o.concurrency = 256;
  o.requests = 10000;
  const double capacity = Run(o).result.request_throughput().value_or(0);
  o.concurrency = 0;
  o.rate = 0.8 * capacity;
  o.requests = 1000000;
  const Outcome out = Run(o);
  Print("million", o, out);
  return out.result.completed == 1000000 ? 0 : 1;
}

// The plans differ only in block ids: cached blocks are not free for reuse.
int Caching() {
  constexpr int kRepetitions = 5;
  sim::SimOptions off = Base(), on = Base();
  off.concurrency = on.concurrency = 38;
  off.requests = on.requests = 20000;
  off.prefix_caching = false;
  on.identities = "all";
  double off_s = 0, on_s = 0;
  for (int r = 0; r < kRepetitions; ++r) {
    const double a = Run(off).cpu_s, b = Run(on).cpu_s;
    off_s = r == 0 ? a : std::min(off_s, a);
    on_s = r == 0 ? b : std::min(on_s, b);
  }
  std::printf("{\"bench\":\"sim\",\"case\":\"caching\",\"requests\":%" PRId64
              ",\"off_cpu_s\":%.3f,\"on_cpu_s\":%.3f,\"ratio\":%.2f,\"repetitions\":%d,\"version\":\"%s\"}\n",
              static_cast<int64_t>(on.requests), off_s, on_s, on_s / off_s, kRepetitions, Version());
  return 0;
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  int failed = 0;
  if (which.empty() || which == "speed") failed |= tactus::Speed();
  if (which.empty() || which == "million") failed |= tactus::Million();
  if (which.empty() || which == "caching") failed |= tactus::Caching();
  return failed;
}
