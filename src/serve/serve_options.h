// Options of `tactus serve` beyond the engine's (tactus/option_fields.h turns them into flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/body_limits.h"
#include "http/serving_options.h"
#include "tactus/option_fields.h"

namespace tactus {

struct ServeOptions : http::ServingOptions {
  std::vector<std::string> api_key_class;
  int64_t max_streams_per_client = 0;  // 0: three quarters of --max-queue
  bool share_prefix_cache = false;
  DurationText migration_timeout{10'000'000'000};
  DurationText ticket_timeout{60'000'000'000};
  std::string hand_over_to;  // empty: no hand-over
  http::ReplicaTlsOptions replica_tls;
  double step_watchdog = 100;  // 0: none
  DurationText step_watchdog_least{30'000'000'000};
  bool step_watchdog_exit = false;
  int64_t max_choices = 128;
  bool strict_fields = false;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  DurationText ping_interval{15'000'000'000};
  int64_t http_workers = 2;
  std::string files_dir;  // empty: no files and batches
  BytesText max_file_size{int64_t{4} << 30};
  BytesText files_quota{int64_t{64} << 30};
  int64_t max_batches = 4;
  int64_t max_batch_lines = 1'000'000;
  double batch_share = 0.5;

  static constexpr int64_t kMostBatchLineBytes = int64_t{4} << 20, kBatchPlannerBytes = int64_t{64} << 20;

  // The most memory of requests outside the engine: bodies not parsed yet, the parse results of the largest (values,
  // template, tokens), and buffers of streams; in a fleet, bodies kept for a move; for each batch its plan, a parsed
  // line, and unwritten results.
  int64_t FrontEndBytes() const {
    constexpr int64_t kStreamBytes = int64_t{64} << 20, kResultBytes = int64_t{64} << 20;
    constexpr int64_t kParsedPerByte = 12;
    constexpr int64_t kBatchBytes = kBatchPlannerBytes + kParsedPerByte * kMostBatchLineBytes + kResultBytes;
    const int64_t batches = files_dir.empty() ? 0 : max_batches * kBatchBytes;
    const int64_t kept = kv_secret_file.empty() ? 0 : BodyLimits::kMostKeptBytes;
    return max_body_total.bytes + http_workers * kParsedPerByte * max_body.bytes + kStreamBytes + kept + batches;
  }

  BodyLimits Bodies() const { return {max_body.bytes, max_body_total.bytes, BodyLimits::kMostKeptBytes}; }
  // The limits of bodies if the memory plan leaves `front_end_bytes` for all that; 0: the plan states no limit.
  BodyLimits BodiesWithin(int64_t front_end_bytes) const { return Bodies().Within(FrontEndBytes(), front_end_bytes); }

  template <class V>
  void VisitFields(V& v) {
    ServingOptions::VisitFields(v);
    v.Group("Server");
    v.Field("api-key-class", api_key_class,
            {.help = "class (--slo-class) of a key's requests that state neither class nor objectives; one for each "
                     "--api-key, in their order; none: no class"});
    v.Field(
        "max-streams-per-client", max_streams_per_client,
        {.unit = "sequences",
         .min = 0,
         .max = 1 << 20,
         .help = "most sequences (prompts times n) of one client (API key, or address without keys); more get 429; 0: "
                 "three quarters of --max-queue"});
    v.Field("share-prefix-cache", share_prefix_cache,
            {.help = "with several API keys: requests of one key may reuse cached prompt prefixes of another"});
    v.Field("max-choices", max_choices, {.min = 1, .max = 1024, .help = "largest n of a request"});
    v.Field("strict-fields", strict_fields,
            {.help = "a request with an unknown field gets 400; else the field is ignored, and the answer's "
                     "header x-tactus-ignored names it"});
    v.Field("tool-call-parser", tool_call_parser,
            {.help = "format of the model's tool calls (docs/reference/api.md lists them); auto: as its chat template "
                     "writes calls; none: calls stay text"});
    v.Field("reasoning-parser", reasoning_parser,
            {.help = "format of the model's reasoning (docs/reference/api.md lists them); auto: by the markers of its "
                     "chat template; none: reasoning stays text"});
    v.Field("ping-interval", ping_interval,
            {.unit = "duration", .help = "time between comment lines to a stream whose request is still queued"});
    v.Field(
        "http-workers", http_workers,
        {.unit = "threads", .min = 1, .max = 64, .help = "threads that parse requests, render templates and tokenise"});
    v.Group("Fleet");
    v.Field("migration-timeout", migration_timeout,
            {.unit = "duration", .help = "longest silence of another replica while a sequence moves"});
    v.Field("ticket-timeout", ticket_timeout,
            {.unit = "duration",
             .help = "longest time that a moved stream waits for its router, which fetches it after its client has "
                     "received all earlier bytes"});
    v.Field("hand-over-to", hand_over_to,
            {.help = "URL of a replica to which requests move after their first token: this one computes "
                     "prompts, that one generates answers; default: none"});
    replica_tls.VisitFields(v);
    v.Group("Server");
    v.Field(
        "step-watchdog", step_watchdog,
        {.min = 0,
         .max = 1e6,
         .help = "a step without a result for this many times its predicted time is stuck: /health fails, and the log "
                 "has the last steps; 0: never"});
    v.Field("step-watchdog-least", step_watchdog_least,
            {.unit = "duration", .help = "shortest time after which a step is stuck (--step-watchdog)"});
    v.Field("step-watchdog-exit", step_watchdog_exit,
            {.help = "end the process with status 1 when a step is stuck, so that it is started again"});
    v.Group("Files and batches");
    v.Field("files-dir", files_dir,
            {.help = "folder that keeps uploaded files and batches (/v1/files, /v1/batches); a server that starts with "
                     "the same folder continues them; default: none, and no such routes"});
    v.Field("max-file-size", max_file_size, {.unit = "bytes", .help = "largest file; a larger one gets 413"});
    v.Field("files-quota", files_quota,
            {.unit = "bytes", .help = "total size of files; with several API keys each may use half of it"});
    v.Field("max-batches", max_batches,
            {.unit = "batches", .min = 1, .max = 1024, .help = "batches that run at the same time; others wait"});
    v.Field("max-batch-lines", max_batch_lines,
            {.unit = "lines", .min = 1, .max = 1'000'000'000, .help = "most lines of a batch; a longer batch fails"});
    v.Field(
        "batch-share", batch_share,
        {.min = 0.001,
         .max = 1,
         .help = "share of --max-num-seqs and of the KV memory that batches may use; the rest is for other requests"});
  }
};

}  // namespace tactus
