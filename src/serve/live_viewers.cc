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
    prefix_tree_.clear();
    try {
      Watch(&lock);
    } catch (const std::bad_alloc&) {  // ends the views alone
      if (!lock.owns_lock()) lock.lock();
      EndAll(&lock);
    }
    engine_->live()->Watch(false);
  }
}

void LiveViewers::EndAll(std::unique_lock<std::mutex>* lock) {
  std::vector<Viewer> ended;
  ended.swap(viewers_);
  lock->unlock();
  for (const Viewer& v : ended) {
    v.exchange->OnClosed({});
    v.exchange->End();
  }
  lock->lock();
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
    if (lost > 0) {  // the end of a stream may be among them
      for (Viewer& v : viewers_) v.whole = true;
    }
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

// Frames are written as text outside the lock: the I/O thread takes it when a viewer joins or leaves.
void LiveViewers::Publish(api::LiveFrames* frames, bool classes) {
  std::map<Kind, std::string> texts;
  {
    std::lock_guard lock(mutex_);
    for (Viewer& v : viewers_) {
      ++v.frame;
      v.due = v.exchange->unsent() <= kMostUnsentBytes;
      if (v.due) {
        texts[v.kind()];
      } else {
        ++v.lost_frames;
      }
    }
  }
  const EngineStats stats = engine_->Stats();
  std::string seldom;
  if (classes) {
    if (const auto outline = engine_->live()->TakePrefixes()) prefix_tree_ = "," + api::LivePrefixTree(*outline);
    seldom = "," + api::LiveClasses(engine_->Outcome()) + prefix_tree_;
  }
  const int64_t now_ns = clock_.NowNs();
  for (auto& [kind, text] : texts) text = frames->Members(stats, now_ns, kind.owner, kind.whole) + seldom;
  frames->Next();
  std::lock_guard lock(mutex_);
  for (Viewer& v : viewers_) {
    if (!v.due) continue;
    v.exchange->Write(fmt::format("event: frame\ndata: {{\"frame\":{},\"lost_frames\":{},{}}}\n\n", v.frame,
                                  v.lost_frames, texts[v.kind()]));
    v.lost_frames = 0;
    v.whole = false;
    v.due = false;
  }
}

}  // namespace tactus::serve
