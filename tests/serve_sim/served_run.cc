#include "served_run.h"

#include <deque>
#include <memory>

#include <fmt/format.h>

#include "cli/command_options.h"
#include "engine/create_engine.h"
#include "gated_clock.h"
#include "http/client.h"
#include "scripted_backend.h"
#include "serve/api_server.h"

namespace tactus {
namespace {

constexpr DurationNs kCallLimit = 60 * kSecond;  // of one request, which takes milliseconds

// One request's answer. Stops the client's loop as soon as it is known whether the server took the request.
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

// Goes through the instants of a run as Simulation does: at each of them first who arrives, then the loop's pass, then
// what followed from ends.
class Driver {
 public:
  Driver(const SimSetup& sim, cli::LoadOptions load, Engine* engine, GatedClock* time, const ScriptLog* log,
         uint16_t port)
      : sim_(sim),
        load_(std::move(load)),
        engine_(*engine),
        time_(*time),
        log_(*log),
        client_({"127.0.0.1", port, "/"}, {.timeout_ns = kCallLimit}, SystemClock()) {}

  Status Run(WorkloadStream* workload) {
    workload_ = workload;
    concurrency_ = sim_.config.concurrency;
    if (concurrency_ > 0) {
      TACTUS_RETURN_IF_ERROR(SendNext(concurrency_));
    } else {
      has_arriving_ = workload_->Next(&arriving_);
    }
    while (true) {
      const TimeNs t =
          pass_due_ ? time_.Peek() : std::min(has_arriving_ ? arriving_.arrival_ns : kNever, log_.ready_ns());
      if (t == kNever) break;
      time_.AdvanceTo(t);
      while (has_arriving_ && arriving_.arrival_ns <= t) {
        TACTUS_RETURN_IF_ERROR(Send(arriving_));
        has_arriving_ = workload_->Next(&arriving_);
      }
      if (!pass_due_ && log_.ready_ns() > t) continue;  // who arrived was refused
      pass_due_ = false;
      TACTUS_RETURN_IF_ERROR(time_.Pass());
      const EngineStats stats = engine_.Stats();
      const int64_t ended = stats.finished_length + stats.finished_stop + stats.finished_error;
      const int64_t more = ended - ended_;
      ended_ = ended;
      if (concurrency_ > 0) TACTUS_RETURN_IF_ERROR(SendNext(more));
    }
    client_.Run();  // to the ends of all streams
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
  // Of a closed loop: one more for each that has ended, and for each that is refused at once.
  Status SendNext(int64_t count) {
    WorkloadRequest next;
    while (count > 0 && workload_->Next(&next)) {
      const int64_t refused = refused_;
      TACTUS_RETURN_IF_ERROR(Send(next));
      count -= refused_ == refused;
    }
    return Status();
  }

  // Returns when the server has taken the request into its loop's queue, or refused it.
  Status Send(const WorkloadRequest& work) {
    auto answer = std::make_shared<Answer>(&client_);
    answers_.push_back(answer);
    http::ClientRequest request;
    request.path = "/v1/completions";
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = cli::RequestBody(load_, work, work.index);
    client_.Send(std::move(request), answer);
    client_.Run();
    if (!answer->accepted() && !answer->done) return Internal(fmt::format("request {} got no answer", work.index));
    if (answer->status == 0) return answer->transport;
    if (answer->accepted())
      pass_due_ = true;
    else
      ++refused_;
    return Status();
  }

  const SimSetup& sim_;
  const cli::LoadOptions load_;
  Engine& engine_;
  GatedClock& time_;
  const ScriptLog& log_;
  http::Client client_;
  WorkloadStream* workload_ = nullptr;
  int64_t concurrency_ = 0, refused_ = 0, ended_ = 0;
  WorkloadRequest arriving_;
  bool has_arriving_ = false;
  bool pass_due_ = false;  // something is in the loop's queue
  std::vector<std::shared_ptr<Answer>> answers_;
};

// The engine's thread waits for the clock; whatever happens, it is let go before the engine is closed.
struct OpenAtEnd {
  GatedClock& clock;
  ~OpenAtEnd() { clock.Open(); }
};

}  // namespace

Result<ServedRun> Serve(const std::vector<std::string>& args, const SimSetup& sim, cli::LoadOptions load) {
  cli::ServeCommandOptions options;
  if (cli::ServeLine(&options).Parse(args) != cli::CommandLine::Outcome::kRun)
    return InvalidArgument("tactus serve does not take these arguments");
  GatedClock time;
  ScriptLog log;
  EngineParts parts;
  parts.clock = &time;
  parts.stopwatch = &SystemClock();
  parts.backend = std::make_unique<ScriptedBackend>(*sim.config.step_time, sim.config.scheduler.limits.blocks_total,
                                                    sim.config.swap_blocks, &time, &log);
  TACTUS_ASSIGN_OR_RETURN(auto engine, CreateEngine(options.engine, {}, std::move(parts)));
  const OpenAtEnd open{time};
  TACTUS_ASSIGN_OR_RETURN(auto server, serve::ApiServer::Listen(options.serve, time));
  server->SetEngine(engine.get(), options.engine);
  load.model = engine->model().name;
  load.vocab_size = engine->model().vocab_size;
  Driver driver(sim, std::move(load), engine.get(), &time, &log, server->port());
  TACTUS_ASSIGN_OR_RETURN(const auto workload, sim.open_workload());
  TACTUS_RETURN_IF_ERROR(driver.Run(workload.get()));
  ServedRun run;
  run.result = engine->Outcome();
  run.plans = log.plans();
  run.answers = driver.Faults();
  run.refused = driver.refused();
  return run;
}

}  // namespace tactus
