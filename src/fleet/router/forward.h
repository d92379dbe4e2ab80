// Forwards one request to a replica, to another one if that fails before the client has received anything, and passes
// the answer back no faster than the client reads it.
//
// Rules. A request is retried only while the client has received nothing of an answer: keep-alive comments and an error
// as the first event do not count. A stream that has begun and cannot continue ends with an error event, never silently
// and never inside an event. Answers that are not event streams are held until they are complete (up to kHeldBytes), so
// that they can still be retried.
//
// Thread rule: the io thread. Invariants: the exchange gets one answer; every pick is ended; there is one copy of the
// body, counted (--max-body-total), until the client has received something.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fleet_secret.h"
#include "fleet/router/answer_scan.h"
#include "fleet/router/fleet_watch.h"
#include "fleet/router/forward_facts.h"
#include "fleet/router/request_view.h"
#include "fleet/router/route_recorder.h"
#include "fleet/router/router_options.h"
#include "http/client.h"
#include "http/client_counts.h"
#include "http/server.h"

namespace tactus::fleet {

inline constexpr int64_t kHeldBytes = 1 << 20;

struct ForwardCounts {
  std::map<std::pair<std::string, int>, int64_t> answers;  // by replica and status; 0: no answer
  int64_t retries = 0, hedges = 0, retrying = 0, in_flight = 0, cut_streams = 0;
  std::map<std::string, int64_t> migrations;  // by result
};

// Shared by all requests. Outlives them.
struct ForwardContext {
  const RouterOptions& options;
  FleetWatch& watch;
  Clock& clock;
  http::Loop& loop;
  std::function<http::Client&(const std::string& url)> client;
  ForwardCounts counts;
  double bytes_per_token = kBytesPerToken;
  std::optional<FleetKeys> keys = {};  // of the fleet's secret
  RouteRecorder* recorder = nullptr;   // null: nothing is recorded
  bool noted = false;                  // answered requests are reported
};

// Whether a request is recorded in a run file.
bool IsRecorded(const http::HttpRequest& request);

class Forward : public std::enable_shared_from_this<Forward> {
 public:
  // `headers` are added to every answer.
  Forward(ForwardContext& context, std::shared_ptr<http::Exchange> exchange, RequestView view, http::Body body,
          http::Headers headers, http::ClientCounts::Places places);
  ~Forward();
  void Start();
  void Tick(TimeNs now_ns);
  // The replica is lost: requests there that are silent since `silent_since_ns` will not continue.
  void Lost(int32_t replica, TimeNs silent_since_ns);
  // Ends the request because the router stops.
  void CutOff();
  bool over() const { return over_; }

 private:
  class Attempt;

  // False: no replica accepts it.
  bool Try();
  void Send(std::shared_ptr<Attempt> attempt, const std::string& url, http::ClientRequest request);
  http::ClientRequest Request() const;
  void Hedge();
  bool OnPiece(Attempt& attempt, std::string_view bytes);
  void OnDone(Attempt& attempt, const Status& status);
  void Lead(Attempt& attempt);
  bool Write(Attempt& attempt, std::string_view bytes);
  bool Pass(Attempt& attempt, std::string_view bytes);
  void NoteEvents(Attempt& attempt);
  void NoteEnd(const Attempt& attempt, RouteRecorder::End::How how);
  std::shared_ptr<Attempt> Take(Attempt& attempt);
  void StreamEnded(Attempt& attempt, const Status& status);
  bool IsCut(const Attempt& attempt) const;
  void Short(Attempt& attempt, const std::string& text);
  void ErrorFirst(Attempt& attempt);
  void Follow(Attempt& attempt, const Moved& moved);
  void Broken(Attempt& attempt, const std::string& text);
  enum class Why { kLost, kFault, kFull };  // no answer came; the status is 502 or 504; it is 503
  void Failed(Attempt& attempt, const std::string& text, Why why);
  bool MayRetry(Why why) const;
  void Count(Attempt& attempt, int status);
  void EndPick(Attempt& attempt);
  void ForgetPick(Attempt& attempt);
  void Fail(int status, const std::string& message);
  void Answer(Attempt& attempt);
  http::HttpResponse Head(const Attempt& attempt) const;
  void End();

  ForwardContext& context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const RequestView view_;
  std::shared_ptr<const http::Body> body_;  // null: it will not be sent again
  const http::Headers headers_;
  http::ClientCounts::Places places_;
  const TimeNs arrival_ns_;
  std::vector<std::shared_ptr<Attempt>> attempts_;  // in progress
  std::vector<int32_t> tried_replicas_;             // replicas that received the request
  Attempt* leader_ = nullptr;                       // the attempt whose answer the client gets
  std::shared_ptr<Attempt> best_failure_;           // an answer to use if no other comes
  std::string last_error_;
  int tries_ = 0, follows_ = 0;  // consecutive attempts without a result
  bool over_ = false, stream_begun_ = false, event_stream_ = false, retrying_ = false;
  bool in_event_ = false;                        // a part of an event was passed on
  bool may_hedge_ = false;                       // it was sent to one replica only, and may be hedged
  int64_t told_events_ = 0, told_finishes_ = 0;  // by attempts that have ended
  RouteRecorder::Seen seen_;
  RouteRecorder::End end_;
  ForwardFacts facts_;
};

}  // namespace tactus::fleet
