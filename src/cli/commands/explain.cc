// `tactus explain TRACE|RUN ID`: explains the latency of one request of a recording or a run file.
#include <cstdio>

#include <fmt/format.h>

#include "api/explain_text.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/options/option_binding.h"
#include "core/trace/replay.h"
#include "results/report/request_story.h"

namespace tactus::cli {
namespace {

struct ExplainOptions {
  std::string trace, id, output;
  bool json = false;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Output");
    v.Field("json", json, {.help = "print one JSON object, like the answer of GET /v1/requests/{id}/explain"});
    v.Field("output", output, {.alias = "o", .help = "also write the JSON object to this file"});
  }
};

int FailExplain(const Status& status) {
  std::fprintf(stderr, "tactus explain: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

Result<std::vector<RequestTimeline>> Find(const ExplainOptions& options) {
  core::ReplayHooks::Explain explain;
  explain.id = options.id;
  core::ReplayHooks hooks;
  hooks.explain = &explain;
  TACTUS_ASSIGN_OR_RETURN(const core::ReplayReport report, core::ReplayTrace(options.trace, hooks));
  if (!report.identical()) {
    return DataLoss(
        fmt::format("the recording '{}' was made by version {} and replays to a different plan at step {}; use the "
                    "program version that recorded it",
                    options.trace, report.program_version, report.first_difference));
  }
  if (!report.complete) std::fprintf(stderr, "the recording was not closed; its complete part is explained\n");
  if (!explain.found.empty()) return std::move(explain.found);
  const std::string has = explain.requests == 0 ? "it has no requests"
                                                : fmt::format("it has requests 1 to {}, {} of them with an id",
                                                              explain.requests, explain.with_id);
  return NotFound(fmt::format("no request '{}' in '{}': {}; give a number or an X-Request-Id",
                              Printable(options.id.substr(0, 256)), options.trace, has));
}

// The explanation as JSON and as text.
struct Explained {
  std::string json, table;
};
Result<Explained> Explain(const ExplainOptions& options) {
  if (results::IsArchive(options.trace)) {
    TACTUS_ASSIGN_OR_RETURN(const auto story, results::RequestStory(options.trace, options.id));
    return Explained{story.dump(-1, ' ', false, Json::error_handler_t::replace), results::StoryTable(story)};
  }
  TACTUS_ASSIGN_OR_RETURN(const auto found, Find(options));
  return Explained{api::ExplainText(found), api::ExplainTable(found)};
}

}  // namespace

int ExplainCommand(const Args& args) {
  ExplainOptions options;
  CommandLine line("explain", "TRACE|RUN ID [options]",
                   "Explains a recorded request's latency: what it waited for and computed, from arrival to end.");
  line.Add(options);
  line.Positional("TRACE", &options.trace, true,
                  "a recording (--trace-out of serve or sim), or a run file (--run-out)");
  line.Positional("ID", &options.id, true,
                  "the request's number in the recording (counted from 1) or in the run file, or its X-Request-Id");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (!options.output.empty()) {
    if (const Status writable = CheckWritable(options.output, "output"); !writable.ok()) return FailExplain(writable);
  }
  const auto explained = Explain(options);
  if (!explained.ok()) return FailExplain(explained.status());
  const std::string json = explained->json + "\n";
  std::printf("%s", options.json ? json.c_str() : explained->table.c_str());
  if (options.output.empty()) return kExitOk;
  const Status written = ReplaceFile(options.output, json, "output");
  return written.ok() ? kExitOk : FailExplain(written);
}

}  // namespace tactus::cli
