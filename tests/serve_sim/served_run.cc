#include "served_run.h"

#include <deque>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/options/command_options.h"
#include "engine/create_engine.h"
#include "gated_clock.h"
#include "http/client.h"
#include "scripted_backend.h"
#include "serve/api_server.h"

namespace tactus {
namespace {

constexpr DurationNs kCallLimit = 60 * kSecond;  // limit for one request, which normally takes milliseconds

// One request's answer. Stops the client's loop as soon as the server has accepted or refused the request.
class Answer final : public http::ResponseHandler {
 public:
  explicit Answer(http::Client* client) : client_(*client) {}
  void OnHead(int http_status, const http::Headers&, TimeNs) override {
    status = http_status;
    if (accepted()) client_.Stop();
  }
  void OnEvent(std::string_view data, TimeNs) override { complete = data == "[DONE]"; }
  void OnDone(const Status& s, const http::HttpResponse& response, TimeNs) override {
    done = true;
    transport = s;
    body = response.body;
    if (!accepted()) client_.Stop();
  }
  bool accepted() const { return status == 200; }

  int status = 0;
  bool done = false, complete = false;
  Status transport;
  std::string body;

 private:
  http::Client& client_;
};

// Steps through the instants of a run as Simulation does: at each instant first arrivals, then the loop's pass, then
// the requests that follow ended ones.
class Driver {
 public:
  Driver(int64_t concurrency, cli::LoadOptions load, GatedClock* time, Script* script, uint16_t port)
      : concurrency_(concurrency),
        load_(std::move(load)),
        time_(*time),
        script_(*script),
        client_({"127.0.0.1", port, "/"}, {.timeout_ns = kCallLimit}, SystemClock()) {}

  Status Run(sim::WorkloadStream* workload) {
    workload_ = workload;
    sim::WorkloadRequest next;
    if (concurrency_ > 0) {
      for (int64_t i = 0; i < concurrency_ && workload_->Next(&next); ++i) due_.push_back(next);
      TACTUS_RETURN_IF_ERROR(SendDue());
    } else {
      has_arriving_ = workload_->Next(&arriving_);
    }
    while (true) {
      const TimeNs event = std::min(has_arriving_ ? arriving_.arrival_ns : kNever, script_.ready_ns());
      const TimeNs t = pass_due_ ? time_.Peek() : event;
      if (t == kNever) break;
      time_.AdvanceTo(t);
      while (has_arriving_ && arriving_.arrival_ns <= t) {
        TACTUS_RETURN_IF_ERROR(Send(arriving_));
        has_arriving_ = workload_->Next(&arriving_);
      }
      if (pass_due_ || script_.ready_ns() <= t) {
        pass_due_ = false;
        TACTUS_RETURN_IF_ERROR(time_.Pass());
        for (const RequestHandle ended : script_.TakeEnded()) Followed(taken_.at(ended - 1));
      }
      TACTUS_RETURN_IF_ERROR(SendDue());
    }
    client_.Run();  // until all streams have ended
    return Status();
  }

  std::vector<std::string> Faults() const {
    std::vector<std::string> faults;
    for (const auto& a : answers_) {
      if (a->accepted() && !(a->transport.ok() && a->complete)) faults.push_back(a->transport.ToString() + a->body);
      if (!a->accepted() && a->status != 400 && a->status != 503)
        faults.push_back(fmt::format("HTTP {}: {}{}", a->status, a->transport.ToString(), a->body));
    }
    return faults;
  }
  int64_t refused() const { return refused_; }

 private:
  // Queues the request that follows an ended one: the conversation's next turn, or in a closed loop the next request.
  void Followed(const sim::WorkloadRequest& ended) {
    sim::WorkloadRequest next;
    if (workload_->NextTurn(ended, &next) || (concurrency_ > 0 && workload_->Next(&next))) due_.push_back(next);
  }
  Status SendDue() {
    for (; !due_.empty(); due_.pop_front()) TACTUS_RETURN_IF_ERROR(Send(due_.front()));
    return Status();
  }

  // Returns when the request is in the loop's queue or was refused.
  Status Send(const sim::WorkloadRequest work) {
    const std::string id = fmt::format("request-{}", work.index);
    auto answer = std::make_shared<Answer>(&client_);
    answers_.push_back(answer);
    http::ClientRequest request;
    request.path = "/v1/completions";
    request.headers = {{"Content-Type", "application/json"}, {"X-Request-Id", id}};
    request.body = cli::RequestBody(load_, work, work.index);
    client_.Send(std::move(request), answer);
    client_.Run();
    if (!answer->accepted() && !answer->done) return Internal(id + " got no answer");
    if (answer->status == 0) return answer->transport;
    if (answer->accepted()) {
      pass_due_ = true;
      taken_.push_back(work);  // the engine numbers accepted requests from 1, in order
      script_.Tell(taken_.size(), TextOf(work));
    } else {
      ++refused_;
      Followed(work);
    }
    return Status();
  }

  // The tokens of prompt and answer: those that RequestBody writes for a prompt of both lengths. So the next turn of a
  // conversation repeats the answer.
  std::vector<TokenId> TextOf(sim::WorkloadRequest work) const {
    work.prompt_tokens += work.output_tokens;
    const auto body = SortedJson::parse(cli::RequestBody(load_, work, work.index));
    return body["prompt"].get<std::vector<TokenId>>();
  }

  const int64_t concurrency_;  // 0: open loop
  const cli::LoadOptions load_;
  GatedClock& time_;
  Script& script_;
  http::Client client_;
  sim::WorkloadStream* workload_ = nullptr;
  sim::WorkloadRequest arriving_;
  bool has_arriving_ = false;
  bool pass_due_ = false;                    // the loop's queue is not empty
  std::deque<sim::WorkloadRequest> due_;     // requests that follow ended ones at this instant
  std::vector<sim::WorkloadRequest> taken_;  // by handle - 1
  std::vector<std::shared_ptr<Answer>> answers_;
  int64_t refused_ = 0;
};

// Releases the engine's thread, which waits for the clock, before the engine is closed, also after a failure.
struct OpenAtEnd {
  GatedClock& clock;
  ~OpenAtEnd() { clock.Open(); }
};

}  // namespace

Result<ServedRun> Serve(const std::vector<std::string>& args, const sim::SimSetup& sim, cli::LoadOptions load) {
  cli::ServeCommandOptions options;
  if (cli::ServeLine(&options).Parse(args) != cli::CommandLine::Outcome::kRun)
    return InvalidArgument("tactus serve does not take these arguments");
  GatedClock time;
  Script script;
  engine::EngineParts parts;
  parts.clock = &time;
  parts.stopwatch = &SystemClock();
  parts.backend = std::make_unique<ScriptedBackend>(*sim.config.step_time, sim.config.scheduler.limits.blocks_total,
                                                    sim.config.swap_blocks, &time, &script);
  ServedRun run;
  const auto start_up = [&run](std::string_view line) {
    constexpr std::string_view kScheduler = "scheduler ";
    if (line.starts_with(kScheduler)) run.scheduler = line.substr(kScheduler.size());
  };
  TACTUS_ASSIGN_OR_RETURN(auto engine, engine::CreateEngine(options.engine, start_up, std::move(parts)));
  const OpenAtEnd open{time};
  TACTUS_ASSIGN_OR_RETURN(auto server, serve::ApiServer::Listen(options.serve, time));
  server->SetEngine(engine.get(), options.engine);
  load.model = engine->model().name;
  load.vocab_size = engine->model().vocab_size;
  Driver driver(sim.config.concurrency, std::move(load), &time, &script, server->port());
  TACTUS_ASSIGN_OR_RETURN(const auto workload, sim.open_workload());
  TACTUS_RETURN_IF_ERROR(driver.Run(workload.get()));
  run.result = engine->Outcome();
  run.plans = script.plans();
  run.answers = driver.Faults();
  run.refused = driver.refused();
  return run;
}

}  // namespace tactus
