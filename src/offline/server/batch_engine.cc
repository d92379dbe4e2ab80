#include "offline/server/batch_engine.h"

#include "base/background.h"

namespace tactus::offline {
namespace {

Status EndedStatus() {
  return Status(StatusCode::kCancelled, "no further line starts");
}

}  // namespace

// The running requests, shared with the sinks.
struct BatchEngine::Live {
  explicit Live(BackgroundRoom* room_in) : room(*room_in) {}
  BackgroundRoom& room;
  std::mutex mutex;
  std::map<int64_t, RequestHandle> handles;  // by this object's request number; 0: not known yet
  int64_t next = 0;
  bool ended = false;
};

class BatchEngine::CountedSink final : public ResponseSink {
 public:
  CountedSink(std::shared_ptr<Live> live, int64_t number, BackgroundRoom::Cost cost, std::shared_ptr<ResponseSink> sink)
      : live_(std::move(live)), number_(number), cost_(cost), sink_(std::move(sink)) {}

  void OnDelta(const TokenDelta& delta) override {
    if (!began_ && !delta.tokens.empty()) {
      began_ = true;
      live_->room.Began(cost_);
    }
    sink_->OnDelta(delta);
  }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override { sink_->OnPromptLogprobs(rows); }
  void OnDone(const Usage& usage) override {
    {
      std::lock_guard lock(live_->mutex);
      live_->handles.erase(number_);
    }
    live_->room.Ended(cost_, began_, usage.completion_tokens / cost_.sequences);
    sink_->OnDone(usage);
  }

 private:
  const std::shared_ptr<Live> live_;
  const int64_t number_;
  const BackgroundRoom::Cost cost_;
  const std::shared_ptr<ResponseSink> sink_;
  bool began_ = false;
};

BatchEngine::BatchEngine(Engine* engine, BackgroundRoom* room, BatchClient client)
    : engine_(*engine), live_(std::make_shared<Live>(room)), client_(std::move(client)) {}

BatchEngine::~BatchEngine() {
  live_->room.Leave(this);
}

void BatchEngine::End() {
  std::map<int64_t, RequestHandle> running;
  {
    std::lock_guard lock(live_->mutex);
    live_->ended = true;
    running = live_->handles;
  }
  live_->room.Leave(this);
  for (const auto& [number, handle] : running) {
    if (handle != 0) engine_.Cancel(handle);
  }
}

Status BatchEngine::WaitForRoom(int32_t sequences, int64_t timeout_ns) {
  {
    std::lock_guard lock(live_->mutex);
    if (live_->ended) return EndedStatus();
  }
  const BackgroundRoom::Cost cost = wanted_.value_or(BackgroundRoom::Cost{.sequences = sequences});
  if (!live_->room.WaitFor(cost, timeout_ns, this))
    return Status(StatusCode::kDeadlineExceeded, "no room for another line of a batch came in time");
  if (live_->room.closed()) return EndedStatus();
  return engine_.WaitForRoom(sequences, timeout_ns);
}

Result<RequestHandle> BatchEngine::Submit(Request request, std::shared_ptr<ResponseSink> sink) {
  const auto prompt = static_cast<int64_t>(request.prompt->size());
  const BackgroundRoom::Cost cost{request.n, prompt,
                                  prompt + request.n * live_->room.ExpectedTokens(request.stop.max_tokens)};
  if (!live_->room.Take(cost, this)) {
    wanted_ = cost;
    if (live_->room.closed()) return EndedStatus();
    return Status(StatusCode::kResourceExhausted, "no room for another line of a batch");
  }
  wanted_.reset();
  request.priority = kBackgroundPriority;
  request.slo = {};
  request.slo_class.clear();
  request.client = client_.client;
  request.owner = client_.owner;
  request.cache_salt = client_.cache_salt + request.cache_salt;
  int64_t number = 0;
  {
    std::lock_guard lock(live_->mutex);
    number = live_->next++;
    live_->handles[number] = 0;
  }
  auto handle = engine_.Submit(std::move(request), std::make_shared<CountedSink>(live_, number, cost, std::move(sink)));
  bool late = false;
  {
    std::lock_guard lock(live_->mutex);
    const auto found = live_->handles.find(number);
    if (!handle.ok())
      live_->handles.erase(number);
    else if (found != live_->handles.end())
      found->second = *handle;
    late = live_->ended;
  }
  if (!handle.ok())
    live_->room.Ended(cost, false, 0);
  else if (late)
    engine_.Cancel(*handle);
  return handle;
}

}  // namespace tactus::offline
