// `tactus epp`: parses options and runs fleet/picker/run_epp.h.
#include <cstdio>
#include <string>

#include "cli/commands/commands.h"
#include "cli/options/option_binding.h"
#include "fleet/balance/balancer.h"
#include "fleet/picker/run_epp.h"
#include "http/server_log.h"

namespace tactus::cli {
namespace {

std::string BalancerHelp() {
  std::string text = "\nBalancers (--balancer):\n";
  for (const fleet::BalancerInfo& info : fleet::Balancers()) {
    char line[256];
    std::snprintf(line, sizeof line, "  %-18s %s\n", info.name, info.help);
    text += line;
  }
  return text;
}

}  // namespace

int EppCommand(const Args& args) {
  fleet::EppOptions options;
  CommandLine line("epp", "--replicas URL,... [options]",
                   "Picks replicas for a data plane such as Envoy (external processing over gRPC).");
  line.Add(options);
  line.Epilog(BalancerHelp());
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  auto log = http::ServerLog::Open(options.log);
  const Status status =
      log.ok() ? fleet::RunEpp(options, [&](std::string_view text) { (*log)->Line(text); }, log->get()) : log.status();
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "tactus epp: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
