#include "http/serving_options.h"

#include <gtest/gtest.h>

#include <set>

namespace tactus::http {
namespace {

TEST(ServingOptionsTest, CheckNamesTheWrongOption) {
  EXPECT_TRUE(CheckServingOptions({}).ok());
  const auto param = [](void (*spoil)(ServingOptions*)) {
    ServingOptions options;
    spoil(&options);
    return CheckServingOptions(options).param();
  };
  EXPECT_EQ(param([](ServingOptions* o) { o->host.clear(); }), "host");
  EXPECT_EQ(param([](ServingOptions* o) { o->api_key = {""}; }), "api-key");
  EXPECT_EQ(param([](ServingOptions* o) { o->allowed_hosts = {"a b"}; }), "allowed-hosts");
  EXPECT_EQ(param([](ServingOptions* o) { o->max_body_total.bytes = o->max_body.bytes - 1; }), "max-body-total");
  EXPECT_EQ(param([](ServingOptions* o) { o->kv_secret_file = "/nonexistent"; }), "kv-secret-file");
}

TEST(ServingOptionsTest, ServerOptionsHaveEveryLimit) {
  ServingOptions options;
  options.host = "::1";
  options.port = 1;
  options.max_connections = 2;
  options.max_connections_per_client = 3;
  options.max_body.bytes = 4;
  options.max_body_total.bytes = 5;
  options.read_timeout.ns = 6 * kSecond;
  options.write_timeout.ns = 7 * kSecond;
  options.idle_timeout.ns = 8 * kSecond;
  const ServerOptions server = ServerOptionsOf(options, 9);
  EXPECT_EQ(server.host, "::1");
  EXPECT_EQ(server.port, 1);
  EXPECT_EQ(server.max_connections, 2);
  EXPECT_EQ(server.max_connections_per_client, 3);
  EXPECT_EQ(server.max_body_bytes, 4);
  EXPECT_EQ(server.max_body_total_bytes, 5);
  EXPECT_EQ(server.body_timeout_ns, 6 * kSecond);
  EXPECT_EQ(server.header_timeout_ns, 6 * kSecond) << "a head has no more time than a body";
  EXPECT_EQ(server.write_timeout_ns, 7 * kSecond);
  EXPECT_EQ(server.idle_timeout_ns, 8 * kSecond);
  EXPECT_EQ(server.files_per_connection, 9);
  options.read_timeout.ns = 60 * kSecond;
  EXPECT_EQ(ServerOptionsOf(options, 1).header_timeout_ns, 15 * kSecond);
}

TEST(ServingOptionsTest, OnlyOpenServersWithoutKeyGetAWarning) {
  const auto warnings = [](const std::string& host, std::vector<std::string> keys) {
    ServingOptions options;
    options.host = host;
    options.api_key = std::move(keys);
    int lines = 0;
    WarnIfOpen(options, "http://x", [&lines](std::string_view) { ++lines; });
    return lines;
  };
  EXPECT_EQ(warnings("0.0.0.0", {}), 1);
  EXPECT_EQ(warnings("0.0.0.0", {"key"}), 0);
  EXPECT_EQ(warnings("127.0.0.1", {}), 0);
}

// Collects the names of fields.
struct Names {
  std::multiset<std::string> found;
  void Group(const char*) {}
  template <class T>
  void Field(const char* name, T&, FieldSpec) {
    found.insert(name);
  }
};

TEST(ServingOptionsTest, AServingProgramHasTheOptionsOfAListeningOneAndEachOnce) {
  ListenOptions listen;
  ServingOptions serving;
  Names few, all;
  listen.VisitFields(few);
  serving.VisitFields(all);
  for (const std::string& name : few.found) EXPECT_EQ(all.found.count(name), 1u) << name;
  EXPECT_EQ(std::set<std::string>(all.found.begin(), all.found.end()).size(), all.found.size());
}

}  // namespace
}  // namespace tactus::http
