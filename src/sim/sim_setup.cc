// Builds a simulation from options: cost model, KV plan, scheduler, workload.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/objectives.h"
#include "base/printable.h"
#include "base/unit_text.h"
#include "core/loop/replica.h"
#include "core/predict/predictor.h"
#include "cost/step_tables/measured_overlap.h"
#include "cost/step_tables/step_table.h"
#include "fleet/balance/balancer.h"
#include "sim/oracle/oracle.h"
#include "sim/sim_options.h"

namespace tactus::sim {
namespace {

bool IsCostSource(const std::string& cost) {
  return cost == "auto" || cost == "fitted" || cost == "roofline";
}

Result<cost::Deployment> DeploymentOf(const SimOptions& o, const SimTexts& texts) {
  cost::Deployment d;
  d.model = o.model;
  d.device = o.device;
  d.tp = static_cast<int32_t>(o.tp);
  d.pp = static_cast<int32_t>(o.pp);
  d.ep = static_cast<int32_t>(o.ep);
  if (o.replicas % o.ep != 0) {
    return InvalidArgument(
        fmt::format("--ep {} does not divide the {} replicas that share the experts", o.ep, o.replicas), "ep");
  }
  d.weight_dtype = o.weight_dtype;
  d.kv_dtype = o.kv_dtype;
  d.backend = o.backend;
  d.attention_kernels = o.attention_kernels;
  d.devices_per_node = static_cast<int32_t>(o.devices_per_node);
  d.peer_gbytes_per_s = o.peer_gbytes_per_s;
  d.peer_latency_ns = texts.peer_latency_ns;
  d.network_gbytes_per_s = o.network_gbytes_per_s;
  d.network_latency_ns = texts.network_latency_ns;
  d.context = o.override_context;
  d.source = IsCostSource(o.cost) ? o.cost : "auto";
  d.cpu_overhead_ns = texts.cpu_overhead_ns;
  d.overlap = o.overlap;
  TACTUS_ASSIGN_OR_RETURN(d.scale, cost::ParseOperatorScale(o.cost_scale));
  if (o.overlap_interference != -1) d.overlap_fit = {.linear = o.overlap_interference};
  return d;
}

// Options that change a cost model have no effect on measured step times.
Status CheckNoModelOptions(const SimOptions& o) {
  const std::tuple<const char*, bool, std::string> given[] = {
      {"overlap", o.overlap != "off", o.overlap},
      {"attention-kernels", o.attention_kernels != "auto", o.attention_kernels},
      {"cost-scale", !o.cost_scale.empty(), o.cost_scale},
      {"ep", o.ep > 1, fmt::format("{}", o.ep)},
      {"peer-gbytes-per-s", o.peer_gbytes_per_s > 0, fmt::format("{:g}", o.peer_gbytes_per_s)},
      {"peer-latency", !o.peer_latency.empty(), o.peer_latency}};
  for (const auto& [flag, differs, value] : given) {
    if (!differs) continue;
    return InvalidArgument(fmt::format("--{} {} needs a cost model: the step times of {} are measured", flag,
                                       Printable(value), Printable(o.cost)),
                           flag);
  }
  return Status();
}

Status MakeCost(const SimOptions& o, const SimTexts& texts, SimSetup* setup) {
  if (!IsCostSource(o.cost)) {
    TACTUS_RETURN_IF_ERROR(CheckNoModelOptions(o));
    TACTUS_ASSIGN_OR_RETURN(setup->profile, cost::LoadStepProfile(o.cost));
    setup->notes.push_back(setup->cost_text = setup->profile->Describe());
    setup->step_time = setup->profile;
    TACTUS_ASSIGN_OR_RETURN(const auto overlap, cost::NotedOverlap(setup->profile->remarks()));
    if (overlap) {
      setup->notes.push_back(fmt::format("steps of {} tokens or more ran in two parts, as in a server with this file",
                                         overlap->least_split_tokens));
    }
    if (o.model.empty() && o.device.empty()) {
      if (o.override_context == 0) return Status();
      return InvalidArgument("--override-context needs --model: with only a step profile give --max-model-len",
                             "override-context");
    }
  }
  if (o.model.empty())
    return InvalidArgument("--model is missing: give a name of 'tactus sim --list', a model folder or a config.json",
                           "model");
  if (o.device.empty()) return InvalidArgument("--device is missing: give a name of 'tactus sim --list'", "device");
  if (o.overlap == "off" && o.overlap_interference != -1)
    setup->notes.push_back("--overlap-interference has no effect without --overlap nano");
  TACTUS_ASSIGN_OR_RETURN(const cost::Deployment deployment, DeploymentOf(o, texts));
  TACTUS_ASSIGN_OR_RETURN(setup->cost, cost::CostModel::Create(deployment));
  if ((deployment.peer_gbytes_per_s > 0 || deployment.peer_latency_ns >= 0) && !setup->cost->uses_peers())
    setup->notes.push_back("--peer-gbytes-per-s and --peer-latency have no effect: no message passes a node's PCIe");
  if (setup->step_time == nullptr) {
    setup->step_time = setup->cost;
    setup->notes.push_back(setup->cost_text = setup->cost->Describe());
  }
  return Status();
}

Result<core::SchedulerConfig> AskedScheduler(const SimOptions& o, const SimSetup& setup) {
  TACTUS_ASSIGN_OR_RETURN(const core::ReplicaConfig asked, core::ReplicaOf(o));
  core::SchedulerConfig c = asked.scheduler;
  if (core::FindSearch(o.scheduler) != nullptr)
    c.preset = core::SchedulerConfig().preset;  // memory as with the default
                                                // preset
  c.limits.block_size = static_cast<int32_t>(o.block_size);
  c.limits.pipeline_steps = setup.step_time->stages();  // 1 with a measured profile, whatever --pp means for the memory
  return c;
}

// The scheduler's requirements for the memory plan.
struct AskedMemory {
  int64_t max_step_tokens = 0;
  bool swaps = false, whole_contexts = false;
  std::string preemption;
};

// Creates the scheduler once, with unlimited KV memory, to read its requirements.
Result<AskedMemory> AskMemory(const core::SchedulerConfig& c, const StepTimeModel* step_time) {
  core::ReplicaConfig config;
  config.scheduler = c;
  config.scheduler.limits.blocks_total = std::numeric_limits<int32_t>::max();
  config.max_queue = 0;
  config.true_lengths_known = true;
  core::ReplicaServices services;
  services.step_time = step_time;
  TACTUS_ASSIGN_OR_RETURN(const auto asked, core::Replica::Create(std::move(config), std::move(services)));
  const core::Scheduler& scheduler = asked->scheduler();
  return AskedMemory{scheduler.max_step_tokens(), scheduler.swaps(), scheduler.computes_whole_contexts(),
                     scheduler.config().preemption};
}

// Longest sequence in tokens, by the model and the options; 0: unknown.
int64_t AskedContext(const SimOptions& o, const SimSetup& setup) {
  const int64_t context = setup.cost != nullptr ? setup.cost->max_model_len() : 0;
  if (context > 0 && o.max_model_len > 0) return std::min(context, o.max_model_len);
  return std::max(context, o.max_model_len);
}

// Plans context and KV memory of a replica.
Status PlanMemory(const SimOptions& o, SimSetup* setup) {
  core::SchedulerConfig& c = setup->config.scheduler;
  int64_t context = AskedContext(o, *setup);
  if (setup->cost != nullptr && o.max_model_len > context) {
    setup->notes.push_back(
        fmt::format("--max-model-len {}: the model's context of {} tokens applies; --override-context {} raises it",
                    o.max_model_len, context, o.max_model_len));
  }
  if (context <= 0)
    return InvalidArgument("--max-model-len is missing: a step profile does not define a context length",
                           "max-model-len");
  int64_t blocks = o.kv_blocks, kv_bytes_per_token = 0;
  if (setup->cost == nullptr && blocks == 0) {
    return InvalidArgument(
        "--kv-blocks is missing: a step profile does not define the KV memory (or give --model and --device)",
        "kv-blocks");
  }
  if (setup->cost != nullptr) {
    c.limits.max_model_len = static_cast<int32_t>(std::max<int64_t>(context, 2));
    TACTUS_ASSIGN_OR_RETURN(const AskedMemory asked, AskMemory(c, setup->step_time.get()));
    const int64_t most = asked.max_step_tokens;
    if (o.swap_space.bytes > 0 && !asked.swaps && core::FindSearch(o.scheduler) == nullptr) {
      setup->notes.push_back(fmt::format(
          "--swap-space has no effect: preemption {} recomputes; --preemption swap uses it", asked.preemption));
    }
    // A policy that computes whole prompts has unbounded steps in simulation; activations are planned for one prompt of
    // full length. If every sequence reserves its context and prompts share a step, they are planned for all of them,
    // as in the engines whose memory the papers report (docs/concepts/cost_model.md, "KV memory").
    const auto largest = asked.whole_contexts ? cost::LargestStep::kOfAllThatKvHolds : cost::LargestStep::kOfOneContext;
    const int64_t planned = asked.whole_contexts ? c.limits.max_num_seqs * context : std::max(context, int64_t{8192});
    auto plan = setup->cost->PlanKv(o.gpu_memory_utilization, c.limits.block_size, std::min(most, planned), largest);
    if (plan.ok()) {
      setup->kv_bytes_per_token = kv_bytes_per_token = plan->kv_bytes_per_token;
      if (blocks == 0) blocks = plan->num_blocks;
      setup->notes.push_back(fmt::format(
          "memory per device: weights {:.2f} GiB, activations {:.2f} GiB, KV {:.2f} GiB: {} blocks of {} tokens{}",
          static_cast<double>(plan->weight_bytes_per_device) / (1 << 30),
          static_cast<double>(plan->activation_bytes_per_device) / (1 << 30),
          static_cast<double>(plan->kv_bytes_per_device) / (1 << 30), plan->num_blocks, o.block_size,
          o.kv_blocks > 0 ? fmt::format(" (--kv-blocks {} instead)", o.kv_blocks) : ""));
    } else if (blocks == 0) {
      return plan.status();
    }
  }
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max());
  const int64_t holds = blocks * o.block_size;
  if (holds < context) {
    setup->notes.push_back(
        fmt::format("context {} tokens, limited by the KV memory (the model's is {})", holds, context));
    context = holds;
  }
  c.limits.max_model_len = static_cast<int32_t>(context);
  c.limits.blocks_total = blocks;
  if (o.swap_space.bytes > 0) {
    if (kv_bytes_per_token == 0)
      return InvalidArgument("--swap-space needs --model and --device: the size of a KV block is unknown",
                             "swap-space");
    const int64_t block_bytes = kv_bytes_per_token * o.block_size;
    if (o.swap_space.bytes < block_bytes) {
      return InvalidArgument(
          fmt::format("--swap-space is {} bytes, and one KV block of {} tokens is {}: give at least that, or 0",
                      o.swap_space.bytes, o.block_size, block_bytes),
          "swap-space");
    }
    setup->config.swap_blocks = o.swap_space.bytes / block_bytes;
  }
  return Status();
}

Status OpenWorkload(const SimOptions& o, const SimTexts& texts, SimSetup* setup) {
  TACTUS_ASSIGN_OR_RETURN(const ParsedLoad load, ParseLoad(o, o.offline));
  TACTUS_RETURN_IF_ERROR(CheckClasses(texts.slo_mix, load.spec));
  if (o.requests == 0 || o.requests < -1)
    return InvalidArgument(fmt::format("--requests is {}; it must be at least 1", o.requests), "requests");
  const int64_t requests = o.requests > 0 ? o.requests : load.spec.rows != nullptr ? 0 : 1000;
  setup->open_workload = [load, requests, seed = static_cast<uint64_t>(o.seed), mix = texts.slo_mix,
                          times = setup->step_time]() -> Result<std::unique_ptr<WorkloadStream>> {
    TACTUS_ASSIGN_OR_RETURN(auto stream, WorkloadStream::Open(load.spec, load.arrivals, requests, seed));
    return WithObjectives(std::move(stream), mix, seed,
                          [times](const WorkloadRequest& r) { return AloneBy(*times, r); });
  };
  TACTUS_ASSIGN_OR_RETURN(setup->workload, setup->open_workload());
  if (o.predictor == core::kStated && !setup->workload->predicts_lengths()) {
    return InvalidArgument(
        fmt::format("--predictor stated uses the workload's predictions, and '{}' has none: give a "
                    "lengths: or trace: file with a column predicted_output_tokens, or --predictor oracle",
                    o.workload),
        "predictor");
  }
  if (setup->workload->rows_dropped() > 0) {
    setup->notes.push_back(fmt::format("{}: {} rows without a prompt or an output dropped", load.spec.file,
                                       setup->workload->rows_dropped()));
  }
  return Status();
}

// Costs and overlap of a job on a device with known step times.
Status PriceJobOn(const SimOptions& o, const SimTexts& texts, const SimSetup& setup, PlannedLoad* job) {
  constexpr int64_t kStepTokens = 2048, kMostTokens = 8192;  // of a step from which rates are derived
  const int64_t budget = o.token_budget > 0 ? o.token_budget : kStepTokens;
  job->overlap = setup.cost != nullptr ? setup.cost->overlap() : kNoOverlap;
  if (setup.profile != nullptr) {
    TACTUS_ASSIGN_OR_RETURN(const auto measured, cost::NotedOverlap(setup.profile->remarks()));
    job->overlap.linear = measured ? measured->interference : kNoOverlap.linear;
  }
  // Overlap hides costs, so rates come from steps without overlap.
  std::shared_ptr<const StepTimeModel> apart = setup.step_time;
  if (o.overlap != "off") {
    TACTUS_ASSIGN_OR_RETURN(cost::Deployment deployment, DeploymentOf(o, texts));
    deployment.overlap = "off";
    TACTUS_ASSIGN_OR_RETURN(apart, cost::CostModel::Create(deployment));
  }
  job->cost = CostOfSteps(*apart, setup.cost.get(), static_cast<int32_t>(std::min(budget, kMostTokens)));
  return Status();
}

// Sets up the offline job, if the load is one.
Status SetUpJob(const SimOptions& o, const SimTexts& texts, SimSetup* setup) {
  if (!o.offline) return Status();
  if (setup->oracle)
    return InvalidArgument("the oracle maximises goodput under objectives, and an offline job has no objectives",
                           "offline");
  PlannedLoad& job = setup->config.job.emplace();
  job.sample_share = o.sample;
  job.seed = static_cast<uint64_t>(o.plan_seed);
  job.lengths_known = o.planner_lengths == "known";
  return PriceJobOn(o, texts, *setup, &job);
}

// A class without objectives only names the load's requests.
Result<SimOptions> WithNameOfRequests(const SimOptions& options) {
  SimOptions o = options;
  std::erase_if(o.slo_class, [](const std::string& text) { return text.find(':') == std::string::npos; });
  for (const std::string& name : options.slo_class) {
    if (name.find(':') != std::string::npos) continue;
    if (!o.request_class.empty() && o.request_class != name) {
      return InvalidArgument(
          fmt::format("--slo-class '{}' has no objectives, so it names the class of the load's requests, which is "
                      "already '{}'; give it objectives, such as {}:ttft=500ms, or leave it out",
                      Printable(name), Printable(o.request_class), Printable(name)),
          "slo-class");
    }
    o.request_class = name;
  }
  return o;
}

}  // namespace

namespace {

Result<std::vector<double>> ParseSlowness(const std::string& text) {
  constexpr double kLeast = 0.01, kMost = 1000;
  std::vector<double> factors;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    double factor = 0;
    if (!ParsePlainNumber(one, &factor) || !(factor >= kLeast && factor <= kMost)) {
      return InvalidArgument(
          fmt::format("--replica-slowness: '{}' is not a number from {} to {}; give one per replica, such as 1,1,2",
                      one, kLeast, kMost),
          "replica-slowness");
    }
    factors.push_back(factor);
  }
  return factors;
}

// Speculation needs an acceptance probability, and a probability needs speculation.
Status SetUpSpeculation(const SimOptions& o, SimSetup* setup) {
  SimulationConfig& c = setup->config;
  if (o.speculation == "none") {
    if (o.draft_acceptance == 0) return Status();
    return InvalidArgument(
        fmt::format("--draft-acceptance {} has no effect with --speculation none: give --speculation ngram or draft",
                    o.draft_acceptance),
        "draft-acceptance");
  }
  c.draft_tokens = static_cast<int32_t>(o.draft_tokens);
  c.draft_acceptance = o.draft_acceptance;
  c.draft_kind = o.speculation == "ngram" ? core::DraftKind::kNgram : core::DraftKind::kModel;
  return Status();
}

// For people: the objectives in force, in milliseconds.
void NoteObjectives(const SimOptions& o, const SimTexts& texts, std::vector<std::string>* notes) {
  if (o.tbt_slo.ns > 0) notes->push_back("objective of --tbt-slo: " + ObjectivesText(Slo{.tbt_ns = o.tbt_slo.ns}));
  if (texts.slo.any()) notes->push_back("objectives of --slo: " + ObjectivesText(texts.slo));
  for (const SloClass& c : texts.slo_mix.classes)
    notes->push_back(fmt::format("objectives of class '{}': {}", Printable(c.name), ObjectivesText(c)));
}

// Whether sequences migrate between replicas, and at what cost.
Status SetUpMigration(const SimOptions& o, SimSetup* setup) {
  constexpr double kUsualGbytesPerS = 8;  // 64 Gb/s
  SimulationConfig& c = setup->config;
  const bool asked = o.migration_gbytes_per_s > 0;
  TACTUS_ASSIGN_OR_RETURN(const fleet::BalancerInfo* balancer, fleet::FindBalancer(o.balancer));
  const double gbytes_per_s = o.migration_gbytes_per_s >= 0 ? o.migration_gbytes_per_s
                              : balancer->moves             ? kUsualGbytesPerS
                                                            : 0;
  if (gbytes_per_s <= 0 || c.replicas < 2 || o.offline) return Status();
  if (setup->kv_bytes_per_token == 0) {
    if (!asked) return Status();
    return InvalidArgument("--migration-gbytes-per-s needs --model and --device: the size of a token's KV is unknown",
                           "migration-gbytes-per-s");
  }
  // Host memory for arriving sequences has the size of the KV memory, so that a sequence which fits one fits the other.
  const int64_t room = c.scheduler.limits.blocks_total;
  c.migration = {gbytes_per_s * 1e9, o.migration_latency.ns, setup->kv_bytes_per_token, room};
  setup->notes.push_back(fmt::format("sequences migrate between replicas at {} GB/s", gbytes_per_s));
  return Status();
}

// Sets up autoscaling by load.
Status SetUpScaling(const SimOptions& o, SimSetup* setup) {
  SimulationConfig& c = setup->config;
  const SimOptions defaults;
  if (o.most_replicas == 0) {
    for (const auto& [flag, given] :
         {std::pair{"scale-up-below", o.scale_up_below != defaults.scale_up_below},
          std::pair{"scale-down-above", o.scale_down_above != defaults.scale_down_above},
          std::pair{"scale-after", o.scale_after.ns != defaults.scale_after.ns},
          std::pair{"replica-start-time", o.replica_start_time.ns != defaults.replica_start_time.ns}}) {
      if (!given) continue;
      return InvalidArgument(fmt::format("--{} needs autoscaling: give its limit with --most-replicas", flag), flag);
    }
    return Status();
  }
  if (o.most_replicas <= o.replicas) {
    return InvalidArgument(fmt::format("--most-replicas is {} and --replicas, the minimum, is {}: it must be larger",
                                       o.most_replicas, o.replicas),
                           "most-replicas");
  }
  if (o.ep > 1) {
    return InvalidArgument(fmt::format("--most-replicas {} starts and drains single replicas, and with --ep {} only "
                                       "whole groups can run: give only --replicas",
                                       o.most_replicas, o.ep),
                           "most-replicas");
  }
  if (o.offline) {
    return InvalidArgument(fmt::format("--most-replicas {} needs a load that arrives: an offline job assigns every "
                                       "replica its shard at the start; give only --replicas",
                                       o.most_replicas),
                           "most-replicas");
  }
  if (o.scale_up_below >= o.scale_down_above) {
    return InvalidArgument(fmt::format("--scale-up-below is {} and --scale-down-above {}: the second must be larger, "
                                       "or replicas are started and drained in turn",
                                       o.scale_up_below, o.scale_down_above),
                           "scale-up-below");
  }
  c.replicas = static_cast<int32_t>(o.most_replicas);
  c.scaling = {.least = static_cast<int32_t>(o.replicas),
               .start_below = o.scale_up_below,
               .drain_above = o.scale_down_above,
               .after_ns = o.scale_after.ns,
               .starting_ns = o.replica_start_time.ns};
  setup->notes.push_back(
      fmt::format("{} to {} replicas: one starts below {} tokens of KV memory per running sequence, "
                  "one is drained above {}",
                  o.replicas, o.most_replicas, o.scale_up_below, o.scale_down_above));
  return Status();
}

// Headroom for requests of high priority.
Status SetUpHeadroom(const SimOptions& o, SimSetup* setup) {
  if (o.priority_headroom == 0) return Status();
  const auto bad = [&](const std::string& why) {
    return InvalidArgument(fmt::format("--priority-headroom {} {}", o.priority_headroom, why), "priority-headroom");
  };
  TACTUS_ASSIGN_OR_RETURN(const fleet::BalancerInfo* balancer, fleet::FindBalancer(o.balancer));
  if (!balancer->moves)
    return bad(fmt::format("needs a balancer that uses free KV memory, and '{}' does not: give --balancer llumnix",
                           o.balancer));
  if (std::max(o.replicas, o.most_replicas) < 2 || o.offline)
    return bad(
        "moves other sequences to another replica, and there is none: give --replicas 2 or more, without --offline");
  const int64_t kv_tokens = setup->config.scheduler.limits.blocks_total * setup->config.scheduler.limits.block_size;
  if (o.priority_headroom >= kv_tokens)
    return bad(
        fmt::format("must be below a replica's KV memory of {} tokens, or nothing else could run beside a request of "
                    "high priority; give less",
                    kv_tokens));
  if (!setup->workload->has_high_priority())
    return bad(
        fmt::format("applies to requests with priority below 0, and '{}' has none: give a lengths: or trace: "
                    "file with a column priority",
                    o.workload));
  setup->config.priority_headroom = o.priority_headroom;
  setup->notes.push_back(
      fmt::format("requests with priority below 0 have a headroom of {} tokens on a replica", o.priority_headroom));
  return Status();
}

}  // namespace

Result<int64_t> MaxStepTokens(const SimSetup& setup) {
  TACTUS_ASSIGN_OR_RETURN(const AskedMemory asked, AskMemory(setup.config.scheduler, setup.step_time.get()));
  return asked.max_step_tokens;
}

Result<SimSetup> SetUpStepTimes(const SimOptions& options, const SimTexts& texts) {
  SimSetup setup;
  TACTUS_RETURN_IF_ERROR(MakeCost(options, texts, &setup));
  return setup;
}

Result<SequenceRoom> PlanRoom(const SimOptions& options, SimSetup* setup) {
  SequenceRoom room{.context = AskedContext(options, *setup), .kv_blocks = options.kv_blocks};
  if (room.kv_blocks > 0 || setup->cost == nullptr) return room;
  TACTUS_ASSIGN_OR_RETURN(setup->config.scheduler, AskedScheduler(options, *setup));
  TACTUS_RETURN_IF_ERROR(PlanMemory(options, setup));
  room.kv_blocks = setup->config.scheduler.limits.blocks_total;
  return room;
}

Result<PlannedLoad> PriceJob(const SimOptions& options, const SimTexts& texts) {
  TACTUS_ASSIGN_OR_RETURN(const SimSetup setup, SetUpStepTimes(options, texts));
  PlannedLoad job;
  TACTUS_RETURN_IF_ERROR(PriceJobOn(options, texts, setup, &job));
  return job;
}

Result<SimSetup> SetUpSimulation(const SimOptions& options, const SimTexts& texts) {
  TACTUS_ASSIGN_OR_RETURN(const SimOptions o, WithNameOfRequests(options));
  TACTUS_ASSIGN_OR_RETURN(SimSetup setup, SetUpStepTimes(o, texts));
  SimulationConfig& c = setup.config;
  c.step_time = setup.step_time.get();
  c.meter = setup.cost.get();
  TACTUS_ASSIGN_OR_RETURN(c.step_spread, ParseStepNoise(o.step_noise, setup.profile.get(), o.cost));
  if (c.step_spread.any()) {
    setup.notes.push_back(fmt::format("step times vary by {} (standard deviation; the cost is the median)",
                                      cost::SpreadText(c.step_spread)));
  }
  TACTUS_ASSIGN_OR_RETURN(c.scheduler, AskedScheduler(o, setup));
  TACTUS_RETURN_IF_ERROR(PlanMemory(o, &setup));
  TACTUS_RETURN_IF_ERROR(OpenWorkload(o, texts, &setup));
  setup.oracle = core::FindSearch(o.scheduler) != nullptr;
  TACTUS_ASSIGN_OR_RETURN(setup.oracle_without, ParseOracleWithout(o.oracle_without));
  if (!setup.oracle && !setup.oracle_without.empty()) {
    return InvalidArgument(
        fmt::format("--oracle-without {} needs --scheduler oracle, and the scheduler is {}: change one of the two",
                    Printable(o.oracle_without), Printable(o.scheduler)),
        "oracle-without");
  }
  if (setup.oracle) {
    for (const std::string* choice : {&o.order, &o.admission, &o.composition, &o.budget, &o.preemption, &o.predictor}) {
      if (!choice->empty())
        return InvalidArgument(fmt::format("the oracle tries every preset; leave '{}' out", *choice), "scheduler");
    }
    for (const auto& [flag, file] : {std::pair{"trace-out", &o.trace_out}, std::pair{"requests-out", &o.requests_out},
                                     std::pair{"steps-out", &o.steps_out}}) {
      if (file->empty()) continue;
      return InvalidArgument(
          fmt::format(
              "the oracle makes many runs and records none: leave --{} out, or run the scheduler that its result names",
              flag),
          flag);
    }
  }
  c.model_name = o.model.empty() ? "profile" : o.model;
  c.prefix_caching = o.prefix_caching && (o.identities == "all" || setup.workload->shares_text());
  c.cascade_attention = o.kv_reads == "once";
  TACTUS_RETURN_IF_ERROR(SetUpSpeculation(o, &setup));
  if (o.identities == "all") c.client = "client";
  TACTUS_RETURN_IF_ERROR(SetUpJob(o, texts, &setup));
  c.replicas = static_cast<int32_t>(o.replicas);
  c.balancer = o.balancer;
  c.balancer_polls = o.balancer_polls;
  TACTUS_ASSIGN_OR_RETURN(c.slowness, ParseSlowness(o.replica_slowness));
  TACTUS_RETURN_IF_ERROR(SetUpScaling(o, &setup));
  TACTUS_RETURN_IF_ERROR(SetUpMigration(o, &setup));
  TACTUS_RETURN_IF_ERROR(SetUpHeadroom(o, &setup));
  c.concurrency = o.concurrency;
  c.client_gap_ns = o.client_gap.ns;
  c.max_queue = o.max_queue;
  c.default_max_tokens = o.default_max_tokens;
  c.exact_max_tokens = o.ignore_eos;
  c.clip_prompts = o.long_prompts == "clip";
  NoteObjectives(o, texts, &setup.notes);
  c.slo = texts.slo;
  c.slo_class = o.request_class;
  c.seed = static_cast<uint64_t>(o.seed);
  c.exact_percentiles = o.exact_percentiles;
  c.warmup = texts.warmup;
  c.measure = texts.measure;
  c.requests_out = o.requests_out;
  c.steps_out = o.steps_out;
  c.trace_out = o.trace_out;
  return setup;
}

}  // namespace tactus::sim
