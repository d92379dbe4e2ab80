// Options of `tactus route`; the first part is shared with everything else that watches a fleet (tactus/option_fields.h
// describes how they become flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "http/serving_options.h"
#include "tactus/option_fields.h"

namespace tactus::fleet {

// Which replicas exist, how they are watched, and which balancer chooses among them.
struct FleetOptions {
  std::vector<std::string> replicas;  // URLs; one string may have several, separated by commas
  std::string replicas_file, replicas_dns;
  std::string balancer = "sal";
  std::string model;  // empty: that of the first replica that reports one
  std::string replica_api_key;
  http::ReplicaTlsOptions tls;
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
    v.Field(
        "replicas", replicas,
        {.help =
             "URLs of replicas, http://host:port or https, separated by commas; may be repeated; more can be added and "
             "removed at run time (POST and DELETE /fleet/replicas)"});
    v.Field("replicas-file", replicas_file,
            {.help = "file with a replica's URL on each line; read again when it changes: replicas of removed lines "
                     "are removed; '#' begins a comment"});
    v.Field("replicas-dns", replicas_dns,
            {.help = "HOST:PORT whose addresses are the replicas, as of a headless Kubernetes service; looked up every "
                     "5 s; https://HOST:PORT for replicas with TLS"});
    v.Field("balancer", balancer,
            {.help = "policy that chooses replicas: round-robin, random, p2c, least-outstanding, prefix-affinity, sal, "
                     "llumnix"});
    v.Field("model", model,
            {.help = "name of the model that replicas must serve; default: that of the first replica that "
                     "reports one"});
    v.Field(
        "replica-api-key", replica_api_key,
        {.help = "key that is sent to the replicas, with polls too; without --api-key, every client of the router can "
                 "use them; without either key, the router passes on the keys of its clients",
         .secret = true});
    tls.VisitFields(v);
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

struct RouterOptions : http::ServingOptions {
  FleetOptions fleet;
  std::string admin_key;
  DurationText rebalance_interval{500'000'000};
  int64_t retries = 2;
  double retry_budget = 0.2;
  DurationText hedge_after{0};
  int64_t max_streams_per_client = 2048;

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
    v.Field("rebalance-interval", rebalance_interval,
            {.unit = "duration",
             .help = "interval of the search for sequences that should move between replicas (--kv-secret-file): away "
                     "from a drained one, and under llumnix from one that is short of memory"});
    ServingOptions::VisitFields(v);
    v.Group("Server");
    v.Field("admin-key", admin_key,
            {.help = "bearer token for /fleet/*; default: none; only this machine may use it", .secret = true});
    v.Field("max-streams-per-client", max_streams_per_client,
            {.unit = "requests",
             .min = 1,
             .max = 1 << 20,
             .help = "most requests in flight of one client (API key, or address without keys); more get 429"});
  }
};

}  // namespace tactus::fleet
