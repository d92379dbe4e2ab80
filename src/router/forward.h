// One request on its way: to a replica, to another when that one fails before it has told the client anything, and its
// answer back, no faster than the client takes it.
//
// Rules. A request goes elsewhere only where nothing of an answer has been told: comments that keep a stream alive tell
// nothing. What has begun and cannot go on ends with an error in the stream, never in silence. Answers that are no
// event streams are held until they are whole (up to kHeldBytes), so that they can still be had elsewhere.
//
// Thread rule: the io thread. Invariants: the exchange gets one answer; every ticket taken is ended; the body is let go
// of once an answer has begun.
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
#include "http/client.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "router/answer_scan.h"
#include "router/fleet_watch.h"
#include "router/request_view.h"
#include "router/router_options.h"

namespace tactus::router {

inline constexpr int64_t kHeldBytes = 1 << 20;

struct ForwardCounts {
  std::map<std::pair<std::string, int>, int64_t> answers;  // by replica and status; 0: none came
  int64_t retries = 0, hedges = 0, retrying = 0, in_flight = 0, cut_streams = 0;
  std::map<std::string, int64_t> migrations;  // by result
};

// What all requests share. Outlives them.
struct ForwardContext {
  const RouterOptions& options;
  FleetWatch& watch;
  Clock& clock;
  http::Loop& loop;
  std::function<http::Client&(const std::string& url)> client;
  std::function<std::string(int status, const std::string& message)> error_text;
  ForwardCounts counts;
  double bytes_per_token = kBytesPerToken;
  std::optional<FleetKeys> keys = {};  // of the fleet's secret
};

class Forward : public std::enable_shared_from_this<Forward> {
 public:
  // `headers` go with every answer.
  Forward(ForwardContext& context, std::shared_ptr<http::Exchange> exchange, RequestView view, http::Body body,
          http::Headers headers, http::ClientCounts::Places places);
  ~Forward();
  void Start();
  void Tick(TimeNs now_ns);
  // The replica will not answer any more.
  void Lost(int32_t replica);
  bool over() const { return over_; }

 private:
  class Attempt;

  // False: nobody takes it.
  bool Try();
  void Send(std::shared_ptr<Attempt> attempt, const std::string& url, http::ClientRequest request);
  http::ClientRequest Request() const;
  void Hedge();
  void OnHead(Attempt& attempt);
  bool OnPiece(Attempt& attempt, std::string_view bytes);
  void OnDone(Attempt& attempt, const Status& status);
  void Lead(Attempt& attempt);
  bool Write(Attempt& attempt, std::string_view bytes);
  void StreamEnded(Attempt& attempt, const Status& status);
  void Follow(Attempt& attempt, const Moved& moved);
  enum class Why { kLost, kFault, kFull };  // no answer came; it says 502 or 504; it says 503
  void Failed(Attempt& attempt, const std::string& text, Why why);
  bool MayRetry(Why why) const;
  void Count(Attempt& attempt, int status);
  void EndTicket(Attempt& attempt);
  void Fail(int status, const std::string& message);
  void Answer(Attempt& attempt);
  http::HttpResponse Head(const Attempt& attempt) const;
  void End();

  ForwardContext& context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const RequestView view_;
  http::Body body_;
  const http::Headers headers_;
  http::ClientCounts::Places places_;
  const TimeNs arrival_ns_;
  std::vector<std::shared_ptr<Attempt>> attempts_;  // under way
  std::vector<int32_t> been_;                       // replicas that had it
  Attempt* leader_ = nullptr;                       // whose answer the client gets
  std::shared_ptr<Attempt> best_failure_;           // an answer that is better than none
  std::string last_error_;
  int tries_ = 0;
  bool over_ = false, stream_begun_ = false, event_stream_ = false, retrying_ = false;
  int64_t told_events_ = 0;
};

}  // namespace tactus::router
