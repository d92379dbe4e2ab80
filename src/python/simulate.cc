#include "python/simulate.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>

#include "base/clock.h"
#include "cli/command_options.h"
#include "sim/sim_run.h"

namespace tactus::python {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // between two looks at Python's signals

std::atomic<bool> all_stopped = false;

Result<SimReport> Run(const SimOptions& options, SimSetup* setup, const std::atomic<bool>& stopped) {
  SimWatch watch;
  watch.run = [&stopped](const SimProgress&) { return !stopped && !all_stopped; };
  watch.search = [&stopped](const OracleProgress&) { return !stopped && !all_stopped; };
  return RunSetup(options, setup, SystemClock(), watch);
}

}  // namespace

SimulationText Simulate(const OptionTexts& texts) {
  SimOptions options;
  SetOptions(texts, &options);
  SimSetup setup = Take(cli::SetUp(options));
  std::atomic<bool> stopped = false;
  std::optional<nanobind::python_error> interrupt;
  // On a thread of its own: only the calling one can see Python's signals.
  auto running = std::async(std::launch::async, [&] { return Run(options, &setup, stopped); });
  while (running.wait_for(kLook) != std::future_status::ready) {
    const nanobind::gil_scoped_acquire held;
    if (!interrupt && PyErr_CheckSignals() != 0) {
      interrupt.emplace();
      stopped = true;
    }
  }
  auto report = running.get();
  if (interrupt) {
    const nanobind::gil_scoped_acquire held;
    throw *interrupt;
  }
  if (all_stopped) throw StatusError(Status(StatusCode::kCancelled, "the interpreter ends"));
  const SimReport done = Take(std::move(report));
  Check(CheckCompleted(done.run));
  SimulationText out;
  out.result = done.json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  out.notes = setup.notes;
  return out;
}

void StopSimulations() {
  all_stopped = true;
}

}  // namespace tactus::python
