// `tactus batch`: runs a file of requests in OpenAI's batch format on its own engine (offline/job/runner.h).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "api/chat/conversation.h"
#include "api/chat/response_text.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "cli/options/run_out.h"
#include "cli/options/start_log.h"
#include "compute/model/catalog.h"
#include "core/sched/registry.h"
#include "engine/create_engine.h"
#include "engine/start/check_options.h"
#include "offline/job/answer_settings.h"
#include "offline/job/job.h"
#include "offline/job/runner.h"
#include "offline/job/time_left.h"
#include "offline/plan/plan_order.h"
#include "offline/plan/shards.h"
#include "results/obs/run_result.h"
#include "tactus/engine.h"

namespace tactus::cli {
namespace {

constexpr DurationNs kReadingEveryNs = kSecond / 5;  // between two drawings while the input is read
constexpr int64_t kParsedPerByte = 12;               // memory of a line while it is parsed
constexpr int64_t kResultBytes = int64_t{64} << 20;  // bound on results not yet written
constexpr int64_t kBytesPerToken = 2;                // input bytes per token, at least, in most texts
constexpr const char* kLines = ".jsonl";

struct BatchOptions {
  std::string input, output, errors, job;
  bool overwrite = false, strict_fields = false, json = false, verbose = false;
  RunOut run_out;
  BytesText max_line{int64_t{16} << 20};
  double sample = 0.01;
  int64_t plan_seed = 0;
  BytesText planner_memory{int64_t{1} << 30};
  std::string shard;
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Files");
    v.Field("output", output,
            {.alias = "o", .help = "the file for answers, one JSON line each, in the order in which they finish"});
    v.Field("errors", errors,
            {.help = "the file for lines that are invalid or failed; default: OUT.errors.jsonl for OUT.jsonl"});
    v.Field("job", job, {.help = "the file with the job's state, from which it resumes; default: OUT.jsonl.job"});
    v.Field("overwrite", overwrite, {.help = "start over: remove an existing output, error file and job"});
    v.Field("max-line", max_line, {.unit = "bytes", .help = "longest line of the input; a longer one is an error"});
    v.Field(
        "strict-fields", strict_fields,
        {.help =
             "an unknown field in a line's body is an error; otherwise it is ignored, and the line's result names it"});
    v.Group("Planning");
    v.Field("sample", sample,
            {.min = 0,
             .max = 1,
             .help = "share of the requests that runs first, as a sample of answer lengths; 0: none, each answer "
                     "counts with its max_tokens"});
    v.Field("plan-seed", plan_seed, {.min = 0, .help = "seed of the sample, and of --order random"});
    v.Field("planner-memory", planner_memory,
            {.unit = "bytes",
             .help = "memory for planning; beyond it prefixes are compared in coarser steps; 0: no limit"});
    v.Field("shard", shard,
            {.help = "I/N, such as 2/4: run the second of four parts with equal work; its files are named "
                     "OUT.2-of-4.jsonl and so on"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    v.Field("verbose", verbose, {.help = "log the start to standard error: model, memory plan, scheduler, step times"});
    run_out.VisitFields(v);
    engine.VisitFields(v);
  }
};

// The part of the job that this process runs, counted from 0, and the number of parts.
struct ShardOf {
  int32_t index = 0, of = 1;
};

Result<ShardOf> ParseShard(const std::string& text) {
  if (text.empty()) return ShardOf{};
  ShardOf shard;
  const char* end = text.data() + text.size();
  const auto [slash, index_error] = std::from_chars(text.data(), end, shard.index);
  const bool separated = index_error == std::errc() && slash != end && *slash == '/';
  const auto [rest, of_error] = std::from_chars(separated ? slash + 1 : end, end, shard.of);
  if (separated && of_error == std::errc() && rest == end && shard.index >= 1 && shard.index <= shard.of &&
      shard.of <= offline::kMostShards) {
    --shard.index;
    return shard;
  }
  return InvalidArgument(
      fmt::format(
          "--shard '{}': give the part's number, counted from 1, and the number of parts, at most {}, such as 2/4",
          Printable(text), offline::kMostShards),
      "shard");
}

// Each shard has its own files: the part's number comes before the file's extension.
std::string OfShard(const std::string& path, const ShardOf& shard) {
  if (shard.of == 1) return path;
  const std::string tag = fmt::format(".{}-of-{}", shard.index + 1, shard.of);
  return path.ends_with(kLines) ? path.substr(0, path.size() - 6) + tag + kLines : path + tag;
}

offline::JobFiles FilesOf(const BatchOptions& o, const ShardOf& shard) {
  const std::string output = OfShard(o.output, shard);
  const std::string stem = output.ends_with(kLines) ? output.substr(0, output.size() - 6) : output;
  return {o.input, output, o.errors.empty() ? stem + ".errors" + kLines : OfShard(o.errors, shard),
          o.job.empty() ? output + ".job" : OfShard(o.job, shard)};
}

// The plan's order has the same name as the scheduler's order.
Result<offline::PlanOrder> PlanOrderOf(const EngineOptions& engine) {
  std::string name = engine.order;
  if (name.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const core::PresetInfo* preset, core::FindPreset(engine.scheduler));
    name = preset->order;
  }
  // The plan does not know any other order; it keeps the lines in file order.
  return offline::FindPlanOrder(name).value_or(offline::PlanOrder::kFcfs);
}

std::string TimeText(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// A progress bar on a terminal; elsewhere one line, at the end.
class BatchProgressBar {
 public:
  explicit BatchProgressBar(int64_t done_before) : done_before_(done_before) {}

  void Show(const offline::RunProgress& p, const EngineStats& stats) {
    last_ = TextOf(p, stats);
    if (terminal_) {
      const std::string bar(static_cast<size_t>(Percent(p) / 4), '#');
      std::fprintf(stderr, "\r[%-25s] %s\033[K", bar.c_str(), last_.c_str());
    }
  }
  void End() const { std::fprintf(stderr, "%s\n", terminal_ ? "" : last_.c_str()); }

 private:
  static int64_t Percent(const offline::RunProgress& p) {
    return 100 * p.counts.done() / std::max<int64_t>(1, p.counts.lines);
  }
  std::string TextOf(const offline::RunProgress& p, const EngineStats& stats) const {
    const double elapsed_s = static_cast<double>(std::max<DurationNs>(p.elapsed_ns, 1)) * 1e-9;
    const int64_t done_here = p.counts.done() - done_before_;
    std::string text =
        fmt::format("{:3} %  {} of {} lines, {} failed; {:.0f} tokens/s in, {:.0f} out", Percent(p), p.counts.done(),
                    p.counts.lines, p.counts.errors, static_cast<double>(stats.prompt_tokens) / elapsed_s,
                    static_cast<double>(stats.generation_tokens) / elapsed_s);
    if (p.planning) return fmt::format("planning: {} of {} lines read", p.lines_planned, p.counts.lines);
    if (InterruptCount() > 0) return text + fmt::format("; stopping, {} lines to finish", p.generating);
    if (p.counts.left() == 0) return text + "; " + TimeText(elapsed_s);
    if (done_here > 0 && p.bound_s > 0)
      text += fmt::format("; {:.0f} % of the bound", 100 * p.work_share * p.bound_s / elapsed_s);
    const std::optional<double> left_s = offline::TimeLeft_s(p, done_here);
    return text + (left_s ? fmt::format("; {} to go", TimeText(*left_s)) : "; " + TimeText(elapsed_s) + " so far");
  }

  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const int64_t done_before_;
  std::string last_;
};

void Say(std::string_view text) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

Result<std::unique_ptr<offline::Job>> OpenJob(const BatchOptions& o, const ShardOf& shard, StartLog* log) {
  offline::JobOptions options;
  options.overwrite = o.overwrite;
  options.most_line_bytes = o.max_line.bytes;
  options.seed = static_cast<uint64_t>(o.engine.seed);
  options.progress = [&o, log, next_ns = SystemClock().NowNs() + kReadingEveryNs](int64_t bytes) mutable {
    if (const TimeNs now_ns = SystemClock().NowNs(); now_ns >= next_ns) {
      next_ns = now_ns + kReadingEveryNs;
      log->Passing(fmt::format("reading {}: {} MiB", o.input, bytes >> 20));
    }
    return InterruptCount() == 0;
  };
  TACTUS_ASSIGN_OR_RETURN(const std::string model, compute::ResolveModel(o.engine.model));
  TACTUS_ASSIGN_OR_RETURN(options.settings, offline::SettingsOf(o.engine, model));
  options.settings.emplace_back("--strict-fields", o.strict_fields ? "on" : "off");
  options.settings.emplace_back("--shard", shard.of > 1 ? fmt::format("{}/{}", shard.index + 1, shard.of) : "");
  auto opened = offline::Job::Open(FilesOf(o, shard), options);
  log->Clear();
  TACTUS_ASSIGN_OR_RETURN(auto job, std::move(opened));
  const offline::JobCounts counts = job->counts();
  const std::string by = o.engine.model.empty() ? "the default model" : Printable(o.engine.model);
  if (job->resumed()) {
    Say(fmt::format("resuming the job in {}: {} of {} lines are done; answers of {} go to {}", job->files().state,
                    counts.done(), counts.lines, by, job->files().output));
  } else {
    Say(fmt::format("{} lines in {}; answers of {} go to {}", counts.lines, job->files().input, by,
                    job->files().output));
  }
  return job;
}

PlanFigures FiguresOf(const offline::PlanReport& plan, const std::string& order, double run_s) {
  PlanFigures figures = offline::FiguresOf(plan.summary, plan.rated, plan.work_share, run_s);
  figures.order = order;
  figures.sample = plan.sample;
  figures.key_tokens = plan.key_tokens;
  figures.reading_s = static_cast<double>(plan.reading_ns) * 1e-9;
  figures.planning_s = static_cast<double>(plan.planning_ns) * 1e-9;
  return figures;
}

std::string PlanText(const PlanFigures& plan, int64_t finest_key_tokens) {
  std::string text = fmt::format(
      "plan of {} requests, {} of them a sample: {:.1f} s to read, {:.2f} s to plan; {:.1f} % of prompt tokens shared "
      "at best, {:.1f} % in this order",
      plan.requests, plan.sample, plan.reading_s, plan.planning_s, 100 * plan.optimal_sharing,
      100 * plan.planned_sharing);
  if (plan.key_tokens > finest_key_tokens)
    text += fmt::format(" (prefixes compared in steps of {} tokens, to stay within --planner-memory)", plan.key_tokens);
  if (plan.share_of_practical_bound)
    return text + fmt::format("; {:.1f} % of this machine's bound", 100 * *plan.share_of_practical_bound);
  return text + "; after `tactus profile` a run reports its share of this machine's bound";
}

Json ResultJson(const offline::Job& job, int64_t done_before, const RunResult& result) {
  const offline::JobCounts c = job.counts();
  Json report = results::RunJson(result);
  report["lines"] = {
      {"in", c.lines}, {"out", c.out}, {"errors", c.errors}, {"left", c.left()}, {"before", done_before}};
  if (c.elsewhere > 0) report["shard"] = {{"elsewhere", c.elsewhere}, {"cut", job.cut()}};
  return report;
}

void PrintResult(const BatchOptions& o, const offline::Job& job, int64_t done_before, const RunResult& result) {
  const offline::JobCounts c = job.counts();
  const std::string text =
      fmt::format("{} lines in = {} out ({}) + {} errors ({}){}{}", c.lines, c.out, job.files().output, c.errors,
                  job.files().errors, c.left() > 0 ? fmt::format(" + {} left", c.left()) : "",
                  c.elsewhere > 0 ? fmt::format("; {} lines belong to other shards", c.elsewhere) : "");
  if (result.plan) Say(PlanText(*result.plan, o.engine.block_size));
  if (!o.json) {
    std::printf("%s\n", text.c_str());
    return;
  }
  Say(text);
  std::printf("%s\n", json_text::JsonText(ResultJson(job, done_before, result)).c_str());
}

void WarnOfIgnored(const offline::IgnoredFields& ignored) {
  if (ignored.lines == 0) return;
  Say(fmt::format(
      "warning: fields of {} {} were ignored, for example of line {}: {}; each result names its line's ({}); "
      "--strict-fields makes them errors",
      ignored.lines, ignored.lines == 1 ? "line" : "lines", ignored.first_line, ignored.first, api::kIgnoredHeader));
}

// A finished job without any answer is a failure.
Status CheckDone(const offline::Job& job) {
  if (job.counts().out > 0) return Status();
  return Internal(fmt::format("no line has an answer; {} has the reasons", job.files().errors));
}

// Upper bound of the memory for planning, which the memory plan leaves free. A prompt has fewer tokens than its line
// has bytes.
int64_t PlannerBytes(const BatchOptions& o, const offline::Job& job) {
  const int64_t needed = offline::PlannerMemory(job.counts().lines, job.input_bytes() / kBytesPerToken);
  return o.planner_memory.bytes > 0 ? std::min(needed, o.planner_memory.bytes) : needed;
}

// Checks the flags and the files to read and write, before the model is loaded.
Status CheckBeforeModel(const BatchOptions& o, const ShardOf& shard) {
  TACTUS_RETURN_IF_ERROR(engine::CheckOptions(o.engine));
  const offline::JobFiles files = FilesOf(o, shard);
  TACTUS_RETURN_IF_ERROR(CheckApart({{"output", files.output},
                                     {"errors", files.errors},
                                     {"job", files.state},
                                     {"run-out", o.run_out.path},
                                     {"trace-out", o.engine.trace_out}}));
  if (const Status readable = CheckReadable(o.input); !readable.ok()) return readable;
  for (const auto& [path, option] :
       {std::pair{&files.output, "output"}, std::pair{&files.errors, "errors"}, std::pair{&files.state, "job"}})
    TACTUS_RETURN_IF_ERROR(CheckWritable(*path, option));
  return CheckRunOut(o.run_out);
}

// kCancelled: Ctrl-C.
Status Run(BatchOptions o, const CommandLine& line) {
  if (o.output.empty()) return InvalidArgument("--output is missing; give the file for answers (-o OUT.jsonl)");
  if (o.max_line.bytes < 1) return InvalidArgument("--max-line is 0; give a size such as 16MiB", "max-line");
  TACTUS_ASSIGN_OR_RETURN(const ShardOf shard, ParseShard(o.shard));
  offline::RunnerOptions options;
  TACTUS_ASSIGN_OR_RETURN(options.order.order, PlanOrderOf(o.engine));
  TACTUS_RETURN_IF_ERROR(CheckBeforeModel(o, shard));
  StartLog start(o.verbose);
  TACTUS_RETURN_IF_ERROR(FetchModels(&o.engine, &start));
  CatchTermination();
  CatchInterrupt();
  TACTUS_ASSIGN_OR_RETURN(const auto job, OpenJob(o, shard, &start));
  const int64_t before = job->counts().done();
  if (job->counts().left() == 0) {
    PrintResult(o, *job, before, {});
    return CheckDone(*job);
  }
  o.engine.front_end_bytes = kParsedPerByte * o.max_line.bytes + kResultBytes + PlannerBytes(o, *job);
  o.engine.likes_step_times = true;
  TACTUS_ASSIGN_OR_RETURN(const auto recorder, OpenEngineRecorder(o.run_out, line, SystemClock()));
  std::optional<Loading> loading(std::in_place);  // Ctrl-C ends the process while the model loads
  const auto say = [&start](std::string_view text) { start.Detail(text); };
  TACTUS_ASSIGN_OR_RETURN(const auto engine,
                          engine::CreateEngine(o.engine, say, {.clock = &SystemClock(), .recorder = recorder.get()}));
  loading.reset();
  start.Clear();
  TACTUS_RETURN_IF_ERROR(job->CheckSettings(offline::SettingsOf(engine->model())));
  BatchProgressBar bar(before);
  offline::PlanReport plan;
  options.plan = &plan;
  offline::IgnoredFields ignored;
  options.ignored = &ignored;
  options.order.sample_share = o.sample;
  options.order.seed = static_cast<uint64_t>(o.plan_seed);
  options.order.memory_bytes = o.planner_memory.bytes;
  options.order.key_tokens = static_cast<int32_t>(o.engine.block_size);
  options.order.kv_tokens = engine->Stats().kv_blocks_total * o.engine.block_size;
  options.order.sequences = static_cast<int32_t>(o.engine.max_num_seqs);
  options.order.shared_reads = o.engine.cascade_attention;
  options.order.shard = shard.index;
  options.order.shards = shard.of;
  options.max_queue = o.engine.max_queue;
  options.limits = api::LimitsOf(*engine, o.engine.default_max_tokens);
  options.limits.strict_fields = o.strict_fields;
  options.progress = [&](const offline::RunProgress& progress) {
    bar.Show(progress, engine->Stats());
    return InterruptCount() == 0;
  };
  Status status = offline::RunJob(job.get(), engine.get(), options, SystemClock());
  bar.End();
  engine->Drain(0);  // nothing runs; completes the figures of the last step
  RunResult result = engine->Outcome();
  if (plan.requests > 0) {
    result.plan = FiguresOf(plan, offline::NameOf(options.order.order), result.duration_s);
    result.plan->achieved_sharing = result.engine->prefix_sharing;
  }
  Status closed = engine->Close();
  if (recorder != nullptr) {
    const Status written = recorder->Close(json_text::JsonText(ResultJson(*job, before, result)));
    if (closed.ok()) closed = written;
  }
  PrintResult(o, *job, before, result);
  WarnOfIgnored(ignored);
  if (status.ok()) return closed.ok() ? CheckDone(*job) : closed;
  return Status(status.code(),
                fmt::format("{}; {} of {} lines are done and kept; the same command resumes with the rest",
                            status.message(), job->counts().done(), job->counts().lines));
}

}  // namespace

int BatchCommand(const Args& args) {
  BatchOptions options;
  options.engine.max_queue = 512;  // requests read ahead
  options.engine.tbt_slo.ns = 0;   // no client reads tokens as they are made
  options.engine.scheduler = "blend";
  CommandLine line("batch", "IN.jsonl -o OUT.jsonl [MODEL] [options]",
                   "Answers a file of requests in OpenAI's batch format. An interrupted run resumes where it stopped.");
  line.Add(options);
  line.Common(EngineCommon({"output", "errors", "job", "overwrite", "shard", "json", "verbose", "run-out"}));
  line.Positional("IN", &options.input, true,
                  "the requests: one JSON object per line, with custom_id, method, url and body");
  line.Positional(
      "MODEL", &options.engine.model, false,
      "a GGUF file, a Hugging Face folder, a name of `tactus models list`, or a model to download: hf:org/name, "
      "a URL or a name of `tactus pull --list`; default: smollm2-135m");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const Status status = Run(options, line);
  if (!status.ok()) std::fprintf(stderr, "tactus batch: %s\n", status.message().c_str());
  if (status.code() == StatusCode::kCancelled) return kExitInterrupted;
  return status.ok() ? kExitOk : status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
