// Engine::Create and the public engine: puts model, text, executor, KV cache, scheduler, step loop and delivery
// together, and owns the engine thread.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <thread>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/fleet_secret.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/memory_shortage.h"
#include "base/objectives.h"
#include "base/printable.h"
#include "base/rng.h"
#include "base/shortage.h"
#include "base/step_rates.h"
#include "base/system_random.h"
#include "base/thread_role.h"
#include "compute/config/sampling_defaults.h"
#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "compute/weights/model_description.h"
#include "core/loop/metrics.h"
#include "core/loop/replica.h"
#include "core/loop/run_recorder.h"
#include "core/loop/timelines.h"
#include "core/sched/scheduler.h"
#include "core/trace/trace_writer.h"
#include "cost/step_tables/step_table.h"
#include "engine/class_objectives.h"
#include "engine/create_engine.h"
#include "engine/delivery.h"
#include "engine/kv_store/folder.h"
#include "engine/live_records.h"
#include "engine/migration_port.h"
#include "engine/output_rules.h"
#include "engine/past_requests.h"
#include "engine/prompt_cache.h"
#include "engine/start/check_model.h"
#include "engine/start/check_options.h"
#include "engine/start/default_name.h"
#include "engine/start/options_text.h"
#include "engine/start/start_drafts.h"
#include "engine/start/start_texts.h"
#include "engine/start/turn_ends.h"
#include "engine/step_times/find_step_times.h"
#include "engine/step_times/fingerprint.h"
#include "engine/step_times/kept_step_times.h"
#include "engine/step_times/profile_model.h"
#include "engine/token_ids.h"
#include "tactus/engine.h"

namespace tactus::engine {
namespace {

constexpr int64_t kMostStepTokens = int64_t{1} << 30;
constexpr int64_t kDiskRoomBytes = int64_t{256} << 20;  // host memory for KV on its way from --kv-cache-dir

// Start-up state that later steps need, in the order in which it is determined.
struct Setup {
  EngineOptions options;
  compute::ModelDescription description;
  ModelText text;
  std::unique_ptr<Backend> backend;
  BackendInfo computes;
  std::vector<std::string> names;  // in the API; at least one
  DraftPlan drafts;
  MemoryGrant memory;
  OutputRulesMemory rules;
  core::ReplicaConfig replica;
  FoundStepTimes step_times;
  std::vector<std::string> warnings;    // about the model
  std::unique_ptr<KvFolder> kv_folder;  // null: no KV is kept on disk
};

Status FindModel(Setup* s, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, compute::ResolveModel(s->options.model));
  TACTUS_ASSIGN_OR_RETURN(s->description, compute::DescribeModel(path));
  TACTUS_ASSIGN_OR_RETURN(s->text, CheckModel(s->options, s->description));
  TurnEnds ends = FindTurnEnds(s->description, s->text);
  s->description.config.stop_ids = ends.ids();
  s->warnings = s->description.config.warnings;
  for (auto* w : {&s->text.warnings, &ends.warnings}) s->warnings.insert(s->warnings.end(), w->begin(), w->end());
  if (s->backend == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(s->backend, compute::MakeBackend(s->options, s->description, clock));
  }
  s->computes = s->backend->Info();
  TACTUS_ASSIGN_OR_RETURN(s->drafts, PlanDrafts(s->options, *s->text.tokenizer, s->computes.max_draft_tokens, clock));
  return Status();
}

Result<std::unique_ptr<core::Replica>> MakeReplica(const Setup& s) {
  core::ReplicaServices services;
  services.step_time = s.step_times.profile.get();
  services.corrected = true;
  services.recorded = !s.options.trace_out.empty();
  return core::Replica::Create(s.replica, std::move(services));
}

// The scheduler determines the largest step, which determines the memory plan, which determines the context and the
// blocks that the scheduler works with: so it is made twice, first for the step size only.
Status PlanEverything(Setup* s) {
  const EngineOptions& o = s->options;
  const compute::ModelConfig& config = s->description.config;
  TACTUS_ASSIGN_OR_RETURN(s->replica, core::ReplicaOf(o));
  core::SchedulerConfig& c = s->replica.scheduler;
  c.limits.max_model_len =
      static_cast<int32_t>(o.max_model_len > 0 ? std::min(o.max_model_len, config.max_position) : config.max_position);
  c.limits.blocks_total = std::numeric_limits<int32_t>::max();
  c.limits.block_size = static_cast<int32_t>(o.block_size);
  s->replica.prefix_caching = o.prefix_caching;
  s->replica.max_draft_tokens = s->computes.max_draft_tokens;
  s->replica.forced_tokens = s->computes.max_draft_tokens > 0;
  s->replica.guesses = o.speculation != "none";
  s->replica.model_stop_ids = config.stop_ids;
  TACTUS_ASSIGN_OR_RETURN(const auto asked, MakeReplica(*s));
  if (asked->scheduler().max_step_tokens() > kMostStepTokens) {
    return InvalidArgument(
        fmt::format(
            "--step-limit none: a step of scheduler '{}' may have any number of tokens, for which no memory can be "
            "planned; use --step-limit context or --token-budget with another --budget",
            o.scheduler),
        "step-limit");
  }

  MemoryDemand demand{.max_model_len = o.max_model_len,
                      .max_num_seqs = o.max_num_seqs,
                      .max_slots = s->replica.slots(),
                      .max_step_tokens = asked->scheduler().max_step_tokens(),
                      .block_size = static_cast<int32_t>(o.block_size),
                      .kv_bytes = o.kv_cache_memory.bytes};
  // A swap space that is unused is reported at start.
  const bool on_disk = s->kv_folder != nullptr;
  demand.swap_bytes = asked->scheduler().swaps() || !o.kv_secret.empty() ? o.swap_space.bytes : 0;
  if (on_disk) demand.swap_bytes += kDiskRoomBytes;
  demand.front_end_bytes = o.front_end_bytes;
  s->rules = OutputRulesMemory::Of(config.vocab_size, AvailableMemoryBytes());
  demand.rules_bytes = s->rules.total();
  demand.draft_bytes = s->drafts.memory.total_bytes;
  TACTUS_ASSIGN_OR_RETURN(s->memory, s->backend->PlanMemory(demand));
  c.limits.max_model_len = static_cast<int32_t>(s->memory.max_model_len);
  c.limits.blocks_total = s->memory.num_blocks;
  c.limits.swap_blocks = s->memory.swap_blocks;
  if (on_disk) {
    const double share = static_cast<double>(kDiskRoomBytes) / static_cast<double>(demand.swap_bytes);
    s->replica.import_blocks =
        std::max(int64_t{1}, static_cast<int64_t>(share * static_cast<double>(s->memory.swap_blocks)));
    c.limits.swap_blocks -= s->replica.import_blocks;
    s->replica.list_entered = true;
  }
  s->replica.remember_evicted = true;
  return Status();
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(Setup setup, std::unique_ptr<Executor> executor, std::unique_ptr<core::DraftSource> drafts,
             std::unique_ptr<core::Replica> replica, ModelInfo info, Clock& clock, Clock& stopwatch,
             core::RunRecorder* recorder)
      : setup_(std::move(setup)),
        info_(std::move(info)),
        clock_(clock),
        stopwatch_(stopwatch),
        recorder_(recorder),
        executor_(std::move(executor)),
        drafts_(std::move(drafts)),
        shortest_step_ns_(setup_.step_times.profile != nullptr ? ShortestStepNs(*setup_.step_times.profile) : 0),
        replica_(std::move(replica)),
        classes_(replica_->limits().classes) {}

  // Connects the replica to the executor and starts the engine thread.
  Status Start(const Backend::Say& say) {
    EngineOptions& o = setup_.options;
    metrics_ = std::make_unique<core::EngineMetrics>(info_.name, replica_->kv_config(),
                                                     replica_->scheduler().max_step_tokens());
    if (o.seed != 0) {
      seed_base_ = static_cast<uint64_t>(o.seed);
    } else {
      TACTUS_ASSIGN_OR_RETURN(const Hash128 bits, SystemRandom());
      seed_base_ = bits.low;
    }
    const language::Tokenizer* tokenizer = setup_.text.tokenizer.get();
    delivery_ = std::make_unique<Delivery>(tokenizer, replica_->limits().model_stop_ids);
    events_.Add(metrics_.get());  // first: the metrics count an answer before its sink receives it
    if (recorder_ != nullptr) events_.Add(&recording_.emplace(recorder_, [this] { return loop_->Stats(); }));
    events_.Add(&live_);
    events_.Add(&past_);
    events_.Add(delivery_.get());
    rules_ =
        std::make_unique<OutputRules>(tokenizer, info_.vocab_size, replica_->limits().model_stop_ids, setup_.rules);
    core::ReplicaParts parts;
    parts.executor = executor_.get();
    parts.clock = &clock_;
    parts.stopwatch = &stopwatch_;
    parts.sink = &events_;
    parts.drafts = drafts_.get();
    parts.token_bytes = [tokenizer](TokenId id) { return tokenizer->TokenBytes(id); };
    parts.about = "model = " + info_.path + "\n" + OptionsText(o);
    if (!o.trace_out.empty()) parts.tap = core::RecordTo(o.trace_out, parts.about);
    TACTUS_RETURN_IF_ERROR(replica_->Connect(std::move(parts)));
    loop_ = &replica_->loop();
    if (!o.kv_secret.empty() && executor_->kv_block_bytes() > 0) {
      port_ = MakeMigrationPort(Format(), {.loop = loop_,
                                           .executor = executor_.get(),
                                           .delivery = delivery_.get(),
                                           .limits = &replica_->limits(),
                                           .clock = &clock_,
                                           .vocab_size = info_.vocab_size});
    }
    if (setup_.kv_folder != nullptr) {
      PromptCacheParts cache{.loop = loop_, .executor = executor_.get(), .clock = &clock_};
      cache.replica = &replica_->config();
      TACTUS_ASSIGN_OR_RETURN(cache.identity, StoredKvIdentity(info_, o, setup_.computes));
      TACTUS_ASSIGN_OR_RETURN(prompt_cache_,
                              PromptCache::Open(std::move(setup_.kv_folder), o.kv_cache_dir_size.bytes, cache, say));
    }
    thread_ = std::thread([this] {
      SetThreadRole(ThreadRole::kEngine, "tactus-engine");
      RunNeedingMemory([this] { loop_->Run(); });
    });
    return Status();
  }

  ~EngineImpl() override { (void)Close(); }

  Status Close() override {
    if (!thread_.joinable()) return Status();
    Drain(0);
    loop_->Stop();
    thread_.join();
    if (prompt_cache_ != nullptr) prompt_cache_->Finish();
    executor_.reset();  // a step of aborted requests may still run, on a plan that the loop owns
    delivery_.reset();  // delivers the remaining events before the loop and its parts are destroyed
    const Status written = replica_->CloseTap();
    return written.ok()
               ? written
               : Status(written.code(), fmt::format("--trace-out {}: {}", setup_.options.trace_out, written.message()));
  }

  const ModelInfo& model() const override { return info_; }
  std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop) const override {
    return setup_.text.tokenizer->Encode(text, add_special, true, stop);
  }
  int64_t LeastTokens(std::string_view text) const override { return setup_.text.tokenizer->LeastTokens(text); }
  std::string Detokenize(const std::vector<TokenId>& tokens) const override {
    return setup_.text.tokenizer->Decode(tokens, false);
  }
  std::string TokenString(TokenId token) const override {
    language::Detokenizer one(setup_.text.tokenizer.get(), false);
    std::string text = one.Append(token);
    return text + one.Flush();
  }
  bool IsSpecialToken(TokenId token) const override { return setup_.text.tokenizer->IsSpecial(token); }
  std::string TokenBytes(TokenId token) const override { return std::string(setup_.text.tokenizer->TokenBytes(token)); }

  Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop) const override {
    if (!setup_.text.chat_template) {
      return InvalidArgument(
          fmt::format("the model '{}' has no chat template; use /v1/completions, or start with --chat-template FILE",
                      info_.name),
          "messages");
    }
    json_text::JsonLimits limits;  // wider than a server's: the server has already checked client input
    limits.max_depth = 2 * limits.max_depth;
    limits.max_values = limits.max_keys = std::numeric_limits<int64_t>::max();
    limits.stop = stop;
    TACTUS_ASSIGN_OR_RETURN(Json variables, json_text::ParseJson(variables_json, limits));
    if (!variables.is_object()) return InvalidArgument("the template's variables are not a JSON object");
    if (!variables.contains("bos_token")) variables["bos_token"] = setup_.text.bos_token;
    if (!variables.contains("eos_token")) variables["eos_token"] = setup_.text.eos_token;
    return setup_.text.chat_template->Render(variables, stop);
  }
  // The template writes its own BOS where the model expects one, so none is added.
  std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop) const override {
    return setup_.text.tokenizer->Encode(rendered, false, true, stop);
  }
  Result<std::shared_ptr<const TokenGrammar>> CompileRule(const OutputRule& rule, StopToken stop,
                                                          RuleWait* wait) const override {
    return rules_->Compile(rule, stop, wait);
  }
  Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) override {
    TACTUS_RETURN_IF_ERROR(CheckTokenIds(request, info_.vocab_size));
    const TimeNs arrival_ns = ArrivalOf(request);
    CountArrival(arrival_ns);
    if (!request.sampling.has_seed) {
      const auto bits = Philox4x32({static_cast<uint32_t>(seed_base_), static_cast<uint32_t>(seed_base_ >> 32)},
                                   {static_cast<uint32_t>(seeds_drawn_.fetch_add(1)), 0, 0, 0x5eed});
      request.sampling.seed = static_cast<uint64_t>(bits[1]) << 32 | bits[0];
    }
    const auto declared = classes_.Get();
    Status classed = ApplyServiceClass(*declared, &request);
    if (classed.ok()) classed = CheckObjectives(request.slo, FloorNs());
    if (classed.ok()) classed = CheckRuleRoom(request);
    auto shared = std::make_shared<const Request>(std::move(request));
    if (!classed.ok()) {
      const bool known = declared->empty() || FindServiceClass(*declared, shared->slo_class) != 0;
      CountRejected(*shared, known ? shared->slo_class : "", classed.message(), arrival_ns);
      return classed;
    }
    auto prepared = core::PrepareRequest(shared, replica_->limits());
    if (!prepared.ok()) {
      CountRejected(*shared, shared->slo_class, prepared.status().message(), arrival_ns);
      return prepared.status();
    }
    past_.Arriving(*shared);
    void* user = delivery_->Register(shared, std::move(sink));
    prepared->user = user;
    prepared->arrival_ns = arrival_ns;
    auto handle = [&] {
      try {
        return prompt_cache_ != nullptr ? prompt_cache_->Submit(std::move(prepared).value())
                                        : loop_->Submit(std::move(prepared).value());
      } catch (...) {  // out of memory: the request will have no done event
        past_.Forget(*shared);
        delivery_->Forget(user);
        throw;
      }
    }();
    if (!handle.ok()) {
      past_.Forget(*shared);
      delivery_->Forget(user);
      CountRejected(*shared, shared->slo_class, handle.status().message(), arrival_ns);
    }
    return handle;
  }
  Status WaitForRoom(int32_t sequences, int64_t timeout_ns) override {
    return loop_->WaitForRoom(sequences, timeout_ns);
  }
  // An answer needs a state for sampled tokens, and with forced tokens a second one.
  Status CheckRuleRoom(const Request& request) const {
    if (request.grammar == nullptr) return Status();
    const int64_t at_once = std::min<int64_t>(request.n, replica_->scheduler().max_running());
    Status room = rules_->CheckRoom(*request.grammar, at_once * (setup_.replica.forced_tokens ? 2 : 1));
    // The next step frees the states of answers that have ended, so an idle engine has room.
    return loop_->live_requests() == 0 && room.code() == StatusCode::kResourceExhausted ? Status() : room;
  }
  // The shortest step by measured times, shortened by a correction below 1 (they may be of a busy machine); 0: none.
  DurationNs FloorNs() const {
    const double faster = std::min(1.0, loop_->Stats().step_time_correction);
    return static_cast<DurationNs>(static_cast<double>(shortest_step_ns_) * faster);
  }
  void CountRefused(const Request& request, const Status& why) override {
    CountArrival(ArrivalOf(request));
    CountRejected(request, request.slo_class, why.message(), ArrivalOf(request));
  }
  void Cancel(RequestHandle handle) override { loop_->Cancel(handle); }
  int64_t Drain(int64_t timeout_ns) override {
    loop_->StopAccepting(Status(StatusCode::kUnavailable, "the server is shutting down; try another one"));
    const TimeNs end = timeout_ns > kNever / 2 ? kNever : clock_.NowNs() + timeout_ns;
    while (loop_->live_requests() > 0 && clock_.NowNs() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int64_t left = loop_->live_requests();
    if (left > 0) {
      loop_->Abort(Status(StatusCode::kUnavailable, "the server shut down before this answer was complete"));
      while (loop_->live_requests() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Wait until the last sink has been called and the statistics include the last pass.
    delivery_->WaitUntilEmpty();
    for (EngineStats s = loop_->Stats(); s.kv_blocks_in_use > 0 || s.waiting > 0; s = loop_->Stats())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return left;
  }

  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const override { return loop_->Timelines(query); }
  int64_t kept_timelines() const override { return core::Timelines::kKeptSequences; }
  LiveFeed* live() override { return &live_; }
  std::vector<PastRequest> PastRequests() const override { return past_.Since(clock_.NowNs()); }
  std::string StepTimesFile() const override { return setup_.step_times.file; }
  Status SetServiceClasses(const std::vector<std::string>& slo_class) override { return classes_.Set(slo_class); }
  MigrationPort* migration() override { return port_.get(); }
  bool may_refuse() const override { return replica_->scheduler().gate_asks(); }
  EngineStats Stats() const override { return loop_->Stats(); }
  Status Failure() const override { return loop_->Failure(); }
  std::vector<std::string> TakeWarnings() override {
    return prompt_cache_ != nullptr ? prompt_cache_->TakeWarnings() : std::vector<std::string>();
  }
  std::string MetricsText() const override {
    std::string text = metrics_->Text(loop_->Stats());
    if (prompt_cache_ != nullptr) text += prompt_cache_->MetricsText({{"model_name", info_.name}, {"engine", "0"}});
    return text;
  }
  std::string LastSteps() const override { return metrics_->LastSteps(); }
  RunResult Outcome() const override {
    RunResult result = metrics_->Outcome(loop_->Stats());
    result.unfinished = loop_->live_requests();
    return result;
  }

 private:
  MigrationFormat Format() const {
    const EngineOptions& o = setup_.options;
    MigrationFormat format;
    format.model = info_.name;
    format.kv_dtype = setup_.computes.kv_dtype;
    format.block_size = static_cast<int32_t>(o.block_size);
    format.block_bytes = executor_->kv_block_bytes();
    format.fingerprint = Fingerprint(info_, o, setup_.computes);
    return format;
  }
  void CountArrival(TimeNs arrival_ns) {
    metrics_->CountArrival(arrival_ns);
    if (recorder_ != nullptr) recorder_->Arrived(arrival_ns);
  }
  void CountRejected(const Request& r, std::string_view slo_class, std::string_view why, TimeNs arrival_ns) {
    metrics_->CountRejected(r.slo, slo_class, why);
    if (recorder_ == nullptr) return;
    const int64_t prompt_tokens = r.prompt ? static_cast<int64_t>(r.prompt->size()) : -1;
    recorder_->Refused(-1, arrival_ns, clock_.NowNs(), prompt_tokens, r.slo, slo_class);
  }
  TimeNs ArrivalOf(const Request& request) const {
    const TimeNs now_ns = clock_.NowNs();
    return request.arrival_ns >= 0 ? std::min(request.arrival_ns, now_ns) : now_ns;
  }

  Setup setup_;
  std::unique_ptr<OutputRules> rules_;
  ModelInfo info_;
  Clock& clock_;
  Clock& stopwatch_;
  core::RunRecorder* const recorder_;  // null: nothing is recorded
  std::optional<core::RecordingSink> recording_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<core::DraftSource> drafts_;  // null: the executor verifies no drafts
  std::unique_ptr<core::EngineMetrics> metrics_;
  std::unique_ptr<Delivery> delivery_;
  LiveRecords live_{[this] { return loop_->Stats(); }, [this](size_t most) { return replica_->kv().Outline(most); },
                    [this] { return loop_->LiveHandles(); }};
  engine::PastRequests past_;
  core::EventFanOut events_;  // to all of them
  const DurationNs shortest_step_ns_;
  std::unique_ptr<core::Replica> replica_;
  ClassObjectives classes_;
  core::StepLoop* loop_ = nullptr;             // owned by the replica
  std::unique_ptr<MigrationPort> port_;        // null: sequences do not move
  std::unique_ptr<PromptCache> prompt_cache_;  // null: no KV is kept on disk
  uint64_t seed_base_ = 0;
  std::atomic<uint32_t> seeds_drawn_{0};
  std::thread thread_;
};

ModelInfo MakeInfo(const Setup& s, std::string weight_format) {
  const compute::ModelConfig& config = s.description.config;
  ModelInfo info;
  info.name = s.names[0];
  info.other_names.assign(s.names.begin() + 1, s.names.end());
  info.path = s.description.path;
  info.architecture = config.architecture;
  info.max_model_len = s.memory.max_model_len;
  info.vocab_size = config.vocab_size;
  info.num_parameters = config.NumParameters();
  info.hidden_size = config.hidden_size;
  info.num_layers = config.num_layers();
  info.kv_bytes_per_token = config.KvBytesPerToken(compute::DType::kBF16);
  info.weight_format = std::move(weight_format);
  info.kernels = s.computes.kernels, info.device = s.computes.devices[0].name;
  info.generation_defaults = compute::DefaultSampling(s.options.sampling, config.generation_defaults);
  info.chat_template = s.text.template_source + s.text.tool_use_source;
  info.memory_bytes = s.memory.total_bytes;
  info.front_end_bytes = s.memory.front_end_bytes;
  return info;
}

// Measures step times if they are wanted and not stored, and rebuilds the scheduler with them. On error `s` and
// `replica` are unchanged.
Status SizeByQuickProfile(Executor* executor, const ExecutorSize& size, const std::string& weight_format, Clock& clock,
                          const Backend::Say& say, Setup* s, std::unique_ptr<core::Replica>* replica) {
  ProfileLimits limits;
  limits.max_step_tokens = size.max_step_tokens;
  limits.max_decodes = std::max(0, size.max_step_items - 1);
  limits.max_context = static_cast<int32_t>(size.max_model_len);
  limits.num_blocks = size.num_blocks;
  limits.block_size = size.block_size;
  limits.vocab_size = s->description.config.vocab_size;
  const auto remarks = StepTimeRemarks(s->description, weight_format, s->computes, QuickLimits(limits));
  TACTUS_ASSIGN_OR_RETURN(QuickTimes quick, QuickStepTimes(executor, QuickLimits(limits), remarks, s->options,
                                                           s->step_times.wanted, clock, say));
  s->step_times.profile = std::move(quick.profile);
  s->step_times.file = std::move(quick.file);
  TACTUS_ASSIGN_OR_RETURN(auto sized, MakeReplica(*s));
  if (sized->scheduler().max_step_tokens() > size.max_step_tokens) {
    return InvalidArgument(
        fmt::format("budget {} would make steps of {} tokens, but memory is planned for {}; store step times with "
                    "`tactus profile`, which plans for them",
                    sized->scheduler().config().budget, sized->scheduler().max_step_tokens(), size.max_step_tokens));
  }
  *replica = std::move(sized);
  return Status();
}

// Loads the weights and builds the engine around them.
Result<std::unique_ptr<Engine>> Start(Setup setup, std::unique_ptr<core::Replica> replica, const EngineParts& parts,
                                      const Backend::Say& say) {
  TACTUS_ASSIGN_OR_RETURN(std::string format, setup.backend->LoadWeights(say));
  say(fmt::format("weights {}; {}", format, setup.computes.summary));
  if (!setup.computes.hint.empty()) say(setup.computes.hint);
  ModelInfo info = MakeInfo(setup, std::move(format));
  ExecutorSize size;
  size.num_blocks = setup.memory.num_blocks;
  size.swap_blocks = setup.memory.swap_blocks;
  size.block_size = static_cast<int32_t>(setup.options.block_size);
  size.max_model_len = setup.memory.max_model_len;
  size.max_slots = setup.replica.slots();
  size.max_step_tokens = replica->scheduler().max_step_tokens();
  size.max_step_items = replica->scheduler().max_running();
  if (setup.step_times.overlap) size.least_split_tokens = setup.step_times.overlap->least_split_tokens;
  if (setup.step_times.overlap) info.overlap_interference = setup.step_times.overlap->interference;
  if (setup.options.overlap != "off") {
    say(fmt::format("steps of {} tokens or more run in two parts ({})", size.least_split_tokens,
                    setup.step_times.overlap ? "measured" : "a default: `tactus profile --overlap nano` measures it"));
  }
  TACTUS_ASSIGN_OR_RETURN(auto executor, setup.backend->CreateExecutor(size));
  if (!setup.step_times.wanted.empty()) {
    const Status measured =
        SizeByQuickProfile(executor.get(), size, info.weight_format, *parts.clock, say, &setup, &replica);
    if (!measured.ok()) say("warning: no step times were measured: " + measured.message());
    SayScheduler(replica->scheduler(), setup.options, say);
  }
  if (setup.step_times.profile != nullptr) {
    for (const ServiceClass& c : replica->limits().classes) {
      const Status promised = CheckObjectives(c.slo, ShortestStepNs(*setup.step_times.profile));
      if (!promised.ok()) say(fmt::format("warning: --slo-class '{}': {}", Printable(c.name), promised.message()));
    }
    const StepRates rates = RatesOf(*setup.step_times.profile, static_cast<int32_t>(size.max_step_tokens));
    info.prompt_token_s = rates.prompt_token_s;
    info.kv_token_s = rates.kv_token_s;
  }
  std::unique_ptr<core::DraftSource> drafts;
  if (setup.replica.max_draft_tokens > 0) {
    const DraftLimits limits{size.max_slots, size.max_model_len, info.vocab_size};
    TACTUS_ASSIGN_OR_RETURN(drafts, MakeDrafts(std::move(setup.drafts), setup.options, limits, say));
  }
  auto engine = std::make_unique<EngineImpl>(
      std::move(setup), std::move(executor), std::move(drafts), std::move(replica), std::move(info), *parts.clock,
      parts.stopwatch != nullptr ? *parts.stopwatch : *parts.clock, parts.recorder);
  TACTUS_RETURN_IF_ERROR(engine->Start(say));
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, const Engine::Progress& progress,
                                       EngineParts parts) {
  const Backend::Say say = [&progress](const std::string& line) {
    if (progress) progress(line);
  };
  const TimeNs start_ns = parts.clock->NowNs();
  Setup setup;
  setup.options = options;
  setup.backend = std::move(parts.backend);
  TACTUS_RETURN_IF_ERROR(CheckOptions(options));
  TACTUS_RETURN_IF_ERROR(FindModel(&setup, *parts.clock));
  const compute::ModelConfig& config = setup.description.config;
  say(fmt::format("model {} ({}, {:.1f} M parameters) from {}", config.name, config.architecture,
                  static_cast<double>(config.NumParameters()) * 1e-6, setup.description.path));
  for (const std::string& warning : setup.warnings) say("warning: " + warning);
  SaySampling(setup.description, options, say);
  if (!options.kv_cache_dir.empty()) {
    TACTUS_ASSIGN_OR_RETURN(setup.kv_folder, KvFolder::Open(options.kv_cache_dir));
  }
  TACTUS_ASSIGN_OR_RETURN(setup.step_times, FindStepTimes(setup.options, setup.description, setup.computes));
  for (const std::string& note : setup.step_times.notes) say(note);
  TACTUS_RETURN_IF_ERROR(PlanEverything(&setup));
  std::string plan = setup.memory.text;
  while (plan.ends_with('\n')) plan.pop_back();
  say(plan);
  say(setup.rules.Text());
  SayCutContext(config, setup.memory, options, say);
  TACTUS_ASSIGN_OR_RETURN(setup.names, ServedNames(options));
  if (setup.names.empty()) setup.names.push_back(DefaultServedName(options.model, setup.description.path));
  setup.replica.model = setup.names[0];
  if (!options.kv_secret.empty()) {
    setup.replica.secret = FleetKeysOf(options.kv_secret).blocks;
  } else if (setup.kv_folder != nullptr) {
    setup.replica.secret = setup.kv_folder->secret();
  } else {
    TACTUS_ASSIGN_OR_RETURN(setup.replica.secret, SystemRandom());
  }
  TACTUS_ASSIGN_OR_RETURN(auto replica, MakeReplica(setup));
  if (setup.step_times.wanted.empty()) SayScheduler(replica->scheduler(), options, say);
  TACTUS_ASSIGN_OR_RETURN(auto engine, Start(std::move(setup), std::move(replica), parts, say));
  say(fmt::format("ready after {:.2f} s", static_cast<double>(parts.clock->NowNs() - start_ns) * 1e-9));
  return engine;
}

}  // namespace

Result<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, const Engine::Progress& progress,
                                             EngineParts parts) {
  return CatchShortage([&] { return Create(options, progress, std::move(parts)); });
}

}  // namespace tactus::engine

tactus::Result<std::unique_ptr<tactus::Engine>> tactus::Engine::Create(const EngineOptions& options,
                                                                       const Progress& progress) {
  return engine::CreateEngine(options, progress, {.clock = &SystemClock()});
}
