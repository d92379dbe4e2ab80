#include "serve/live_viewers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/thread_role.h"

namespace tactus::serve {

void LiveViewers::Start(Engine* engine, std::string hello) {
  engine_ = engine;
  hello_ = std::move(hello);
  if (engine->live() == nullptr) return;
  stopping_ = false;
  thread_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "tactus-viewers");
    Run();
  });
}

bool LiveViewers::Join(std::shared_ptr<http::Exchange> exchange, http::Headers headers, std::string owner) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || viewers_.size() >= kMostViewers) return false;
    http::HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = std::move(headers);
    head.headers.emplace_back("Cache-Control", "no-store");
    exchange->StartStream(std::move(head));
    exchange->Write(fmt::format("event: hello\ndata: {}\n\n", hello_));
    viewers_.push_back({.exchange = exchange, .owner = std::move(owner)});
  }
  changed_.notify_all();
  exchange->OnClosed([this, left = exchange.get()] { Leave(left); });
  return true;
}

void LiveViewers::Leave(const http::Exchange* exchange) {
  std::lock_guard lock(mutex_);
  std::erase_if(viewers_, [exchange](const Viewer& v) { return v.exchange.get() == exchange; });
}

void LiveViewers::Stop() {
  std::vector<Viewer> viewers;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    viewers.swap(viewers_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const Viewer& v : viewers) {
    v.exchange->OnClosed({});
    v.exchange->Write("event: end\ndata: {\"reason\":\"the server stops\"}\n\n");
    v.exchange->End();
  }
}

void LiveViewers::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !viewers_.empty(); });
    if (stopping_) return;
    engine_->live()->Watch(true);
    Watch(&lock);
    engine_->live()->Watch(false);
  }
}

// While there are viewers. The lock is held except while it waits and reads the engine.
void LiveViewers::Watch(std::unique_lock<std::mutex>* lock) {
  api::LiveFrames frames([this](RequestHandle request) { return engine_->Timelines({.handle = request}); });
  std::vector<LiveRecord> records;
  int since_frame = kIdleEvery, since_classes = kClassesEvery;
  while (!stopping_ && !viewers_.empty()) {
    lock->unlock();
    records.clear();
    const int64_t lost = engine_->live()->Take(&records);
    frames.Add(records, lost);
    lock->lock();
    const bool joined = std::any_of(viewers_.begin(), viewers_.end(), [](const Viewer& v) { return v.whole; });
    if (!frames.empty() || joined || since_frame >= kIdleEvery) {
      const bool classes = joined || since_classes >= kClassesEvery;
      lock->unlock();
      Publish(&frames, classes);
      lock->lock();
      since_frame = 0;
      if (classes) since_classes = 0;
    }
    ++since_frame;
    ++since_classes;
    changed_.wait_for(*lock, std::chrono::nanoseconds(kFrameNs), [this] { return stopping_; });
  }
}

void LiveViewers::Publish(api::LiveFrames* frames, bool classes) {
  const EngineStats stats = engine_->Stats();
  const std::string of_classes = classes ? "," + api::LiveClasses(engine_->Outcome()) : std::string();
  const int64_t now_ns = clock_.NowNs();
  std::map<std::pair<std::string, bool>, std::string> texts;  // by owner and `whole`
  std::lock_guard lock(mutex_);
  for (Viewer& v : viewers_) {
    ++v.frame;
    if (v.exchange->unsent() > kMostUnsentBytes) {
      ++v.lost_frames;
      continue;
    }
    const bool whole = v.whole || v.lost_frames > 0;  // streams may have changed in the lost frames
    std::string& text = texts[{v.owner, whole}];
    if (text.empty()) text = frames->Members(stats, now_ns, v.owner, whole) + of_classes;
    v.exchange->Write(
        fmt::format("event: frame\ndata: {{\"frame\":{},\"lost_frames\":{},{}}}\n\n", v.frame, v.lost_frames, text));
    v.lost_frames = 0;
    v.whole = false;
  }
  frames->Next();
}

}  // namespace tactus::serve
