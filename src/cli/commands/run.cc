// `tactus run`: one answer (-p) or a chat in the terminal, on the same engine as the server. Answers are streamed to
// stdout, everything else goes to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>

#include "base/cache_folder.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include "cli/commands/commands.h"
#include "cli/commands/line_editor.h"
#include "cli/commands/remote_model.h"
#include "cli/commands/sessions.h"
#include "cli/commands/talk.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "cli/options/start_log.h"
#include "engine/start/check_options.h"
#include "tactus/engine.h"

namespace tactus::cli {
namespace {

constexpr int kLastInterrupt = 8;                      // Ctrl-C presses that end an answer which does not stop
constexpr int64_t kMostLineBytes = int64_t{16} << 20;  // longest chat message

struct RunOptions {
  std::string prompt, system, session;
  std::vector<std::string> files;
  int64_t max_tokens = 0;
  bool raw = false, history = true, verbose = false;
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Answer");
    v.Field("prompt", prompt,
            {.alias = "p", .help = "one prompt: print the answer and exit; without it a chat starts"});
    v.Field("system", system, {.help = "system message of the conversation; default: the template's own"});
    v.Field("file", files,
            {.help = "a text file that goes before the first message, below its name; may be given several times"});
    v.Field(
        "session", session,
        {.help = "continue the conversation of this name, or begin it, and keep it after every answer; a name with a "
                 "'/' is a path"});
    v.Field("raw", raw, {.help = "with --prompt: continue the text without a chat template"});
    v.Field("max-tokens", max_tokens,
            {.unit = "tokens",
             .min = 0,
             .help = "longest answer; 0: the rest of the context, at most --default-max-tokens"});
    v.Field("history", history, {.help = "store typed messages in the cache folder as history for later chats"});
    v.Field("verbose", verbose,
            {.help = "log the start to standard error: model, memory plan, scheduler; without it only warnings"});
    engine.VisitFields(v);
  }
};

// Converts text to valid UTF-8: invalid bytes become U+FFFD, as in the tokeniser, with a warning.
std::string ValidText(const std::string& text, const char* what) {
  if (IsValidUtf8(text)) return text;
  std::fprintf(stderr, "warning: %s is not valid UTF-8; invalid bytes were replaced by U+FFFD\n", what);
  return ReplaceInvalidUtf8(text);
}

Status CheckAnswerOptions(const RunOptions& o) {
  if (o.raw && o.prompt.empty())
    return InvalidArgument("--raw needs --prompt, the text to continue; a chat needs the template");
  if (o.raw && (!o.session.empty() || !o.files.empty()))
    return InvalidArgument("--raw has no messages; leave --session and --file out");
  return Status();
}

int FailRun(const Status& status) {
  std::fprintf(stderr, "tactus run: %s\n", status.message().c_str());
  return kExitFailed;
}

// The texts of files, for the beginning of a message.
Result<std::string> FilesForMessage(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    TACTUS_ASSIGN_OR_RETURN(const std::string part, FileForMessage(path));
    text += part;
  }
  return text;
}

// Keeps the conversation in `file`; without a file nothing.
Status Keep(const Talk& talk, const std::string& file) {
  return file.empty() ? Status() : WriteSession(file, {talk.system(), talk.messages()});
}

// Continues the conversation of `file`, if there is one. A system message that is set already stays.
Status Resume(const std::string& file, Talk* talk) {
  auto session = ReadSession(file);
  if (session.status().code() == StatusCode::kNotFound) return Status();
  if (!session.ok()) return session.status();
  if (talk->system().empty()) talk->SetSystem(session->system);
  talk->SetMessages(std::move(session->messages));
  return Status();
}

void Prepare(const RunOptions& options, Talk* talk) {
  talk->SetSystem(options.system);
  talk->settings().max_tokens = options.max_tokens;
  if (options.engine.seed != 0) talk->settings().seed = options.engine.seed;
}

// `files`: the texts of --file. `session_file`: of --session.
int AnswerOnce(Engine& engine, const RunOptions& options, const std::string& files, const std::string& session_file) {
  Talk talk(engine, options.engine.default_max_tokens, false);
  Prepare(options, &talk);
  if (!session_file.empty()) {
    if (const Status resumed = Resume(session_file, &talk); !resumed.ok()) return FailRun(resumed);
  }
  const Asked asked = options.raw ? talk.Continue(options.prompt) : talk.Ask(files + options.prompt);
  if (!asked.status.ok()) return FailRun(asked.status);
  std::printf("\n");
  std::fprintf(stderr, "%s\n", asked.summary.c_str());
  if (const Status kept = Keep(talk, session_file); !kept.ok()) return FailRun(kept);
  return asked.interrupted ? kExitInterrupted : kExitOk;
}

constexpr std::string_view kHelp =
    "/help           this text\n"
    "/set            the sampling settings of answers\n"
    "/set NAME VALUE temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty,\n"
    "                seed, max_tokens; VALUE `default` resets it\n"
    "/system TEXT    sets the system message; without TEXT removes it\n"
    "/clear          forgets the conversation; the system message stays\n"
    "/file PATH      puts a text file before the next message\n"
    "/save NAME      keeps the conversation as a session, from now on after every answer; a NAME with a '/' is a path\n"
    "/load NAME      continues a session\n"
    "/sessions       lists the sessions\n"
    "/exit, /quit    ends the chat, like Ctrl-D\n"
    "Ctrl-C stops an answer, discards typed text, and ends the chat if there is none. A message that begins "
    "with\n"
    "'/' is sent with a space before it. On a terminal: arrows, Ctrl-R and the keys of Emacs edit; pasted text keeps "
    "its\n"
    "line breaks, and Alt-Enter makes one.\n";

// A chat: reads messages, runs commands, prints answers.
class Chat {
 public:
  Chat(Engine& engine, const RunOptions& options, std::string files, std::string session_file)
      : options_(options),
        files_(std::move(files)),
        session_file_(std::move(session_file)),
        terminal_(isatty(STDIN_FILENO) != 0),
        talk_(engine, options.engine.default_max_tokens, terminal_),
        input_(InputFile::StandardInput(std::numeric_limits<int64_t>::max())) {
    Prepare(options, &talk_);
    const std::string kept = options.history ? CacheFolder() + "/run_history" : std::string();
    editor_ = LineEditor::Make(kept);
    std::fprintf(stderr, "Chat with %s. /help lists the commands; Ctrl-C stops an answer, Ctrl-D ends.\n",
                 engine.model().name.c_str());
  }

  int Run() {
    std::string line;
    if (!session_file_.empty()) {
      if (const Status resumed = Resume(session_file_, &talk_); !resumed.ok()) return FailRun(resumed);
      SayMessages();
    }
    while (std::ferror(stdout) == 0) {
      ClearInterrupt();
      if (terminal_) std::fputs("\n", stderr);
      const auto read = Read(&line);
      if (!read.ok()) return FailRun(read.status());
      if (*read == Next::kEnd) return kExitOk;
      if (*read == Next::kInterrupted) return kExitInterrupted;
      if (*read == Next::kNothing || line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (line[0] == '/') {
        if (!Command(line)) return kExitOk;
        continue;
      }
      Answer(line);
    }
    return kExitFailed;  // main reports that standard output cannot be written
  }

 private:
  enum class Next { kLine, kNothing, kEnd, kInterrupted };

  Result<Next> Read(std::string* line) {
    if (editor_ == nullptr) return ReadPlain(line);
    switch (editor_->Read(line)) {
      case LineEditor::Outcome::kLine:
        *line = ValidText(*line, "the line");
        return Next::kLine;
      case LineEditor::Outcome::kCleared:
        return Next::kNothing;
      case LineEditor::Outcome::kEnd:
        break;
    }
    std::fputs("\n", stderr);
    return Next::kEnd;
  }
  // Input from a pipe, or from a terminal without editing. The terminal's Ctrl-C discards the typed line before the
  // program sees it.
  Result<Next> ReadPlain(std::string* line) {
    if (terminal_) std::fputs("> ", stderr);
    const bool signalled = terminal_ && !WaitForInput(STDIN_FILENO);
    const Result<bool> more =
        signalled ? Result<bool>(Status(StatusCode::kCancelled, "a signal")) : input_.ReadLine(line, kMostLineBytes);
    if (more.status().code() == StatusCode::kCancelled) {
      if (InterruptCount() == 0) return Next::kNothing;  // another signal
      std::fputs("\n", stderr);
      if (!terminal_) return Next::kInterrupted;
      if (interrupts_++ > 0) return Next::kEnd;
      std::fputs("Ctrl-C again or Ctrl-D ends the chat.\n", stderr);
      return Next::kNothing;
    }
    interrupts_ = 0;
    if (!more.ok()) return more.status();
    if (!*more) return Next::kEnd;
    *line = ValidText(*line, "the line");
    return Next::kLine;
  }

  void Answer(const std::string& question) {
    const Asked asked = talk_.Ask(files_ + question);
    if (asked.status.ok()) files_.clear();
    std::printf("\n");
    std::fflush(stdout);
    if (!asked.status.ok()) {
      std::fprintf(stderr, "%s\n", asked.status.message().c_str());
      return;
    }
    if (asked.left_out > 0) {
      std::fprintf(stderr, "[the context is full: the oldest %lld messages are dropped from now on]\n",
                   static_cast<long long>(asked.left_out));
    }
    if (terminal_) std::fprintf(stderr, "[%s%s]\n", asked.summary.c_str(), asked.interrupted ? ", stopped" : "");
    Warn(Keep(talk_, session_file_));
  }

  static void Warn(const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  void SayMessages() const {
    std::fprintf(stderr, "the conversation in %s has %zu messages\n", session_file_.c_str(), talk_.messages().size());
  }

  // The next message begins with the file.
  void AddFile(const std::string& path) {
    const auto text = FileForMessage(path);
    if (!text.ok()) return Warn(text.status());
    files_ += *text;
    std::fprintf(stderr, "%zu characters of files go before the next message\n", files_.size());
  }

  void Save(const std::string& name) {
    const auto file = SessionFile(name);
    if (!file.ok()) return Warn(file.status());
    const Status kept = Keep(talk_, *file);
    if (!kept.ok()) return Warn(kept);
    session_file_ = *file;
    SayMessages();
  }
  void Load(const std::string& name) {
    const auto file = SessionFile(name);
    if (!file.ok()) return Warn(file.status());
    auto session = ReadSession(*file);
    if (!session.ok()) return Warn(session.status());
    talk_.SetSystem(session->system);
    talk_.SetMessages(std::move(session->messages));
    session_file_ = *file;
    SayMessages();
  }

  // Returns false if the chat ends.
  bool Command(const std::string& line) {
    const size_t space = line.find_first_of(" \t\n");
    const std::string name = line.substr(0, space);
    std::string rest = space == std::string::npos ? "" : line.substr(space);
    rest.erase(0, rest.find_first_not_of(" \t\n"));
    while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\t')) rest.pop_back();
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/help" || name == "/?") {
      std::fwrite(kHelp.data(), 1, kHelp.size(), stderr);
    } else if (name == "/clear") {
      talk_.Clear();
      files_.clear();
      Warn(Keep(talk_, session_file_));
    } else if (name == "/system") {
      talk_.SetSystem(rest);
      Warn(Keep(talk_, session_file_));
    } else if (name == "/file") {
      AddFile(rest);
    } else if (name == "/save") {
      Save(rest);
    } else if (name == "/load") {
      Load(rest);
    } else if (name == "/sessions") {
      for (const std::string& session : SessionNames()) std::fprintf(stderr, "%s\n", session.c_str());
    } else if (name == "/set") {
      Set(rest);
    } else {
      std::fprintf(stderr,
                   "'%s' is not a command; /help lists them, and a space before the '/' sends it as a message\n",
                   name.c_str());
    }
    return true;
  }

  void Set(const std::string& text) {
    if (text.empty()) return ShowSettings();
    const size_t space = text.find_first_of(" \t");
    std::string name = text.substr(0, space);
    const size_t at = space == std::string::npos ? space : text.find_first_not_of(" \t", space);
    if (at == std::string::npos) {
      std::fprintf(stderr, "/set %s: a value is missing; `default` resets it\n", name.c_str());
      return;
    }
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string value = text.substr(at);
    AnswerSettings changed = talk_.settings();
    CommandLine names("run", "", "");
    names.Add(changed);
    const auto found = std::find_if(names.fields().begin(), names.fields().end(),
                                    [&name](const FieldBinding& field) { return field.name == name; });
    if (found == names.fields().end()) {
      std::fprintf(stderr, "/set: '%s' is not a setting; /help lists them\n", name.c_str());
      return;
    }
    if (value == "default") {
      TakeBack(*found);
    } else if (const Status status = SetField(*found, value); !status.ok()) {
      std::fprintf(stderr, "/set %s\n", status.message().substr(2).c_str());  // without the dashes of a flag
      return;
    }
    talk_.settings() = changed;
    if (const int64_t context = talk_.context(); changed.max_tokens > context && found->name == "max-tokens") {
      std::fprintf(stderr, "max_tokens %lld is more than the context of %lld tokens: answers get the rest of it\n",
                   static_cast<long long>(changed.max_tokens), static_cast<long long>(context));
    }
  }
  // Resets the field to its value at the start of the chat.
  void TakeBack(const FieldBinding& field) const {
    if (field.name == "max-tokens") {
      *std::get<int64_t*>(field.target) = options_.max_tokens;
    } else if (const auto* real = std::get_if<std::optional<double>*>(&field.target)) {
      (*real)->reset();
    } else {
      std::optional<int64_t>* whole = std::get<std::optional<int64_t>*>(field.target);
      whole->reset();
      if (field.name == "seed" && options_.engine.seed != 0) *whole = options_.engine.seed;
    }
  }
  void ShowSettings() {
    const SamplingParams s = talk_.Sampling();
    const int64_t most = talk_.settings().max_tokens;
    std::string text = fmt::format(
        "temperature {:.6g}\ntop_p {:.6g}\ntop_k {}\nmin_p {:.6g}\nrepetition_penalty {:.6g}\npresence_penalty {:.6g}\n"
        "frequency_penalty {:.6g}\nseed {}\nmax_tokens {}\n",
        s.temperature, s.top_p, s.top_k, s.min_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty,
        s.has_seed ? fmt::format("{}", s.seed) : "drawn",
        most > 0 ? fmt::format("{}", most) : "the rest of the context");
    if (!talk_.system().empty()) text += "system " + talk_.system() + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
  }

  const RunOptions& options_;
  std::string files_;         // texts of files, for the next message
  std::string session_file_;  // where the conversation is kept; empty: nowhere
  const bool terminal_;
  Talk talk_;
  InputFile input_;
  std::unique_ptr<LineEditor> editor_;  // null without a terminal for editing
  int interrupts_ = 0;                  // in a row, with nothing typed between
};

}  // namespace

int RunCommand(const Args& args) {
  RunOptions options;
  options.engine.max_num_seqs = 4;
  // No stream runs beside the prompt and no objective applies: no step times are needed.
  options.engine.tbt_slo.ns = 0;
  options.engine.scheduler = "sarathi-serve";
  CommandLine line("run", "[MODEL] [-p PROMPT] [options]",
                   "Chats with a model in the terminal, or answers one prompt.");
  line.Add(options);
  line.Common(EngineCommon({"prompt", "system", "file", "session", "raw", "max-tokens", "history", "verbose",
                            "temperature", "top-p", "seed"}));
  line.Positional(
      "MODEL", &options.engine.model, false,
      "a GGUF file, a Hugging Face folder, a name of `tactus models list`, or a model to download: hf:org/name, "
      "a URL or a name of `tactus pull --list`; default: smollm2-135m");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (const Status status = CheckAnswerOptions(options); !status.ok()) {
    FailRun(status);
    return kExitUsage;
  }
  if (const Status status = engine::CheckOptions(options.engine); !status.ok()) {
    const int code = FailRun(status);
    return status.code() == StatusCode::kInvalidArgument ? kExitUsage : code;
  }
  // Before the model is loaded, which takes longer.
  std::string session_file;
  if (!options.session.empty()) {
    auto file = SessionFile(options.session);
    if (!file.ok()) {
      FailRun(file.status());
      return kExitUsage;
    }
    session_file = std::move(*file);
    const auto session = ReadSession(session_file);
    if (!session.ok() && session.status().code() != StatusCode::kNotFound) return FailRun(session.status());
  }
  const auto files = FilesForMessage(options.files);
  if (!files.ok()) return FailRun(files.status());
  options.prompt = ValidText(options.prompt, "--prompt");
  options.system = ValidText(options.system, "--system");
  StartLog log(options.verbose);
  const Status fetched = FetchModels(&options.engine, &log);
  auto engine = fetched.ok() ? Engine::Create(options.engine, [&log](std::string_view text) { log.Detail(text); })
                             : Result<std::unique_ptr<Engine>>(fetched);
  log.Clear();
  if (!engine.ok()) {
    const int code = FailRun(engine.status());
    return engine.status().code() == StatusCode::kInvalidArgument ? kExitUsage : code;  // as in `tactus serve`
  }
  const bool chats = options.prompt.empty();
  // Users may press Ctrl-C repeatedly to stop an answer, which must not end the chat.
  CatchInterrupt(chats && isatty(STDIN_FILENO) != 0 ? kLastInterrupt : 2);
  const int code =
      chats ? Chat(**engine, options, *files, session_file).Run() : AnswerOnce(**engine, options, *files, session_file);
  const Status closed = (*engine)->Close();
  return closed.ok() ? code : FailRun(closed);
}

}  // namespace tactus::cli
