#include "sim/simulator/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/check.h"
#include "base/objectives.h"
#include "base/rng.h"
#include "core/trace/trace_writer.h"
#include "sim/simulator/simulator_impl.h"

namespace tactus::sim {
namespace {

constexpr uint64_t kGapStream = uint64_t{0x9a9} << 32;  // random stream, apart from those of workloads and steps
constexpr int32_t kDecisionSample = 16;                 // one plan in this number is timed
constexpr int64_t kProgressEvery = 4096;                // passes
constexpr int32_t kLeanReplicas = 8;                    // fewer replicas gain more by huge pages
constexpr int64_t kMostBlocks = int64_t{1} << 27;  // KV and swap blocks of all replicas: about 100 bytes of memory each

Status CheckBlocks(const SimulationConfig& c) {
  const int64_t kv = c.scheduler.limits.blocks_total, swap = c.swap_blocks;
  if (kv >= 1 && swap >= 0 && kv <= kMostBlocks && swap <= kMostBlocks && (kv + swap) * c.replicas <= kMostBlocks)
    return Status();
  return InvalidArgument(
      fmt::format("{} replicas of {} KV blocks and {} swap blocks; a simulation holds 1 to {} blocks in total: "
                  "use fewer --replicas or --kv-blocks, less --swap-space or a larger --block-size",
                  c.replicas, kv, swap, kMostBlocks),
      swap > kv ? "swap-space" : "kv-blocks");
}

Status CheckConfig(const SimulationConfig& c, const WorkloadStream& workload) {
  const auto bad = [](const std::string& what, const char* flag) { return InvalidArgument(what, flag); };
  if (c.step_time == nullptr) return bad("a simulation needs a step-time model", "cost");
  if (c.replicas < 1 || c.replicas > 4096)
    return bad(fmt::format("replicas is {}; it must be between 1 and 4096", c.replicas), "replicas");
  if (workload.count() < 1)
    return bad(fmt::format("a simulation of {} requests; there must be at least 1", workload.count()), "requests");
  if (c.concurrency < 0)
    return bad(fmt::format("concurrency is {}; it must be at least 1", c.concurrency), "concurrency");
  if (c.client_gap_ns < 0)
    return bad(fmt::format("client-gap is {} ns; it must be at least 0", c.client_gap_ns), "client-gap");
  if (c.job && c.concurrency > 0)
    return bad("an offline job keeps the queues full and has no concurrency: give only one of them", "concurrency");
  if (!c.job && c.concurrency == 0 && !workload.has_arrivals()) {
    return bad("the workload has no arrival times: give a rate (open loop) or a concurrency (closed loop)", "rate");
  }
  if (c.default_max_tokens < 1)
    return bad(fmt::format("default-max-tokens is {}; it must be at least 1", c.default_max_tokens),
               "default-max-tokens");
  if (c.priorities != nullptr && static_cast<int64_t>(c.priorities->size()) < workload.count()) {
    return bad(fmt::format("{} priorities for {} requests", c.priorities->size(), workload.count()), "priorities");
  }
  if (c.max_queue < 0) return bad(fmt::format("max-queue is {}; it must be at least 0", c.max_queue), "max-queue");
  return CheckBlocks(c);
}

}  // namespace

Result<std::unique_ptr<Simulation>> Simulation::Create(const SimulationConfig& config, WorkloadStream* workload) {
  TACTUS_RETURN_IF_ERROR(CheckConfig(config, *workload));
  auto impl = std::make_unique<Impl>(config, workload);
  TACTUS_ASSIGN_OR_RETURN(impl->fleet, fleet::Fleet::Create(config.replicas, config.balancer, config.seed));
  if (!config.requests_out.empty()) {
    TACTUS_ASSIGN_OR_RETURN(impl->log, RequestLog::Create(config.requests_out));
  }
  if (!config.steps_out.empty()) {
    TACTUS_ASSIGN_OR_RETURN(impl->step_log, StepLog::Create(config.steps_out));
  }
  TACTUS_RETURN_IF_ERROR(impl->MakeReplicas());
  impl->fleet->SetHeadroom(config.priority_headroom);
  impl->MakeMigrations();
  impl->MakeScaler();
  impl->AskReplicas();
  if (config.job) TACTUS_RETURN_IF_ERROR(impl->MakeJob());
  impl->shortest_step_ns = ShortestStepNs(*config.step_time);
  return std::unique_ptr<Simulation>(new Simulation(std::move(impl)));
}

Simulation::Simulation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Simulation::~Simulation() = default;

Status Simulation::Impl::MakeReplicas() {
  const core::SchedulerLimits& l = config.scheduler.limits;
  const int64_t waiting = config.max_queue > 0 ? std::min(workload.count(), config.max_queue) : workload.count();
  if (waiting + l.max_num_seqs > (1 << 24)) {
    return InvalidArgument(
        fmt::format("{} sequences may wait at a replica; the limit is {}", waiting, (1 << 24) - l.max_num_seqs),
        "max-queue");
  }
  capacity = static_cast<int32_t>(waiting + l.max_num_seqs);
  replicas.resize(static_cast<size_t>(config.replicas));
  next_pass = DueTimes(replicas.size());
  try {
    for (int32_t i = 0; i < config.replicas; ++i) TACTUS_RETURN_IF_ERROR(MakeReplica(i));
  } catch (const std::bad_alloc&) {
    return InvalidArgument(
        fmt::format("{} replicas with {} sequences of {} tokens and {} KV blocks each exceed this machine's memory: "
                    "lower --max-queue, --max-num-seqs, --max-model-len or --replicas",
                    config.replicas, capacity, l.max_model_len, l.blocks_total),
        "max-queue");
  }
  core::Replica& first = *replicas[0].core;
  limits = first.limits();
  metrics = std::make_unique<core::EngineMetrics>(config.model_name, first.kv_config(),
                                                  first.scheduler().max_step_tokens(), config.exact_percentiles,
                                                  results::RunWindow(config.warmup, config.measure, workload.count()));
  return Status();
}

int32_t Simulation::Impl::QueueLimit() const {
  return config.max_queue > 0 ? static_cast<int32_t>(config.max_queue) : capacity;
}

Status Simulation::Impl::MakeJob() {
  PlannedEngine engine;
  engine.order = replicas[0].core->scheduler().config().order;
  engine.replicas = config.replicas;
  engine.block_size = limits.block_size;
  engine.max_num_seqs = config.scheduler.limits.max_num_seqs;
  engine.kv_tokens = config.scheduler.limits.blocks_total * limits.block_size;
  engine.max_model_len = limits.max_model_len;
  engine.default_max_tokens = config.default_max_tokens;
  engine.prefix_caching = config.prefix_caching;
  engine.shared_reads = config.cascade_attention;
  engine.stopwatch = config.stopwatch;
  TACTUS_ASSIGN_OR_RETURN(job, PlannedJob::Create(*config.job, engine, &workload));
  return Status();
}

Status Simulation::Impl::MakeReplica(int32_t index) {
  SimReplica& r = replicas[static_cast<size_t>(index)];
  core::ReplicaConfig rc;
  rc.scheduler = config.scheduler;
  rc.scheduler.limits.swap_blocks = config.swap_blocks;
  if (config.migration) rc.import_blocks = config.migration->room_blocks;
  rc.max_queue = QueueLimit();
  rc.slot_capacity = capacity;
  rc.prefix_caching = config.prefix_caching;
  rc.shared_prefixes = config.cascade_attention;
  rc.keep_timelines = false;  // none is shown
  rc.lean = config.replicas >= kLeanReplicas;
  if (config.draft_acceptance > 0) rc.max_draft_tokens = config.draft_tokens;
  rc.guesses = config.draft_acceptance > 0;
  rc.secret = {1, 2};  // a simulation needs no secret
  rc.model = config.model_name;
  rc.seed = config.seed;
  rc.true_lengths_known = true;
  core::ReplicaServices services;
  services.step_time = config.step_time;
  // As in a server; exact steps need no correction. Those of several replicas are predicted as if they were equal.
  services.corrected = config.step_spread.any() || config.step_time->replicas_together() > 1;
  services.recorded = !config.trace_out.empty();
  if (config.injected) services.injected = config.injected();
  TACTUS_ASSIGN_OR_RETURN(r.core, core::Replica::Create(std::move(rc), std::move(services)));

  SimExecutorConfig ec;
  ec.step_time = config.step_time;
  ec.clock = &clock;
  ec.max_slots = capacity;
  ec.noise = StepNoise(config.step_spread, config.seed, index);
  ec.meter = config.meter;
  ec.draft_acceptance = config.draft_acceptance;
  ec.seed = config.seed;
  ec.together = config.step_time->replicas_together() > 1;
  if (!config.slowness.empty()) ec.slowness = config.slowness[static_cast<size_t>(index) % config.slowness.size()];
  if (config.on_step || step_log != nullptr) {
    ec.observer = [this, index](const StepPlan& plan, TimeNs start, TimeNs end) {
      if (config.on_step) config.on_step(index, plan, start, end);
      if (step_log != nullptr) step_log->Ran(index, plan, start, end);
    };
  }
  r.executor = std::make_unique<SimExecutor>(ec);
  r.sink = std::make_unique<ReplicaSink>(this, index);

  core::ReplicaParts parts;
  parts.executor = r.executor.get();
  if (config.draft_acceptance > 0) {
    r.drafts = std::make_unique<SimDrafts>(config.draft_kind, config.draft_tokens, config.draft_acceptance);
    parts.drafts = r.drafts.get();
  }
  parts.clock = &clock;
  parts.stopwatch = config.stopwatch;
  parts.stopwatch_every = kDecisionSample;
  parts.sink = r.sink.get();
  parts.about = fmt::format("simulation of {}, replica {}, seed {}\n", config.model_name, index, config.seed);
  if (!config.trace_out.empty()) {
    parts.tap = core::RecordTo(config.replicas == 1 ? config.trace_out : fmt::format("{}.{}", config.trace_out, index),
                               "tactus sim");
  }
  if (config.prefix_caching) {
    parts.generated_key = [&r](RequestHandle handle, int32_t, int32_t block) {
      return OwnBlockKey(r.owners.Find(handle), block);
    };
  }
  return r.core->Connect(std::move(parts));
}

bool Simulation::Impl::FetchArrival() {
  has_arriving = workload.Next(&arriving);
  return has_arriving;
}

void Simulation::Impl::FillClosedLoop() {
  WorkloadRequest work;
  for (int64_t i = 0; i < config.concurrency && workload.Next(&work); ++i) due.push_back(work);
}

Simulation::Impl::Live* Simulation::Impl::NewLive() {
  if (free_records.empty()) {
    live_records.emplace_back();
    return &live_records.back();
  }
  Live* live = free_records.back();
  free_records.pop_back();
  return live;
}

void Simulation::Impl::CountArrival(TimeNs arrival_ns) {
  metrics->CountArrival(arrival_ns);
  if (config.recorder != nullptr) config.recorder->Arrived(arrival_ns);
}

void Simulation::Impl::Place(const WorkloadRequest& work, TimeNs arrival_ns) {
  CountArrival(arrival_ns);
  first_arrival_ns = std::min(first_arrival_ns, arrival_ns);
  Enter(NewLive(work, arrival_ns, fleet->Route(RouteOf(work))));
}

Simulation::Impl::Live* Simulation::Impl::NewLive(const WorkloadRequest& work, TimeNs arrival_ns, int32_t at) {
  Live* live = NewLive();
  live->work = work;
  live->place = {};
  live->request = nullptr;
  if (!live->work.slo.any()) live->work.slo = config.slo;
  if (live->work.slo_class.empty()) live->work.slo_class = config.slo_class;
  objectives_below_a_step += IsBelow(live->work.slo, shortest_step_ns);
  live->replica = at;
  live->arrival_ns = arrival_ns;
  return live;
}

// As in a batch run: the replica's queue is kept as full as JobFeed::most_waiting allows.
void Simulation::Impl::FillQueue(int32_t replica) {
  const auto i = static_cast<size_t>(replica);
  while (true) {
    const int64_t waiting = fleet->view(replica).outstanding_requests - replicas[i].loop().Stats().running;
    if (waiting >= job->MostWaiting(replica, QueueLimit())) return;
    const auto start = job->Next(replica);
    if (!start) return;
    const TimeNs now_ns = clock.NowNs();
    CountArrival(now_ns);
    first_arrival_ns = std::min(first_arrival_ns, now_ns);
    fleet->Routed(replica, RouteOf(*start->work));
    Live* live = NewLive(*start->work, now_ns, replica);
    live->job_number = start->number;
    live->place = start->place;
    Enter(live);
  }
}

Result<core::PreparedRequest> Simulation::Impl::Prepare(const WorkloadRequest& work,
                                                        const std::shared_ptr<const SimRequest>& request) const {
  // Keys are needed for sharing; a recording also contains them, so that a replay needs no workload.
  if (!SharesText(work) && config.trace_out.empty())
    return core::PrepareWithOwnKeys(request, request->prompt_tokens, limits);
  std::vector<Hash128> keys;
  if (limits.prefix_caching) AppendPromptKeys(work, request->prompt_tokens, limits.block_size, &keys);
  return core::PrepareWithoutTokens(request, request->prompt_tokens, std::move(keys), limits);
}

// Submits the request to its replica's loop, or rejects it as a server would.
void Simulation::Impl::Enter(Live* live) {
  const WorkloadRequest& work = live->work;
  SimReplica& r = replicas[static_cast<size_t>(live->replica)];
  int64_t prompt = work.prompt_tokens;
  if (prompt >= limits.max_model_len && config.clip_prompts) {
    prompt = std::max<int64_t>(1, limits.max_model_len - work.output_tokens);
    ++clipped_prompts;
  }
  Slo slo = work.slo;
  const auto leave = [&](const std::string& why) {
    fleet->Ended(live->replica, RoutedTokens(work), -1);
    Refuse(work, slo, why);
    if (job != nullptr) job->OnDone(live->replica, live->job_number, 0);
    free_records.push_back(live);
  };
  // A prompt that fills the context, and a stated length that does not fit, are rejected by the loop.
  const int64_t room = std::max<int64_t>(1, limits.max_model_len - prompt);
  auto request = std::make_shared<SimRequest>();
  request->prompt_tokens = static_cast<int32_t>(prompt);
  request->index = work.index;
  request->output_tokens = static_cast<int32_t>(config.exact_max_tokens && !config.clip_prompts
                                                    ? work.output_tokens
                                                    : std::min<int64_t>(work.output_tokens, room));
  request->stop.max_tokens =
      config.exact_max_tokens ? request->output_tokens : std::min(config.default_max_tokens, room);
  request->stop.ignore_eos = config.exact_max_tokens;
  request->predicted_output_tokens = work.predicted_output_tokens;
  request->slo = work.slo;
  request->slo_class = work.slo_class;
  request->client = work.client.empty() ? config.client : work.client;
  request->priority =
      config.priorities != nullptr ? (*config.priorities)[static_cast<size_t>(work.index)] : work.priority;
  request->planned = live->place;
  cut_outputs += work.output_tokens > request->stop.max_tokens;

  if (const Status classed = ApplyServiceClass(limits.classes, request.get()); !classed.ok()) {
    leave(classed.message());
    return;
  }
  slo = request->slo;
  auto prepared = Prepare(work, request);
  if (!prepared.ok()) {
    leave(prepared.status().message());
    return;
  }
  if (config.on_submit) config.on_submit(work, live->arrival_ns, *request);
  prepared->user = live;
  prepared->arrival_ns = live->arrival_ns;
  const auto handle = r.loop().Submit(std::move(prepared).value());
  if (!handle.ok()) {
    leave(handle.status().message());
    return;
  }
  live->handle = *handle;
  r.high_priority += IsHighPriority(work);
  if (migrations != nullptr) live->request = request;
  r.executor->Expect(*handle, *request);
  if (limits.prefix_caching) r.owners.Add(*handle, OwnerOf(work));
  Wake(live->replica);  // a pass admits it even while a step runs, as in the server's loop
}

void Simulation::Impl::Refuse(const WorkloadRequest& work, const Slo& slo, const std::string& why) {
  ++ended;
  metrics->CountRejected(slo, work.slo_class, why, clock.NowNs());
  if (log != nullptr) log->Refused(work, clock.NowNs());
  if (config.recorder != nullptr)
    config.recorder->Refused(work.index, clock.NowNs(), clock.NowNs(), work.prompt_tokens, slo, work.slo_class);
  Followed(work);
}

// Follow-ups of a finished request: the conversation's next turn, or in a closed loop the next request.
void Simulation::Impl::Followed(const WorkloadRequest& work) {
  if (job != nullptr) return;
  WorkloadRequest next;
  if (!workload.NextTurn(work, &next) && !(config.concurrency > 0 && workload.Next(&next))) return;
  if (config.client_gap_ns == 0) {
    due.push_back(std::move(next));
    return;
  }
  // Drawn by the request's number, so that the gap does not depend on other draws or on the policy.
  const double share = -std::log(1 - UniformAt(config.seed, kGapStream, static_cast<uint64_t>(next.index)));
  const TimeNs at_ns = clock.NowNs() + std::llround(share * static_cast<double>(config.client_gap_ns));
  later.push({at_ns, std::move(next)});
}

void Simulation::Impl::OnStep(int32_t index, const core::StepEvents& events) {
  metrics->OnStep(events);
  if (config.observer != nullptr) config.observer->OnStep(events);
  if (config.recorder != nullptr)
    config.recorder->Passed(index, events, replicas[static_cast<size_t>(index)].loop().Stats());
  if (events.done.empty()) return;
  SimReplica& r = replicas[static_cast<size_t>(index)];
  for (const core::RequestDoneEvent& d : events.done) {
    if (d.finish == FinishReason::kMigrated) {
      Left(index, d);
      continue;
    }
    Live* live = static_cast<Live*>(d.user);
    fleet->Ended(index, RoutedTokens(live->work), d.refused ? -1 : d.completion_tokens);
    ++ended;
    last_end_ns = std::max(last_end_ns, d.done_ns);
    r.high_priority -= IsHighPriority(live->work);
    r.executor->Forget(live->handle);
    if (limits.prefix_caching) r.owners.Remove(live->handle);
    if (log != nullptr) d.refused ? log->Refused(live->work, d.done_ns) : log->Ended(live->work, index, d);
    if (config.recorder != nullptr) config.recorder->Ended(live->work.index, index, d);
    if (config.on_done) config.on_done(live->work, index, d);
    if (job != nullptr) job->OnDone(index, live->job_number, d.refused ? 0 : d.completion_tokens);
    Followed(live->work);
    live->request = nullptr;
    free_records.push_back(live);
  }
}

TimeNs Simulation::Impl::NextEventNs() const {
  TimeNs next = has_arriving ? std::min(arriving.arrival_ns, next_pass.least()) : next_pass.least();
  if (!later.empty()) next = std::min(next, later.top().at_ns);
  if (migrations != nullptr) next = std::min(next, migrations->NextNs());
  return next == kNever ? kNever : std::min(next, next_poll_ns);
}

void Simulation::Impl::RunPass(size_t index) {
  SimReplica& r = replicas[index];
  const int64_t before = r.executor->figures().steps;
  r.loop().RunOnce();
  ++passes;
  steps += r.executor->figures().steps - before;
  next_pass.Set(index, r.executor->NextReadyNs());
  if (job != nullptr) FillQueue(static_cast<int32_t>(index));
}

void Simulation::Impl::AdvanceTo(TimeNs t) {
  clock.AdvanceTo(t);
  if (t >= next_poll_ns) AskReplicas();
  while (has_arriving && arriving.arrival_ns <= t) {
    Place(arriving, arriving.arrival_ns);
    FetchArrival();
  }
  while (!later.empty() && later.top().at_ns <= t) {
    const WorkloadRequest work = later.top().work;
    later.pop();  // before placing it: a rejected request causes a follow-up
    Place(work, t);
  }
  if (migrations != nullptr) migrations->AdvanceTo(t);
  for (size_t i = next_pass.FirstDue(0, t); i != DueTimes::kNone; i = next_pass.FirstDue(i + 1, t)) {
    if (const TimeNs may_ns = MayPlanNs(i); may_ns > t) {
      next_pass.Set(i, may_ns);
    } else {
      RunPass(i);
    }
  }
  // Follow-ups may be rejected at once and cause further ones.
  while (!due.empty()) {
    placing.swap(due);
    for (const WorkloadRequest& work : placing) Place(work, t);
    placing.clear();
  }
  if (config.step_time->replicas_together() > 1) BeginTogether();
}

Status Simulation::Run(const std::function<bool(const SimProgress&)>& keep_going) {
  Impl& s = *impl_;
  if (s.job != nullptr) {
    for (int32_t i = 0; i < s.config.replicas; ++i) s.FillQueue(i);
  } else if (s.config.concurrency > 0) {
    s.FillClosedLoop();
    s.AdvanceTo(0);
  } else {
    s.FetchArrival();
  }
  int64_t asked = 0;
  while (true) {
    const TimeNs t = s.NextEventNs();
    if (t == kNever) break;
    s.AdvanceTo(t);
    if (keep_going && s.passes >= asked) {
      asked = s.passes + kProgressEvery;
      if (!keep_going(progress())) break;
    }
  }
  s.done = s.NextEventNs() == kNever;
  for (auto& r : s.replicas) {
    TACTUS_CHECK(!s.done || r.loop().idle());
    r.executor->Close();
    TACTUS_RETURN_IF_ERROR(r.core->CloseTap());
  }
  const Status requests = s.log != nullptr ? s.log->Close() : Status();
  const Status steps = s.step_log != nullptr ? s.step_log->Close() : Status();
  return requests.ok() ? steps : requests;
}

bool Simulation::finished() const {
  return impl_->done;
}
std::string Simulation::Describe() const {
  return impl_->replicas[0].core->scheduler().Describe();
}

SimProgress Simulation::progress() const {
  SimProgress p;
  p.ended = impl_->ended;
  p.total = impl_->workload.count();
  p.now_ns = impl_->clock.NowNs();
  p.steps = impl_->steps;
  return p;
}

EngineStats Simulation::Stats() const {
  return impl_->Merged();
}
TimeNs Simulation::first_arrival_ns() const {
  return impl_->first_arrival_ns == kNever ? 0 : impl_->first_arrival_ns;
}
TimeNs Simulation::last_end_ns() const {
  return impl_->last_end_ns;
}
const SimExecutor& Simulation::executor(int32_t replica) const {
  return *impl_->replicas[static_cast<size_t>(replica)].executor;
}

std::vector<uint64_t> Simulation::plan_hashes() const {
  std::vector<uint64_t> hashes;
  for (const auto& r : impl_->replicas) hashes.push_back(r.loop().plan_hash());
  return hashes;
}

}  // namespace tactus::sim
