#include "serve/simulations.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <memory>
#include <utility>

#include "base/json_text.h"
#include "serve/child_program.h"

namespace tactus::serve {
namespace {

constexpr DurationNs kStopNs = 5 * kSecond;  // a child ends within milliseconds

Status Stopping() {
  return Status(StatusCode::kUnavailable, "the server is stopping");
}

}  // namespace

std::string Simulations::ToolsProgram() {
  std::array<char, PATH_MAX> self;
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  return (length > 0 ? std::string(self.data(), static_cast<size_t>(length)) : "tactus") + "-tools";
}

void Simulations::Start(const Engine* engine, const EngineOptions& options) {
  engine_ = engine;
  options_ = options;
}

Status Simulations::Ask(const std::string& client, std::function<void()> task) {
  if (stopping_.load()) return Stopping();
  auto place = clients_.Enter(client);
  if (!place.ok()) {
    return Status(
        StatusCode::kTooManyRequests,
        fmt::format("{} simulations of this client run or wait, the most of one client; try again later", kMostOfOne));
  }
  if (asked_.fetch_add(1) >= kMostAsked) {
    asked_.fetch_sub(1);
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} simulations run or wait, the most at once; try again later", kMostAsked));
  }
  auto held = std::make_shared<http::ClientCounts::Places>(std::move(*place));  // a task is copied
  pool_.Post([this, task = std::move(task), held = std::move(held)] {
    task();
    held->ReleaseAll();
    asked_.fetch_sub(1);
  });
  return Status();
}

void Simulations::Stop() {
  stopping_.store(true);  // tasks that wait end at once, each with an answer
  pool_.WaitUntilIdle(kStopNs);
  pool_.Stop();
}

SimBasis Simulations::Basis() const {
  SimBasis basis;
  basis.step_times = engine_->StepTimesFile();
  basis.max_model_len = engine_->model().max_model_len;
  basis.kv_blocks = engine_->Stats().kv_blocks_total;
  basis.options = options_;
  basis.past = engine_->PastRequests();
  return basis;
}

Result<std::string> Simulations::Run(const SimCommand& command, const std::function<bool()>& stop) const {
  if (stopping_.load()) return Stopping();
  ChildRun run;
  run.program = program_;
  run.args = command.args;
  run.input = command.load;
  run.negative_result = command.negative_result;
  run.refusal = "tactus sim";
  auto printed = RunChild(run, clock_, [this, &stop] { return stopping_.load() || stop(); });
  if (printed.ok()) return printed;
  if (stopping_.load()) return Stopping();
  if (printed.status().code() == StatusCode::kUnavailable) {
    return Status(StatusCode::kUnavailable,
                  "tactus-tools is missing beside tactus: it is being built, or `scripts/build.sh release programs` "
                  "builds it");
  }
  return ErrorOf(printed.status(), command);
}

Result<std::string> Simulations::WhatIf(std::string_view body, const std::function<bool()>& stop) const {
  const SimBasis basis = Basis();
  TACTUS_ASSIGN_OR_RETURN(const WhatIfQuestion question, ParseWhatIf(body, basis));
  TACTUS_ASSIGN_OR_RETURN(const std::string same, Run(question.same, stop));
  TACTUS_ASSIGN_OR_RETURN(const std::string changed, Run(question.changed, stop));
  TACTUS_ASSIGN_OR_RETURN(const std::string same_figures, FiguresText(same));
  TACTUS_ASSIGN_OR_RETURN(const std::string changed_figures, FiguresText(changed));
  std::string command;
  json_text::AppendJsonString(&command, CommandText(question.changed));
  return fmt::format(R"({{"happened":{},"same":{},"changed":{},"command":{}}})", HappenedText(basis.past), same_figures,
                     changed_figures, command);
}

Result<std::string> Simulations::Capacity(std::string_view body, const std::function<bool()>& stop) const {
  TACTUS_ASSIGN_OR_RETURN(const CapacityQuestion question, ParseCapacity(body, Basis()));
  TACTUS_ASSIGN_OR_RETURN(const std::string found, Run(question.command, stop));
  return CapacityText(found, question);
}

Result<http::HttpResponse> Simulations::Answer(bool capacity, std::string_view body,
                                               const std::function<bool()>& stop) const {
  http::HttpResponse response;
  TACTUS_ASSIGN_OR_RETURN(response.body, capacity ? Capacity(body, stop) : WhatIf(body, stop));
  return response;
}

}  // namespace tactus::serve
