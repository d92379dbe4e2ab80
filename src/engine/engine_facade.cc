// Engine::Create and the public engine: puts model, text, executor, KV cache, scheduler, step loop and delivery
// together, and owns the engine thread.
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "base/shortage.h"
#include "base/thread_role.h"
#include "cost/step_table.h"
#include "engine/check_model.h"
#include "engine/delivery.h"
#include "engine/profile_model.h"
#include "exec/cpu_executor.h"
#include "loop/metrics.h"
#include "loop/step_loop.h"
#include "model/available_memory.h"
#include "model/catalog.h"
#include "model/loader.h"
#include "model/sigbus_guard.h"
#include "predict/predictor.h"
#include "sched/scheduler.h"
#include "tactus/engine.h"
#include "tactus/version.h"
#include "trace/recorded_step_times.h"
#include "trace/trace_writer.h"

namespace tactus {
namespace {

// "name = value" for every option, for the trace's header.
struct OptionEcho {
  std::string text;
  void Group(const char*) {}
  static std::string Show(bool v) { return v ? "on" : "off"; }
  static std::string Show(const std::string& v) { return v; }
  static std::string Show(const DurationText& v) { return fmt::format("{}ns", v.ns); }
  static std::string Show(const BytesText& v) { return fmt::format("{}", v.bytes); }
  static std::string Show(double v) { return fmt::format("{}", v); }
  static std::string Show(int64_t v) { return fmt::format("{}", v); }
  template <class T>
  void Field(const char* name, T& value, const FieldSpec&) {
    text += fmt::format("{} = {}\n", name, Show(value));
  }
};

uint64_t SystemRandom64() {
  uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
    return 0x7ac705;  // no entropy: seeds repeat
  return value;
}

// Everything of the start-up that later steps need, in the order in which it is found out.
struct Setup {
  EngineOptions options;
  ModelDescription description;
  ModelText text;
  Numerics numerics;
  LoadWeightsOptions load;
  const kernels::Ops* ops = nullptr;
  int32_t threads = 1;
  std::string hint;  // of better numerics
  MemoryPlan memory;
  sched::SchedulerConfig scheduling;
  std::unique_ptr<LengthPredictor> predictor;     // in scheduling.limits; may be null
  std::unique_ptr<cost::StepProfile> profile;     // likewise
  std::unique_ptr<RecordingStepTimes> recording;  // between the scheduler and the profile, with --trace-out
  std::vector<std::string> profile_notes;
};

Status FindModel(Setup* s) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, ResolveModel(s->options.model));
  TACTUS_ASSIGN_OR_RETURN(s->description, DescribeModel(path));
  TACTUS_ASSIGN_OR_RETURN(CheckedModel checked, CheckModel(s->options, s->description));
  s->text = std::move(checked.text);
  ModelNumerics& chosen = checked.numerics;
  s->numerics = chosen.numerics;
  s->load = std::move(chosen.load);
  s->ops = chosen.ops;
  s->threads = chosen.threads;
  s->hint = std::move(chosen.hint);
  return Status();
}

// Step times of this machine, where they are asked for or --tbt-slo can use them. Decisions do not depend on what lies
// about in the cache otherwise.
Status FindProfile(Setup* s) {
  const EngineOptions& o = s->options;
  std::string budget = o.budget;
  for (const sched::PresetInfo& preset : sched::Presets()) {
    if (budget.empty() && o.scheduler == preset.name) budget = preset.budget;
  }
  const bool chooses_once = budget == "profile";
  if (o.profile.empty() && !(chooses_once && o.tbt_slo.ns > 0 && o.token_budget == 0)) return Status();
  const std::string path = !o.profile.empty() ? o.profile : DefaultProfilePath(s->description.path, s->threads);
  auto loaded = cost::LoadStepProfile(path);
  if (!loaded.ok())
    return o.profile.empty() && loaded.status().code() == StatusCode::kNotFound ? Status() : loaded.status();
  s->profile = std::move(loaded).value();
  s->profile_notes.push_back(fmt::format("step times {}: {}", path, s->profile->Describe()));
  const auto compare = [s](const char* key, const std::string& now) {
    const auto& remarks = s->profile->remarks();
    const auto found = remarks.find(key);
    if (found == remarks.end() || found->second == now) return;
    s->profile_notes.push_back(
        fmt::format("warning: the step times were measured with {} {}, this is {}: measure again with 'tactus profile'",
                    key, found->second, now));
  };
  compare("model", std::filesystem::path(s->description.path).filename().string());
  compare("threads", std::to_string(s->threads));
  return Status();
}

Status MakePredictor(Setup* s) {
  sched::SchedulerConfig& c = s->scheduling;
  TACTUS_ASSIGN_OR_RETURN(const std::string name, sched::Scheduler::PredictorFor(c));
  predict::PredictorOptions options;
  options.slot_capacity = c.limits.slot_capacity;
  options.max_model_len = c.limits.max_model_len;
  TACTUS_ASSIGN_OR_RETURN(s->predictor, predict::MakePredictor(name, options));
  c.limits.predictor = s->predictor.get();
  return Status();
}

// The scheduler decides how large a step can be, which decides the memory plan, which decides the context and the
// blocks that the scheduler works with: so it is made once to ask, and once for good.
Status PlanEverything(Setup* s) {
  const EngineOptions& o = s->options;
  const ModelConfig& config = s->description.config;
  sched::SchedulerConfig& c = s->scheduling;
  c.preset = o.scheduler;
  c.order = o.order;
  c.admission = o.admission;
  c.composition = o.composition;
  c.budget = o.budget;
  c.preemption = o.preemption;
  c.limits.max_num_seqs = static_cast<int32_t>(o.max_num_seqs);
  c.limits.max_model_len =
      static_cast<int32_t>(o.max_model_len > 0 ? std::min(o.max_model_len, config.max_position) : config.max_position);
  c.limits.slot_capacity = static_cast<int32_t>(o.max_queue + o.max_num_seqs);
  c.limits.blocks_total = std::numeric_limits<int32_t>::max();
  c.limits.block_size = static_cast<int32_t>(o.block_size);
  c.limits.token_budget = o.token_budget;
  c.limits.tbt_slo_ns = o.tbt_slo.ns;
  c.limits.watermark = o.watermark;
  c.limits.reserve_full = o.reserve_full;
  c.limits.policy = o.policy;
  c.predictor = o.predictor;
  c.limits.step_time = s->profile.get();
  TACTUS_RETURN_IF_ERROR(MakePredictor(s));
  TACTUS_ASSIGN_OR_RETURN(const auto asked, sched::Scheduler::Create(c));

  MemoryPlanInput input;
  TACTUS_ASSIGN_OR_RETURN(input.weight_bytes, PlanWeightBytes(s->description, s->load));
  input.available_bytes = AvailableMemoryBytes();
  if (input.available_bytes < 0) input.available_bytes = int64_t{1} << 50;
  input.kv_memory_bytes = o.kv_cache_memory.bytes;
  input.swap_bytes = asked->swaps() ? o.swap_space.bytes : 0;  // said at start where it is not used
  input.front_end_bytes = o.front_end_bytes;
  input.max_model_len = o.max_model_len;
  input.max_num_seqs = o.max_num_seqs;
  input.max_step_tokens = asked->max_step_tokens();
  input.block_size = static_cast<int32_t>(o.block_size);
  input.kv_dtype = s->numerics.kv_dtype;
  input.threads = s->threads;
  TACTUS_ASSIGN_OR_RETURN(s->memory, PlanMemory(config, input));
  c.limits.max_model_len = static_cast<int32_t>(s->memory.max_model_len);
  c.limits.blocks_total = s->memory.num_blocks;
  c.limits.swap_blocks = s->memory.swap_blocks;
  return Status();
}

KvCacheConfig KvConfigOf(const Setup& setup) {
  const EngineOptions& o = setup.options;
  KvCacheConfig kv;
  kv.num_blocks = setup.memory.num_blocks;
  kv.block_size = static_cast<int32_t>(o.block_size);
  kv.max_slots = setup.scheduling.limits.slot_capacity;
  kv.max_blocks_per_slot = static_cast<int32_t>((setup.memory.max_model_len + o.block_size - 1) / o.block_size);
  kv.prefix_caching = o.prefix_caching;
  kv.swap_blocks = setup.memory.swap_blocks;
  return kv;
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(Setup setup, std::unique_ptr<Executor> executor, std::unique_ptr<sched::Scheduler> scheduler,
             ModelInfo info)
      : setup_(std::move(setup)),
        info_(std::move(info)),
        executor_(std::move(executor)),
        scheduler_(std::move(scheduler)),
        start_ns_(SystemClock().NowNs()) {}

  // Puts the parts together and starts the engine thread.
  Status Start() {
    EngineOptions& o = setup_.options;
    const auto capacity = setup_.scheduling.limits.slot_capacity;
    const KvCacheConfig kv = KvConfigOf(setup_);
    kv_ = std::make_unique<KvCache>(kv);
    metrics_ = std::make_unique<EngineMetrics>(info_.name, kv, scheduler_->max_step_tokens());
    seed_base_ = o.seed != 0 ? static_cast<uint64_t>(o.seed) : SystemRandom64();

    StepLoopConfig config;
    config.slot_capacity = capacity;
    config.limits = limits_ = Limits();
    if (!o.trace_out.empty()) {
      OptionEcho echo;
      o.VisitFields(echo);
      TACTUS_ASSIGN_OR_RETURN(
          trace_, TraceWriter::Create(o.trace_out, MakeTraceHeader(*scheduler_, kv, config, executor_->traits(),
                                                                   "model = " + info_.path + "\n" + echo.text,
                                                                   setup_.recording.get())));
    }
    StepLoopParts parts;
    parts.scheduler = scheduler_.get();
    parts.executor = executor_.get();
    parts.predictor = setup_.predictor.get();
    parts.kv = kv_.get();
    parts.clock = &SystemClock();
    delivery_ = std::make_unique<Delivery>(setup_.text.tokenizer.get(), metrics_.get());
    parts.sink = delivery_.get();
    parts.tap = trace_.get();
    parts.step_times = setup_.recording.get();
    const Tokenizer* tokenizer = setup_.text.tokenizer.get();
    parts.token_bytes = [tokenizer](TokenId id) { return tokenizer->TokenBytes(id); };
    loop_ = std::make_unique<StepLoop>(config, std::move(parts));
    thread_ = std::thread([this] {
      SetThreadRole(ThreadRole::kEngine, "tactus-engine");
      loop_->Run();
    });
    return Status();
  }

  ~EngineImpl() override { (void)Close(); }

  Status Close() override {
    if (!thread_.joinable()) return Status();
    Drain(0);
    loop_->Stop();
    thread_.join();
    executor_.reset();  // a step whose requests were cut off may still run, on a plan that the loop owns
    delivery_.reset();  // delivers what is left, before the loop and its parts go
    if (trace_ == nullptr) return Status();
    const Status written = trace_->Close();
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
    Detokenizer one(setup_.text.tokenizer.get(), false);
    std::string text = one.Append(token);
    return text + one.Flush();
  }
  std::string TokenBytes(TokenId token) const override { return std::string(setup_.text.tokenizer->TokenBytes(token)); }

  Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop) const override {
    if (!setup_.text.chat_template) {
      return InvalidArgument(
          fmt::format("the model '{}' has no chat template; use /v1/completions, or start with --chat-template FILE",
                      info_.name),
          "messages");
    }
    json_text::JsonLimits limits;  // wider than a server's, which has checked what came from a client
    limits.max_depth = 2 * limits.max_depth;
    limits.max_values = limits.max_keys = std::numeric_limits<int64_t>::max();
    limits.stop = stop;
    TACTUS_ASSIGN_OR_RETURN(nlohmann::ordered_json variables, json_text::ParseJson(variables_json, limits));
    if (!variables.is_object()) return InvalidArgument("the template's variables are not a JSON object");
    if (!variables.contains("bos_token")) variables["bos_token"] = setup_.text.bos_token;
    if (!variables.contains("eos_token")) variables["eos_token"] = setup_.text.eos_token;
    return setup_.text.chat_template->Render(variables, stop);
  }
  // The template writes its own BOS where the model wants one, so none is added.
  std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop) const override {
    return setup_.text.tokenizer->Encode(rendered, false, true, stop);
  }

  Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) override {
    TACTUS_RETURN_IF_ERROR(CheckTokens(request));
    if (!request.sampling.has_seed) {
      const auto bits = Philox4x32({static_cast<uint32_t>(seed_base_), static_cast<uint32_t>(seed_base_ >> 32)},
                                   {static_cast<uint32_t>(seeds_drawn_.fetch_add(1)), 0, 0, 0x5eed});
      request.sampling.seed = static_cast<uint64_t>(bits[1]) << 32 | bits[0];
    }
    auto shared = std::make_shared<const Request>(std::move(request));
    auto prepared = PrepareRequest(shared, limits_);
    if (!prepared.ok()) return prepared.status();
    void* user = delivery_->Register(shared, std::move(sink));
    prepared->user = user;
    auto handle = [&] {
      try {
        return loop_->Submit(std::move(prepared).value());
      } catch (...) {  // no memory: nobody would ever tell the sink
        delivery_->Forget(user);
        throw;
      }
    }();
    if (!handle.ok()) {
      delivery_->Forget(user);
      metrics_->CountRejected();
    }
    return handle;
  }
  void Cancel(RequestHandle handle) override { loop_->Cancel(handle); }

  int64_t Drain(int64_t timeout_ns) override {
    loop_->StopAccepting(Status(StatusCode::kUnavailable, "the server is shutting down; try another one"));
    const TimeNs end = timeout_ns > kNever / 2 ? kNever : SystemClock().NowNs() + timeout_ns;
    while (loop_->live_requests() > 0 && SystemClock().NowNs() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int64_t left = loop_->live_requests();
    if (left > 0) {
      loop_->Abort(Status(StatusCode::kUnavailable, "the server shut down before this answer was complete"));
      while (loop_->live_requests() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // The last sink has been told, and the figures include the last pass.
    delivery_->WaitUntilEmpty();
    for (EngineStats s = loop_->Stats(); s.kv_blocks_in_use > 0 || s.waiting > 0; s = loop_->Stats()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return left;
  }

  EngineStats Stats() const override { return loop_->Stats(); }
  std::string MetricsText() const override { return metrics_->Text(loop_->Stats()); }
  std::string ResultJson() const override {
    return metrics_->ResultJson(loop_->Stats(), SystemClock().NowNs() - start_ns_);
  }

 private:
  IntakeLimits Limits() const {
    const EngineOptions& o = setup_.options;
    IntakeLimits limits;
    limits.max_model_len = static_cast<int32_t>(setup_.memory.max_model_len);
    limits.max_num_seqs = static_cast<int32_t>(o.max_num_seqs);
    limits.max_queue = static_cast<int32_t>(o.max_queue);
    limits.block_size = static_cast<int32_t>(o.block_size);
    limits.blocks_total = setup_.memory.num_blocks;
    limits.prefix_caching = o.prefix_caching;
    limits.secret = {SystemRandom64(), SystemRandom64()};
    limits.model = info_.name;
    limits.model_stop_ids = setup_.description.config.stop_ids;
    return limits;
  }

  // Ids index the embedding and the logits: out of range is the client's error, here and not in a kernel.
  Status CheckTokens(const Request& request) const {
    if (!request.prompt) return InvalidArgument("the prompt is empty; it needs at least 1 token", "prompt");
    for (TokenId id : *request.prompt) {
      if (id < 0 || id >= info_.vocab_size) {
        return InvalidArgument(fmt::format("token id {} is outside the vocabulary [0, {})", id, info_.vocab_size),
                               "prompt");
      }
    }
    for (const auto& [id, bias] : request.sampling.logit_bias) {
      if (id < 0 || id >= info_.vocab_size) {
        return InvalidArgument(fmt::format("token id {} is outside the vocabulary [0, {})", id, info_.vocab_size),
                               "logit_bias");
      }
      (void)bias;
    }
    return Status();
  }

  Setup setup_;
  ModelInfo info_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<TraceWriter> trace_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<StepLoop> loop_;
  IntakeLimits limits_;
  uint64_t seed_base_ = 0;
  std::atomic<uint32_t> seeds_drawn_{0};
  const TimeNs start_ns_;
  std::thread thread_;
};

// What the API calls the model without --served-model-name: the catalogue's name where it was found by name or lies in
// the catalogue, else the file's or folder's own name.
std::string ServedName(const std::string& asked, const std::string& path) {
  for (const CatalogEntry& entry : ListModels()) {
    if (entry.name == asked || entry.path == path) return entry.name;
  }
  const std::filesystem::path p(path);
  if (p.filename() == "config.json" || p.filename().empty()) return p.parent_path().filename().string();
  return p.extension() == ".gguf" ? p.stem().string() : p.filename().string();
}

ModelInfo MakeInfo(const Setup& s, const ModelWeights& weights) {
  const ModelConfig& config = s.description.config;
  ModelInfo info;
  info.name = !s.options.served_model_name.empty() ? s.options.served_model_name
                                                   : ServedName(s.options.model, s.description.path);
  info.path = s.description.path;
  info.architecture = config.architecture;
  info.max_model_len = s.memory.max_model_len;
  info.vocab_size = config.vocab_size;
  info.num_parameters = config.NumParameters();
  info.weight_format = weights.format;
  info.kernels = s.ops->name;
  info.generation_defaults = config.generation_defaults;
  info.front_end_bytes = s.memory.front_end_bytes;
  return info;
}

Result<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, const Engine::Progress& progress) {
  auto say = [&progress](const std::string& line) {
    if (progress) progress(line);
  };
  const TimeNs start_ns = SystemClock().NowNs();
  Setup setup;
  setup.options = options;
  TACTUS_RETURN_IF_ERROR(FindModel(&setup));
  const ModelConfig& config = setup.description.config;
  say(fmt::format("model {} ({}, {:.1f} M parameters) from {}", config.name, config.architecture,
                  static_cast<double>(config.NumParameters()) * 1e-6, setup.description.path));
  TACTUS_RETURN_IF_ERROR(FindProfile(&setup));
  for (const std::string& note : setup.profile_notes) say(note);
  TACTUS_RETURN_IF_ERROR(PlanEverything(&setup));
  std::string plan = setup.memory.ToString();
  while (plan.ends_with('\n')) plan.pop_back();
  say(plan);
  if (setup.profile != nullptr && !setup.options.trace_out.empty()) {
    setup.recording = std::make_unique<RecordingStepTimes>(setup.profile.get());
    setup.scheduling.limits.step_time = setup.recording.get();
  }
  TACTUS_ASSIGN_OR_RETURN(auto scheduler, sched::Scheduler::Create(setup.scheduling));
  say("scheduler " + scheduler->Describe());
  if (options.swap_space.bytes > 0 && !scheduler->swaps()) {
    say(fmt::format("--swap-space is not used: preemption {} recomputes; --preemption swap would use it",
                    scheduler->config().preemption));
  }

  InstallSigbusGuard();
  setup.load.say = say;
  TACTUS_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(setup.description, setup.load));
  say(fmt::format("weights {}; numerics {}; kernels {}, {} threads", weights.format, NumericsText(setup.numerics),
                  setup.ops->name, setup.threads));
  if (!setup.hint.empty()) say(setup.hint);
  ModelInfo info = MakeInfo(setup, weights);

  CpuExecutorOptions exec;
  exec.threads = setup.threads;
  exec.ops = setup.ops;
  exec.linear_mode = setup.numerics.linear_mode;
  exec.kv_dtype = setup.numerics.kv_dtype;
  exec.num_blocks = setup.memory.num_blocks;
  exec.block_size = static_cast<int32_t>(options.block_size);
  exec.swap_blocks = setup.memory.swap_blocks;
  exec.max_slots = setup.scheduling.limits.slot_capacity;
  exec.max_step_tokens = scheduler->max_step_tokens();
  exec.max_step_items = scheduler->max_running();
  exec.max_model_len = setup.memory.max_model_len;
  TACTUS_ASSIGN_OR_RETURN(auto executor, MakeCpuExecutor(config, std::move(weights), exec));

  auto engine =
      std::make_unique<EngineImpl>(std::move(setup), std::move(executor), std::move(scheduler), std::move(info));
  TACTUS_RETURN_IF_ERROR(engine->Start());
  say(fmt::format("ready after {:.2f} s", static_cast<double>(SystemClock().NowNs() - start_ns) * 1e-9));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, const Progress& progress) {
  return CatchShortage([&] { return CreateEngine(options, progress); });
}

}  // namespace tactus
