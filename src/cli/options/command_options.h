// The options of `tactus serve` and `tactus sim`, for the commands and for tests.
#pragma once

#include <string>

#include "cli/options/common_options.h"
#include "cli/options/option_binding.h"
#include "cli/options/run_length_text.h"
#include "cli/options/run_out.h"
#include "cli/options/slo_text.h"
#include "serve/serve_options.h"
#include "sim/sim_options.h"
#include "tactus/options.h"

namespace tactus::cli {

struct ServeCommandOptions {
  EngineOptions engine;
  ServeOptions serve;
  bool json = false;
  RunOut run_out;

  template <class V>
  void VisitFields(V& v) {
    serve.VisitFields(v);
    engine.VisitFields(v);
    v.Group("Output");
    v.Field("json", json, {.help = "print the result object at exit, as one JSON line on stdout"});
    run_out.VisitFields(v);
  }
};

// `options` must outlive the result.
inline CommandLine ServeLine(ServeCommandOptions* options) {
  CommandLine line("serve", "[MODEL] [options]", "Serves one model over an OpenAI-compatible API.");
  line.Add(*options);
  line.Positional(
      "MODEL", &options->engine.model, false,
      "a GGUF file, a Hugging Face folder, a name of `tactus models list`, or a model to download: hf:org/name, "
      "a URL or a name of `tactus pull --list`; default: smollm2-135m");
  line.Common(EngineCommon({"host", "port", "verbose", "api-key", "served-model-name", "tool-call-parser",
                            "request-timeout", "files-dir", "max-queue", "slo-class", "json"}));
  return line;
}

struct SimCommandOptions {
  sim::SimOptions sim;
  int64_t seeds = 1, threads = 0;
  bool list = false, print_papers = false, json = false;
  std::string output, replay, times = "recorded";
  RunOut run_out;
  Timeseries timeseries;

  template <class V>
  void VisitFields(V& v) {
    sim.VisitFields(v);
    v.Field("seeds", seeds,
            {.unit = "seeds",
             .min = 1,
             .max = 1000,
             .help = "runs per configuration, with consecutive seeds from --seed; figures are means with 95 % "
                     "confidence intervals"});
    v.Field("jobs", threads,
            {.unit = "runs",
             .min = 0,
             .max = 4096,
             .help = "number of parallel runs, each on one thread; 0: one per core. Results do not depend on it"});
    run_out.VisitFields(v);
    timeseries.VisitFields(v);
    v.Field("replay", replay,
            {.help = "replay a run that `tactus serve` or `sim` recorded with --trace-out, instead of a workload"});
    v.Field("times", times,
            {.choices = "recorded|model",
             .help = "step times of --replay; recorded: the recorded ones, for identical plans; model: those of "
                     "--cost, to measure their error"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    v.Field("output", output, {.alias = "o", .help = "write the result's JSON object to this file"});
    v.Field("list", list,
            {.help = "print every known model, device, scheduler, choice, predictor, balancer and workload, and exit"});
    v.Field("print-papers", print_papers,
            {.help = "print the papers' claims that bench/papers reproduces, each with its commands, and exit"});
  }
};

// `options` must outlive the result.
inline CommandLine SimLine(SimCommandOptions* options) {
  CommandLine line(
      "sim", "--model M --device D --workload W (--rate R | --concurrency N) [options]",
      "Simulates serving: the engine and its schedulers, on a virtual clock with step times of a cost model.");
  line.Add(*options);
  line.Common(SimCommon({"arrivals", "offline", "requests-out", "run-out", "list"}));
  line.Epilog(
      "\nAlso: tactus sim capacity (the largest rate at which a condition holds), sweep (every combination of "
      "options), compare (ratios of results), step (one step's time and its parts), chunk (the best step size); each "
      "has "
      "its own --help.\n");
  return line;
}

// Parses the option texts that only a command line has.
inline Result<sim::SimTexts> TextsOf(const sim::SimOptions& options) {
  sim::SimTexts texts;
  TACTUS_ASSIGN_OR_RETURN(texts.slo, ParseSlo(options.slo));
  TACTUS_ASSIGN_OR_RETURN(texts.slo_mix, ParseSloMix(options.slo_mix));
  const auto duration = [](const char* name, const std::string& text, DurationNs* ns) {
    if (text.empty()) return Status();
    const auto parsed = ParseDuration(text);
    if (!parsed.ok()) return InvalidArgument("--" + std::string(name) + ": " + parsed.status().message(), name);
    *ns = parsed->ns;
    return Status();
  };
  TACTUS_RETURN_IF_ERROR(duration("cpu-overhead", options.cpu_overhead, &texts.cpu_overhead_ns));
  TACTUS_RETURN_IF_ERROR(duration("peer-latency", options.peer_latency, &texts.peer_latency_ns));
  TACTUS_RETURN_IF_ERROR(duration("network-latency", options.network_latency, &texts.network_latency_ns));
  TACTUS_ASSIGN_OR_RETURN(texts.warmup, ParseRunLength("warmup", options.warmup));
  TACTUS_ASSIGN_OR_RETURN(texts.measure, ParseRunLength("measure", options.measure));
  if (texts.measure.ns == 0 || texts.measure.requests == 0) {
    return InvalidArgument(
        "--measure is 0, so nothing would be measured; give a time such as 60s, or a number of requests", "measure");
  }
  return texts;
}

inline Result<sim::SimSetup> SetUp(const sim::SimOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const sim::SimTexts texts, TextsOf(options));
  return sim::SetUpSimulation(options, texts);
}

inline Result<sim::SimSetup> SetUpStepTimes(const sim::SimOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const sim::SimTexts texts, TextsOf(options));
  return sim::SetUpStepTimes(options, texts);
}

}  // namespace tactus::cli
