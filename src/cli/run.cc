// `tactus run`: one answer (-p) or a chat in the terminal, over the same engine as the server. Answers go to stdout as
// they are made, everything else to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "api/answer.h"
#include "api/conversation.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_binding.h"
#include "engine/check_options.h"
#include "tactus/engine.h"

namespace tactus::cli {
namespace {

constexpr int64_t kMostLineBytes = int64_t{16} << 20;  // of a chat

struct RunOptions {
  std::string prompt, system;
  int64_t max_tokens = 0;
  double temperature = -1, top_p = -1;
  bool raw = false;
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Answer");
    v.Field("prompt", prompt,
            {.alias = "p", .help = "one prompt: print the answer and exit; without it a chat starts"});
    v.Field("system", system, {.help = "system message of the conversation; default: the template's own"});
    v.Field("raw", raw, {.help = "with --prompt: continue the text as it is, without a chat template"});
    v.Field("max-tokens", max_tokens,
            {.unit = "tokens",
             .min = 0,
             .help = "longest answer; 0: what the context leaves, at most --default-max-tokens"});
    v.Field("temperature", temperature,
            {.min = -1, .max = 100, .help = "sampling temperature; 0 is greedy; -1: the model's own, else 1"});
    v.Field(
        "top-p", top_p,
        {.min = -1, .max = 1, .help = "share of the probability that is sampled from; -1: the model's own, else 1"});
    engine.VisitFields(v);
  }
};

// Prints what comes and lets the main thread wait for the end.
class TerminalSink final : public ResponseSink {
 public:
  TerminalSink(const Engine& engine, api::AnswerShape shape, Clock& clock)
      : clock_(clock), start_ns_(clock.NowNs()), answer_(engine, std::move(shape), {}) {}

  void OnDelta(const TokenDelta& delta) override {
    std::lock_guard lock(mutex_);
    if (first_ns_ == 0 && !delta.tokens.empty()) first_ns_ = clock_.NowNs();
    if (Status status = answer_.OnDelta(0, delta, nullptr); !status.ok()) status_ = std::move(status);
    Print();
  }
  void OnDone(const Usage& usage) override {
    std::lock_guard lock(mutex_);
    answer_.OnDone(0, usage, nullptr);
    end_ns_ = clock_.NowNs();
    changed_.notify_all();
  }
  // True once done; waits at most 50 ms, so that the caller can look at Ctrl-C.
  bool WaitShortly() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return answer_.done(); });
  }
  // --- When it is done ---
  std::string text() const { return api::TextOf(answer_.choice(0).parts); }
  const Status& status() const { return status_; }
  std::string Summary() const {
    const Usage usage = answer_.usage();
    const double ttft_ms = static_cast<double>(first_ns_ - start_ns_) * 1e-6;
    const double decode_s = static_cast<double>(end_ns_ - first_ns_) * 1e-9;
    const int64_t tokens = usage.completion_tokens;
    return fmt::format("{} prompt tokens ({} cached), first token after {:.0f} ms, {} tokens at {:.1f}/s",
                       usage.prompt_tokens, usage.cached_tokens, ttft_ms, tokens,
                       tokens > 1 && decode_s > 0 ? static_cast<double>(tokens - 1) / decode_s : 0.0);
  }

 private:
  // What has come: the reasoning to stderr, so that stdout has the answer alone.
  void Print() {
    for (const api::AnswerPart& part : answer_.parts()) {
      const bool thought = part.kind == api::AnswerPart::Kind::kReasoning;
      std::FILE* out = thought ? stderr : stdout;
      if (thinking_ && !thought) std::fputs("\n", stderr);
      thinking_ = thought;
      std::fwrite(part.text.data(), 1, part.text.size(), out);
      std::fflush(out);
    }
  }

  Clock& clock_;
  bool thinking_ = false;  // reasoning was the last thing
  std::mutex mutex_;
  std::condition_variable changed_;
  const TimeNs start_ns_;
  TimeNs first_ns_ = 0, end_ns_ = 0;
  api::Answer answer_;
  Status status_;
};

// Text as the model can take it: what is not UTF-8 becomes U+FFFD, as the tokeniser would make it, and that is said.
std::string ValidText(const std::string& text, const char* what) {
  if (IsValidUtf8(text)) return text;
  std::fprintf(stderr, "warning: %s is not valid UTF-8; the bytes that are not were replaced by U+FFFD\n", what);
  return ReplaceInvalidUtf8(text);
}

// One conversation with the model, message by message.
class Talk {
 public:
  Talk(Engine& engine, const RunOptions& options)
      : engine_(engine), options_(options), limits_(api::LimitsOf(engine, options.engine.default_max_tokens)) {
    Clear();
  }

  void Clear() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }
  void SetSystem(const std::string& text) {
    if (!messages_.empty() && messages_[0].role == "system")
      messages_[0].content = text;
    else
      messages_.insert(messages_.begin(), {"system", text});
  }

  bool answered() const { return !messages_.empty() && messages_.back().role == "assistant"; }

  // Asks and prints; on an error nothing of this turn stays in the talk. *summary: one line about speed.
  Status Ask(const std::string& question, bool* interrupted, std::string* summary) {
    messages_.push_back({"user", question});
    std::string text;
    Status status = Generate(api::ChatOf(messages_, limits_), &text, interrupted, summary);
    if (status.ok())
      messages_.push_back({"assistant", std::move(text)});
    else
      messages_.pop_back();
    return status;
  }
  // Continues the text as it is.
  Status Continue(const std::string& start, bool* interrupted, std::string* summary) {
    std::string text;
    return Generate(api::ContinuationOf(start, limits_), &text, interrupted, summary);
  }

 private:
  // What is asked, with what the command line says about its answer.
  Status Generate(api::ParsedRequest asked, std::string* text, bool* interrupted, std::string* summary) {
    SamplingParams& sampling = asked.base.sampling;
    if (options_.temperature >= 0) sampling.temperature = static_cast<float>(options_.temperature);
    if (options_.top_p > 0) sampling.top_p = static_cast<float>(options_.top_p);
    sampling.seed = static_cast<uint64_t>(options_.engine.seed);
    sampling.has_seed = options_.engine.seed != 0;
    if (options_.max_tokens > 0) asked.max_tokens = options_.max_tokens;
    TACTUS_ASSIGN_OR_RETURN(api::Prepared prepared, api::PrepareConversation(std::move(asked), engine_, limits_));
    auto sink = std::make_shared<TerminalSink>(engine_, std::move(prepared.shape), SystemClock());
    TACTUS_ASSIGN_OR_RETURN(const RequestHandle handle, engine_.Submit(std::move(prepared.requests[0]), sink));
    bool cancelled = false;
    while (!sink->WaitShortly()) {
      // An answer that nobody can read is not worth its time either.
      if ((InterruptCount() > 0 || std::ferror(stdout) != 0) && !cancelled) {
        engine_.Cancel(handle);
        cancelled = true;
      }
    }
    *interrupted = InterruptCount() > 0 && cancelled;
    *text = sink->text();
    *summary = sink->Summary();
    return cancelled ? Status() : sink->status();
  }

  Engine& engine_;
  const RunOptions& options_;
  const api::RequestLimits limits_;
  std::vector<api::ChatMessage> messages_;
};

// -1 leaves a choice to the model; nothing else below the API's own ranges means anything.
Status CheckAnswerOptions(const RunOptions& o) {
  if (o.temperature < 0 && o.temperature != -1)
    return InvalidArgument("--temperature is below 0; give 0 for greedy, or -1 for the model's own");
  if (o.top_p <= 0 && o.top_p != -1)
    return InvalidArgument("--top-p must be above 0, up to 1, or -1 for the model's own");
  if (o.raw && o.prompt.empty())
    return InvalidArgument("--raw continues the text of --prompt, which is missing; a chat needs the template");
  return Status();
}

int Fail(const Status& status) {
  std::fprintf(stderr, "tactus run: %s\n", status.message().c_str());
  return kExitFailed;
}

// The next line of standard input. False: its end. kCancelled: Ctrl-C came.
Result<bool> ReadQuestion(InputFile& input, std::string* line) {
  TACTUS_ASSIGN_OR_RETURN(const bool more, input.ReadLine(line, kMostLineBytes));
  if (more) *line = ValidText(*line, "the line");
  return more;
}

int AnswerOnce(Engine& engine, const RunOptions& options) {
  Talk talk(engine, options);
  bool interrupted = false;
  std::string summary;
  const Status status = options.raw ? talk.Continue(options.prompt, &interrupted, &summary)
                                    : talk.Ask(options.prompt, &interrupted, &summary);
  if (!status.ok()) return Fail(status);
  std::printf("\n");
  std::fprintf(stderr, "%s\n", summary.c_str());
  return interrupted ? kExitInterrupted : kExitOk;
}

int Chat(Engine& engine, const RunOptions& options) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  Talk talk(engine, options);
  std::fprintf(stderr,
               "Chat with %s. /clear starts anew, /system TEXT sets the system message, /exit or Ctrl-D ends; Ctrl-C "
               "stops an answer.\n",
               engine.model().name.c_str());
  InputFile input = InputFile::StandardInput(std::numeric_limits<int64_t>::max());
  std::string line;
  while (std::ferror(stdout) == 0) {
    ClearInterrupt();
    if (terminal) std::fprintf(stderr, "\n> ");
    const auto more = ReadQuestion(input, &line);
    if (more.status().code() == StatusCode::kCancelled) {
      if (InterruptCount() == 0) continue;  // another signal
      std::fprintf(stderr, "\n");
      return kExitInterrupted;
    }
    if (!more.ok()) return Fail(more.status());
    if (!*more) return kExitOk;
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") return kExitOk;
    if (line == "/clear") {
      talk.Clear();
      continue;
    }
    if (line.rfind("/system ", 0) == 0) {
      talk.SetSystem(line.substr(8));
      continue;
    }
    if (line[0] == '/') {
      std::fprintf(stderr, "'%s' is no command; there are /clear, /system TEXT and /exit\n", line.c_str());
      continue;
    }
    bool interrupted = false;
    std::string summary;
    const Status status = talk.Ask(line, &interrupted, &summary);
    std::printf("\n");
    std::fflush(stdout);
    if (!status.ok())
      std::fprintf(stderr, "%s%s\n", status.message().c_str(),
                   talk.answered() && status.code() == StatusCode::kInvalidArgument ? "; /clear starts anew" : "");
    else if (terminal)
      std::fprintf(stderr, "[%s%s]\n", summary.c_str(), interrupted ? ", stopped" : "");
  }
  return kExitFailed;  // main says that standard output cannot be written
}

}  // namespace

int RunCommand(const Args& args) {
  RunOptions options;
  options.engine.max_num_seqs = 4;
  // Nobody streams beside the prompt and nothing is promised: no step times are needed.
  options.engine.tbt_slo.ns = 0;
  options.engine.scheduler = "sarathi-serve";
  CommandLine line("run", "[MODEL] [-p PROMPT] [options]",
                   "Chats with a model in the terminal, or answers one prompt.");
  line.Add(options);
  line.Positional("MODEL", &options.engine.model, false,
                  "a GGUF file, a Hugging Face folder, or a name of `tactus models list`; default: smollm2-135m");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (const Status status = CheckAnswerOptions(options); !status.ok()) {
    Fail(status);
    return kExitUsage;
  }
  if (const Status status = CheckOptions(options.engine); !status.ok()) {
    const int code = Fail(status);
    return status.code() == StatusCode::kInvalidArgument ? kExitUsage : code;
  }
  options.prompt = ValidText(options.prompt, "--prompt");
  options.system = ValidText(options.system, "--system");
  const bool quiet = !isatty(STDERR_FILENO);
  auto engine = Engine::Create(options.engine, [quiet](std::string_view text) {
    if (!quiet || text.starts_with("warning: "))
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  });
  if (!engine.ok()) {
    const int code = Fail(engine.status());
    return engine.status().code() == StatusCode::kInvalidArgument ? kExitUsage : code;  // as `tactus serve` has it
  }
  CatchInterrupt();
  const int code = options.prompt.empty() ? Chat(**engine, options) : AnswerOnce(**engine, options);
  const Status closed = (*engine)->Close();
  return closed.ok() ? code : Fail(closed);
}

}  // namespace tactus::cli
