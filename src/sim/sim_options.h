// The options of `tactus sim`, each declared once, and what is built from them: a cost model, a KV plan, a workload and
// a simulation's configuration. No clock, no output: the command line prints; tests and sweeps call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/step_tables/step_table.h"
#include "sim/simulator/simulator.h"
#include "sim/workload/offered_load.h"
#include "sim/workload/slo_mix.h"
#include "tactus/option_fields.h"
#include "tactus/scheduling_options.h"

namespace tactus::sim {

struct SimOptions : SchedulingOptions, OfferedLoad {
  // Deployment
  std::string model, device;
  int64_t tp = 1, pp = 1, replicas = 1, ep = 1;
  int64_t devices_per_node = 0;
  double peer_gbytes_per_s = 0;
  std::string peer_latency;
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
  bool as_paper = false;  // sets other options (see its declaration below); read nowhere else
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
            {.unit = "stages", .min = 1, .max = 1024, .alias = "pp", .help = "pipeline stages, each of tp devices"});
    v.Field("replicas", replicas,
            {.unit = "replicas", .min = 1, .max = 4096, .help = "engine replicas behind the balancer"});
    v.Field("expert-parallel-replicas", ep,
            {.unit = "replicas",
             .min = 1,
             .max = 1024,
             .alias = "ep",
             .help = "replicas that share a mixture's experts: each holds its part of them and computes it for the "
                     "tokens of all, so that their steps run together; with pipelines they are priced as if all had "
                     "equal steps"});
    v.Field("balancer", balancer, {.help = "policy that chooses a request's replica"});
    v.Field(
        "balancer-polls", balancer_polls,
        {.unit = "polls/s", .min = 0.01, .max = 10000, .help = "how often sal and llumnix poll the replicas' load"});
    v.Field("replica-slowness", replica_slowness,
            {.help = "factors on the step times of the replicas, such as 1,1,2, repeated cyclically; unknown to "
                     "balancer and scheduler; default: all 1"});
    v.Field("migration-gbytes-per-s", migration_gbytes_per_s,
            {.unit = "GB/s",
             .min = -1,
             .max = 100000,
             .help = "bandwidth for the KV of sequences that migrate from the replicas with the least free memory to "
                     "those with the most; 0: no migration; -1: 8 with llumnix, otherwise 0"});
    v.Field("migration-latency", migration_latency,
            {.unit = "duration", .help = "latency of each of the two rounds of a migration, besides its bytes"});
    v.Field("priority-headroom", priority_headroom,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 30,
             .help = "with llumnix: KV memory that counts as used on a replica that has requests with priority below "
                     "0, so that it gets fewer others and its steps are short; 0: none"});
    v.Field("most-replicas", most_replicas,
            {.unit = "replicas",
             .min = 0,
             .max = 4096,
             .help = "autoscaling: from --replicas up to this number of replicas are started and drained by freeness, "
                     "the free KV memory per running sequence; 0: a fixed number"});
    v.Field("scale-up-below", scale_up_below,
            {.unit = "tokens", .help = "a replica is started while the mean freeness is below this"});
    v.Field("scale-down-above", scale_down_above,
            {.unit = "tokens", .help = "a replica is drained while the mean freeness is above this"});
    v.Field("scale-after", scale_after,
            {.unit = "duration", .help = "freeness must be beyond the limit for this time"});
    v.Field("replica-start-time", replica_start_time,
            {.unit = "duration", .help = "time from a replica's start until it accepts requests"});
    v.Field("cost", cost, {.help = "source of step times: auto, fitted, roofline, or a file of `tactus profile`"});
    v.Field("step-noise", step_noise,
            {.help = "random variation of step times: none, profile (as measured in the file of --cost), or a "
                     "percentage such as 10"});
    v.Field("weight-dtype", weight_dtype,
            {.choices = "bfloat16|fp8|fp8_static|fp8_block|int8|int4|nvfp4", .help = "storage format of the weights"});
    v.Field("kv-cache-dtype", kv_dtype, {.choices = "bfloat16|fp8", .help = "storage format of K and V"});
    v.Field("devices-per-node", devices_per_node,
            {.unit = "devices",
             .min = 0,
             .max = 1024,
             .help = "devices per machine; communication beyond uses the network; 0: the device's usual number"});
    v.Field("peer-gbytes-per-s", peer_gbytes_per_s,
            {.unit = "GB/s",
             .min = 0,
             .max = 10000,
             .help = "bandwidth that two devices of a node reach over PCIe, per direction; 0: the device's usual"});
    v.Field(
        "peer-latency", peer_latency,
        {.unit = "duration",
         .help =
             "latency of a message between two devices of a node over PCIe, besides its bytes; default: the measured "
             "times, else 3us"});
    v.Field("network-gbytes-per-s", network_gbytes_per_s,
            {.unit = "GB/s",
             .min = 0,
             .max = 10000,
             .help = "bandwidth between nodes per device and direction, as in data sheets; 0: the device's usual"});
    v.Field(
        "network-latency", network_latency,
        {.unit = "duration",
         .help = "latency of a message between nodes, besides its bytes; default: the device's usual, 15us to 35us"});
    v.Field("backend", backend,
            {.choices = "|vllm|vllm-ray|sglang|trtllm",
             .help = "the engine whose kernels and host code are priced; vllm-ray: a Python engine of 2024 with Ray "
                     "workers and no "
                     "captured graphs; default: Tactus's own"});
    v.Field("attention-kernels", attention_kernels,
            {.choices = "auto|one|two",
             .help = "attention kernels in a step of prompt chunks and decodes: one, in which decodes are slower, or "
                     "one for each kind; auto: as in the backend, and one only if it was measured"});
    v.Field(
        "cost-scale", cost_scale,
        {.help = "factors on the times of operator kinds, such as products=1.1,network=2, to test the effect of errors "
                 "of the cost model; kinds are products, prompt-attention, decode-attention, beside-chunk, small, "
                 "network"});
    v.Field("kv-reads", kv_reads,
            {.choices = "each|once",
             .help = "once: KV of a prefix that decodes share is read once for all of them (cascade attention); with "
                     "--cost auto, fitted or roofline"});
    v.Field("cpu-overhead", cpu_overhead,
            {.unit = "duration",
             .help = "host time per step that does not overlap with the device; default: the backend's"});
    v.Field("overlap", overlap,
            {.choices = "off|nano",
             .help = "nano: a CUDA device splits large steps in two, and one half reads the KV of its decodes while "
                     "the other multiplies; does not change tokens"});
    v.Field("overlap-interference", overlap_interference,
            {.min = -1,
             .max = 1,
             .help = "slowdown of the overlapped halves: 0 none, 1 as slow as one after another; -1: the published "
                     "value, 0.26"});
    v.Field("gpu-memory-utilization", gpu_memory_utilization,
            {.min = 0.01, .max = 1, .help = "share of device memory to use"});
    v.Field("override-context", override_context,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 30,
             .help = "context length of --model, instead of the model's; 0: the model's"});
    v.Field("kv-blocks", kv_blocks,
            {.unit = "blocks", .min = 0, .max = 1 << 30, .help = "KV blocks per replica; 0: from the memory plan"});
    v.Field("as-paper", as_paper,
            {.help = "assumptions of papers' simulators: steps of any size, an unbounded queue, unknown answer "
                     "lengths, text and client known only as the workload states them, no default objective that "
                     "limits steps. Sets --step-limit none --max-queue 1048576 --ignore-eos off --identities stated "
                     "--tbt-slo none; each may be overridden",
             .implies = "step-limit=none max-queue=1048576 ignore-eos=off identities=stated tbt-slo=none"});
    SchedulingOptions::VisitFields(v);
    v.Field("draft-acceptance", draft_acceptance,
            {.min = 0,
             .max = 1,
             .help = "with --speculation: probability that a draft token is accepted if those before it are; drafting "
                     "takes no time; 0: no drafts"});
    OfferedLoad::VisitFields(v);
    v.Field("requests", requests,
            {.unit = "requests",
             .min = -1,
             .max = 1e9,
             .help = "number of requests; -1: the number of rows of the file, otherwise 1000"});
    v.Field("client-gap", client_gap,
            {.unit = "duration",
             .help = "closed loops and conversations: mean time from the end of an answer to the client's next "
                     "request, exponentially distributed"});
    v.Field("identities", identities,
            {.choices = "all|stated",
             .help = "information about requests besides lengths: all: their text, so that a preempted request may "
                     "find its blocks in the prefix cache, and one common client, as on a server under a load test; "
                     "stated: only shared text that the workload states"});
    v.Field("long-prompts", long_prompts,
            {.choices = "refuse|clip",
             .help = "prompts longer than the context are rejected, as by the server, or clipped"});
    v.Group("Planning");
    v.Field("offline", offline,
            {.help = "an offline job instead of a load: all requests are present from the start and run as planned by "
                     "`tactus batch`, with the plan named by the scheduler's order (fcfs, dfs, random, balance, blend, "
                     "blend-dual-scan); each replica runs one shard"});
    v.Field("sample", sample,
            {.min = 0,
             .max = 1,
             .help = "share of the requests that runs first, as a sample of answer lengths; 0: none, each answer "
                     "counts with its max_tokens"});
    v.Field("plan-seed", plan_seed, {.min = 0, .help = "seed of the sample, and of --order random"});
    v.Field("planner-lengths", planner_lengths,
            {.choices = "sampled|known",
             .help = "output lengths that the plan knows: those measured by its sample, or all"});
    v.Field("oracle-without", oracle_without,
            {.help = "with --scheduler oracle: presets, separated by commas, that the search must not start from, so "
                     "that comparing them with the oracle is independent of their own schedules"});
    v.Group("Output");
    v.Field("exact-percentiles", exact_percentiles,
            {.help = "keep every latency, in memory that grows with the run; off: histogram buckets as in the server, "
                     "within 0.4 %"});
    v.Field("warmup", warmup,
            {.help = "the first part, which is not measured: a time such as 60s, or a number of requests; the load's "
                     "end is then not measured either"});
    v.Field("measure", measure,
            {.help = "the measured part after the warm-up: a time such as 10m, or a number of requests; default: until "
                     "the last request arrives"});
    v.Field("device-hour-price", device_hour_price,
            {.unit = "in any currency",
             .min = 0,
             .max = 1e9,
             .help = "price of a device per hour, for the result's cost per million tokens; 0: unknown"});
    v.Field("requests-out", requests_out, {.help = "CSV file with one line per request"});
    v.Field("steps-out", steps_out,
            {.help = "CSV file with one line per step; with --replay --times model: measured and predicted times"});
  }
};

// Everything that a simulation consists of, kept together because the configuration points into it.
struct SimSetup {
  SimulationConfig config;
  std::shared_ptr<const StepTimeModel> step_time;    // `profile` if there is one, else `cost`
  std::shared_ptr<const cost::StepProfile> profile;  // null: no measured profile
  std::shared_ptr<const cost::CostModel> cost;       // null: only a measured profile
  std::string cost_text;                             // the source of step times
  int64_t kv_bytes_per_token = 0;                    // 0: unknown
  std::unique_ptr<WorkloadStream> workload;
  std::function<Result<std::unique_ptr<WorkloadStream>>()> open_workload;  // a fresh stream of the same workload, for
                                                                           // another run
  bool oracle = false;  // the best schedule that can be found, instead of one preset (sim/oracle/oracle.h)
  std::vector<std::string> oracle_without;
  std::vector<std::string> notes;  // lines for the start: cost model, memory plan, budget, adjustments
};

// Option texts that the command line parses, such as durations.
struct SimTexts {
  Slo slo;
  SloMix slo_mix;
  DurationNs cpu_overhead_ns = -1, peer_latency_ns = -1, network_latency_ns = -1;
  results::RunLength warmup, measure;
};

// kInvalidArgument, kNotFound or kDataLoss, with the offending flag as param.
Result<SimSetup> SetUpSimulation(const SimOptions& options, const SimTexts& texts);
// Tokens of the largest step that the set-up's scheduler can plan, with unlimited KV memory.
Result<int64_t> MaxStepTokens(const SimSetup& setup);
// Only the source of step times: no memory plan, scheduler or workload. Errors as in SetUpSimulation.
Result<SimSetup> SetUpStepTimes(const SimOptions& options, const SimTexts& texts);
// Room for sequences on a replica; 0: unknown, as with only a step profile.
struct SequenceRoom {
  int64_t context = 0;    // tokens of one sequence
  int64_t kv_blocks = 0;  // for all sequences
};
// The same plan as in SetUpSimulation, for a set-up of step times.
Result<SequenceRoom> PlanRoom(const SimOptions& options, SimSetup* setup);
// Costs and overlap for planning and bounding an offline job; does not read the load. Errors as in SetUpStepTimes.
Result<PlannedLoad> PriceJob(const SimOptions& options, const SimTexts& texts);

}  // namespace tactus::sim
