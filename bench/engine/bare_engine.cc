// The engine without a server: --streams requests at a time through the library's own interface, each followed by the
// next until --requests are done. Prompts and lengths are those of `tactus bench --workload random:in=I,out=O`, so that
// bench/engine/server_loss.py can measure the cost of HTTP, JSON and streaming on a loaded machine. One JSON object on
// stdout.
#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "cli/options/option_binding.h"
#include "tactus/engine.h"

namespace tactus {
namespace {

struct Options {
  int64_t streams = 32, requests = 96, in = 128, out = 64;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Load");
    v.Field("streams", streams, {.unit = "requests", .min = 1, .max = 100000, .help = "at a time"});
    v.Field("requests", requests, {.unit = "requests", .min = 1, .max = 10000000, .help = "in all"});
    v.Field("in", in, {.unit = "tokens", .min = 1, .max = 1000000, .help = "prompt length"});
    v.Field("out", out, {.unit = "tokens", .min = 1, .max = 1000000, .help = "output length"});
  }
};

class Load {
 public:
  Load(Engine& engine, const Options& options) : engine_(engine), options_(options) {}

  // Seconds from the first request to the last answer, and the number of generated tokens.
  Result<std::pair<double, int64_t>> Run() {
    const TimeNs start = SystemClock().NowNs();
    for (int64_t i = 0; i < options_.streams; ++i) TACTUS_RETURN_IF_ERROR(Next());
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return finished_ == options_.requests || !status_.ok(); });
    if (!status_.ok()) return status_;
    return std::pair(static_cast<double>(SystemClock().NowNs() - start) * 1e-9, tokens_);
  }

 private:
  struct Sink final : ResponseSink {
    explicit Sink(Load* l) : load(l) {}
    void OnDelta(const TokenDelta& delta) override { tokens += static_cast<int64_t>(delta.tokens.size()); }
    void OnDone(const Usage&) override { load->Done(tokens); }
    Load* load;
    int64_t tokens = 0;
  };

  Status Next() {
    int64_t index = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (started_ == options_.requests) return Status();
      index = started_++;
    }
    Rng rng(1, static_cast<uint64_t>(index));
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < options_.in; ++i) {
      prompt.push_back(static_cast<TokenId>(rng.UniformInt(0, engine_.model().vocab_size - 1)));
    }
    Request request;
    request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    request.sampling.temperature = 0;
    request.stop.max_tokens = options_.out;
    request.stop.ignore_eos = true;
    return engine_.Submit(std::move(request), std::make_shared<Sink>(this)).status();
  }

  void Done(int64_t tokens) {
    const Status next = Next();
    std::lock_guard<std::mutex> lock(mutex_);
    tokens_ += tokens;
    ++finished_;
    if (!next.ok()) status_ = next;
    done_.notify_one();
  }

  Engine& engine_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t started_ = 0, finished_ = 0, tokens_ = 0;
  Status status_;
};

Status Main(const EngineOptions& engine_options, const Options& options) {
  TACTUS_ASSIGN_OR_RETURN(const auto engine, Engine::Create(engine_options));
  Options warmup = options;
  warmup.requests = warmup.streams = 1;
  TACTUS_RETURN_IF_ERROR(Load(*engine, warmup).Run().status());
  TACTUS_ASSIGN_OR_RETURN(const auto run, Load(*engine, options).Run());
  Json out = {{"streams", options.streams},
              {"requests", options.requests},
              {"in", options.in},
              {"out", options.out},
              {"seconds", run.first},
              {"output_tokens", run.second},
              {"output_tokens_per_second", static_cast<double>(run.second) / run.first}};
  fmt::print("{}\n", out.dump());
  return Status();
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  tactus::EngineOptions engine;
  tactus::Options options;
  tactus::cli::CommandLine line("bare_engine", "MODEL [options]",
                                "The engine under a closed loop of streams, without a server.");
  line.Add(options);
  line.Add(engine);
  line.Positional("MODEL", &engine.model, true, "a GGUF file or a Hugging Face folder");
  switch (line.Parse({argv + 1, argv + argc})) {
    case tactus::cli::CommandLine::Outcome::kDone:
      return 0;
    case tactus::cli::CommandLine::Outcome::kBadUsage:
      return 2;
    case tactus::cli::CommandLine::Outcome::kRun:
      break;
  }
  const tactus::Status status = tactus::Main(engine, options);
  if (!status.ok()) std::fprintf(stderr, "bare_engine: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
