// Options of `tactus route`; the first part is shared with everything else that watches a fleet (tactus/option_fields.h
// describes how they become flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/body_limits.h"
#include "tactus/option_fields.h"

namespace tactus::fleet {

// Which replicas exist, how they are watched, and which balancer chooses among them.
struct FleetOptions {
  std::vector<std::string> replicas;  // URLs; one string may have several, separated by commas
  std::string replicas_file, replicas_dns;
  std::string balancer = "sal";
  std::string model;  // empty: that of the first replica that reports one
  std::string replica_api_key;
  int64_t seed = 1;
  DurationText poll_interval{100'000'000};
  DurationText poll_timeout{1'000'000'000};
  DurationText dead_after{10'000'000'000};
  DurationText slow_start{10'000'000'000};
  int64_t eject_after = 5;
  DurationText eject_time{10'000'000'000};

  template <class V>
  void VisitFields(V& v) {
    v.Group("Fleet");
    v.Field("replicas", replicas,
            {.help = "URLs of replicas, http://host:port, separated by commas; may be repeated; more can be added and "
                     "removed at run time (POST and DELETE /fleet/replicas)"});
    v.Field("replicas-file", replicas_file,
            {.help = "file with a replica's URL on each line; read again when it changes: replicas of removed lines "
                     "are removed; '#' begins a comment"});
    v.Field("replicas-dns", replicas_dns,
            {.help = "HOST:PORT whose addresses are the replicas, as of a headless Kubernetes service; looked up every "
                     "5 s"});
    v.Field("balancer", balancer,
            {.help = "policy that chooses replicas: round-robin, random, p2c, least-outstanding, prefix-affinity, sal, "
                     "llumnix"});
    v.Field("model", model,
            {.help = "name of the model that replicas must serve; default: that of the first replica that "
                     "reports one"});
    v.Field(
        "replica-api-key", replica_api_key,
        {.help = "key that is sent to the replicas, with polls too; without --api-key, every client of the router can "
                 "use them",
         .secret = true});
    v.Field("seed", seed, {.min = 0, .help = "seed of randomized balancers"});
    v.Field("poll-interval", poll_interval,
            {.unit = "duration", .help = "interval of polls of a replica's queue, memory and health"});
    v.Field("poll-timeout", poll_timeout, {.unit = "duration", .help = "longest time of a poll"});
    v.Field("dead-after", dead_after,
            {.unit = "duration",
             .help = "a replica without a response for this time has lost its requests: those without any output are "
                     "retried elsewhere, the others end with an error"});
    v.Field("slow-start", slow_start,
            {.unit = "duration", .help = "time in which a replica that becomes ready reaches its share of requests"});
    v.Field("eject-after", eject_after,
            {.min = 0,
             .max = 1000,
             .help = "consecutive failed requests after which a replica receives none for --eject-time, twice that the "
                     "next time, and so on; at most half of the replicas; 0: never"});
    v.Field("eject-time", eject_time, {.unit = "duration", .help = "time without requests (--eject-after)"});
  }
};

inline constexpr int64_t kFilesPerConnection = 2;  // the client's, and one to a replica

struct RouterOptions {
  FleetOptions fleet;
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free port, printed at start
  std::vector<std::string> api_key, allowed_origins, allowed_hosts;
  std::string admin_key, kv_secret_file;
  bool verbose = false;
  DurationText rebalance_interval{500'000'000};
  int64_t retries = 2;
  double retry_budget = 0.2;
  DurationText hedge_after{0};
  int64_t max_connections = 4096, max_connections_per_client = 0, max_streams_per_client = 2048;
  BytesText max_body{int64_t{16} << 20}, max_body_total{int64_t{256} << 20};
  DurationText request_timeout{600'000'000'000}, shutdown_timeout{30'000'000'000};
  DurationText read_timeout{60'000'000'000}, write_timeout{30'000'000'000}, idle_timeout{75'000'000'000};

  BodyLimits Bodies() const { return {max_body.bytes, max_body_total.bytes}; }
  // Memory limit of requests: bodies that are stored or being sent, the parsed values of the largest, and buffers of
  // streams.
  int64_t RequestBytes() const {
    constexpr int64_t kValuesPerByte = 12, kStreamBytes = int64_t{64} << 20;
    return 2 * max_body_total.bytes + kValuesPerByte * max_body.bytes + kStreamBytes;
  }

  template <class V>
  void VisitFields(V& v) {
    fleet.VisitFields(v);
    v.Group("Requests");
    v.Field(
        "retries", retries,
        {.min = 0,
         .max = 16,
         .help = "most further replicas that a request is sent to when one fails before any output, or returns that "
                 "it is full"});
    v.Field(
        "retry-budget", retry_budget,
        {.min = 0,
         .max = 1,
         .help =
             "most refused requests that are being retried at once, as a share of those in flight (three are always "
             "allowed), so that retries do not overload a fleet in trouble; requests that a replica has lost are "
             "always retried"});
    v.Field(
        "hedge-after", hedge_after,
        {.unit = "duration",
         .help = "send a request to a second replica when the first has not answered for this time, and use the first "
                 "answer; 0: never"});
    v.Field("request-timeout", request_timeout, {.unit = "duration", .help = "longest time that a request may take"});
    v.Field("kv-secret-file", kv_secret_file,
            {.help = "the fleet's secret, also known to its replicas: sequences then move between them, away from a "
                     "drained one, and under llumnix from one that is short of memory; default: none; none moves"});
    v.Field("rebalance-interval", rebalance_interval,
            {.unit = "duration", .help = "interval of the search for sequences that should move"});
    v.Group("Server");
    v.Field("host", host, {.help = "address to listen on"});
    v.Field("port", port, {.min = 0, .max = 65535, .help = "port to listen on; 0: any free port"});
    v.Field("verbose", verbose,
            {.help = "log each replica that becomes ready during the start to standard error; else one line, and "
                     "warnings"});
    v.Field("api-key", api_key,
            {.help = "key that clients must send as a bearer token; may be repeated; without it, keys of clients are "
                     "passed to the replicas",
             .secret = true});
    v.Field("admin-key", admin_key,
            {.help = "bearer token for /fleet/*; default: none; only this machine may use it", .secret = true});
    v.Field("allowed-origins", allowed_origins,
            {.help = "web origin that browsers may call from, or *; may be repeated"});
    v.Field(
        "allowed-hosts", allowed_hosts,
        {.help = "host name that clients may call this server by, or *; may be repeated; default: loopback names when "
                 "it listens there, else *"});
    v.Field("max-connections", max_connections,
            {.unit = "connections", .min = 1, .max = 1 << 20, .help = "most open connections; further ones get 503"});
    v.Field("max-connections-per-client", max_connections_per_client,
            {.unit = "connections",
             .min = 0,
             .max = 1 << 20,
             .help = "most connections of one client address; further ones get 503; 0: half of --max-connections"});
    v.Field("max-streams-per-client", max_streams_per_client,
            {.unit = "requests",
             .min = 1,
             .max = 1 << 20,
             .help = "most requests in flight of one client (API key, or address without keys); more get 429"});
    v.Field("max-body", max_body, {.unit = "bytes", .help = "largest request body; a larger one gets 413"});
    v.Field("max-body-total", max_body_total,
            {.unit = "bytes", .help = "total size of bodies of unanswered requests; more get 503"});
    v.Field("shutdown-timeout", shutdown_timeout,
            {.unit = "duration", .help = "time for running requests to finish after SIGTERM"});
    v.Field("read-timeout", read_timeout,
            {.unit = "duration",
             .help = "longest time that a client may take to send a request's body; headers have at most 15 s"});
    v.Field("write-timeout", write_timeout,
            {.unit = "duration", .help = "a client that accepts no bytes for this time counts as gone"});
    v.Field("idle-timeout", idle_timeout,
            {.unit = "duration", .help = "time that a connection stays open between requests"});
  }
};

}  // namespace tactus::fleet
