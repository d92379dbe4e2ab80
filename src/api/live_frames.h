// The data of GET /events in JSON (docs/reference/api.md, "Live events"): collects the engine's live records and writes
// them as frames. Texts of prompts and answers are not in it, and ids of requests only for their own owner.
//
// Thread rule: none; one thread at a time. Memory is bounded by the started requests and the records of one frame.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/engine.h"
#include "tactus/live.h"

namespace tactus::api {

class LiveFrames {
 public:
  // `find`: Engine::Timelines of a request, called for each once. `live`: LiveFeed::LiveRequests, called after a loss.
  using Find = std::function<std::vector<RequestTimeline>(RequestHandle)>;
  using Live = std::function<std::vector<RequestHandle>()>;
  LiveFrames(Find find, Live live) : find_(std::move(find)), live_(std::move(live)) {}

  // Adds records to the next frame; `lost` of them are missing.
  void Add(std::span<const LiveRecord> records, int64_t lost);
  bool empty() const { return steps_.empty() && ended_.empty() && touched_.empty() && lost_ == 0; }
  // The frame so far, as members of a JSON object. `owner`: the reader. `whole`: with every started request, not only
  // those with news.
  std::string Members(const EngineStats& stats, int64_t now_ns, std::string_view owner, bool whole) const;
  // Begins the next frame.
  void Next();

 private:
  struct Choice {
    int32_t tokens = 0, computed = 0;  // generated; positions of the prompt
    int64_t ttft_ns = -1, longest_gap_ns = -1;
    int32_t late_gaps = 0;         // since the watch began
    std::vector<int64_t> gaps_ns;  // in this frame
  };
  struct Stream {
    std::string id, owner, slo_class;
    Slo slo;
    int32_t prompt_tokens = 0, cached_tokens = 0;
    std::map<int32_t, Choice> choices;
    bool touched = false;
  };
  struct Step {
    LiveStep step;
    std::vector<LiveChunk> chunks;
  };
  struct Ended {
    LiveEnd end;
    Stream stream;
  };
  void Take(const LiveStep& step);
  void Take(const LiveChunk& chunk);
  void Take(const LiveStart& start);
  void Take(const LiveTokens& tokens);
  void Take(const LiveEnd& end);
  Stream& Of(RequestHandle request);  // marks it as touched
  void DropWhatHasEnded();

  const Find find_;
  const Live live_;
  std::map<RequestHandle, Stream> streams_;
  std::vector<RequestHandle> touched_;
  std::vector<LiveChunk> chunks_;  // of the step whose record comes next
  std::vector<Step> steps_;
  std::vector<Ended> ended_;
  int64_t lost_ = 0;
};

// The data of a viewer's first event.
std::string LiveHello(const ModelInfo& model, const EngineStats& stats, std::string_view scheduler);
// The members of an object with the attainment of each class: "classes":{"":{...}}.
std::string LiveClasses(const RunResult& result);
// "prefix_tree":{...}.
std::string LivePrefixTree(const PrefixOutline& outline);

}  // namespace tactus::api
