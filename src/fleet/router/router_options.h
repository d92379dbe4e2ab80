// Options of `tactus route` and, the first part, of whatever else watches a fleet (tactus/option_fields.h says how they
// become flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/body_limits.h"
#include "tactus/option_fields.h"

namespace tactus::fleet {

// Which replicas there are, how they are watched, and who chooses among them.
struct FleetOptions {
  std::vector<std::string> replicas;  // URLs, several in one separated by commas
  std::string replicas_file, replicas_dns;
  std::string balancer = "sal";
  std::string model;  // empty: that of the first replica that answers
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
            {.help = "URLs of replicas, http://host:port, separated by commas; may be repeated; more can come and go "
                     "while it runs (POST and DELETE /fleet/replicas)"});
    v.Field("replicas-file", replicas_file,
            {.help = "file with a replica's URL on each line; read again when it changes, lines that go are replicas "
                     "that go; '#' begins a comment"});
    v.Field(
        "replicas-dns", replicas_dns,
        {.help = "HOST:PORT whose addresses are the replicas, as of a headless Kubernetes service; asked again every "
                 "5 s"});
    v.Field(
        "balancer", balancer,
        {.help = "who takes a request: round-robin, random, p2c, least-outstanding, prefix-affinity, sal, llumnix"});
    v.Field("model", model,
            {.help = "name of the model that replicas must serve; default: the first one's that answers"});
    v.Field(
        "replica-api-key", replica_api_key,
        {.help = "key that is sent to the replicas, with what they are asked too; without --api-key it opens them to "
                 "everybody who reaches the router",
         .secret = true});
    v.Field("seed", seed, {.min = 0, .help = "seed of balancers that draw"});
    v.Field("poll-interval", poll_interval,
            {.unit = "duration", .help = "how often a replica is asked how it is: its queue, its memory, its health"});
    v.Field("poll-timeout", poll_timeout, {.unit = "duration", .help = "how long it may take to say so"});
    v.Field(
        "dead-after", dead_after,
        {.unit = "duration",
         .help = "a replica that has not been heard of for so long has lost its requests: those of which nothing was "
                 "told yet go to another, the others end with an error"});
    v.Field(
        "slow-start", slow_start,
        {.unit = "duration", .help = "over which a replica that has become ready gets up to its share of requests"});
    v.Field(
        "eject-after", eject_after,
        {.min = 0,
         .max = 1000,
         .help = "requests in a row that must fail at a replica for it to get none for --eject-time, twice that the "
                 "next time, and so on; at most half of the replicas; 0: never"});
    v.Field("eject-time", eject_time, {.unit = "duration", .help = "see --eject-after"});
  }
};

inline constexpr int64_t kFilesPerConnection = 2;  // its own, and one to a replica

struct RouterOptions {
  FleetOptions fleet;
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free one, printed at start
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
  // What requests may take: bodies that are held and what of them is being sent, the values of the largest while it is
  // read, and the buffers of streams.
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
         .help = "how many more replicas a request may go to when one fails before anything of the answer was told, or "
                 "says that it is full"});
    v.Field(
        "retry-budget", retry_budget,
        {.min = 0,
         .max = 1,
         .help =
             "most requests at once that are sent again because a replica would not take them, as a share of those "
             "in flight (three are always allowed), so that a fleet in trouble does not get more work for it; those "
             "that a replica has lost are always sent again"});
    v.Field(
        "hedge-after", hedge_after,
        {.unit = "duration",
         .help = "send a request to a second replica when the first has not answered for so long, and take who comes "
                 "first; 0: never"});
    v.Field("request-timeout", request_timeout, {.unit = "duration", .help = "longest time that a request may take"});
    v.Field(
        "kv-secret-file", kv_secret_file,
        {.help = "the fleet's secret, as its replicas have it: with it sequences move between them, away from one that "
                 "is drained, and under llumnix from one that is short of memory; default: none, and none moves"});
    v.Field("rebalance-interval", rebalance_interval,
            {.unit = "duration", .help = "how often the router looks who should move"});
    v.Group("Server");
    v.Field("host", host, {.help = "address to listen on"});
    v.Field("port", port, {.min = 0, .max = 65535, .help = "port to listen on; 0: any free one"});
    v.Field("verbose", verbose,
            {.help = "show each replica that is found ready while it starts on standard error; else one line, and "
                     "warnings"});
    v.Field(
        "api-key", api_key,
        {.help = "key that clients must send as a bearer token; may be repeated; without one what clients send goes "
                 "to the replicas",
         .secret = true});
    v.Field("admin-key", admin_key,
            {.help = "bearer token for /fleet/*; default: none, and only this machine may use it", .secret = true});
    v.Field("allowed-origins", allowed_origins,
            {.help = "web origin that browsers may call from, or *; may be repeated"});
    v.Field(
        "allowed-hosts", allowed_hosts,
        {.help = "host name that clients may call this server by, or *; may be repeated; default: loopback names when "
                 "it listens there, else *"});
    v.Field("max-connections", max_connections,
            {.unit = "connections", .min = 1, .max = 1 << 20, .help = "most open connections; one more gets 503"});
    v.Field("max-connections-per-client", max_connections_per_client,
            {.unit = "connections",
             .min = 0,
             .max = 1 << 20,
             .help = "most connections of one client address; one more gets 503; 0: half of --max-connections"});
    v.Field("max-streams-per-client", max_streams_per_client,
            {.unit = "requests",
             .min = 1,
             .max = 1 << 20,
             .help = "most requests in flight of one client, an API key or else an address; more get 429"});
    v.Field("max-body", max_body, {.unit = "bytes", .help = "largest request body; a larger one gets 413"});
    v.Field("max-body-total", max_body_total,
            {.unit = "bytes", .help = "all bodies together of requests that are not answered yet; more get 503"});
    v.Field("shutdown-timeout", shutdown_timeout,
            {.unit = "duration", .help = "how long requests may finish after SIGTERM"});
    v.Field("read-timeout", read_timeout,
            {.unit = "duration",
             .help = "longest time that a client may take to send a request's body; headers have at most 15 s"});
    v.Field("write-timeout", write_timeout,
            {.unit = "duration", .help = "a client that takes no bytes for so long counts as gone"});
    v.Field("idle-timeout", idle_timeout,
            {.unit = "duration", .help = "how long a connection stays open between requests"});
  }
};

}  // namespace tactus::fleet
