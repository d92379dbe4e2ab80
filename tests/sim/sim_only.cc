// A program with only the simulator. It runs one simulation; links_no_model.cmake checks what it links.
#include <cstdio>

#include "sim/sim_options.h"

int main() {
  tactus::sim::SimOptions options;
  // Policy knobs are registered with the scheduler's choices: a simulator-only program must have them all.
  if (options.policy.Find<double>("larry-lambda") == nullptr || options.policy.Find<bool>("pad") == nullptr) {
    return std::fprintf(stderr, "the policies' knobs are not linked\n"), 1;
  }
  options.model = "llama-3.1-8b";
  options.device = "h100";
  options.concurrency = 4;
  options.requests = 20;
  auto setup = tactus::sim::SetUpSimulation(options, {});
  if (!setup.ok()) return std::fprintf(stderr, "%s\n", setup.status().message().c_str()), 1;
  auto simulation = tactus::sim::Simulation::Create(setup->config, setup->workload.get());
  if (!simulation.ok()) return std::fprintf(stderr, "%s\n", simulation.status().message().c_str()), 1;
  if (!(*simulation)->Run().ok()) return 1;
  std::printf("%s\n", ToJson((*simulation)->Outcome()).c_str());
  return (*simulation)->Outcome().completed == 20 ? 0 : 1;
}
