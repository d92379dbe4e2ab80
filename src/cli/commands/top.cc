// `tactus top URL`: the live view of a server or a router, from its GET /events. On a terminal the whole screen, with
// keys; in a pipe a line of figures at every interval; with --once the whole view once. One thread: the loop of the
// HTTP client, with a tick that reads keys, draws and looks for signals.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "base/one_line.h"
#include "cli/commands/commands.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "cli/top/live_text.h"
#include "cli/top/live_view.h"
#include "cli/top/terminal.h"
#include "http/client.h"
#include "http/serving_options.h"

namespace tactus::cli {
namespace {

constexpr DurationNs kTickNs = 50 * kMillisecond;
constexpr DurationNs kDrawNs = 100 * kMillisecond;  // between two drawings without a key
constexpr DurationNs kFirstWaitNs = 500 * kMillisecond, kMostWaitNs = 4 * kSecond;  // before connecting again
constexpr DurationNs kSilenceNs = 10 * kSecond;                                     // a frame comes every two seconds
constexpr int kLeastLines = 4;  // of a screen that has room for lines about connection and keys
constexpr int kWide = 120;      // columns of a view that goes into a pipe
constexpr size_t kMostFilterBytes = 200;
constexpr int kLastInterrupt = 8;  // Ctrl-C presses that end a program that does not stop

struct TopOptions {
  std::string url = "http://127.0.0.1:8000", api_key;
  bool once = false;
  DurationText interval{kSecond};
  http::ReplicaTlsOptions tls;  // with the names that `tactus route` has for the same server

  template <class V>
  void VisitFields(V& v) {
    v.Group("View");
    v.Field("api-key", api_key,
            {.help = "key that is sent as a bearer token; for a router on another machine its --admin-key",
             .secret = true});
    v.Field("once", once, {.help = "print the view once, as plain text, and exit"});
    v.Field("interval", interval,
            {.unit = "duration",
             .help = "time between two lines where standard output is no terminal, and the time over which --once "
                     "measures rates"});
    v.Group("TLS");
    v.Field("replica-ca", tls.replica_ca,
            {.help = "PEM file with the authorities that sign the certificate of an https URL; default: those of the "
                     "system"});
    v.Field("replica-cert", tls.replica_cert,
            {.help = "PEM file with the certificate that is shown to a server that asks for one (--tls-client-ca)"});
    v.Field("replica-key", tls.replica_key, {.help = "PEM file with its private key"});
    v.Field("replica-tls-name", tls.replica_tls_name,
            {.help = "name that the certificate of the server must have; default: the host of the URL"});
  }
};

// Keys of the view that are no characters.
enum class Key { kNone, kUp, kDown, kLeft, kRight, kPageUp, kPageDown, kHome, kEnd, kEscape, kOther };

// Takes one key from the front of the typed bytes: a byte, or a key's sequence.
std::pair<Key, char> TakeKey(std::string* typed) {
  const char first = typed->front();
  if (first != '\033') {
    typed->erase(0, 1);
    return {Key::kNone, first};
  }
  if (typed->size() < 3 || ((*typed)[1] != '[' && (*typed)[1] != 'O')) {
    typed->erase(0, 1);
    return {Key::kEscape, 0};
  }
  size_t end = 2;  // the last byte of a sequence is 0x40 to 0x7e
  while (end + 1 < typed->size() && ((*typed)[end] < 0x40 || (*typed)[end] > 0x7e)) ++end;
  const std::string sequence = typed->substr(2, end - 1);
  typed->erase(0, end + 1);
  static constexpr std::pair<std::string_view, Key> kKeys[] = {
      {"A", Key::kUp},        {"B", Key::kDown}, {"C", Key::kRight}, {"D", Key::kLeft},  {"5~", Key::kPageUp},
      {"6~", Key::kPageDown}, {"H", Key::kHome}, {"F", Key::kEnd},   {"1~", Key::kHome}, {"4~", Key::kEnd},
  };
  for (const auto& [text, key] : kKeys) {
    if (sequence == text) return {key, 0};
  }
  return {Key::kOther, 0};
}

class Top;

class EventHandler final : public http::ResponseHandler {
 public:
  explicit EventHandler(Top* top) : top_(top) {}
  void OnEvent(std::string_view data, TimeNs received_ns) override;
  void OnDone(const Status& status, const http::HttpResponse& response, TimeNs received_ns) override;

 private:
  Top* const top_;
};

class Top {
 public:
  Top(const TopOptions& options, const http::Url& url, std::shared_ptr<http::TlsContext> tls, Clock& clock)
      : options_(options),
        clock_(clock),
        screen_(!options.once && Terminal::Usable()),
        path_(url.path == "/" ? "/events" : url.path + "/events"),
        client_(url, {.connect_timeout_ns = kSilenceNs, .tls = std::move(tls)}, clock) {}

  int Run() {
    Connect();
    Tick();
    client_.Run();
    terminal_.reset();  // errors are printed on the ordinary screen
    if (!error_.empty()) std::fprintf(stderr, "tactus top: %s\n", error_.c_str());
    return code_;
  }

  void OnEvent(std::string_view data, TimeNs received_ns) {
    if (const Status taken = view_.Take(data, received_ns); !taken.ok()) {
      return End(kExitFailed, fmt::format("{}: {}", options_.url, taken.message()));
    }
    heard_ns_ = received_ns;
    wait_ns_ = kFirstWaitNs;
    note_.clear();
    connected_ = changed_ = true;
    if (view_.has_frame() && first_frame_ns_ < 0) first_frame_ns_ = received_ns;
  }

  void OnDone(const Status& status, const http::HttpResponse& response) {
    const bool was_connected = std::exchange(connected_, false);
    call_.reset();
    if (ended_) return;
    const int code = response.status;
    if (status.ok() && code / 100 != 2) {
      const std::string why = fmt::format("{} answered {}: {}", options_.url, code, ErrorOf(response));
      // Other answers would stay the same.
      if (code != 503 && code != 429 && code != 502) return End(kExitFailed, WithHint(code, why));
      if (options_.once) return End(kExitFailed, why);
      return ConnectLater(why);
    }
    if (status.ok() && !was_connected) {
      return End(kExitFailed, fmt::format("{}{} has no events: it is not a server of Tactus", options_.url, path_));
    }
    const std::string why = silent_         ? fmt::format("no event for {} s", kSilenceNs / kSecond)
                            : view_.ended() ? "the server stops"
                            : !status.ok()  ? status.message()
                                            : "the server has ended the stream";
    silent_ = false;
    // A wrong address is more likely than a server that will start.
    if (first_frame_ns_ < 0 || options_.once) {
      return End(kExitFailed, fmt::format("{}: {}{}", options_.url, why, CertificateHint(why)));
    }
    ConnectLater(why);
  }

 private:
  void End(int code, std::string error = {}) {
    if (ended_) return;
    ended_ = true;
    code_ = code;
    error_ = std::move(error);
    client_.Stop();
  }

  static std::string ErrorOf(const http::HttpResponse& response) {
    const Result<Json> body = json_text::ParseJson(response.body);
    if (body.ok() && body->is_object() && body->contains("error")) {
      if (const std::string text = json_text::TextOf((*body)["error"], "message"); !text.empty()) return OneLine(text);
    }
    return OneLine(response.body);
  }
  std::string WithHint(int code, const std::string& why) const {
    if (code == 401) return why + (options_.api_key.empty() ? "; give --api-key" : "; --api-key is another one");
    if (code == 403 && why.find("client certificate") != std::string::npos)
      return why + "; give --replica-cert and --replica-key";
    if (code == 403 && options_.api_key.empty()) return why + "; give a router's --admin-key as --api-key";
    if (code == 404 || code == 405) return why + "; it is not a server of Tactus, or an older one";
    return why;
  }

  // What to do about a server's certificate that was refused (http/transport.cc).
  static std::string_view CertificateHint(std::string_view why) {
    if (why.find("the certificate is refused") == std::string_view::npos) return "";
    if (why.find("mismatch") != std::string_view::npos) return "; give the name in it as --replica-tls-name";
    return "; give the file of its authority as --replica-ca";
  }

  void Connect() {
    http::ClientRequest request;
    request.method = "GET";
    request.path = path_;
    request.headers.emplace_back("Accept", "text/event-stream");
    if (!options_.api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
    heard_ns_ = clock_.NowNs();
    call_ = client_.Send(std::move(request), std::make_shared<EventHandler>(this));
  }
  void ConnectLater(const std::string& why) {
    if (!screen_ && why != note_) std::fprintf(stderr, "%s; connecting again\n", why.c_str());
    note_ = why;
    changed_ = true;
    client_.At(clock_.NowNs() + wait_ns_, [this] {
      if (!ended_) Connect();
    });
    wait_ns_ = std::min(2 * wait_ns_, kMostWaitNs);
  }

  void Tick() {
    if (ended_) return;
    const TimeNs now_ns = clock_.NowNs();
    if (InterruptCount() > 0) return End(kExitInterrupted);
    if (call_ && now_ns - heard_ns_ > kSilenceNs) {
      silent_ = true;
      client_.Cancel(*call_);
    }
    if (screen_) {
      TickScreen(now_ns);
    } else if (first_frame_ns_ >= 0) {
      TickPlain(now_ns);
    }
    if (!ended_) client_.At(now_ns + kTickNs, [this] { Tick(); });
  }

  void TickPlain(TimeNs now_ns) {
    if (now_ns < std::max(first_frame_ns_, printed_ns_) + options_.interval.ns) return;
    printed_ns_ = now_ns;
    if (options_.once) {
      for (const Line& line : Draw(view_, &choices_, {.width = kWide, .blocks = Terminal::ShowsUtf8()}))
        std::printf("%s\n", LineText(line, kWide, false).c_str());
      return End(kExitOk);
    }
    if (!connected_) return;
    std::printf("%s\n", FiguresText(view_).c_str());
    if (std::fflush(stdout) != 0) End(kExitFailed);  // main reports that standard output cannot be written
  }

  // The screen is taken with the first news, so that an error at the start stays among the lines of the shell.
  void TickScreen(TimeNs now_ns) {
    if (!terminal_) {
      if (first_frame_ns_ < 0 && note_.empty()) return;
      terminal_ = std::make_unique<Terminal>();
    }
    typed_ += terminal_->Typed();
    if (terminal_->closed()) return End(kExitOk);
    bool key = !typed_.empty();
    if (terminal_->TakeStop()) {  // as by kill -TSTP
      terminal_->Suspend();
      key = true;
    }
    if (terminal_->TakeContinue()) {  // after a stop that this process did not see
      terminal_->Take();
      key = true;
    }
    // A sequence may come in two pieces. Escape alone is a key after a tick.
    while (!typed_.empty() && !ended_) {
      if (typed_.front() == '\033' && typed_.size() < 3 && !std::exchange(half_key_, true)) break;
      half_key_ = false;
      const auto [special, character] = TakeKey(&typed_);
      OnKey(special, character);
    }
    if (ended_) return;
    const Terminal::Size size = terminal_->size();
    const bool resized = !(size == drawn_size_);
    if (!key && !resized && (!changed_ || now_ns < drawn_ns_ + kDrawNs)) return;
    changed_ = false;
    drawn_ns_ = now_ns;
    drawn_size_ = size;
    if (!terminal_->Show(ScreenLines(size), size)) End(InterruptCount() > 0 ? kExitInterrupted : kExitFailed);
  }

  // The view, and below it a line about the connection and one about the keys.
  std::vector<Line> ScreenLines(Terminal::Size size) {
    const LiveView& view = paused_ ? *paused_ : view_;
    choices_.sort %= SortNames(view.fleet()).size();  // a server may have become a router
    std::vector<Line> lines;
    const int below = size.lines >= kLeastLines ? 2 : 0;
    if (view.has_frame()) {
      lines = Draw(view, &choices_,
                   {.width = size.columns, .height = std::max(size.lines - below, 1), .blocks = Terminal::ShowsUtf8()});
    }
    if (below == 0) return lines;
    lines.resize(static_cast<size_t>(size.lines - below));
    if (!note_.empty()) {
      lines.push_back({{note_ + "; connecting again", Style::kBad}});
    } else {
      lines.push_back({{paused_ ? "paused" : "", Style::kBold}});
    }
    if (typing_filter_) {
      lines.push_back(
          {{"filter: "}, {choices_.filter, Style::kBold}, {"_   Enter keeps it, Escape removes it", Style::kDim}});
      return lines;
    }
    const std::string_view order = SortNames(view.fleet())[choices_.sort];
    std::string keys = fmt::format("q quit   s sort: {}{}   r reverse   / filter{}   p {}   arrows scroll", order,
                                   choices_.reverse ? ", reversed" : "",
                                   choices_.filter.empty() ? "" : ": " + choices_.filter, paused_ ? "go on" : "pause");
    lines.push_back({{std::move(keys), Style::kDim}});
    return lines;
  }

  void OnKey(Key key, char character) {
    if (key == Key::kNone && character == 26) return terminal_->Suspend();  // Ctrl-Z
    if (typing_filter_) return OnFilterKey(key, character);
    const LiveView& view = paused_ ? *paused_ : view_;
    const size_t orders = SortNames(view.fleet()).size();
    const int64_t page = std::max(drawn_size_.lines / 2, 1);
    switch (key) {
      case Key::kUp:
        return Scroll(-1);
      case Key::kDown:
        return Scroll(1);
      case Key::kPageUp:
        return Scroll(-page);
      case Key::kPageDown:
        return Scroll(page);
      case Key::kHome:
        return Scroll(-kEveryRow);
      case Key::kEnd:
        return Scroll(kEveryRow);
      case Key::kLeft:
        choices_.sort = (choices_.sort + orders - 1) % orders;
        return;
      case Key::kRight:
        choices_.sort = (choices_.sort + 1) % orders;
        return;
      case Key::kEscape:
        choices_.filter.clear();
        return;
      case Key::kOther:
        return;
      case Key::kNone:
        break;
    }
    switch (character) {
      case 'q':
      case 'Q':
      case 4:  // Ctrl-D
        return End(kExitOk);
      case 's':
        choices_.sort = (choices_.sort + 1) % orders;
        return;
      case 'r':
        choices_.reverse = !choices_.reverse;
        return;
      case '/':
        typing_filter_ = true;
        return;
      case 'p':
      case ' ':
        if (paused_) {
          paused_.reset();
        } else {
          paused_ = view_;
        }
        return;
      default:
        return;
    }
  }

  void OnFilterKey(Key key, char character) {
    std::string& filter = choices_.filter;
    if (key == Key::kEscape) filter.clear();
    if (key == Key::kEscape || character == '\n' || character == '\r') {
      typing_filter_ = false;
    } else if (key != Key::kNone) {
      return;
    } else if (character == 0x7f || character == '\b') {
      while (!filter.empty() && (filter.back() & 0xc0) == 0x80) filter.pop_back();  // the rest of a character
      if (!filter.empty()) filter.pop_back();
    } else if (character == 21) {  // Ctrl-U
      filter.clear();
    } else if (static_cast<unsigned char>(character) >= 0x20 && filter.size() < kMostFilterBytes) {
      filter += character;
    }
  }

  void Scroll(int64_t rows) {
    choices_.first_row = std::max<int64_t>(choices_.first_row + rows, 0);  // Draw cuts it at the end
  }

  static constexpr int64_t kEveryRow = LiveView::kMostRows * 64;

  const TopOptions& options_;
  Clock& clock_;
  const bool screen_;
  const std::string path_;
  http::Client client_;
  std::optional<http::Client::CallId> call_;
  LiveView view_;
  std::optional<LiveView> paused_;  // what is shown while the view is held
  ViewChoices choices_;
  std::unique_ptr<Terminal> terminal_;
  Terminal::Size drawn_size_{0, 0};
  std::string typed_, note_, error_;
  TimeNs heard_ns_ = 0, first_frame_ns_ = -1, printed_ns_ = -1, drawn_ns_ = 0;
  DurationNs wait_ns_ = kFirstWaitNs;
  bool connected_ = false, silent_ = false, changed_ = false, ended_ = false;
  bool typing_filter_ = false, half_key_ = false;
  int code_ = kExitOk;
};

void EventHandler::OnEvent(std::string_view data, TimeNs received_ns) {
  top_->OnEvent(data, received_ns);
}
void EventHandler::OnDone(const Status& status, const http::HttpResponse& response, TimeNs) {
  top_->OnDone(status, response);
}

}  // namespace

int TopCommand(const Args& args) {
  TopOptions options;
  CommandLine line("top", "[URL] [options]",
                   "Shows what a server or a router does, as it happens: requests, steps, KV cache, objectives.");
  line.Add(options);
  line.Positional("URL", &options.url, false, "the server or router, http://HOST:PORT; default: http://127.0.0.1:8000");
  line.Epilog(
      "\nOn a terminal: q quits, s and the left and right arrows choose the order of the rows, r reverses it, / "
      "filters "
      "them by name, class or state, p holds the view, the other arrows scroll. In a pipe: a line of figures at every "
      "--interval.\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const auto url = http::ParseUrl(options.url);
  if (!url.ok()) {
    std::fprintf(stderr, "tactus top: %s\n", url.status().message().c_str());
    return kExitUsage;
  }
  if (options.interval.ns < kTickNs) {
    std::fprintf(stderr, "tactus top: --interval %s is too short; give at least 50ms\n",
                 FormatDuration(options.interval.ns).c_str());
    return kExitUsage;
  }
  auto tls = options.tls.Context();
  if (!tls.ok()) {
    std::fprintf(stderr, "tactus top: %s\n", tls.status().message().c_str());
    return kExitUsage;
  }
  CatchTermination();  // the terminal is restored first
  CatchInterrupt(kLastInterrupt);
  return Top(options, *url, std::move(*tls), SystemClock()).Run();
}

}  // namespace tactus::cli
