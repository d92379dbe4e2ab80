// What `tactus sim` takes, each option declared once, and what becomes of it: a cost model, a KV plan, a workload and
// the configuration of a simulation. No clock, no output: the command line prints, tests and sweeps call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "sim/offered_load.h"
#include "sim/simulator.h"
#include "sim/slo_mix.h"
#include "tactus/option_fields.h"
#include "tactus/scheduling_options.h"

namespace tactus::sim {

struct SimOptions : SchedulingOptions, OfferedLoad {
  // Deployment
  std::string model, device;
  int64_t tp = 1, pp = 1, replicas = 1;
  int64_t devices_per_node = 0;
  double network_gbytes_per_s = 0;
  std::string network_latency;
  int64_t override_context = 0;
  std::string balancer = "round-robin", cost = "auto", step_noise = "none";
  double balancer_polls = 10;
  std::string replica_slowness;
  double migration_gbytes_per_s = -1;
  DurationText migration_latency{1'000'000};
  int64_t priority_headroom = 0;
  int64_t most_replicas = 0;
  double scale_up_below = 10, scale_down_above = 60;
  DurationText scale_after{10'000'000'000}, replica_start_time{30'000'000'000};
  std::string weight_dtype = "bfloat16", kv_dtype = "bfloat16";
  std::string backend, attention_kernels = "auto", cost_scale, cpu_overhead, overlap = "off";
  double overlap_interference = -1;
  std::string kv_reads = "each";
  double gpu_memory_utilization = 0.9;
  int64_t kv_blocks = 0;
  bool as_paper = false;  // stands for other options (its declaration below); nothing else looks at it
  std::string identities = "all";
  double draft_acceptance = 0;
  // Load
  int64_t requests = -1;
  DurationText client_gap{0};
  std::string long_prompts = "refuse";
  bool offline = false;
  double sample = 0.01;
  int64_t plan_seed = 0;
  std::string planner_lengths = "sampled";
  std::string oracle_without;
  // Output
  std::string requests_out, steps_out, warmup, measure;
  bool exact_percentiles = false;
  double device_hour_price = 0;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Deployment");
    v.Field("model", model, {.help = "a name of `tactus sim --list`, a model folder or a config.json"});
    v.Field("device", device, {.help = "a name of `tactus sim --list`"});
    v.Field("tensor-parallel-size", tp,
            {.unit = "devices", .min = 1, .max = 1024, .alias = "tp", .help = "devices that share each layer"});
    v.Field("pipeline-parallel-size", pp,
            {.unit = "stages", .min = 1, .max = 1024, .alias = "pp", .help = "stages of layers, each of tp devices"});
    v.Field("replicas", replicas, {.unit = "replicas", .min = 1, .max = 4096, .help = "engines behind the balancer"});
    v.Field("balancer", balancer, {.help = "which replica takes a request"});
    v.Field("balancer-polls", balancer_polls,
            {.unit = "polls/s",
             .min = 0.01,
             .max = 10000,
             .help = "how often sal and llumnix ask the replicas what they do"});
    v.Field(
        "replica-slowness", replica_slowness,
        {.help = "how many times as long a step takes at each replica, 1,1,2 say, from the first on and over again; "
                 "neither balancer nor scheduler knows; default: all alike"});
    v.Field("migration-gbytes-per-s", migration_gbytes_per_s,
            {.unit = "GB/s",
             .min = -1,
             .max = 100000,
             .help = "what a replica sends of the KV of a sequence that moves to another one, as the least free do to "
                     "the freest; 0: sequences stay where they are; -1: 8 with llumnix, else 0"});
    v.Field("migration-latency", migration_latency,
            {.unit = "duration", .help = "time of a round of such a move beside its bytes; each has two"});
    v.Field(
        "priority-headroom", priority_headroom,
        {.unit = "tokens",
         .min = 0,
         .max = 1 << 30,
         .help = "with llumnix: KV memory that counts as taken at a replica beside requests whose priority is below "
                 "0, so that others stay away and steps are short; 0: none"});
    v.Field(
        "most-replicas", most_replicas,
        {.unit = "replicas",
         .min = 0,
         .max = 4096,
         .help = "--replicas start; up to this number are started and drained by load, that is by the KV memory left "
                 "per running sequence (freeness); 0: their number stays"});
    v.Field("scale-up-below", scale_up_below,
            {.unit = "tokens", .help = "a replica starts where the mean freeness is below this"});
    v.Field("scale-down-above", scale_down_above,
            {.unit = "tokens", .help = "a replica is drained where the mean freeness is above this"});
    v.Field("scale-after", scale_after,
            {.unit = "duration", .help = "once freeness has stayed beyond the limit for this time"});
    v.Field("replica-start-time", replica_start_time,
            {.unit = "duration", .help = "from the start of such a replica until it takes requests"});
    v.Field("cost", cost,
            {.help = "where step times come from: auto, fitted, roofline, or a file of `tactus profile`"});
    v.Field("step-noise", step_noise,
            {.help = "how much single steps vary about those times: none, profile (as the file of --cost says that the "
                     "machine's do), or a percentage such as 10"});
    v.Field("weight-dtype", weight_dtype,
            {.choices = "bfloat16|fp8|fp8_static|fp8_block|int8|int4|nvfp4", .help = "format of the weights"});
    v.Field("kv-cache-dtype", kv_dtype, {.choices = "bfloat16|fp8", .help = "format of K and V"});
    v.Field("devices-per-node", devices_per_node,
            {.unit = "devices",
             .min = 0,
             .max = 1024,
             .help = "devices of one machine, beyond which the network begins; 0: the device's usual number"});
    v.Field("network-gbytes-per-s", network_gbytes_per_s,
            {.unit = "GB/s",
             .min = 0,
             .max = 10000,
             .help = "bandwidth between nodes, one device's share, one direction, as its data sheet has it; 0: the "
                     "device's usual"});
    v.Field("network-latency", network_latency,
            {.unit = "duration",
             .help = "time of a message between nodes beside its bytes; default: the device's usual, 15us to 35us"});
    v.Field(
        "backend", backend,
        {.choices = "|vllm|vllm-ray|sglang|trtllm",
         .help = "whose kernels and host code are priced; vllm-ray: a Python engine of 2024 with Ray workers and no "
                 "captured graphs; default: Tactus's own"});
    v.Field(
        "attention-kernels", attention_kernels,
        {.choices = "auto|one|two",
         .help = "how many kernels attend in a step of prompt chunks and decodes: one, in which decodes are slower, "
                 "or one for each kind; auto: as the backend has it, and one only where it was measured"});
    v.Field(
        "cost-scale", cost_scale,
        {.help = "factors on the times of kinds of operators, products=1.1,network=2 say: what if the cost model is "
                 "that far off; kinds are products, prompt-attention, decode-attention, beside-chunk, small, "
                 "network"});
    v.Field("kv-reads", kv_reads,
            {.choices = "each|once",
             .help = "once: the device reads the KV of a prefix that decodes share once for all of them (cascade "
                     "attention); with --cost auto, fitted or roofline"});
    v.Field("cpu-overhead", cpu_overhead,
            {.unit = "duration", .help = "host time per step that the device does not hide; default: the backend's"});
    v.Field("overlap", overlap,
            {.choices = "off|nano",
             .help = "nano: a step is split in two, and one half reads KV while the other multiplies (NanoFlow)"});
    v.Field("overlap-interference", overlap_interference,
            {.min = -1,
             .max = 1,
             .help = "how much both slow each other down then: 0 not at all, 1 as much as one after the other takes; "
                     "-1: as published, 0.26"});
    v.Field("gpu-memory-utilization", gpu_memory_utilization,
            {.min = 0.01, .max = 1, .help = "share of device memory that is used"});
    v.Field("override-context", override_context,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 30,
             .help = "context of --model, longer or shorter than it was made for; 0: its own"});
    v.Field("kv-blocks", kv_blocks,
            {.unit = "blocks", .min = 0, .max = 1 << 30, .help = "KV blocks of a replica; 0: from the memory plan"});
    v.Field(
        "as-paper", as_paper,
        {.help = "as papers' simulators have it: steps of any size, any number of requests may wait, a request does "
                 "not say how long its answer will be, and of its text and client only what the workload states is "
                 "known; no objective of the program's own sizes steps. Stands for --step-limit none --max-queue "
                 "1048576 --ignore-eos off --identities stated --tbt-slo none, each of which may be given otherwise",
         .implies = "step-limit=none max-queue=1048576 ignore-eos=off identities=stated tbt-slo=none"});
    SchedulingOptions::VisitFields(v);
    v.Field("draft-acceptance", draft_acceptance,
            {.min = 0,
             .max = 1,
             .help = "with --speculation: the chance that a guess is right if those before it are; what makes the "
                     "guesses takes no time; 0: there are none"});
    OfferedLoad::VisitFields(v);
    v.Field("requests", requests,
            {.unit = "requests",
             .min = -1,
             .max = 1e9,
             .help = "how many requests arrive; -1: as many as the file has rows, else 1000"});
    v.Field("client-gap", client_gap,
            {.unit = "duration",
             .help = "closed loops and conversations: mean time between the end of an answer and the client's next "
                     "request, exponentially distributed"});
    v.Field("identities", identities,
            {.choices = "all|stated",
             .help = "what is known of requests beside their lengths: all: their text, so that one that was preempted "
                     "may find its own in the prefix cache, and that one client sends them, as a server under a load "
                     "test knows; stated: text where the workload says who shares it"});
    v.Field("long-prompts", long_prompts,
            {.choices = "refuse|clip", .help = "prompts beyond the context are refused, as by the server, or clipped"});
    v.Group("Planning");
    v.Field("offline", offline,
            {.help = "a job instead of a load: all requests are there from the beginning and run as `tactus batch` "
                     "plans them, by the plan that the scheduler's order goes by (fcfs, dfs, random, balance, blend, "
                     "blend-dual-scan); each of several replicas runs a shard"});
    v.Field("sample", sample,
            {.min = 0,
             .max = 1,
             .help = "share of the requests that runs first, to learn how long answers are; 0: they count as long as "
                     "they may be"});
    v.Field("plan-seed", plan_seed, {.min = 0, .help = "seed of the sample, and of --order random"});
    v.Field("planner-lengths", planner_lengths,
            {.choices = "sampled|known",
             .help = "what the plan knows of how long answers are: what its sample has measured, or all"});
    v.Field("oracle-without", oracle_without,
            {.help = "with --scheduler oracle: presets that its search does not begin with, by comma, so that how far "
                     "one of them is behind does not follow from its own schedule"});
    v.Group("Output");
    v.Field(
        "exact-percentiles", exact_percentiles,
        {.help = "keep every latency, in memory that grows with the run; off: buckets, as the server has them, within "
                 "0.4 %"});
    v.Field("warmup", warmup,
            {.help = "what comes first and is not measured: a time such as 60s, or a number of requests; the load's "
                     "end is not measured either then"});
    v.Field("measure", measure,
            {.help = "how much is measured after that: a time such as 10m, or a number of requests; default: until "
                     "the last request arrives"});
    v.Field("device-hour-price", device_hour_price,
            {.unit = "of any currency",
             .min = 0,
             .max = 1e9,
             .help = "what a device costs per hour, for the result's cost per million tokens; 0: none is stated"});
    v.Field("requests-out", requests_out, {.help = "CSV file with one line per request"});
    v.Field("steps-out", steps_out,
            {.help = "CSV file with one line per step; of --replay --times model: measured and predicted"});
  }
};

// Everything that a simulation is made of, kept together: the configuration points into it.
struct SimSetup {
  SimulationConfig config;
  std::shared_ptr<const StepTimeModel> step_time;
  std::shared_ptr<const cost::CostModel> cost;  // null with a measured profile
  std::string cost_text;                        // where step times come from
  int64_t kv_bytes_per_token = 0;               // 0: not known
  std::unique_ptr<WorkloadStream> workload;
  std::function<Result<std::unique_ptr<WorkloadStream>>()> open_workload;  // the same again, for another run
  bool oracle = false;  // the best that can be found, instead of one preset (sim/oracle.h)
  std::vector<std::string> oracle_without;
  std::vector<std::string> notes;  // start-up lines: cost model, memory plan, budget, what was adjusted
};

// What the command line parses of texts: durations are its business.
struct SimTexts {
  Slo slo;
  SloMix slo_mix;
  DurationNs cpu_overhead_ns = -1, network_latency_ns = -1;
  results::RunLength warmup, measure;
};

// kInvalidArgument, kNotFound or kDataLoss with the flag at fault as param.
Result<SimSetup> SetUpSimulation(const SimOptions& options, const SimTexts& texts);
// Tokens of the largest step that the set-up's scheduler can make, whatever its KV memory.
Result<int64_t> MaxStepTokens(const SimSetup& setup);
// Only where step times come from: no memory, scheduler or workload. As SetUpSimulation.
Result<SimSetup> SetUpStepTimes(const SimOptions& options, const SimTexts& texts);
// What sequences have room for on a replica; 0: not known, as of a step profile alone.
struct SequenceRoom {
  int64_t context = 0;    // tokens of one
  int64_t kv_blocks = 0;  // of all
};
// As SetUpSimulation plans it, for a set-up of step times.
Result<SequenceRoom> PlanRoom(const SimOptions& options, SimSetup* setup);
// Costs and overlap of an offline job there, by which it is planned and bounded; no more of the load. As
// SetUpStepTimes.
Result<PlannedLoad> PriceJob(const SimOptions& options, const SimTexts& texts);

}  // namespace tactus::sim
