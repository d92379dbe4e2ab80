// POST /simulate and POST /capacity: questions about this server, answered by `tactus sim` in a child process of a
// low priority (child_program.h). One runs at a time, and few wait.
//
// Thread rule: Start once, before Ask; Ask, Answer and Stop on any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/worker_pool.h"
#include "http/client_counts.h"
#include "http/message.h"
#include "serve/sim_question.h"
#include "tactus/engine.h"

namespace tactus::serve {

class Simulations {
 public:
  static constexpr int kMostAsked = 4;      // running and waiting
  static constexpr int64_t kMostOfOne = 2;  // of one client

  // `program`: tactus-tools.
  explicit Simulations(Clock& clock, std::string program = ToolsProgram())
      : clock_(clock), program_(std::move(program)), pool_(1, "tactus-sims") {}
  ~Simulations() { Stop(); }

  // `engine` outlives this or its Stop.
  void Start(const Engine* engine, const EngineOptions& options);
  // Runs `task`, which calls Answer once, on the thread for simulations. An error: too many wait, or too many of this
  // client.
  Status Ask(const std::string& client, std::function<void()> task);
  // The answer to a body. `stop` ends the child.
  Result<http::HttpResponse> Answer(bool capacity, std::string_view body, const std::function<bool()>& stop) const;
  // Ends a running child and joins.
  void Stop();

 private:
  static std::string ToolsProgram();  // the one beside this program
  Result<std::string> WhatIf(std::string_view body, const std::function<bool()>& stop) const;
  Result<std::string> Capacity(std::string_view body, const std::function<bool()>& stop) const;
  Result<std::string> Run(const SimCommand& command, const std::function<bool()>& stop) const;
  SimBasis Basis() const;

  Clock& clock_;
  const std::string program_;
  const Engine* engine_ = nullptr;
  SchedulingOptions options_;
  std::atomic<int> asked_{0};
  http::ClientCounts clients_{kMostOfOne};
  std::atomic<bool> stopping_{false};
  WorkerPool pool_;
};

}  // namespace tactus::serve
