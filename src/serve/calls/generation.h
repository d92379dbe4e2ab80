// One HTTP request for generated text, from its body to the last byte of its answer. api/chat/conversation.h parses the
// body, api/chat/conversation_runner.h runs it in the engine, and api/chat/answer.h writes the answer; this file
// connects them with the exchange.
//
// Thread rule: as in serve/calls/call.h, and the engine's events arrive on its delivery thread. The engine is never
// called with the mutex held. Invariants: the exchange gets one answer or one error; when the request is over
// (answered, failed, client gone), every running engine request has been cancelled. A sequence keeps its client's place
// until the engine has ended it, also after the client has gone; places of sequences that never reached the engine are
// released before the answer. The body of a request that may move is kept, and counted, until the request is over.
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
#include "api/chat/conversation_runner.h"
#include "base/body_limits.h"
#include "base/clock.h"
#include "http/body.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "serve/calls/call.h"
#include "tactus/engine.h"
#include "tactus/migration.h"

namespace tactus::serve {

class Generation;

// State that all calls share. Immutable once requests are accepted; the engine outlives every call.
struct GenerationContext {
  Engine* engine = nullptr;
  api::RequestLimits limits;
  Clock* clock = nullptr;
  DurationNs request_timeout_ns = 0;  // 0: none
  DurationNs ping_interval_ns = 0;
  std::string fingerprint;
  bool noted = false;    // answered requests are reported with what is known of them
  bool movable = false;  // requests from a router may move to other replicas
  // The total of kept bodies of running requests. A body beyond its limit is not kept, so its request cannot move.
  std::shared_ptr<http::BodyTotal> kept_bodies = std::make_shared<http::BodyTotal>(BodyLimits::kMostKeptBytes);
  // Runs a client's task that may wait for the compilation of rules. Clients take turns, and requests without rules are
  // not delayed. Empty: tasks run in place.
  std::function<void(const std::string& client, std::function<void()> task)> post_rule;
  // Called on the delivery thread after the first token of a request that may move; may be empty.
  std::function<void(std::shared_ptr<Generation>)> on_first_token;
};

// The sender of a request.
struct Caller {
  std::string client;        // the client whose places are used
  bool one_of_many = false;  // the client is one of several keys: the engine schedules by key, not by the body's user
  std::string slo_class;     // default class of its requests; empty: none
  std::string cache_salt;    // prefix of the body's own salt; empty: none
  http::ClientCounts::Places places;  // one place, until the number of sequences is known from the body
  std::string owner;                  // the owner, who may read the request's schedule; empty: all clients may
};

class Generation final : public Call, public api::ConversationRunner::User {
 public:
  // `created` 0 and `arrival_ns` -1: now; other values are from the replica where the request began.
  Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
             const api::Api& api, std::string request_id, http::Headers headers, Caller caller, int64_t created = 0,
             TimeNs arrival_ns = -1);

  // --- Moving to another replica (serve/moves/outgoing.h). Any thread ---
  struct Origin {
    std::string_view api;  // the API's name
    bool explained = false;
    std::string body, request_id, client, owner;
    int64_t created = 0;
  };
  // kNotFound: the request is over, or has not reached the engine. kInvalidArgument: it cannot move; the message has
  // the reason. A request whose submission is in progress is waited for.
  Result<RequestHandle> MovableHandle(DurationNs timeout_ns);
  Origin origin();
  const std::string& request_id() const { return request_id_; }
  // The request's progress, to choose requests to move.
  struct Extent {
    int32_t priority = 0;
    size_t tokens = 0;  // of prompt and answer
    bool begun = false;
  };
  Extent extent();
  // The logprobs of the first `tokens` tokens, which the destination must send again; empty for a stream. Waits until
  // these tokens have been delivered.
  Result<std::vector<std::vector<TokenLogprob>>> LogprobsOf(size_t tokens, DurationNs timeout_ns);
  // Waits for the first token; false if none arrives within the time.
  bool WaitForToken(DurationNs timeout_ns);
  // Sets where the request continues; call before the engine reports that it has left.
  void MovedTo(std::string url, std::string ticket);
  // Records a failed move of the request; 0: none.
  void MoveFailed(TimeNs now_ns) { move_failed_ns_.store(now_ns); }
  TimeNs move_failed_ns() const { return move_failed_ns_.load(); }
  // Instead of Run, for a request from another replica: continues its sequence. Not ok: the request is not accepted.
  Status ContinueSequence(MigrationPort& port, uint64_t reservation, MovingSequence sequence);

 private:
  void Work() override;
  void WhileWaiting(TimeNs now_ns) override;  // pings
  void AnswerError(const Status& status) override;
  void LetGo() override;
  std::shared_ptr<Generation> Self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  // Parses the body, applies the caller and the headers, and takes the places.
  Result<api::ParsedRequest> Parse();
  // The requests for the engine; sets up answer_.
  Result<std::vector<Request>> Prepare(api::ParsedRequest parsed);
  void WorkOn(api::ParsedRequest parsed);
  void KeepBody(std::string_view text);  // or sets cannot_move_ to the reason
  Status TakePlaces(int64_t sequences);
  void Submit(std::vector<Request> requests);
  // Runs `submit`, which submits one prompt, with the places of its sequences.
  template <class SubmitOne>
  Result<RequestHandle> WithPlaces(size_t prompt, int32_t sequences, SubmitOne submit);
  void OnDelta(size_t prompt, const TokenDelta& delta) override;
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) override;
  void OnDone(size_t prompt, const Usage& usage) override;
  void OnRefused(const Status& refused) override { Fail(refused); }
  void Write(size_t prompt, const TokenDelta& delta);
  void Finish(size_t prompt, const Usage& usage);
  std::string Schedule() const;  // JSON; empty: not requested
  // The schedule of the prompt; nothing: requests are not reported. Call without the mutex.
  std::optional<RequestTimeline> ReportedTimeline(size_t prompt) const;
  // Notes what is known of the request. Call with the mutex held.
  void NoteBegin(const std::vector<Request>& requests);
  void NoteUsage(const Usage& usage, const std::optional<RequestTimeline>& timeline);
  void Left();
  // Call with the mutex held.
  void BeginStream();

  const std::shared_ptr<const GenerationContext> context_;
  const api::Api& api_;
  const std::string request_id_;
  const std::string client_, owner_, cache_salt_, slo_class_;
  const bool one_of_many_;
  const bool explained_;  // the answer contains its schedule
  const bool routed_;     // from a router that supports moves
  const bool came_;       // the request began at another replica
  int64_t created_;       // Unix seconds
  std::atomic<TimeNs> move_failed_ns_{0};
  api::ConversationRunner runner_;
  // By prompt: the places of its running sequences, used by the thread that submits it, then by the delivery thread.
  std::vector<http::ClientCounts::Places> in_engine_;

  // Guarded by the mutex.
  std::optional<api::Answer> answer_;  // set before the first submit
  bool stream_ = false, stream_begun_ = false;
  std::string cannot_move_;           // the reason; empty: it can move
  http::Body body_;                   // kept for a move
  std::vector<std::string> ignored_;  // unknown fields of the body
  http::RequestFacts facts_;          // if they are reported
  Extent extent_;
  size_t heard_ = 0;            // tokens delivered by the engine
  size_t heard_elsewhere_ = 0;  // of them, sent to the client by another replica
  std::condition_variable heard_more_;
  std::string moved_to_, ticket_;
  TimeNs next_ping_ns_ = 0;
};

}  // namespace tactus::serve
