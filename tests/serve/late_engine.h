// An engine whose Submit returns late: the request runs, and its first tokens arrive, before its own thread knows the
// handle. Thread rule: any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tactus/engine.h"

namespace tactus {

class LateEngine final : public Engine {
 public:
  explicit LateEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // From now on Submit returns when Release is called, or after a minute.
  void Hold() { Set(true); }
  void Release() { Set(false); }

  Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) override {
    auto handle = engine_->Submit(std::move(request), std::move(sink));
    std::unique_lock lock(mutex_);
    released_.wait_for(lock, std::chrono::minutes(1), [this] { return !held_; });
    return handle;
  }

  const ModelInfo& model() const override { return engine_->model(); }
  std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop) const override {
    return engine_->Tokenize(text, add_special, stop);
  }
  std::string Detokenize(const std::vector<TokenId>& tokens) const override { return engine_->Detokenize(tokens); }
  std::string TokenString(TokenId token) const override { return engine_->TokenString(token); }
  std::string TokenBytes(TokenId token) const override { return engine_->TokenBytes(token); }
  Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop) const override {
    return engine_->ApplyChatTemplate(variables_json, stop);
  }
  std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop) const override {
    return engine_->TokenizeChat(rendered, stop);
  }
  Status WaitForRoom(int32_t sequences, int64_t timeout_ns) override {
    return engine_->WaitForRoom(sequences, timeout_ns);
  }
  void Cancel(RequestHandle handle) override { engine_->Cancel(handle); }
  int64_t Drain(int64_t timeout_ns) override { return engine_->Drain(timeout_ns); }
  MigrationPort* migration() override { return engine_->migration(); }
  EngineStats Stats() const override { return engine_->Stats(); }
  std::string MetricsText() const override { return engine_->MetricsText(); }
  RunResult Outcome() const override { return engine_->Outcome(); }

 private:
  void Set(bool held) {
    {
      std::lock_guard lock(mutex_);
      held_ = held;
    }
    released_.notify_all();
  }

  const std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
};

}  // namespace tactus
