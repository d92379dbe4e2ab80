#include "language/grammar/deep_calls.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_role.h"

namespace tactus::language {
namespace {

// Between two checks of the caller's stop token, which signals nothing.
constexpr int64_t kLookMs = 5;

Status NoMemory() {
  return Status(StatusCode::kResourceExhausted, "no memory or thread to compile a rule with; try again later");
}

}  // namespace

struct DeepCalls::Shared {
  struct Client {
    int running = 0, waiting = 0;
    uint64_t last = 0;  // number of all clients' calls at its last one
  };
  using Clients = std::map<std::string, Client>;
  struct Waiter {
    Clients::iterator client;
    std::condition_variable has_turn;
  };
  using Waiters = std::list<Waiter>;

  Shared(int most_at_once, int most_of_one) : most(most_at_once), most_of_client(most_of_one) {}

  const int most, most_of_client;
  std::mutex mutex;
  int running = 0;
  uint64_t calls = 0;
  Clients clients;  // with a running or waiting call
  Waiters waiters;  // in order of arrival

  bool BelowShare(const Waiter& waiter) const {
    return waiter.client->first.empty() || waiter.client->second.running < most_of_client;
  }
  bool HasTurn(Waiters::iterator own) {
    if (running >= most || !BelowShare(*own)) return false;
    bool came_before = true;
    for (auto other = waiters.begin(); other != waiters.end(); ++other) {
      if (other == own) {
        came_before = false;
        continue;
      }
      const uint64_t last = other->client->second.last, own_last = own->client->second.last;
      if (BelowShare(*other) && (last < own_last || (last == own_last && came_before))) return false;
    }
    return true;
  }
  // Called after a place became free or a waiter left. Other waiters stay asleep: a wake-up would lose wait time.
  void WakeNext() {
    for (auto waiter = waiters.begin(); waiter != waiters.end(); ++waiter) {
      if (HasTurn(waiter)) waiter->has_turn.notify_one();
    }
  }
  void Leave(Clients::iterator client) {
    if (client->second.running == 0 && client->second.waiting == 0) clients.erase(client);
  }
  struct Queued;
};

// A caller waiting for its place; the mutex is held at construction and destruction.
struct DeepCalls::Shared::Queued {
  Queued(Shared* of, const std::string& name) : shared(of) {
    const auto [client, is_new] = shared->clients.try_emplace(name);
    if (is_new) client->second.last = shared->calls;  // a returning client does not pass those that wait
    ++client->second.waiting;
    try {
      waiter = shared->waiters.emplace(shared->waiters.end());
      waiter->client = client;
    } catch (...) {
      Leave(client);
      throw;
    }
  }
  ~Queued() {
    const auto client = waiter->client;
    shared->waiters.erase(waiter);
    Leave(client);
    shared->WakeNext();  // it may have blocked another waiter
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;
  void Leave(Clients::iterator client) {
    --client->second.waiting;
    shared->Leave(client);
  }

  Shared* const shared;
  Waiters::iterator waiter;
};

struct DeepCalls::Call {
  std::shared_ptr<Shared> shared;
  Shared::Clients::iterator client;
  std::function<void()> function;
  std::condition_variable ended;
  bool done = false, no_memory = false, failed = false;  // under the mutex
};

DeepCalls::DeepCalls(int most_at_once, size_t stack_bytes)
    : stack_bytes_(stack_bytes), shared_(std::make_shared<Shared>(most_at_once, std::max(1, most_at_once / 2))) {}

// `start`: a separate shared_ptr to the call.
void* DeepCalls::Main(void* start) {
  const std::unique_ptr<std::shared_ptr<Call>> owned(static_cast<std::shared_ptr<Call>*>(start));
  Call& call = **owned;
  SetThreadRole(ThreadRole::kService, "tactus-grammar");
  bool no_memory = false, failed = false;
  try {
    call.function();
  } catch (const std::bad_alloc&) {
    no_memory = true;
  } catch (...) {
    failed = true;
  }
  call.function = nullptr;
  const std::lock_guard lock(call.shared->mutex);
  call.done = true;
  call.no_memory = no_memory;
  call.failed = failed;
  --call.shared->running;
  --call.client->second.running;
  call.shared->Leave(call.client);
  call.ended.notify_all();
  call.shared->WakeNext();
  return nullptr;
}

Result<DeepCalls::End> DeepCalls::Run(std::function<void()> function, const Terms& terms) {
  const StopToken stop = terms.stop;
  std::unique_lock lock(shared_->mutex);
  // Counts checks instead of reading a clock: the wait is for work of this process.
  int64_t left_ms = terms.timeout_ms;
  const auto wait = [&](std::condition_variable& changed, auto&& over) {
    bool is_over = over();
    for (; !is_over && left_ms > 0 && !stop.stopped(); is_over = over()) {
      if (changed.wait_for(lock, std::chrono::milliseconds(kLookMs)) != std::cv_status::timeout) continue;
      left_ms -= kLookMs;
      if (terms.waited_ms != nullptr) *terms.waited_ms += kLookMs;
    }
    return is_over;
  };

  std::optional<Shared::Queued> queued(std::in_place, shared_.get(), terms.client);  // until it has a place
  const auto own = queued->waiter;
  const auto client = own->client;
  bool is_needless = false;
  const bool may_go_on = wait(own->has_turn, [&] {
    is_needless = terms.needless && terms.needless();
    return is_needless || shared_->HasTurn(own);
  });
  if (!may_go_on) return stop.stopped() ? End::kStopped : End::kNoPlace;
  if (is_needless) return End::kNeedless;

  const auto call = std::make_shared<Call>();
  auto start = std::make_unique<std::shared_ptr<Call>>(call);
  call->shared = shared_;
  call->client = client;
  call->function = std::move(function);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return NoMemory();
  pthread_t thread;
  const bool started = pthread_attr_setstacksize(&attributes, stack_bytes_) == 0 &&
                       pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                       pthread_create(&thread, &attributes, &Main, start.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return NoMemory();
  start.release();
  ++shared_->running;
  ++client->second.running;
  client->second.last = ++shared_->calls;
  queued.reset();

  if (!wait(call->ended, [&] { return call->done; })) return stop.stopped() ? End::kStopped : End::kTooLong;
  if (call->no_memory) return NoMemory();
  if (call->failed) return Status(StatusCode::kInternal, "compiling this rule failed in the server");
  return End::kDone;
}

}  // namespace tactus::language
