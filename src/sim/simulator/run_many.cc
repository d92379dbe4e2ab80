#include "sim/simulator/run_many.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <system_error>
#include <thread>

namespace tactus::sim {
namespace {

Result<RunResult> RunJob(const SimulationJob& job, const std::function<bool()>& keep_going) {
  if (keep_going && !keep_going()) return Status(StatusCode::kCancelled, "interrupted before it began");
  TACTUS_ASSIGN_OR_RETURN(const auto workload, job.open());
  TACTUS_ASSIGN_OR_RETURN(const auto sim, Simulation::Create(job.config, workload.get()));
  TACTUS_RETURN_IF_ERROR(sim->Run([&](const SimProgress&) { return !keep_going || keep_going(); }));
  return sim->Outcome();
}

}  // namespace

void ForEachOnThreads(size_t count, int32_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> helpers;
  const auto wanted = static_cast<int32_t>(std::min<size_t>(count, static_cast<size_t>(std::max(threads, 1))));
  helpers.reserve(static_cast<size_t>(std::max(wanted, 1)));
  try {
    for (int32_t i = 1; i < wanted; ++i) helpers.emplace_back(run);
  } catch (const std::system_error&) {
    // No further threads can be created: the existing ones do all the work; results do not depend on their number.
  }
  run();
  for (std::thread& t : helpers) t.join();
}

std::vector<Result<RunResult>> RunSimulations(std::span<const SimulationJob> jobs, int32_t threads,
                                              const std::function<bool()>& keep_going) {
  std::vector<std::optional<Result<RunResult>>> results(jobs.size());
  ForEachOnThreads(jobs.size(), threads, [&](size_t i) { results[i] = RunJob(jobs[i], keep_going); });
  std::vector<Result<RunResult>> out;
  for (auto& r : results) out.push_back(std::move(*r));
  return out;
}

}  // namespace tactus::sim
