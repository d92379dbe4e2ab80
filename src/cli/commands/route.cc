// `tactus route`: parses options and runs fleet/router/router_server.h. `tactus route list|add|remove|drain|undrain`
// sends a request to a running router.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/one_line.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/options/changed_options.h"
#include "cli/options/option_binding.h"
#include "cli/options/program.h"
#include "cli/options/run_out.h"
#include "fleet/balance/balancer.h"
#include "fleet/router/router_server.h"
#include "http/client.h"
#include "http/server_log.h"

namespace tactus::cli {
namespace {

constexpr DurationNs kAskNs = 30 * kSecond;

struct Action {
  const char* name;
  const char* method;
  const char* path;
  const char* about;
};

constexpr std::array kActions = {
    Action{"list", "GET", "/fleet/replicas", "Lists a router's replicas."},
    Action{"add", "POST", "/fleet/replicas", "Adds a replica."},
    Action{"remove", "DELETE", "/fleet/replicas", "Removes a replica."},
    Action{"drain", "POST", "/fleet/drain", "Stops sending requests to a replica."},
    Action{"undrain", "POST", "/fleet/undrain", "Resumes sending requests to a drained replica."},
};

struct AskOptions {
  std::string router = "http://127.0.0.1:8000", admin_key, url;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Router");
    v.Field("router", router,
            {.help = "where `tactus route` listens; the authorities for https are those of the system, or the file in "
                     "SSL_CERT_FILE"});
    v.Field("admin-key", admin_key, {.help = "its --admin-key", .secret = true});
  }
};

// False if the answer is not from a router.
bool PrintFleet(const Json& fleet) {
  const auto replicas = fleet.find("replicas");
  if (replicas == fleet.end() || !replicas->is_array()) return false;
  if (!std::all_of(replicas->begin(), replicas->end(),
                   [](const auto& r) { return !json_text::TextOf(r, "url").empty(); }))
    return false;
  std::printf("%-32s %-12s %-8s %9s %8s %8s %8s\n", "replica", "state", "kind", "in flight", "requests", "failures",
              "waiting");
  const auto text = [](const Json& r, const char* name) { return Printable(json_text::TextOf(r, name)); };
  const auto number = [](const Json& r, const char* name) {
    const auto found = r.find(name);
    const bool count = found != r.end() && found->is_number_integer() && *found >= 0;
    return count ? found->get<long long>() : 0LL;
  };
  for (const auto& r : *replicas) {
    const std::string why = text(r, "why");
    std::printf("%-32s %-12s %-8s %9lld %8lld %8lld %8lld%s%s\n", text(r, "url").c_str(), text(r, "state").c_str(),
                text(r, "kind").c_str(), number(r, "in_flight"), number(r, "requests"), number(r, "failures"),
                number(r, "waiting"), why.empty() ? "" : "  ", why.c_str());
  }
  return true;
}

int FailAction(const Action& action, const std::string& message) {
  std::fprintf(stderr, "tactus route %s: %s\n", action.name, message.c_str());
  return kExitFailed;
}

int Ask(const Action& action, const Args& args) {
  BeginCommand("route");  // a client command; serves nothing
  AskOptions options;
  const bool list = std::string_view(action.name) == "list";
  CommandLine line(std::string("route ") + action.name, list ? "[options]" : "URL [options]", action.about);
  line.Add(options);
  if (!list) line.Positional("URL", &options.url, true, "the replica, http://host:port");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const auto router = http::ParseUrl(options.router);
  if (!router.ok()) {
    std::fprintf(stderr, "tactus route %s: --router: %s\n", action.name, router.status().message().c_str());
    return kExitUsage;
  }
  http::ClientRequest request{action.method, action.path, {}, ""};
  if (!options.admin_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + options.admin_key);
  if (!list) {
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = "{\"url\":";
    json_text::AppendJsonString(&request.body, options.url);
    request.body += "}";
  }
  const auto answer = http::Fetch(*router, std::move(request), kAskNs, SystemClock());
  if (!answer.ok()) return FailAction(action, fmt::format("{}: {}", options.router, answer.status().message()));
  const auto parsed = json_text::ParseJson(answer->body);
  if (!parsed.ok() || !parsed->is_object())
    return FailAction(action, options.router + " is not a router: its answer is not a JSON object");
  if (answer->status != 200) {
    const auto error = parsed->find("error");
    const std::string message = error != parsed->end() ? json_text::TextOf(*error, "message") : std::string();
    return FailAction(
        action, message.empty() ? fmt::format("{} answered: {}", options.router, answer->status) : OneLine(message));
  }
  if (!PrintFleet(*parsed))
    return FailAction(action, options.router + " is not a router: its answer lists no replicas");
  return kExitOk;
}

struct RouteOptions {
  fleet::RouterOptions router;
  RunOut run_out;

  template <class V>
  void VisitFields(V& v) {
    router.VisitFields(v);
    v.Group("Output");
    run_out.VisitFields(v);
  }
};

std::string BalancerHelp() {
  std::string text = "\nBalancers (--balancer):\n";
  for (const fleet::BalancerInfo& b : fleet::Balancers()) text += fmt::format("  {:18} {}\n", b.name, b.help);
  text += "\nCommands to a running router (tactus route NAME --help):\n";
  for (const Action& action : kActions) text += fmt::format("  {:18} {}\n", action.name, action.about);
  return text;
}

CommandLine RouteLine(RouteOptions* options) {
  CommandLine line("route", "--replicas URL,... [options]",
                   "Balances requests over replicas of a model by their reported queues and memory.");
  line.Add(*options);
  return line;
}

// The options of a reload, from the arguments of the command.
Result<http::ProcessParts::Reread> Reread(const Args& args, const std::string& before) {
  RouteOptions fresh;
  CommandLine line = RouteLine(&fresh);
  TACTUS_RETURN_IF_ERROR(line.Read(args));
  TACTUS_ASSIGN_OR_RETURN(const std::string after, line.ConfigText());
  http::ProcessParts::Reread reread;
  reread.api_key = fresh.router.api_key;
  reread.admin_key = fresh.router.admin_key;
  reread.restart = ChangedOptions(before, after, {});
  return reread;
}

}  // namespace

int RouteCommand(const Args& args) {
  for (const Action& action : kActions) {
    if (!args.empty() && args[0] == action.name) return Ask(action, Args(args.begin() + 1, args.end()));
  }
  RouteOptions options;
  CommandLine line = RouteLine(&options);
  line.Epilog(BalancerHelp());
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  Status status = fleet::RouterServer::Check(options.router);
  auto file = status.ok() ? OpenRunFile(options.run_out, line, results::RunFileWriter::WhenBehind::kGiveUp)
                          : Result<std::unique_ptr<results::RunFileWriter>>(status);
  status = file.status();
  const auto before = line.ConfigText();
  if (status.ok()) status = before.status();
  std::unique_ptr<http::ServerLog> log;
  if (status.ok()) {
    auto opened = http::ServerLog::Open(options.router.log);
    status = opened.status();
    if (opened.ok()) log = std::move(*opened);
  }
  if (status.ok()) {
    options.router.verbose = options.router.verbose || log->shows(http::LogLevel::kDebug);
    std::optional<fleet::RouteRecorder> recorder;
    if (*file != nullptr) recorder.emplace(std::move(*file), SystemClock().NowNs());
    status = fleet::RunRouter(options.router, [&](std::string_view text) { log->Line(text); },
                              recorder ? &*recorder : nullptr,
                              {.log = log.get(), .reread = [&] { return Reread(args, *before); }});
    if (status.ok() && recorder) status = recorder->Close();
    if (!status.ok() && log->to_file()) log->Write(http::LogLevel::kError, status.message());
  }
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "tactus route: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
