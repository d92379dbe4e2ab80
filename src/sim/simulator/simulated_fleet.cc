// The fleet part of a simulation: polls the replicas' states for the balancer and acts on its decisions: sequences
// move, replicas start and are drained.
#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "sim/simulator/simulator_impl.h"

namespace tactus::sim {

fleet::RouteRequest Simulation::Impl::RouteOf(const WorkloadRequest& work) {
  fleet::RouteRequest route;
  route.prompt_tokens = RoutedTokens(work);
  route.high_priority = IsHighPriority(work);
  if (!fleet->wants_prefixes() || !limits.prefix_caching) return route;
  placement_keys.clear();
  AppendPromptKeys(work, route.prompt_tokens, limits.block_size, &placement_keys);
  route.keys = placement_keys;
  route.block_size = limits.block_size;
  return route;
}

void Simulation::Impl::AskReplicas() {
  for (size_t i = 0; i < replicas.size(); ++i) {
    const EngineStats s = replicas[i].loop().Stats();
    const int64_t total = config.scheduler.limits.blocks_total;
    fleet->Told(static_cast<int32_t>(i), {.running = static_cast<int32_t>(s.running),
                                          .waiting_tokens = s.waiting_tokens,
                                          .free_kv_tokens = (total - s.kv_blocks_in_use) * limits.block_size,
                                          .kv_tokens = total * limits.block_size,
                                          .step_tokens = replicas[i].core->scheduler().max_step_tokens(),
                                          .high_priority = replicas[i].high_priority});
  }
  Scale();
  if (migrations != nullptr) {
    CopyViews();
    migrations->Decide(views, scaler != nullptr ? scaler->draining() : std::vector<bool>());
  }
  if (fleet->wants_state() || migrations != nullptr || scaler != nullptr)
    next_poll_ns = clock.NowNs() + static_cast<DurationNs>(1e9 / config.balancer_polls);
}

// The replicas that share experts with this one, itself included.
std::span<Simulation::Impl::SimReplica> Simulation::Impl::GroupOf(size_t replica) {
  const auto size = static_cast<size_t>(config.step_time->replicas_together());
  const size_t first = replica / size * size;
  return {&replicas[first], std::min(size, replicas.size() - first)};
}

// A replica without a step takes part in the step that others run, and plans when it ends.
TimeNs Simulation::Impl::MayPlanNs(size_t replica) {
  TimeNs at_ns = clock.NowNs();
  if (replicas[replica].executor->busy()) return at_ns;
  for (const SimReplica& r : GroupOf(replica)) {
    if (r.executor->runs(at_ns)) at_ns = r.executor->NextReadyNs();
  }
  return at_ns;
}

// Replicas that share experts start their next steps when none of them runs one, and none is about to plan one. A joint
// step varies as a whole, by the draw of the replica that has most tokens.
void Simulation::Impl::BeginTogether() {
  const TimeNs now_ns = clock.NowNs();
  const auto index_of = [&](const SimReplica& r) { return static_cast<size_t>(&r - replicas.data()); };
  const auto blocks = [&](const SimReplica& r) {
    return next_pass[index_of(r)] <= now_ns || (r.executor->busy() && !r.executor->waits());
  };
  for (size_t first = 0; first < replicas.size(); first += GroupOf(first).size()) {
    const std::span<SimReplica> members = GroupOf(first);
    if (std::any_of(members.begin(), members.end(), blocks)) continue;
    joint.clear();
    const SimExecutor* largest = nullptr;
    for (const SimReplica& r : members) {
      const SimExecutor& e = *r.executor;
      joint.push_back({e.waits() ? e.shape() : StepShape(), e.slowness()});
      if (e.waits() && (largest == nullptr || e.shape().tokens() > largest->shape().tokens())) largest = &e;
    }
    if (largest == nullptr) continue;
    const double took_ns = largest->noise() * static_cast<double>(config.step_time->TogetherNs(joint));
    for (SimReplica& r : members) {
      if (!r.executor->waits()) continue;
      r.executor->Begin(now_ns, std::llround(took_ns));
      next_pass.Set(index_of(r), r.executor->NextReadyNs());
    }
  }
}

void Simulation::Impl::CopyViews() {
  views.clear();
  for (int32_t i = 0; i < fleet->size(); ++i) views.push_back(fleet->view(i));
}

void Simulation::Impl::MakeScaler() {
  if (!config.scaling) return;
  scaler = std::make_unique<fleet::Scaler>(*config.scaling, config.replicas);
  for (int32_t i = 0; i < config.replicas; ++i) fleet->SetReady(i, scaler->standing(i) == fleet::ReplicaStanding::kOn);
}

void Simulation::Impl::Scale() {
  if (scaler == nullptr) return;
  CopyViews();
  // Requests of a sequence in transit are not yet counted at its destination.
  for (int32_t i = 0; i < fleet->size() && migrations != nullptr; ++i)
    views[static_cast<size_t>(i)].outstanding_requests += migrations->Coming(i);
  scaler->Look(views, clock.NowNs());
  for (const int32_t i : scaler->changed()) fleet->SetReady(i, scaler->standing(i) == fleet::ReplicaStanding::kOn);
}

void Simulation::Impl::MakeMigrations() {
  if (!config.migration || replicas.size() < 2 || config.job) return;
  Migrations::Host host;
  host.loop = [this](int32_t i) -> core::StepLoop& { return replicas[static_cast<size_t>(i)].loop(); };
  host.wake = [this](int32_t i) { Wake(i); };
  host.arrive = [this](int32_t from, RequestHandle handle, int32_t to, core::ImportedSequence imported) {
    return Arrive(from, handle, to, std::move(imported));
  };
  migrations = std::make_unique<Migrations>(*config.migration, limits.block_size, &clock, std::move(host));
}

RequestHandle Simulation::Impl::Arrive(int32_t from, RequestHandle handle, int32_t to,
                                       core::ImportedSequence imported) {
  Live* live = nullptr;
  for (Live& l : live_records) {
    if (l.request != nullptr && l.replica == from && l.handle == handle) live = &l;
  }
  TACTUS_CHECK_MSG(live != nullptr, "a moving sequence belongs to no request of the simulation");
  SimReplica& r = replicas[static_cast<size_t>(to)];
  auto prepared = Prepare(live->work, live->request);
  if (!prepared.ok() || !core::AddImported(std::move(imported), limits, &*prepared).ok()) return 0;
  prepared->user = live;
  const auto arrived = r.loop().Submit(std::move(prepared).value());
  if (!arrived.ok()) return 0;
  replicas[static_cast<size_t>(live->replica)].high_priority -= IsHighPriority(live->work);
  r.high_priority += IsHighPriority(live->work);
  live->handle = *arrived;
  live->replica = to;
  r.executor->Expect(*arrived, *live->request);
  if (limits.prefix_caching) r.owners.Add(*arrived, OwnerOf(live->work));
  fleet->Routed(to, RouteOf(live->work));
  return *arrived;
}

// Updates the source replica's counts when a request continues on another one.
void Simulation::Impl::Left(int32_t index, const core::RequestDoneEvent& d) {
  SimReplica& r = replicas[static_cast<size_t>(index)];
  fleet->Ended(index, RoutedTokens(static_cast<Live*>(d.user)->work), -1);
  r.executor->Forget(d.handle);
  if (limits.prefix_caching) r.owners.Remove(d.handle);
}

}  // namespace tactus::sim
