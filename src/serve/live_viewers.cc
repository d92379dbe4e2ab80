#include "serve/live_viewers.h"

#include <map>
#include <new>
#include <string_view>
#include <vector>

#include "base/thread_role.h"

namespace tactus::serve {

void LiveViewers::Start(Engine* engine, std::string hello) {
  engine_ = engine;
  if (engine->live() == nullptr) return;
  viewers_.Start(std::move(hello));
  thread_ = std::thread([this] {
    SetThreadRole(ThreadRole::kService, "tactus-viewers");
    Run();
  });
}

void LiveViewers::Stop() {
  viewers_.Stop("the server stops");
  if (thread_.joinable()) thread_.join();
}

void LiveViewers::Run() {
  while (viewers_.WaitForViewer()) {
    engine_->live()->Watch(true);
    prefix_tree_.clear();
    try {
      Watch();
    } catch (const std::bad_alloc&) {  // ends the views alone
      viewers_.EndAll();
    }
    engine_->live()->Watch(false);
  }
}

// While there are viewers.
void LiveViewers::Watch() {
  api::LiveFrames frames([this](RequestHandle request) { return engine_->Timelines({.handle = request}); },
                         [this] { return engine_->live()->LiveRequests(); });
  std::vector<LiveRecord> records;
  int since_frame = kIdleEvery, since_classes = kClassesEvery;
  while (!viewers_.empty()) {
    records.clear();
    const int64_t lost = engine_->live()->Take(&records);
    frames.Add(records, lost);
    if (lost > 0) viewers_.SayEverything();  // the end of a stream may be among them
    const bool joined = viewers_.has_whole();
    if (!frames.empty() || joined || since_frame >= kIdleEvery) {
      const bool classes = joined || since_classes >= kClassesEvery;
      Publish(&frames, classes);
      since_frame = 0;
      if (classes) since_classes = 0;
    }
    ++since_frame;
    ++since_classes;
    if (!viewers_.Wait(kFrameNs)) return;
  }
}

// Frames are written as text outside the viewers' lock: the I/O thread takes it when a viewer comes or goes.
void LiveViewers::Publish(api::LiveFrames* frames, bool classes) {
  const auto kinds = viewers_.BeginFrame();
  const EngineStats stats = engine_->Stats();
  std::string seldom;
  if (classes) {
    if (const auto outline = engine_->live()->TakePrefixes()) prefix_tree_ = "," + api::LivePrefixTree(*outline);
    seldom = "," + api::LiveClasses(engine_->Outcome()) + prefix_tree_;
  }
  const int64_t now_ns = clock_.NowNs();
  std::map<http::EventViewers::Kind, std::string> texts;
  for (const auto& kind : kinds) texts[kind] = frames->Members(stats, now_ns, kind.owner, kind.whole) + seldom;
  frames->Next();
  viewers_.EndFrame([&texts](const auto& kind) -> std::string_view { return texts[kind]; });
}

}  // namespace tactus::serve
