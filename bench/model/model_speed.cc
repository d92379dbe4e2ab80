// Speed of a model on the CPU executor, without server or scheduler: whole prompts, decode steps at each batch size and
// context, and the hybrid step of a prompt's chunk with decodes. Either one run with a JSON object on stdout, or
// (--serve) the line protocol of bench/cpu/engines.py, which alternates engines cell by cell:
//
//   prefill tokens=N repeat=R [box=T]          whole prompts, in steps of at most 2,048 tokens; an error once one has
//                                              taken T seconds
//   decode batch=B context=C steps=S           B sequences after C tokens each, one token each per step
//   hybrid chunk=N batch=B context=C steps=S   one step with a whole prompt of N tokens and the decodes
// Every reply: {"seconds": [...]} per prompt or step, from Submit to the result, greedy sampling included.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "cli/options/option_binding.h"
#include "compute/exec/cpu_executor.h"
#include "compute/exec/numerics.h"
#include "compute/kernels/thread_pool.h"
#include "compute/model/loader.h"

namespace tactus {
namespace {

struct SpeedOptions {
  std::string model;
  int64_t threads = 0, prefill = 512, context = 128, steps = 16, repeat = 3;
  int64_t max_prefill = 2048, max_context = 1024, max_batch = 32;
  std::string batches = "1,8,16";
  std::string kernels;
  std::string dtype = "auto", activation_dtype = "auto", quantization = "none", kv_cache_dtype = "auto", weight_cache;
  bool serve = false, operators = false;
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
    v.Field("operators", operators, {.help = "also report each cell's time by operator, in ms per step"});
    v.Group("Numerics, as in `tactus serve`");
    v.Field("dtype", dtype, {.choices = "auto|float32|bfloat16", .help = "float32 is the reference mode"});
    v.Field(
        "activation-dtype", activation_dtype,
        {.choices = "auto|float32|bfloat16|mixed|int16|int8", .help = "rounding of the inputs of linear operators"});
    v.Field("quantization", quantization,
            {.choices = "none|q8_0|int8|int4|int4_nearest", .help = "quantise the weights at load"});
    v.Field("kv-cache-dtype", kv_cache_dtype, {.choices = "auto|bfloat16|float32|int8", .help = "format of K and V"});
    v.Field("weight-cache", weight_cache, {.help = "folder of packed weights for later starts"});
    v.Group("Line protocol");
    v.Field("serve", serve, {.help = "read commands from stdin (see the head of model_speed.cc)"});
    v.Field("max-prefill", max_prefill, {.unit = "tokens", .min = 1, .max = 65536, .help = "longest prompt"});
    v.Field("max-context", max_context, {.unit = "tokens", .min = 1, .max = 65536, .help = "longest context"});
    v.Field("max-batch", max_batch, {.unit = "sequences", .min = 1, .max = 1024, .help = "largest decode batch"});
  }
};

constexpr int32_t kSpareTokens = 256;  // steps that may follow a context
constexpr int32_t kChunk = 2048;       // most tokens of a prompt in one step

// Executes plans one at a time. Slot 0 is the prompt's, slots 1 to max_batch decode; each has a fixed range of blocks.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> Create(const SpeedOptions& options, Json* about);

  // Returns an error once a prompt has taken `box_s` seconds; 0: never.
  Result<std::vector<double>> Prefill(int32_t tokens, int64_t repeat, double box_s = 0) {
    std::vector<double> seconds;
    for (int64_t r = 0; r < repeat; ++r) {
      double total = 0;
      for (int32_t done = 0; done < tokens; done += kChunk) {
        if (box_s > 0 && total > box_s) {
          return Status(StatusCode::kDeadlineExceeded,
                        fmt::format("{} of {} tokens took {:.0f} s", done, tokens, total));
        }
        plan_.Clear();
        if (done == 0) Start(kPromptSlot);
        const int32_t count = std::min(kChunk, tokens - done);
        AddItem(kPromptSlot, done, count, done + count == tokens);
        TACTUS_ASSIGN_OR_RETURN(const double s, Run());
        total += s;
      }
      seconds.push_back(total);
    }
    return seconds;
  }

  // With `chunk` > 0 every step also has a whole prompt, and the decodes' contexts do not grow.
  Result<std::vector<double>> Steps(int32_t chunk, int32_t batch, int32_t context, int64_t steps) {
    TACTUS_RETURN_IF_ERROR(FillContexts(batch, context));
    std::vector<double> seconds;
    for (int64_t i = 0; i < steps; ++i) {
      plan_.Clear();
      if (chunk > 0) Start(kPromptSlot);
      for (int32_t b = 0; b < batch; ++b) AddItem(1 + b, context + (chunk > 0 ? 0 : static_cast<int32_t>(i)), 1, true);
      if (chunk > 0) AddItem(kPromptSlot, 0, chunk, true);
      TACTUS_ASSIGN_OR_RETURN(const double s, Run());
      seconds.push_back(s);
    }
    return seconds;
  }

  // Milliseconds per step by operator, and the remainder; resets the counts.
  Json TakeOperators(const std::vector<double>& seconds) {
    Json out;
    double rest = 0;
    for (const double s : seconds) rest += s * 1e3;
    const double steps = seconds.empty() ? 1.0 : static_cast<double>(seconds.size());
    for (size_t op = 0; op < compute::kDecoderOperators; ++op) {
      const double ms = static_cast<double>(profile_.totals(static_cast<compute::DecoderOperator>(op)).time_ns) * 1e-6;
      out[compute::kDecoderOperatorNames[op]] = std::round(ms / steps * 1e3) * 1e-3;
      rest -= ms;
    }
    out["rest"] = std::round(rest / steps * 1e3) * 1e-3;
    profile_.Clear();
    return out;
  }

  Status Check(int64_t tokens, int64_t batch, int64_t context, int64_t steps) const {
    if (tokens > max_prefill_ || batch > max_batch_ || context > max_context_ || steps > kSpareTokens) {
      return InvalidArgument(
          fmt::format("a cell of {} prompt tokens, {} sequences of {} tokens and {} steps is beyond --max-prefill {}, "
                      "--max-batch {}, --max-context {} or {} steps",
                      tokens, batch, context, steps, max_prefill_, max_batch_, max_context_, kSpareTokens));
    }
    return Status();
  }

 private:
  static constexpr SlotId kPromptSlot = 0;

  // Slots 1 to batch get `context` tokens each: slot 1's first kChunk are computed; its rest and the other slots are
  // copies in separate blocks.
  Status FillContexts(int32_t batch, int32_t context) {
    if (filled_context_ == context && filled_batch_ >= batch) return Status();
    plan_.Clear();
    Start(1);
    AddItem(1, 0, std::min(context, kChunk), false);
    TACTUS_RETURN_IF_ERROR(Run().status());
    const int32_t blocks = (context + block_size_ - 1) / block_size_, computed = kChunk / block_size_;
    for (int32_t b = 0; b < batch; ++b) {
      plan_.Clear();
      if (b > 0) Start(1 + b);
      for (int32_t i = b > 0 ? 0 : computed; i < blocks; ++i)
        plan_.copies.push_back(
            {FirstBlock(1) + i % computed, FirstBlock(1 + b) + i, std::min(block_size_, context - i * block_size_)});
      AddItem(1 + b, context, 1, true);
      TACTUS_RETURN_IF_ERROR(Run().status());
    }
    filled_context_ = context;
    filled_batch_ = batch;
    return Status();
  }

  BlockId FirstBlock(SlotId slot) const {
    return slot == kPromptSlot ? 0 : prompt_blocks_ + (slot - 1) * decode_blocks_;
  }

  void Start(SlotId slot) {
    const int32_t count = slot == kPromptSlot ? prompt_blocks_ : decode_blocks_;
    plan_.starts.emplace_back().slot = slot;
    plan_.table_updates.push_back({slot, 0, count, static_cast<int32_t>(plan_.table_blocks.size())});
    for (int32_t b = 0; b < count; ++b) plan_.table_blocks.push_back(FirstBlock(slot) + b);
  }

  void AddItem(SlotId slot, int32_t position, int32_t count, bool sample) {
    StepItem item;
    item.slot = slot;
    item.first_position = position;
    item.count = count;
    item.logit_rows = sample ? 1 : 0;
    item.sample = sample;
    item.token_offset = static_cast<int32_t>(plan_.tokens.size());
    for (int32_t t = 0; t < count; ++t) plan_.tokens.push_back(static_cast<TokenId>(rng_.UniformInt(0, vocab_ - 1)));
    plan_.items.push_back(item);
    plan_.num_tokens += count;
  }

  // Sleeps while the executor works: a spinning wait would occupy one of its cores.
  Result<double> Run() {
    plan_.step = next_step_++;
    const TimeNs start = SystemClock().NowNs();
    executor_->Submit(plan_);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!executor_->Poll(&result_)) wakeup_.wait(lock);
    if (!result_.status.ok()) return result_.status;
    return static_cast<double>(SystemClock().NowNs() - start) * 1e-9;
  }

  compute::OperatorProfile profile_{SystemClock()};
  std::mutex mutex_;
  std::condition_variable wakeup_;
  StepPlan plan_;
  StepResult result_;
  Rng rng_{7, 0};
  StepId next_step_ = 0;
  int64_t vocab_ = 0, max_prefill_ = 0, max_batch_ = 0, max_context_ = 0;
  int32_t block_size_ = 16, prompt_blocks_ = 0, decode_blocks_ = 0;
  int32_t filled_context_ = -1, filled_batch_ = 0;
  std::unique_ptr<Executor> executor_;  // last: its threads call wakeup_
};

Result<std::unique_ptr<Runner>> Runner::Create(const SpeedOptions& options, Json* about) {
  const TimeNs start = SystemClock().NowNs();
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(options.model));
  TACTUS_ASSIGN_OR_RETURN(
      const compute::Numerics numerics,
      compute::ChooseNumerics({options.dtype, options.activation_dtype, options.quantization, options.kv_cache_dtype},
                              description.config.weight_dtype));
  compute::CpuExecutorOptions exec;
  exec.clock = &SystemClock();
  exec.threads = options.threads > 0 ? static_cast<int32_t>(options.threads) : compute::UsableCores();
  exec.ops = compute::SelectOps(options.kernels);
  if (exec.ops == nullptr) return InvalidArgument("--kernels " + options.kernels + " does not run on this machine");
  exec.kv_dtype = numerics.kv_dtype;
  exec.clock = &SystemClock();
  compute::LoadWeightsOptions load = compute::LoadOptionsFor(numerics);
  load.threads = exec.threads;
  load.cache_folder = options.weight_cache;
  TACTUS_ASSIGN_OR_RETURN(compute::CpuWeights weights, compute::LoadWeights(description, load, SystemClock()));
  *about = {{"model", description.config.name}, {"format", weights.format},
            {"weight_bytes", weights.bytes},    {"numerics", compute::NumericsText(numerics)},
            {"kernels", exec.ops->name},        {"threads", exec.threads}};
  auto runner = std::make_unique<Runner>();
  if (options.operators) exec.profile = &runner->profile_;
  runner->vocab_ = description.config.vocab_size;
  runner->max_prefill_ = options.max_prefill;
  runner->max_batch_ = options.max_batch;
  runner->max_context_ = options.max_context;
  runner->block_size_ = exec.block_size;
  runner->prompt_blocks_ = static_cast<int32_t>(options.max_prefill / exec.block_size) + 1;
  runner->decode_blocks_ = static_cast<int32_t>((options.max_context + kSpareTokens) / exec.block_size) + 1;
  exec.max_slots = static_cast<int32_t>(options.max_batch) + 1;
  exec.num_blocks = runner->prompt_blocks_ + options.max_batch * runner->decode_blocks_;
  exec.max_step_items = exec.max_slots;
  exec.max_step_tokens =
      std::min<int64_t>(kChunk, std::max(options.max_prefill, options.max_context)) + options.max_batch;
  exec.max_model_len = std::max(options.max_prefill, options.max_context + kSpareTokens) + 1;
  TACTUS_ASSIGN_OR_RETURN(runner->executor_, compute::MakeCpuExecutor(description.config, std::move(weights), exec));
  runner->executor_->SetWakeup([r = runner.get()] {
    std::lock_guard<std::mutex> lock(r->mutex_);
    r->wakeup_.notify_one();
  });
  (*about)["load_seconds"] = static_cast<double>(SystemClock().NowNs() - start) * 1e-9;
  return runner;
}

void Answer(const Json& answer) {
  std::printf("%s\n", answer.dump().c_str());
  std::fflush(stdout);
}

Result<std::vector<double>> RunCommand(Runner& runner, const std::string& line) {
  std::istringstream in(line);
  std::string op, word;
  in >> op;
  std::map<std::string, int32_t> value;
  while (in >> word) {
    const size_t at = word.find('=');
    if (at != std::string::npos) value[word.substr(0, at)] = std::atoi(word.c_str() + at + 1);
  }
  const int32_t chunk = op == "hybrid" ? value["chunk"] : 0;
  TACTUS_RETURN_IF_ERROR(
      runner.Check(op == "prefill" ? value["tokens"] : chunk, value["batch"], value["context"], value["steps"]));
  if (op == "prefill") return runner.Prefill(value["tokens"], value["repeat"], value["box"]);
  if (op == "decode" || op == "hybrid") return runner.Steps(chunk, value["batch"], value["context"], value["steps"]);
  return InvalidArgument("unknown command '" + line + "': prefill, decode or hybrid");
}

Json Summary(double tokens, const std::vector<double>& seconds) {
  std::vector<double> speed;
  for (const double s : seconds) speed.push_back(tokens / s);
  std::sort(speed.begin(), speed.end());
  return {{"tokens_per_s", speed[speed.size() / 2]}, {"min", speed.front()}, {"max", speed.back()}};
}

Status Main(SpeedOptions options) {
  std::vector<int32_t> batches;
  for (size_t at = 0; at < options.batches.size();) {
    size_t used = 0;
    batches.push_back(std::stoi(options.batches.substr(at), &used));
    at += used + 1;
  }
  if (!options.serve) {
    options.max_prefill = std::max<int64_t>(options.prefill, 1);
    options.max_context = options.context;
    options.max_batch = *std::max_element(batches.begin(), batches.end());
  }
  Json out;
  TACTUS_ASSIGN_OR_RETURN(const std::unique_ptr<Runner> runner, Runner::Create(options, &out));
  if (options.serve) {
    out["ready"] = true;
    Answer(out);
    for (std::string line; std::getline(std::cin, line);) {
      const auto seconds = RunCommand(*runner, line);
      Answer(seconds.ok() ? Json{{"seconds", *seconds}} : Json{{"error", seconds.status().ToString()}});
    }
    return Status();
  }
  const auto context = static_cast<int32_t>(options.context);
  TACTUS_RETURN_IF_ERROR(runner->Check(options.prefill, options.max_batch, options.context, options.steps));
  if (options.prefill > 0) {
    const auto tokens = static_cast<int32_t>(options.prefill);
    TACTUS_RETURN_IF_ERROR(runner->Prefill(tokens, 1).status());  // touches the weights' pages
    runner->TakeOperators({});
    TACTUS_ASSIGN_OR_RETURN(const std::vector<double> seconds, runner->Prefill(tokens, options.repeat));
    out["prefill"] = Summary(static_cast<double>(options.prefill), seconds);
    if (options.operators) out["prefill"]["operators"] = runner->TakeOperators(seconds);
  }
  for (const int32_t batch : batches) {
    std::vector<double> all;
    TACTUS_RETURN_IF_ERROR(runner->Steps(0, batch, context, 1).status());  // computes the contexts
    runner->TakeOperators({});
    for (int64_t r = 0; r < options.repeat; ++r) {
      TACTUS_ASSIGN_OR_RETURN(const std::vector<double> seconds, runner->Steps(0, batch, context, options.steps));
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
    const std::string cell = fmt::format("decode_{}", batch);
    out[cell] = Summary(batch, all);
    if (options.operators) out[cell]["operators"] = runner->TakeOperators(all);
  }
  Answer(out);
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
