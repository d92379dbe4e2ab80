#include "python/simulate.h"

#include "base/clock.h"
#include "cli/options/command_options.h"
#include "sim/sim_run.h"

namespace tactus::python {

SimulationText Simulate(const OptionTexts& texts, StopToken stop) {
  sim::SimOptions options;
  SetOptions(texts, &options);
  sim::SimSetup setup = Take(cli::SetUp(options));
  sim::SimWatch watch;
  watch.run = [stop](const sim::SimProgress&) { return !stop.stopped(); };
  watch.search = [stop](const sim::OracleProgress&) { return !stop.stopped(); };
  auto report = sim::RunSetup(options, &setup, SystemClock(), watch);
  if (stop.stopped()) throw StatusError(Status(StatusCode::kCancelled, "the simulation was stopped"));
  const sim::SimReport done = Take(std::move(report));
  Check(sim::CheckCompleted(done.run));
  SimulationText out;
  out.result = done.json.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.notes = setup.notes;
  return out;
}

sim::PlannedLoad PriceJobOf(const OptionTexts& texts) {
  sim::SimOptions options;
  SetOptions(texts, &options);
  return Take(sim::PriceJob(options, Take(cli::TextsOf(options))));
}

}  // namespace tactus::python
