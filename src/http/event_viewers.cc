#include "http/event_viewers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tactus::http {

void EventViewers::Start(std::string hello) {
  std::lock_guard lock(mutex_);
  hello_ = std::move(hello);
  started_ = true;
}

Status EventViewers::Answer(const std::shared_ptr<Exchange>& exchange, Headers headers, const std::string& client,
                            std::string owner) {
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = std::move(headers);
  if (exchange->request().method == "HEAD") {
    exchange->Respond(std::move(head));
    return Status();
  }
  {
    std::lock_guard lock(mutex_);
    if (!started_ || stopped_) {
      return Status(StatusCode::kUnavailable, stopped_ ? "the server is stopping" : "the server is not ready");
    }
    if (viewers_.size() >= kMost) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("/events has {} viewers, the most at once; close one, or try again later", kMost));
    }
    auto place = clients_.Enter(client);
    if (!place.ok()) {
      return Status(
          StatusCode::kTooManyRequests,
          fmt::format("this client has {} views of /events open, the most of one client; close one", kMostOfOne));
    }
    head.headers.emplace_back("Cache-Control", "no-store");
    exchange->StartStream(std::move(head));
    exchange->Write(fmt::format("event: hello\ndata: {}\n\n", hello_));
    viewers_.emplace_back();
    viewers_.back().exchange = exchange;
    viewers_.back().owner = std::move(owner);
    viewers_.back().place = std::move(*place);
  }
  changed_.notify_all();
  exchange->OnClosed([this, left = exchange.get()] { Leave(left); });
  return Status();
}

void EventViewers::Leave(const Exchange* exchange) {
  std::lock_guard lock(mutex_);
  std::erase_if(viewers_, [exchange](const Viewer& v) { return v.exchange.get() == exchange; });
}

void EventViewers::Stop(std::string_view reason) {
  std::vector<Viewer> ended;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    ended.swap(viewers_);
  }
  changed_.notify_all();
  for (const Viewer& v : ended) {
    v.exchange->OnClosed({});
    v.exchange->Write(fmt::format("event: end\ndata: {{\"reason\":\"{}\"}}\n\n", reason));
    v.exchange->End();
  }
}

void EventViewers::EndAll() {
  std::vector<Viewer> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(viewers_);
  }
  for (const Viewer& v : ended) {
    v.exchange->OnClosed({});
    v.exchange->End();
  }
}

bool EventViewers::empty() const {
  std::lock_guard lock(mutex_);
  return viewers_.empty();
}

bool EventViewers::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

bool EventViewers::WaitForViewer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || !viewers_.empty(); });
  return !stopped_;
}

bool EventViewers::Wait(DurationNs time_ns) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::nanoseconds(time_ns), [this] { return stopped_; });
}

void EventViewers::SayEverything() {
  std::lock_guard lock(mutex_);
  for (Viewer& v : viewers_) v.whole = true;
}

bool EventViewers::has_whole() const {
  std::lock_guard lock(mutex_);
  return std::any_of(viewers_.begin(), viewers_.end(), [](const Viewer& v) { return v.whole; });
}

std::set<EventViewers::Kind> EventViewers::BeginFrame() {
  std::set<Kind> kinds;
  std::lock_guard lock(mutex_);
  for (Viewer& v : viewers_) {
    ++v.frame;
    v.due = v.exchange->unsent() <= kMostUnsentBytes;
    if (v.due) {
      kinds.insert(v.kind());
    } else {
      ++v.lost_frames;
    }
  }
  return kinds;
}

void EventViewers::EndFrame(const std::function<std::string_view(const Kind&)>& members) {
  std::lock_guard lock(mutex_);
  for (Viewer& v : viewers_) {
    if (!v.due) continue;
    v.exchange->Write(fmt::format("event: frame\ndata: {{\"frame\":{},\"lost_frames\":{},{}}}\n\n", v.frame,
                                  v.lost_frames, members(v.kind())));
    v.lost_frames = 0;
    v.whole = v.due = false;
  }
}

}  // namespace tactus::http
