// The serving engine as used by one batch: its requests have no objectives, belong to the batch's client, have the
// lowest priority, and stay within the batches' room. All other calls go to the engine.
//
// Thread rule: as Engine's; Submit and WaitForRoom on one thread at a time. Invariant: room that was taken is returned
// when the engine has ended the request.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "offline/server/background.h"
#include "tactus/engine.h"

namespace tactus::offline {

// The identity of a batch's requests in the engine.
struct BatchClient {
  std::string client;      // Request::client
  std::string owner;       // Request::owner
  std::string cache_salt;  // prepended to a request's own
};

class BatchEngine final : public Engine {
 public:
  // Engine and room outlive this, and this outlives its requests.
  BatchEngine(Engine* engine, BackgroundRoom* room, BatchClient client);
  ~BatchEngine() override;

  // Cancels the batch's requests in the engine, and refuses later ones, with kCancelled.
  void End();

  Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) override;
  Status WaitForRoom(int32_t sequences, int64_t timeout_ns) override;

  const ModelInfo& model() const override { return engine_.model(); }
  std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop) const override {
    return engine_.Tokenize(text, add_special, stop);
  }
  int64_t LeastTokens(std::string_view text) const override { return engine_.LeastTokens(text); }
  std::string Detokenize(const std::vector<TokenId>& tokens) const override { return engine_.Detokenize(tokens); }
  std::string TokenString(TokenId token) const override { return engine_.TokenString(token); }
  std::string TokenBytes(TokenId token) const override { return engine_.TokenBytes(token); }
  Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop) const override {
    return engine_.ApplyChatTemplate(variables_json, stop);
  }
  std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop) const override {
    return engine_.TokenizeChat(rendered, stop);
  }
  Result<std::shared_ptr<const TokenGrammar>> CompileRule(const OutputRule& rule, StopToken stop,
                                                          RuleWait* wait) const override {
    RuleWait of_batches{.client = "batches"};  // all batches share the quota of one client
    if (wait != nullptr && wait->client.empty()) wait->client = of_batches.client;
    return engine_.CompileRule(rule, stop, wait != nullptr ? wait : &of_batches);
  }
  void CountRefused(const Request& request, const Status& why) override { engine_.CountRefused(request, why); }
  void Cancel(RequestHandle handle) override { engine_.Cancel(handle); }
  int64_t Drain(int64_t timeout_ns) override { return engine_.Drain(timeout_ns); }
  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const override { return engine_.Timelines(query); }
  int64_t kept_timelines() const override { return engine_.kept_timelines(); }
  bool may_refuse() const override { return engine_.may_refuse(); }
  EngineStats Stats() const override { return engine_.Stats(); }
  std::string MetricsText() const override { return engine_.MetricsText(); }
  RunResult Outcome() const override { return engine_.Outcome(); }

 private:
  struct Live;
  class CountedSink;

  Engine& engine_;
  const std::shared_ptr<Live> live_;
  const BatchClient client_;
  std::optional<BackgroundRoom::Cost> wanted_;  // of the request that found no room
};

}  // namespace tactus::offline
