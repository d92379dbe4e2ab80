// `tactus batch`: a file of requests in OpenAI's batch format, answered by an engine of its own (batch/runner.h).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "api/conversation.h"
#include "base/clock.h"
#include "batch_run/answer_settings.h"
#include "batch_run/job.h"
#include "batch_run/runner.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_binding.h"
#include "model/catalog.h"
#include "obs/run_result.h"
#include "tactus/engine.h"

namespace tactus::cli {
namespace {

constexpr DurationNs kLineEveryNs = 5 * kSecond;     // of progress, where there is no terminal
constexpr int64_t kParsedPerByte = 12;               // what a line takes while it is read
constexpr int64_t kResultBytes = int64_t{64} << 20;  // that may wait to be written
constexpr const char* kLines = ".jsonl";

struct BatchOptions {
  std::string input, output, errors, job;
  bool overwrite = false, json = false;
  BytesText max_line{int64_t{16} << 20};
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Files");
    v.Field("output", output, {.alias = "o", .help = "the file for answers, a JSON line each, as they finish"});
    v.Field("errors", errors,
            {.help = "the file for lines that could not be taken or failed; default: OUT.errors.jsonl for OUT.jsonl"});
    v.Field("job", job,
            {.help = "the file that keeps the job's state, by which it is resumed; default: OUT.jsonl.job"});
    v.Field("overwrite", overwrite,
            {.help = "begin anew: remove the output, the error file and the job that are there"});
    v.Field("max-line", max_line, {.unit = "bytes", .help = "longest line of the input; a longer one is an error"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    engine.VisitFields(v);
  }

  batch::JobFiles Files() const {
    const std::string stem = output.ends_with(kLines) ? output.substr(0, output.size() - 6) : output;
    return {input, output, errors.empty() ? stem + ".errors" + kLines : errors, job.empty() ? output + ".job" : job};
  }
};

std::string TimeText(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// A bar that redraws itself on a terminal; elsewhere a line every few seconds, and one at the end.
class ProgressBar {
 public:
  explicit ProgressBar(int64_t done_before) : done_before_(done_before) {}

  void Show(const batch::RunProgress& p, const EngineStats& stats) {
    last_ = TextOf(p, stats);
    if (terminal_) {
      const std::string bar(static_cast<size_t>(Percent(p) / 4), '#');
      std::fprintf(stderr, "\r[%-25s] %s\033[K", bar.c_str(), last_.c_str());
    } else if (p.elapsed_ns >= next_ns_) {
      next_ns_ = p.elapsed_ns + kLineEveryNs;
      std::fprintf(stderr, "%s\n", last_.c_str());
    }
  }
  void End() const { std::fprintf(stderr, "%s\n", terminal_ ? "" : last_.c_str()); }

 private:
  static int64_t Percent(const batch::RunProgress& p) {
    return 100 * p.counts.done() / std::max<int64_t>(1, p.counts.lines);
  }
  std::string TextOf(const batch::RunProgress& p, const EngineStats& stats) const {
    const double elapsed_s = static_cast<double>(std::max<DurationNs>(p.elapsed_ns, 1)) * 1e-9;
    const int64_t done_here = p.counts.done() - done_before_;
    std::string text =
        fmt::format("{:3} %  {} of {} lines, {} failed; {:.0f} tokens/s in, {:.0f} out", Percent(p), p.counts.done(),
                    p.counts.lines, p.counts.errors, static_cast<double>(stats.prompt_tokens) / elapsed_s,
                    static_cast<double>(stats.generation_tokens) / elapsed_s);
    if (InterruptCount() > 0) return text + fmt::format("; stopping, {} lines to finish", p.generating);
    if (p.counts.left() == 0) return text + "; " + TimeText(elapsed_s);
    if (done_here == 0) return text;
    const double each_s = elapsed_s / static_cast<double>(done_here);
    return text + fmt::format("; {} to go", TimeText(each_s * static_cast<double>(p.counts.left())));
  }

  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const int64_t done_before_;
  DurationNs next_ns_ = kLineEveryNs;
  std::string last_;
};

void Say(std::string_view text) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

Result<std::unique_ptr<batch::Job>> OpenJob(const BatchOptions& o) {
  batch::JobOptions options;
  options.overwrite = o.overwrite;
  options.most_line_bytes = o.max_line.bytes;
  options.seed = static_cast<uint64_t>(o.engine.seed);
  options.progress = [&o, next_ns = SystemClock().NowNs() + kLineEveryNs](int64_t bytes) mutable {
    if (SystemClock().NowNs() >= next_ns) {
      next_ns += kLineEveryNs;
      Say(fmt::format("reading {}: {} MiB", o.input, bytes >> 20));
    }
    return InterruptCount() == 0;
  };
  TACTUS_ASSIGN_OR_RETURN(const std::string model, ResolveModel(o.engine.model));
  TACTUS_ASSIGN_OR_RETURN(options.settings, batch::SettingsOf(o.engine, model));
  TACTUS_ASSIGN_OR_RETURN(auto job, batch::Job::Open(o.Files(), options));
  const batch::JobCounts counts = job->counts();
  if (job->resumed()) {
    Say(fmt::format("going on with the job in {}: {} of {} lines are done", job->files().state, counts.done(),
                    counts.lines));
  } else {
    Say(fmt::format("{} lines in {}", counts.lines, job->files().input));
  }
  return job;
}

void PrintResult(const BatchOptions& o, const batch::Job& job, int64_t done_before, const RunResult& result) {
  const batch::JobCounts c = job.counts();
  const std::string text =
      fmt::format("{} lines in = {} out ({}) + {} errors ({}){}", c.lines, c.out, o.output, c.errors,
                  job.files().errors, c.left() > 0 ? fmt::format(" + {} left", c.left()) : "");
  if (!o.json) {
    std::printf("%s\n", text.c_str());
    return;
  }
  Say(text);
  nlohmann::ordered_json report = RunJson(result);
  report["lines"] = {
      {"in", c.lines}, {"out", c.out}, {"errors", c.errors}, {"left", c.left()}, {"before", done_before}};
  std::printf("%s\n", report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

// A job that is done is no success where nothing of it was.
Status CheckDone(const batch::Job& job) {
  if (job.counts().out > 0) return Status();
  return Internal(fmt::format("no line has an answer; {} says why of each", job.files().errors));
}

// kCancelled: Ctrl-C.
Status Run(BatchOptions o) {
  if (o.output.empty()) return InvalidArgument("--output is missing; name the file for answers (-o OUT.jsonl)");
  if (o.max_line.bytes < 1) return InvalidArgument("--max-line is 0; give some bytes, such as 16MiB", "max-line");
  CatchInterrupt();
  TACTUS_ASSIGN_OR_RETURN(const auto job, OpenJob(o));
  const int64_t before = job->counts().done();
  if (job->counts().left() == 0) {
    PrintResult(o, *job, before, {});
    return CheckDone(*job);
  }
  o.engine.front_end_bytes = kParsedPerByte * o.max_line.bytes + kResultBytes;
  TACTUS_ASSIGN_OR_RETURN(const auto engine, Engine::Create(o.engine, Say));
  TACTUS_RETURN_IF_ERROR(job->CheckSettings(batch::SettingsOf(engine->model())));
  ProgressBar bar(before);
  batch::RunnerOptions options;
  options.limits = api::LimitsOf(engine->model(), o.engine.default_max_tokens);
  options.progress = [&](const batch::RunProgress& progress) {
    bar.Show(progress, engine->Stats());
    return InterruptCount() == 0;
  };
  Status status = batch::RunJob(job.get(), engine.get(), options, SystemClock());
  bar.End();
  engine->Drain(0);  // nothing runs: its figures include the last step
  const RunResult result = engine->Outcome();
  const Status closed = engine->Close();
  PrintResult(o, *job, before, result);
  if (status.ok()) return closed.ok() ? CheckDone(*job) : closed;
  return Status(status.code(),
                fmt::format("{}; {} of {} lines are done and kept; the same command goes on with the rest",
                            status.message(), job->counts().done(), job->counts().lines));
}

}  // namespace

int BatchCommand(const Args& args) {
  BatchOptions options;
  options.engine.max_queue = 512;  // what is read ahead
  options.engine.tbt_slo.ns = 0;   // nobody waits for tokens
  CommandLine line("batch", "IN.jsonl -o OUT.jsonl [MODEL] [options]",
                   "Answers a file of requests in OpenAI's batch format. A run that was ended goes on where it was.");
  line.Add(options);
  line.Positional("IN", &options.input, true, "the requests: a JSON line each, of custom_id, method, url and body");
  line.Positional("MODEL", &options.engine.model, false,
                  "a GGUF file, a Hugging Face folder, or a name of `tactus models list`; default: smollm2-135m");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const Status status = Run(std::move(options));
  if (!status.ok()) std::fprintf(stderr, "tactus batch: %s\n", status.message().c_str());
  if (status.code() == StatusCode::kCancelled) return kExitInterrupted;
  return status.ok() ? kExitOk : status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
