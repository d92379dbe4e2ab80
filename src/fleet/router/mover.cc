#include "fleet/router/mover.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "base/one_line.h"
#include "http/access.h"

namespace tactus::fleet {
namespace {

constexpr const char* kPath = "/fleet/migrate";
constexpr DurationNs kMostNs = 120 * kSecond;  // limit of a command, which may move many sequences
constexpr int64_t kAnswerBytes = 16 << 20;

}  // namespace

http::Headers SignedHeaders(const FleetKeys& keys, const std::string& method, const std::string& path,
                            const std::string& body) {
  return {{"Content-Type", "application/json"},
          {kFleetHeader, SignFleetRequest(keys, {method, path, body}, UnixSeconds(), http::RandomBits())}};
}

struct Mover::Reply final : http::ResponseHandler {
  Mover* mover = nullptr;
  std::weak_ptr<bool> alive;
  std::string from;
  void OnDone(const Status& status, const http::HttpResponse& response, TimeNs) override {
    if (alive.lock()) mover->Told(from, status, response);
  }
};

Mover::Mover(const FleetKeys& keys, DurationNs interval_ns, FleetWatch& watch, Clock& clock, http::Loop& loop,
             FleetWatch::Log log, std::map<std::string, int64_t>& results)
    : keys_(keys),
      interval_ns_(interval_ns),
      watch_(watch),
      clock_(clock),
      loop_(loop),
      log_(log ? std::move(log) : [](std::string_view) {}),
      results_(results) {
  LookLater();
}

Mover::~Mover() = default;

void Mover::LookLater() {
  loop_.After(interval_ns_, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock()) Look();
  });
}

void Mover::Look() {
  LookLater();  // first, so that it happens even if this fails
  for (const FleetWatch::Move& move : watch_.Moves()) {
    std::unique_ptr<http::Client>& client = busy_[move.from];
    if (client) continue;
    http::ClientOptions options;
    options.tls = watch_.tls();
    options.timeout_ns = kMostNs;
    options.max_response_bytes = kAnswerBytes;
    client = std::make_unique<http::Client>(*http::ParseUrl(move.from), options, clock_, loop_);
    Json command = {{"to", move.to}};
    if (move.all)
      command["all"] = true;
    else
      command["count"] = 1;
    http::ClientRequest request;
    request.path = kPath;
    request.body = command.dump();
    request.headers = SignedHeaders(keys_, "POST", kPath, request.body);
    auto reply = std::make_shared<Reply>();
    reply->mover = this;
    reply->alive = alive_;
    reply->from = move.from;
    client->Send(std::move(request), std::move(reply));
  }
}

void Mover::Told(const std::string& from, const Status& status, const http::HttpResponse& response) {
  // Not now: the client is our caller.
  loop_.Post([this, alive = std::weak_ptr<bool>(alive_), from] {
    if (alive.lock()) busy_.erase(from);
  });
  std::string why = status.ok() ? std::string() : status.message();
  if (status.ok()) {
    const auto answer = json_text::ParseJson(response.body);
    const bool object = answer.ok() && answer->is_object();
    const auto list = [&](const char* name) {
      const auto found = object ? answer->find(name) : Json::const_iterator();
      return object && found != answer->end() && found->is_array() ? *found : Json::array();
    };
    const Json moved = list("moved"), failed = list("failed");
    if (!moved.empty()) results_["moved"] += static_cast<int64_t>(moved.size());
    if (!failed.empty()) {
      results_["failed"] += static_cast<int64_t>(failed.size());
      why = json_text::TextOf(failed.front(), "why");
    }
    if (response.status != 200)
      why = fmt::format("{} returns {}: {}", kPath, response.status, response.body.substr(0, 200));
  }
  if (!why.empty() && said_[from] != why)
    log_(fmt::format("warning: replica {}: a sequence does not move: {}", from, OneLine(why)));
  said_[from] = why;
}

}  // namespace tactus::fleet
