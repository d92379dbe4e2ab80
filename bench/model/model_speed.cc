// Prefill and decode speed of a model on the CPU executor, without server or scheduler: whole prompts of --prefill
// tokens as one step, and decode steps at each batch size after contexts of --context tokens. One JSON object on
// stdout. bench/compare_llama_cpp.py runs it beside llama.cpp's own benchmark.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/option_binding.h"
#include "exec/cpu_executor.h"
#include "model/loader.h"

namespace tactus {
namespace {

struct SpeedOptions {
  std::string model;
  int64_t threads = 0, prefill = 512, context = 128, steps = 16, repeat = 3;
  std::string batches = "1,8,16";
  std::string kernels;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Measurement");
    v.Field("threads", threads,
            {.unit = "threads", .min = 0, .max = 1024, .help = "compute threads; 0: all usable cores"});
    v.Field("prefill", prefill, {.unit = "tokens", .min = 0, .max = 65536, .help = "prompt length; 0: skip"});
    v.Field("context", context, {.unit = "tokens", .min = 1, .max = 65536, .help = "tokens before the decodes"});
    v.Field("steps", steps, {.unit = "steps", .min = 1, .max = 100000, .help = "decode steps measured"});
    v.Field("repeat", repeat, {.unit = "times", .min = 1, .max = 1000, .help = "repetitions; medians are reported"});
    v.Field("batches", batches, {.help = "decode batch sizes, comma-separated"});
    v.Field("kernels", kernels, {.help = "force a kernel set"});
  }
};

struct Runner {
  std::unique_ptr<Executor> executor;
  int32_t block_size = 16;
  int64_t vocab = 0;
  StepId next_step = 0;
  std::shared_ptr<Request> request = std::make_shared<Request>();

  // Runs the plan to its end; the executor's own times, in seconds.
  Result<double> Run(StepPlan& plan) {
    plan.step = next_step++;
    for (auto& item : plan.items) plan.num_tokens += item.count;
    const TimeNs start = SystemClock().NowNs();
    executor->Submit(plan);
    StepResult result;
    while (!executor->Poll(&result)) std::this_thread::yield();
    if (!result.status.ok()) return result.status;
    return static_cast<double>(SystemClock().NowNs() - start) * 1e-9;
  }

  // A step for slots [0, batch), each computing `count` tokens from `position`; tables are fixed: slot s owns its own
  // blocks.
  StepPlan Plan(int32_t batch, int32_t position, int32_t count, int32_t blocks_per_slot, bool start, bool logits) {
    StepPlan plan;
    Rng rng(7, static_cast<uint64_t>(position));
    for (int32_t s = 0; s < batch; ++s) {
      if (start) {
        plan.starts.push_back({s, 0, request, {}});
        plan.table_updates.push_back({s, 0, blocks_per_slot, static_cast<int32_t>(plan.table_blocks.size())});
        for (int32_t b = 0; b < blocks_per_slot; ++b) plan.table_blocks.push_back(s * blocks_per_slot + b);
      }
      StepItem item;
      item.slot = s;
      item.first_position = position;
      item.count = count;
      item.logit_rows = logits ? 1 : 0;
      item.sample = logits;
      item.token_offset = static_cast<int32_t>(plan.tokens.size());
      for (int32_t t = 0; t < count; ++t) plan.tokens.push_back(static_cast<TokenId>(rng.UniformInt(0, vocab - 1)));
      plan.items.push_back(item);
    }
    return plan;
  }
};

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

nlohmann::ordered_json Summary(const std::vector<double>& tokens_per_s) {
  return {{"tokens_per_s", Median(tokens_per_s)},
          {"min", *std::min_element(tokens_per_s.begin(), tokens_per_s.end())},
          {"max", *std::max_element(tokens_per_s.begin(), tokens_per_s.end())}};
}

Status Main(const SpeedOptions& options) {
  std::vector<int32_t> batches;
  for (size_t at = 0; at < options.batches.size();) {
    size_t used = 0;
    batches.push_back(std::stoi(options.batches.substr(at), &used));
    at += used + 1;
  }
  TACTUS_ASSIGN_OR_RETURN(const ModelDescription description, DescribeModel(options.model));
  TACTUS_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(description, {}));
  const std::string format = weights.format;
  const int64_t weight_bytes = weights.bytes;
  CpuExecutorOptions exec;
  exec.threads = static_cast<int32_t>(options.threads);
  if (!options.kernels.empty()) exec.ops = kernels::SelectOps(options.kernels);
  exec.linear_mode =
      description.config.weight_dtype == DType::kBF16 ? kernels::LinearMode::kBF16 : kernels::LinearMode::kF32;
  const int32_t max_batch = *std::max_element(batches.begin(), batches.end());
  const int64_t longest = std::max(options.prefill, options.context + options.steps) + 1;
  const auto blocks_per_slot = static_cast<int32_t>((longest + exec.block_size - 1) / exec.block_size);
  exec.num_blocks = static_cast<int64_t>(blocks_per_slot) * max_batch;
  exec.max_slots = max_batch;
  exec.max_step_items = max_batch;
  exec.max_step_tokens = std::max(options.prefill, options.context * max_batch);
  exec.max_model_len = longest;
  Runner runner;
  runner.vocab = description.config.vocab_size;
  runner.request->prompt = std::make_shared<const std::vector<TokenId>>(1, 0);
  runner.request->sampling.temperature = 0;
  TACTUS_ASSIGN_OR_RETURN(runner.executor, MakeCpuExecutor(description.config, std::move(weights), exec));

  nlohmann::ordered_json out = {{"model", description.config.name}, {"format", format}, {"weight_bytes", weight_bytes}};
  if (options.prefill > 0) {
    std::vector<double> speed;
    for (int64_t r = 0; r <= options.repeat; ++r) {
      StepPlan plan = runner.Plan(1, 0, static_cast<int32_t>(options.prefill), blocks_per_slot, true, true);
      TACTUS_ASSIGN_OR_RETURN(const double seconds, runner.Run(plan));
      if (r > 0) speed.push_back(static_cast<double>(options.prefill) / seconds);
    }
    out["prefill"] = Summary(speed);
  }
  for (const int32_t batch : batches) {
    std::vector<double> speed;
    for (int64_t r = 0; r < options.repeat; ++r) {
      StepPlan prompt = runner.Plan(batch, 0, static_cast<int32_t>(options.context), blocks_per_slot, true, false);
      TACTUS_ASSIGN_OR_RETURN(double ignored, runner.Run(prompt));
      (void)ignored;
      double seconds = 0;
      for (int64_t i = 0; i < options.steps; ++i) {
        StepPlan step = runner.Plan(batch, static_cast<int32_t>(options.context + i), 1, blocks_per_slot, false, true);
        TACTUS_ASSIGN_OR_RETURN(const double s, runner.Run(step));
        seconds += s;
      }
      speed.push_back(static_cast<double>(batch * options.steps) / seconds);
    }
    out[fmt::format("decode_{}", batch)] = Summary(speed);
  }
  std::printf("%s\n", out.dump().c_str());
  return Status();
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  tactus::SpeedOptions options;
  tactus::cli::CommandLine line("model_speed", "MODEL [options]",
                                "Prefill and decode speed of a model on the CPU executor.");
  line.Add(options);
  line.Positional("MODEL", &options.model, true, "a GGUF file or a Hugging Face folder");
  switch (line.Parse({argv + 1, argv + argc})) {
    case tactus::cli::CommandLine::Outcome::kDone:
      return 0;
    case tactus::cli::CommandLine::Outcome::kBadUsage:
      return 2;
    case tactus::cli::CommandLine::Outcome::kRun:
      break;
  }
  const tactus::Status status = tactus::Main(options);
  if (!status.ok()) std::fprintf(stderr, "model_speed: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
