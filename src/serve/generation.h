// One HTTP request for generated text, from its body to the last byte of its answer. What is asked and what is answered
// is api/chat/conversation.h and api/chat/answer.h; here are the engine requests, one per prompt, the events and the
// end.
//
// Thread rule: as serve/call.h says, and the sinks run on the engine's delivery thread. The engine is never called with
// the mutex held. Invariants: the exchange gets one answer or one error; when it is over (answered, failed, client
// gone), every engine request that still runs has been cancelled. A sequence keeps its client's place until the engine
// has ended it, also after the client has gone; what the engine never got gives its places back before the answer. The
// body of a request that may move is kept, and counted, until it is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/apis.h"
#include "api/chat/answer.h"
#include "api/chat/conversation.h"
#include "base/clock.h"
#include "http/body.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "serve/call.h"
#include "serve/serve_options.h"
#include "tactus/engine.h"
#include "tactus/migration.h"

namespace tactus::serve {

class Generation;

// What all calls share. Immutable once requests are taken; the engine outlives every call.
struct GenerationContext {
  Engine* engine = nullptr;
  api::RequestLimits limits;
  Clock* clock = nullptr;
  DurationNs request_timeout_ns = 0;  // 0: none
  DurationNs ping_interval_ns = 0;
  std::string fingerprint;
  bool movable = false;  // requests that come through a router may move to other replicas
  // The bodies of those that run. One for which there is no room is not kept: its request stays.
  std::shared_ptr<http::BodyTotal> kept_bodies = std::make_shared<http::BodyTotal>(ServeOptions::kMostKeptBytes);
  // Runs a client's task that may wait for rules. Tasks of other clients delay it by their turns only, and it delays no
  // request without rules. Empty: there is no such place.
  std::function<void(const std::string& client, std::function<void()> task)> post_rule;
  // The first token of a request that may move has come; may be empty. On the delivery thread.
  std::function<void(std::shared_ptr<Generation>)> on_first_token;
};

// Who sent a request.
struct Caller {
  std::string client;        // whose places it takes
  bool one_of_many = false;  // the client is one of several keys: the engine knows it as that, whatever user it names
  std::string slo_class;     // of its requests that name none; empty: none
  std::string cache_salt;    // goes before the body's own; empty: none
  http::ClientCounts::Places places;  // one, until the body tells how many sequences there are
  std::string owner;                  // who may ask for the request's schedule; empty: everybody
};

class Generation final : public Call {
 public:
  // `created` 0 and `arrival_ns` -1: now; else of a request that began at another replica.
  Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
             const api::Api& api, std::string request_id, http::Headers headers, Caller caller, int64_t created = 0,
             TimeNs arrival_ns = -1);

  // --- Moving to another replica (serve/moves/outgoing.h). Any thread ---
  struct Origin {
    std::string_view api;  // its name
    bool explained = false;
    std::string body, request_id, client, owner;
    int64_t created = 0;
  };
  // kNotFound: it is over, or has not reached the engine. kInvalidArgument: it cannot move, and why.
  Result<RequestHandle> MovableHandle();
  Origin origin();
  const std::string& request_id() const { return request_id_; }
  // How far it is, to choose whom to move.
  struct Extent {
    int32_t priority = 0;
    size_t tokens = 0;  // prompt and answer
    bool begun = false;
  };
  Extent extent();
  // Of the first `tokens` tokens, where the destination has to tell them again; waits until they have been heard.
  Result<std::vector<std::vector<TokenLogprob>>> LogprobsOf(size_t tokens, DurationNs timeout_ns);
  // Whether a token has come, within the time.
  bool WaitForToken(DurationNs timeout_ns);
  // Where it goes on once its sink hears that it has left.
  void MovedTo(std::string url, std::string ticket);
  // A move of it failed, at some time; 0: none did.
  void MoveFailed(TimeNs now_ns) { move_failed_ns_.store(now_ns); }
  TimeNs move_failed_ns() const { return move_failed_ns_.load(); }
  // In the place of Run, for a request that has run elsewhere: from where it was there. Not ok: it is not taken.
  Status GoOn(MigrationPort& port, uint64_t room, MovingSequence sequence);

 private:
  class PromptSink;

  void Work() override;
  void WhileWaiting(TimeNs now_ns) override;  // pings
  void AnswerError(const Status& status) override;
  void LetGo() override;
  std::shared_ptr<Generation> Self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  // The body, with what the caller and the headers say; its places are taken.
  Result<api::ParsedRequest> Parse();
  // What the engine gets; answer_ is ready for it.
  Result<std::vector<Request>> Prepare(api::ParsedRequest parsed);
  void WorkOn(api::ParsedRequest parsed);
  void KeepBody(std::string_view text);  // or cannot_move_ says why not
  Status TakePlaces(int64_t sequences);
  void Submit(std::vector<Request> requests);
  void OnDelta(size_t prompt, const TokenDelta& delta);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage);
  std::string Schedule() const;  // JSON; empty: not asked for
  void Left();
  // With the mutex held.
  void BeginStream();

  const std::shared_ptr<const GenerationContext> context_;
  const api::Api& api_;
  const std::string request_id_;
  const std::string client_, owner_, cache_salt_, slo_class_;
  const bool one_of_many_;
  const bool explained_;  // the answer tells its schedule
  const bool routed_;     // through a router that knows what to do when it moves
  const bool came_;       // it began at another replica
  int64_t created_;       // Unix seconds
  std::atomic<TimeNs> move_failed_ns_{0};

  // With the mutex held.
  std::optional<api::Answer> answer_;   // from before the first submit
  std::vector<RequestHandle> handles_;  // one per prompt; 0: not submitted
  bool stream_ = false, stream_begun_ = false;
  std::string cannot_move_;           // why; empty: it can
  http::Body body_;                   // of a request that may move
  std::vector<std::string> ignored_;  // of the body
  Extent extent_;
  size_t heard_ = 0;            // tokens
  size_t heard_elsewhere_ = 0;  // of them the client has had before
  std::condition_variable heard_more_;
  std::string moved_to_, ticket_;
  TimeNs next_ping_ns_ = 0;
};

}  // namespace tactus::serve
