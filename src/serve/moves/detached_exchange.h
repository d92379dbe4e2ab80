// An exchange whose client is not there yet: what is answered is kept until the router comes for it, and then goes
// straight on. It comes once, or never; whoever made the exchange says when it is given up.
//
// Thread rule: any thread. Invariants: what is answered reaches the client once, in order; after GiveUp, or the
// client's leave, OnClosed is called, at most once. No callback is called with the mutex held.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http/server.h"

namespace tactus::serve {

class DetachedExchange final : public http::Exchange {
 public:
  DetachedExchange(http::HttpRequest request, std::string_view body);

  // From now on it is this client's. False: a client has come before, or it was given up.
  bool Attach(std::shared_ptr<http::Exchange> client);
  // No client comes any more. No effect once one has.
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
  void WhenSent(std::function<void()> callback) override;  // at once where no client has come
  void OnClosed(std::function<void()> callback) override;
  bool closed() const override;

 private:
  const http::HttpRequest request_;
  mutable std::mutex mutex_;
  http::Body body_;
  std::shared_ptr<http::Exchange> client_;  // null: none has come
  http::HttpResponse head_;
  std::string pending_;
  std::function<void()> on_closed_;
  bool started_ = false, streaming_ = false, ended_ = false, given_up_ = false;
};

}  // namespace tactus::serve
