// What `tactus serve` and `tactus sim` take: for the commands, and for tests that start what they start.
#pragma once

#include <string>

#include "cli/option_binding.h"
#include "cli/run_length_text.h"
#include "cli/slo_text.h"
#include "serve/serve_options.h"
#include "sim/sim_options.h"
#include "tactus/options.h"

namespace tactus::cli {

struct ServeCommandOptions {
  EngineOptions engine;
  ServeOptions serve;
  bool json = false;

  template <class V>
  void VisitFields(V& v) {
    serve.VisitFields(v);
    engine.VisitFields(v);
    v.Group("Output");
    v.Field("json", json, {.help = "print the result object at exit, as one JSON line on stdout"});
  }
};

// `options` outlives it.
inline CommandLine ServeLine(ServeCommandOptions* options) {
  CommandLine line("serve", "[MODEL] [options]", "Serves one model over an OpenAI-compatible API.");
  line.Add(*options);
  line.Positional("MODEL", &options->engine.model, false,
                  "a GGUF file, a Hugging Face folder, or a name of `tactus models list`; default: smollm2-135m");
  return line;
}

struct SimCommandOptions {
  SimOptions sim;
  bool list = false, print_papers = false, json = false;
  std::string output, replay, times = "recorded";

  template <class V>
  void VisitFields(V& v) {
    sim.VisitFields(v);
    v.Field("replay", replay,
            {.help = "a run that `tactus serve` or `sim` recorded with --trace-out, instead of a workload"});
    v.Field("times", times,
            {.choices = "recorded|model",
             .help = "step times of --replay; recorded: as they were, for identical plans; model: those of --cost, to "
                     "see how far off they are"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    v.Field("output", output, {.alias = "o", .help = "write the result's JSON object to this file"});
    v.Field("list", list,
            {.help = "print every known model, device, scheduler, choice, predictor, balancer and workload, and exit"});
    v.Field("print-papers", print_papers,
            {.help = "print the papers' claims that bench/papers reproduces, each with its commands, and exit"});
  }
};

// `options` outlives it.
inline CommandLine SimLine(SimCommandOptions* options) {
  CommandLine line(
      "sim", "--model M --device D --workload W (--rate R | --concurrency N) [options]",
      "Simulates serving: the engine and its schedulers, on a virtual clock with step times of a cost model.");
  line.Add(*options);
  return line;
}

// SetUpSimulation, after the texts that only a command line reads.
inline Result<SimSetup> SetUp(const SimOptions& options) {
  SimTexts texts;
  TACTUS_ASSIGN_OR_RETURN(texts.slo, ParseSlo(options.slo));
  TACTUS_ASSIGN_OR_RETURN(texts.slo_mix, ParseSloMix(options.slo_mix));
  if (!options.cpu_overhead.empty()) {
    const auto overhead = ParseDuration(options.cpu_overhead);
    if (!overhead.ok()) return InvalidArgument("--cpu-overhead: " + overhead.status().message(), "cpu-overhead");
    texts.cpu_overhead_ns = overhead->ns;
  }
  if (!options.network_latency.empty()) {
    const auto latency = ParseDuration(options.network_latency);
    if (!latency.ok()) return InvalidArgument("--network-latency: " + latency.status().message(), "network-latency");
    texts.network_latency_ns = latency->ns;
  }
  TACTUS_ASSIGN_OR_RETURN(texts.warmup, ParseRunLength("warmup", options.warmup));
  TACTUS_ASSIGN_OR_RETURN(texts.measure, ParseRunLength("measure", options.measure));
  if (texts.measure.ns == 0 || texts.measure.requests == 0) {
    return InvalidArgument("--measure is 0: nothing would be measured", "measure");
  }
  return SetUpSimulation(options, texts);
}

}  // namespace tactus::cli
