#include "python/simulate.h"

#include "base/clock.h"
#include "cli/options/command_options.h"
#include "sim/sim_run.h"

namespace tactus::python {

SimulationText Simulate(const OptionTexts& texts, StopToken stop) {
  SimOptions options;
  SetOptions(texts, &options);
  SimSetup setup = Take(cli::SetUp(options));
  SimWatch watch;
  watch.run = [stop](const SimProgress&) { return !stop.stopped(); };
  watch.search = [stop](const OracleProgress&) { return !stop.stopped(); };
  auto report = RunSetup(options, &setup, SystemClock(), watch);
  if (stop.stopped()) throw StatusError(Status(StatusCode::kCancelled, "the simulation was stopped"));
  const SimReport done = Take(std::move(report));
  Check(CheckCompleted(done.run));
  SimulationText out;
  out.result = done.json.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.notes = setup.notes;
  return out;
}

PlannedLoad PriceJobOf(const OptionTexts& texts) {
  SimOptions options;
  SetOptions(texts, &options);
  return Take(PriceJob(options, Take(cli::TextsOf(options))));
}

}  // namespace tactus::python
