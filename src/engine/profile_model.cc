#include "engine/profile_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/shortage.h"
#include "engine/model_numerics.h"
#include "engine/step_profiler.h"
#include "exec/cpu_executor.h"
#include "model/available_memory.h"
#include "model/catalog.h"
#include "model/loader.h"
#include "model/sigbus_guard.h"
#include "tactus/version.h"

namespace tactus {
namespace {

constexpr int64_t kDefaultStepTokens = 1024;  // largest measured step, without --max-num-batched-tokens
constexpr int64_t kDefaultKvBytes = int64_t{1} << 30;
constexpr int64_t kSharePerPoint = 30;               // one step may take this part of the time limit
constexpr DurationNs kEnoughNs = 40 * kMillisecond;  // for a point in one round

std::string ProcessorName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown processor";
}

struct Loaded {
  std::unique_ptr<Executor> executor;
  ProfileLimits limits;
  std::map<std::string, std::string> remarks;
};

Result<Loaded> Load(const EngineOptions& o, const ProfileOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, ResolveModel(o.model));
  TACTUS_ASSIGN_OR_RETURN(const ModelDescription description, DescribeModel(path));
  const ModelConfig& config = description.config;
  TACTUS_RETURN_IF_ERROR(ValidateConfig(config));
  TACTUS_ASSIGN_OR_RETURN(ModelNumerics chosen, ChooseModelNumerics(o, description));
  const Numerics& numerics = chosen.numerics;
  const int32_t threads = chosen.threads;
  const kernels::Ops* ops = chosen.ops;
  LoadWeightsOptions& load = chosen.load;
  load.say = options.say;

  Loaded loaded;
  ProfileLimits& limits = loaded.limits;
  limits.block_size = static_cast<int32_t>(o.block_size);
  limits.vocab_size = config.vocab_size;
  limits.max_decodes = static_cast<int32_t>(o.max_num_seqs);
  limits.max_step_tokens = o.token_budget > 0 ? o.token_budget : kDefaultStepTokens;
  const int64_t longest = o.max_model_len > 0 ? std::min(o.max_model_len, config.max_position) : config.max_position;
  limits.max_context = static_cast<int32_t>(std::min(longest, options.max_context));

  MemoryPlanInput input;
  TACTUS_ASSIGN_OR_RETURN(input.weight_bytes, PlanWeightBytes(description, load));
  input.available_bytes = AvailableMemoryBytes();
  if (input.available_bytes < 0) input.available_bytes = int64_t{1} << 50;
  input.kv_memory_bytes = o.kv_cache_memory.bytes > 0 ? o.kv_cache_memory.bytes : kDefaultKvBytes;
  input.max_model_len = limits.max_context;
  input.max_num_seqs = o.max_num_seqs;
  input.max_step_tokens = limits.max_step_tokens;
  input.block_size = limits.block_size;
  input.kv_dtype = numerics.kv_dtype;
  input.threads = threads;
  TACTUS_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(config, input));
  limits.num_blocks = memory.num_blocks;

  InstallSigbusGuard();
  TACTUS_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(description, load, SystemClock()));

  const std::filesystem::path file(path);
  loaded.remarks = {{"model", file.filename().string()},
                    {"device", fmt::format("cpu ({})", ProcessorName())},
                    {"threads", fmt::format("{}", threads)},
                    {"kernels", ops->name},
                    {"dtype", fmt::format("weights {}, {}", weights.format, NumericsText(numerics))},
                    {"version", Version()},
                    {"seconds since 1970", fmt::format("{}", UnixSeconds())}};
  if (options.say) {
    options.say(fmt::format("model {} ({:.1f} M parameters), {}; kernels {}, {} threads", config.name,
                            static_cast<double>(config.NumParameters()) * 1e-6, loaded.remarks["dtype"], ops->name,
                            threads));
  }

  CpuExecutorOptions exec;
  exec.clock = &SystemClock();
  exec.threads = threads;
  exec.ops = ops;
  exec.kv_dtype = numerics.kv_dtype;
  exec.num_blocks = limits.num_blocks;
  exec.block_size = limits.block_size;
  exec.max_slots = limits.max_decodes + 1;
  exec.max_step_tokens = limits.max_step_tokens;
  exec.max_step_items = limits.max_decodes + 1;
  exec.max_model_len = limits.max_context;
  TACTUS_ASSIGN_OR_RETURN(loaded.executor, MakeCpuExecutor(config, std::move(weights), exec));
  return loaded;
}

// The most tokens of a step that takes at most `most_ns`, found by doubling: everything is linear or worse in them.
Result<int64_t> LargestStep(StepProfiler* profiler, const ProfileLimits& limits, DurationNs most_ns) {
  int64_t tokens = std::min<int64_t>(16, limits.max_step_tokens);
  for (;;) {
    TACTUS_ASSIGN_OR_RETURN(const cost::StepSample s, profiler->Measure({static_cast<int32_t>(tokens), 0, 0, 0}, 1));
    const double left = static_cast<double>(most_ns) * 1e-6 / s.step_ms;
    const int64_t next = std::min(2 * tokens, limits.max_step_tokens);
    if (left < 2.2 || next == tokens || next > limits.max_context) {
      return left < 1 ? std::max<int64_t>(1, static_cast<int64_t>(left * static_cast<double>(tokens))) : tokens;
    }
    tokens = next;
  }
}

}  // namespace

Result<MeasuredProfile> ProfileModel(const EngineOptions& engine, const ProfileOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(Loaded loaded, CatchShortage([&] { return Load(engine, options); }));
  Clock& clock = SystemClock();
  const TimeNs start_ns = clock.NowNs();
  const DurationNs most_ns = options.time_limit_ns / kSharePerPoint;
  StepProfiler profiler(loaded.executor.get(), loaded.limits);
  TACTUS_ASSIGN_OR_RETURN(const int64_t largest, LargestStep(&profiler, loaded.limits, most_ns));
  if (options.say && largest < loaded.limits.max_step_tokens) {
    options.say(fmt::format(
        "steps of more than {} tokens would take longer than {:.1f} s each: a longer --time-limit measures them",
        largest, static_cast<double>(most_ns) * 1e-9));
  }
  loaded.limits.max_step_tokens = largest;
  const std::vector<ProfilePoint> points = DesignProfile(loaded.limits, static_cast<int32_t>(options.max_points));

  MeasuredProfile profile;
  profile.remarks = std::move(loaded.remarks);
  std::vector<std::vector<DurationNs>> times(points.size());
  const DurationNs enough_ns = std::min(kEnoughNs, most_ns);
  ProfileProgress p;
  p.of = static_cast<int64_t>(points.size());
  const auto go_on = [&](int64_t visits) {
    p.elapsed_ns = clock.NowNs() - start_ns;
    p.share = std::min(1.0, std::max(static_cast<double>(visits) / static_cast<double>(options.max_rounds * p.of),
                                     static_cast<double>(p.elapsed_ns) / static_cast<double>(options.time_limit_ns)));
    profile.interrupted = options.progress && !options.progress(p);
    return !profile.interrupted && p.elapsed_ns < options.time_limit_ns;
  };
  bool more = true;
  for (int64_t visits = 0; more && visits < options.max_rounds * p.of;) {
    const auto at = static_cast<size_t>(visits % p.of);
    TACTUS_RETURN_IF_ERROR(profiler.Visit(points[at], enough_ns, &times[at]));
    ++visits;
    p.points = std::min(visits, p.of);
    p.round = (visits - 1) / p.of + 1;
    more = go_on(visits);
  }
  for (size_t i = 0; i < points.size() && !times[i].empty(); ++i) {
    profile.samples.push_back(StepProfiler::SampleOf(points[i], std::move(times[i])));
  }
  return profile;
}

std::string ProfileText(const MeasuredProfile& profile) {
  std::string text = "# Step times of the engine's executor, medians, by `tactus profile`.\n";
  for (const auto& [key, value] : profile.remarks) text += fmt::format("# {}: {}\n", key, value);
  text += "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (const cost::StepSample& s : profile.samples) {
    text += fmt::format("{},{},{},{},{:.4f}\n", s.prefill_tokens, s.prefill_context, s.decodes, s.decode_context_tokens,
                        s.step_ms);
  }
  return text;
}

std::string DefaultProfilePath(const std::string& model_path, int32_t threads) {
  std::filesystem::path model(model_path);
  if (!model.has_filename()) model = model.parent_path();
  const std::string name = model.extension() == ".gguf" ? model.stem().string() : model.filename().string();
  return fmt::format("{}/profiles/{}-{}t.csv", CacheFolder(), name, threads);
}

}  // namespace tactus
