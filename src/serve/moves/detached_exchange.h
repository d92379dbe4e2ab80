// An exchange whose client is not connected yet: the answer is buffered until the router requests it, and forwarded
// from then on. The router attaches at most once; the creator of the exchange decides when to give up.
//
// Thread rule: any thread. Invariants: the answer reaches the client once, in order; after GiveUp, or the client's
// disconnect, OnClosed is called, at most once. No callback is called with the mutex held.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/server.h"

namespace tactus::serve {

class DetachedExchange final : public http::Exchange {
 public:
  DetachedExchange(http::HttpRequest request, std::string_view body);

  // Forwards to this client from now on. False: a client was attached before, or the exchange was given up.
  bool Attach(std::shared_ptr<http::Exchange> client);
  // No client will attach. No effect after Attach.
  void GiveUp();
  bool attached() const;

  const http::HttpRequest& request() const override { return request_; }
  http::Body TakeBody() override;
  void Respond(http::HttpResponse response) override;
  void StartStream(http::HttpResponse head) override;
  void Write(std::string_view bytes) override;
  void End() override;
  void Abort() override;
  int64_t unsent() const override;
  void WhenSent(std::function<void()> callback) override;  // at once if no client is attached
  void OnClosed(std::function<void()> callback) override;
  bool closed() const override;
  void Note(http::RequestFacts facts) override;

 private:
  const http::HttpRequest request_;
  mutable std::mutex mutex_;
  http::Body body_;
  std::shared_ptr<http::Exchange> client_;  // null: none attached
  http::HttpResponse head_;
  std::optional<http::RequestFacts> facts_;  // for the client
  std::string pending_;
  std::function<void()> on_closed_;
  bool started_ = false, streaming_ = false, ended_ = false, given_up_ = false;
};

}  // namespace tactus::serve
