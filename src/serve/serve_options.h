// Options of `tactus serve` beyond the engine's (tactus/option_fields.h turns them into flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/body_limits.h"
#include "tactus/option_fields.h"

namespace tactus {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free port, printed at start
  std::vector<std::string> api_key, api_key_class;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  int64_t max_connections = 4096;
  int64_t max_connections_per_client = 0;  // 0: half of max_connections
  int64_t max_streams_per_client = 0;      // 0: three quarters of --max-queue
  bool share_prefix_cache = false;
  std::string kv_secret_file;  // empty: no fleet
  DurationText migration_timeout{10'000'000'000};
  DurationText ticket_timeout{60'000'000'000};
  std::string hand_over_to;  // empty: no hand-over
  BytesText max_body{int64_t{16} << 20};
  // Room for 16 of the largest bodies, or 1,000 of 256 KiB (prompts of 60,000 tokens), not parsed yet.
  BytesText max_body_total{int64_t{256} << 20};
  int64_t max_choices = 128;
  bool strict_fields = false;
  bool verbose = false;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  DurationText request_timeout{600'000'000'000};
  DurationText shutdown_timeout{30'000'000'000};
  DurationText read_timeout{60'000'000'000};
  DurationText write_timeout{30'000'000'000};
  DurationText idle_timeout{75'000'000'000};
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
    v.Group("Server");
    v.Field("host", host, {.help = "address to listen on"});
    v.Field("port", port, {.min = 0, .max = 65535, .help = "port to listen on; 0: any free port"});
    v.Field(
        "verbose", verbose,
        {.help = "print start-up details on standard error: model, memory plan, scheduler, step times; else one line"});
    v.Field("api-key", api_key,
            {.help = "key that clients must send as a bearer token; may be repeated", .secret = true});
    v.Field("api-key-class", api_key_class,
            {.help = "class (--slo-class) of a key's requests that state neither class nor objectives; one for each "
                     "--api-key, in their order; none: no class"});
    v.Field("allowed-origins", allowed_origins,
            {.help = "web origin that browsers may call from, or *; may be repeated"});
    v.Field("allowed-hosts", allowed_hosts,
            {.help = "host name that clients may call this server by, or *; may be repeated; default: loopback names "
                     "when it listens there, else *"});
    v.Field("max-connections", max_connections,
            {.unit = "connections", .min = 1, .max = 1 << 20, .help = "most open connections; further ones get 503"});
    v.Field("max-connections-per-client", max_connections_per_client,
            {.unit = "connections",
             .min = 0,
             .max = 1 << 20,
             .help = "most connections of one client address; further ones get 503; 0: half of --max-connections"});
    v.Field(
        "max-streams-per-client", max_streams_per_client,
        {.unit = "sequences",
         .min = 0,
         .max = 1 << 20,
         .help = "most sequences (prompts times n) of one client (API key, or address without keys); more get 429; 0: "
                 "three quarters of --max-queue"});
    v.Field("share-prefix-cache", share_prefix_cache,
            {.help = "with several API keys: requests of one key may reuse cached prompt prefixes of another"});
    v.Field("max-body", max_body, {.unit = "bytes", .help = "largest request body; a larger one gets 413"});
    v.Field("max-body-total", max_body_total,
            {.unit = "bytes", .help = "total size of bodies that have arrived and are not parsed yet; more get 503"});
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
    v.Field("request-timeout", request_timeout,
            {.unit = "duration", .help = "longest time that a request may take; then it is cancelled"});
    v.Field("shutdown-timeout", shutdown_timeout,
            {.unit = "duration", .help = "time for running requests to finish after SIGTERM"});
    v.Field("read-timeout", read_timeout,
            {.unit = "duration",
             .help = "longest time that a client may take to send a request's body; headers have at most 15 s"});
    v.Field("write-timeout", write_timeout,
            {.unit = "duration", .help = "a client that accepts no bytes for this time counts as gone"});
    v.Field("idle-timeout", idle_timeout,
            {.unit = "duration", .help = "time that a connection stays open between requests"});
    v.Field("ping-interval", ping_interval,
            {.unit = "duration", .help = "time between comment lines to a stream whose request is still queued"});
    v.Field(
        "http-workers", http_workers,
        {.unit = "threads", .min = 1, .max = 64, .help = "threads that parse requests, render templates and tokenise"});
    v.Group("Fleet");
    v.Field("kv-secret-file", kv_secret_file,
            {.help = "file with the secret that all replicas and routers of a fleet share, 16 bytes or more, which no "
                     "other user may read: enables comparing prefixes and moving sequences between replicas; "
                     "default: none"});
    v.Field("migration-timeout", migration_timeout,
            {.unit = "duration", .help = "longest silence of another replica while a sequence moves"});
    v.Field("ticket-timeout", ticket_timeout,
            {.unit = "duration",
             .help = "longest time that a moved stream waits for its router, which fetches it after its client has "
                     "received all earlier bytes"});
    v.Field("hand-over-to", hand_over_to,
            {.help = "URL of a replica to which requests move after their first token: this one computes "
                     "prompts, that one generates answers; default: none"});
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
