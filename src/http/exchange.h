// The buffer between the producer of an answer (any thread) and the connection that writes it (io thread). Internal to
// http/.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/server.h"

namespace tactus::http {

class ExchangeBuffer;

// Wakes the io thread for producers: one wake-up for all exchanges that became ready meanwhile. It outlives the server
// if a producer still has an exchange; `wake` is empty then.
struct WakeList {
  std::mutex mutex;
  std::function<void()> wake;  // posts TakeDirty to the io thread
  std::vector<std::shared_ptr<ExchangeBuffer>> dirty;
  std::vector<std::function<void()>> calls;  // to run on the io thread

  // Any thread. False: the server has ended, and `call` is dropped.
  bool Call(std::function<void()> call);
};

class ExchangeBuffer final : public Exchange, public std::enable_shared_from_this<ExchangeBuffer> {
 public:
  ExchangeBuffer(HttpRequest request, Body body, std::shared_ptr<WakeList> wake_list)
      : request_(std::move(request)), wake_list_(std::move(wake_list)), body_(std::move(body)) {}

  const HttpRequest& request() const override { return request_; }
  Body TakeBody() override;
  void Respond(HttpResponse response) override;
  void StartStream(HttpResponse head) override;
  void Write(std::string_view bytes) override;
  void End() override;
  void Abort() override;
  int64_t unsent() const override;
  void WhenSent(std::function<void()> callback) override;
  void OnClosed(std::function<void()> callback) override;
  bool closed() const override;
  void Note(RequestFacts facts) override;
  std::shared_ptr<const RequestFacts> facts() const;  // null: none

  // --- Io thread, by the connection ---
  struct Output {
    bool has_head = false;
    bool streaming = false;
    HttpResponse head;  // includes the body if not streaming
    std::string bytes;  // of a stream's body, not yet written
    bool ended = false, aborted = false;
  };
  // Moves out the pending output; the output of the previous call has been written.
  void Take(Output* output);
  void ClientGone();
  std::function<void()> on_ready;  // set while a connection waits for output; io thread only

 private:
  void MakeDirty();

  const HttpRequest request_;
  const std::shared_ptr<WakeList> wake_list_;
  mutable std::mutex mutex_;
  Body body_;
  HttpResponse head_;
  std::string pending_;
  std::function<void()> on_closed_, when_sent_;
  std::shared_ptr<const RequestFacts> facts_;
  int64_t taken_bytes_ = 0;  // being written
  bool aborted_ = false;
  bool started_ = false, head_taken_ = false, streaming_ = false, ended_ = false, closed_ = false, dirty_ = false;
};

}  // namespace tactus::http
