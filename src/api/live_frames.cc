#include "api/live_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "api/fields/json.h"
#include "tactus/version.h"

namespace tactus::api {
namespace {

constexpr int64_t kMostBudgetTokens = int64_t{1} << 30;  // from here on there is no limit
constexpr size_t kMostGaps = 256;                        // of one choice in a frame

std::string LiveMs(int64_t ns) {
  return fmt::format("{:.3f}", static_cast<double>(ns) * 1e-6);
}
std::string LiveMsOrNull(int64_t ns) {
  return ns < 0 ? "null" : LiveMs(ns);
}

void AppendStated(std::string* out, const Slo& slo) {
  const int64_t stated_ns[] = {slo.ttft_ns, slo.tbt_ns, slo.jct_ns};
  *out += ",\"objectives_ms\":{";
  bool first = true;
  for (size_t o = 0; o < kNumObjectives; ++o) {
    if (stated_ns[o] <= 0) continue;
    fmt::format_to(std::back_inserter(*out), "{}\"{}\":{}", first ? "" : ",", ObjectiveName(static_cast<Objective>(o)),
                   LiveMs(stated_ns[o]));
    first = false;
  }
  *out += '}';
}

// The id, for its owner only.
std::string IdFor(std::string_view owner, std::string_view id, std::string_view reader) {
  return id.empty() || owner != reader ? "null" : Quoted(id);
}

void AppendDrafts(std::string* out, const char* name, const DraftCounts& c) {
  fmt::format_to(std::back_inserter(*out), "\"{}\":{{\"drafts\":{},\"draft_tokens\":{},\"accepted_tokens\":{}}}", name,
                 c.drafts, c.draft_tokens, c.accepted_tokens);
}

void AppendStats(std::string* out, const EngineStats& s) {
  fmt::format_to(std::back_inserter(*out),
                 "\"running\":{},\"waiting\":{},\"waiting_tokens\":{},\"kv_blocks\":{{\"total\":{},\"in_use\":{},"
                 "\"cached\":{}}},\"totals\":{{\"steps\":{},\"prompt_tokens\":{},\"generation_tokens\":{},"
                 "\"preemptions\":{},\"prefix_query_tokens\":{},\"prefix_hit_tokens\":{}}},\"speculation\":{{",
                 s.running, s.waiting, s.waiting_tokens, s.kv_blocks_total, s.kv_blocks_in_use, s.kv_blocks_cached,
                 s.steps, s.prompt_tokens, s.generation_tokens, s.preemptions, s.prefix_query_tokens,
                 s.prefix_hit_tokens);
  AppendDrafts(out, "forced", s.forced_drafts);
  *out += ',';
  AppendDrafts(out, "ngram", s.ngram_drafts);
  *out += ',';
  AppendDrafts(out, "model", s.model_drafts);
  *out += '}';
}

void AppendMisses(std::string* out, const LiveEnd& end) {
  *out += ",\"misses\":{";
  bool first = true;
  for (size_t o = 0; o < kNumObjectives; ++o) {
    if (!end.misses[o].missed) continue;
    fmt::format_to(std::back_inserter(*out), "{}\"{}\":\"{}\"", first ? "" : ",",
                   ObjectiveName(static_cast<Objective>(o)), CauseName(end.misses[o].cause));
    first = false;
  }
  *out += '}';
}

void AppendKept(std::string* out, const char* name, const KeptCount& count) {
  if (count.stated == 0) return;
  fmt::format_to(std::back_inserter(*out), ",\"{}\":{{\"stated\":{},\"kept\":{}}}", name, count.stated, count.kept);
}

}  // namespace

void LiveFrames::Add(std::span<const LiveRecord> records, int64_t lost) {
  lost_ += lost;
  for (const LiveRecord& record : records) {
    std::visit([this](const auto& r) { Take(r); }, record);
  }
  if (lost > 0) DropWhatHasEnded();
}

// The end of a request may be among the lost records.
void LiveFrames::DropWhatHasEnded() {
  std::vector<RequestHandle> live = live_();
  std::sort(live.begin(), live.end());
  std::erase_if(streams_,
                [&live](const auto& entry) { return !std::binary_search(live.begin(), live.end(), entry.first); });
  std::erase_if(touched_, [this](RequestHandle request) { return !streams_.contains(request); });
}

LiveFrames::Stream& LiveFrames::Of(RequestHandle request) {
  const auto [at, added] = streams_.try_emplace(request);
  Stream& stream = at->second;
  if (added) {
    if (const auto found = find_(request); !found.empty()) {
      const RequestTimeline& r = found.front();
      stream.id = r.id;
      stream.owner = r.owner;
      stream.slo_class = r.slo_class;
      stream.slo = r.slo;
      stream.prompt_tokens = r.prompt_tokens;
      if (r.cache) stream.cached_tokens = r.cache->tokens;
      for (const SequenceTimeline& s : r.sequences) {
        Choice& choice = stream.choices[s.choice];
        choice.tokens = s.completion_tokens;
        choice.ttft_ns = s.ttft_ns;
        choice.longest_gap_ns = s.longest_gap_ns;
        if (s.ttft_ns >= 0) choice.computed = r.prompt_tokens;
      }
    }
  }
  if (!stream.touched) touched_.push_back(request);
  stream.touched = true;
  return stream;
}

void LiveFrames::Take(const LiveStep& step) {
  steps_.push_back({step, std::move(chunks_)});
  chunks_.clear();
}

void LiveFrames::Take(const LiveChunk& chunk) {
  Stream& stream = Of(chunk.request);
  Choice& choice = stream.choices[chunk.choice];
  choice.computed = chunk.first_position + chunk.tokens;
  if (!chunks_.empty() && chunks_.back().step != chunk.step) Take(LiveStep{.step = chunks_.back().step});
  chunks_.push_back(chunk);
}

void LiveFrames::Take(const LiveStart& start) {
  Stream& stream = Of(start.request);
  stream.prompt_tokens = start.prompt_tokens;
  stream.cached_tokens = start.cached_tokens;
}

void LiveFrames::Take(const LiveTokens& tokens) {
  Stream& stream = Of(tokens.request);
  Choice& choice = stream.choices[tokens.choice];
  choice.tokens = tokens.tokens;
  choice.computed = std::max(choice.computed, stream.prompt_tokens);
  if (tokens.first) {
    choice.ttft_ns = tokens.gap_ns;
    return;
  }
  choice.longest_gap_ns = std::max(choice.longest_gap_ns, tokens.gap_ns);
  if (stream.slo.tbt_ns > 0 && tokens.gap_ns > stream.slo.tbt_ns) ++choice.late_gaps;
  if (choice.gaps_ns.size() < kMostGaps) choice.gaps_ns.push_back(tokens.gap_ns);
}

void LiveFrames::Take(const LiveEnd& end) {
  Stream& stream = Of(end.request);
  std::erase(touched_, end.request);
  ended_.push_back({end, std::move(stream)});
  streams_.erase(end.request);
}

void LiveFrames::Next() {
  for (const RequestHandle request : touched_) {
    Stream& stream = streams_[request];
    stream.touched = false;
    for (auto& entry : stream.choices) entry.second.gaps_ns.clear();
  }
  touched_.clear();
  steps_.clear();
  ended_.clear();
  lost_ = 0;
}

std::string LiveFrames::Members(const EngineStats& stats, int64_t now_ns, std::string_view owner, bool whole) const {
  std::string out = fmt::format("\"now_ms\":{},\"lost_records\":{},", LiveMs(now_ns), lost_);
  const auto to = std::back_inserter(out);
  const auto comma = [&out] { return out.back() == '[' ? "" : ","; };  // between the elements of a list
  const auto begin = [&](RequestHandle request, const Stream& s) {
    fmt::format_to(to, "{}{{\"request\":{},\"id\":{},\"class\":{}", comma(), request, IdFor(s.owner, s.id, owner),
                   Quoted(s.slo_class));
  };
  AppendStats(&out, stats);
  out += ",\"steps\":[";
  for (const Step& s : steps_) {
    const LiveStep& r = s.step;
    fmt::format_to(to,
                   "{}{{\"step\":{},\"begin_ms\":{},\"ms\":{},\"predicted_ms\":{},\"budget_tokens\":{},\"decodes\":{},"
                   "\"prompt_tokens\":{},\"preemptions\":{},\"ok\":{},\"running\":{},\"waiting\":{},"
                   "\"kv_blocks_in_use\":{},\"kv_blocks_cached\":{},\"chunks\":[",
                   comma(), r.step, LiveMs(r.begin_ns), LiveMs(r.end_ns - r.begin_ns),
                   r.predicted_ns > 0 ? LiveMs(r.predicted_ns) : "null",
                   r.budget_tokens < kMostBudgetTokens ? fmt::to_string(r.budget_tokens) : "null", r.decodes,
                   r.prompt_tokens, r.preemptions, r.ok, r.running, r.waiting, r.kv_blocks_in_use, r.kv_blocks_cached);
    for (const LiveChunk& c : s.chunks) {
      fmt::format_to(to, "{}{{\"request\":{},\"choice\":{},\"from\":{},\"tokens\":{}}}", comma(), c.request, c.choice,
                     c.first_position, c.tokens);
    }
    out += "]}";
  }
  out += fmt::format("],\"whole\":{},\"streams\":[", whole);
  for (const auto& [request, stream] : streams_) {
    if (!whole && !stream.touched) continue;
    begin(request, stream);
    fmt::format_to(to, ",\"prompt_tokens\":{},\"cached_tokens\":{}", stream.prompt_tokens, stream.cached_tokens);
    AppendStated(&out, stream.slo);
    out += ",\"choices\":[";
    for (const auto& [number, c] : stream.choices) {
      fmt::format_to(to,
                     "{}{{\"choice\":{},\"computed_tokens\":{},\"completion_tokens\":{},\"ttft_ms\":{},"
                     "\"longest_gap_ms\":{},\"late_gaps\":{},\"gaps_ms\":[",
                     comma(), number, c.computed, c.tokens, LiveMsOrNull(c.ttft_ns), LiveMsOrNull(c.longest_gap_ns),
                     c.late_gaps);
      for (const int64_t& gap_ns : c.gaps_ns) {
        out += comma();
        out += LiveMs(gap_ns);
      }
      out += "]}";
    }
    out += "]}";
  }
  out += "],\"finished\":[";
  for (const Ended& e : ended_) {
    const LiveEnd& r = e.end;
    begin(r.request, e.stream);
    fmt::format_to(to,
                   ",\"finish_reason\":{},\"refused\":{},\"prompt_tokens\":{},"
                   "\"cached_tokens\":{},\"completion_tokens\":{},\"preemptions\":{},\"ttft_ms\":{},\"e2e_ms\":{},"
                   "\"longest_gap_ms\":{},\"gaps\":{},\"late_gaps\":{}",
                   Quoted(FinishReasonName(r.finish)), r.refused, r.prompt_tokens, r.cached_tokens, r.completion_tokens,
                   r.preemptions, LiveMsOrNull(r.ttft_ns), LiveMs(r.e2e_ns),
                   r.gaps > 0 ? LiveMs(r.longest_gap_ns) : "null", r.gaps, r.late_gaps);
    AppendStated(&out, e.stream.slo);
    AppendMisses(&out, r);
    out += '}';
  }
  out += ']';
  return out;
}

std::string LiveHello(const ModelInfo& model, const EngineStats& stats, std::string_view scheduler) {
  std::string names = Quoted(model.name);
  for (const std::string& name : model.other_names) names += "," + Quoted(name);
  return fmt::format(
      "{{\"version\":{},\"model\":{},\"names\":[{}],\"architecture\":{},\"parameters\":{},\"weights\":{},"
      "\"device\":{},\"kernels\":{},\"memory_bytes\":{},\"scheduler\":{},\"max_model_len\":{},\"step_tokens\":{},"
      "\"block_size\":{},\"kv_blocks_total\":{},\"kv_bytes_per_token\":{}}}",
      Quoted(Version()), Quoted(model.name), names, Quoted(model.architecture), model.num_parameters,
      Quoted(model.weight_format), Quoted(model.device), Quoted(model.kernels), model.memory_bytes, Quoted(scheduler),
      model.max_model_len, stats.step_tokens, stats.block_size, stats.kv_blocks_total, model.kv_bytes_per_token);
}

std::string LiveClasses(const RunResult& result) {
  std::string out = "\"classes\":{";
  bool first = true;
  for (const auto& [name, c] : result.classes) {
    fmt::format_to(std::back_inserter(out), "{}{}:{{\"completed\":{},\"failed\":{},\"rejected\":{}", first ? "" : ",",
                   Quoted(name), c.completed, c.failed, c.rejected);
    first = false;
    AppendKept(&out, "all", {c.stated, c.kept});
    AppendKept(&out, "ttft", c.ttft);
    AppendKept(&out, "tbt", c.tbt);
    AppendKept(&out, "jct", c.jct);
    AppendKept(&out, "gaps", c.gaps);
    out += '}';
  }
  return out + '}';
}

std::string LivePrefixTree(const PrefixOutline& outline) {
  std::string out =
      fmt::format("\"prefix_tree\":{{\"blocks\":{},\"too_large\":{},\"branches\":[", outline.blocks, outline.too_large);
  for (const PrefixBranch& b : outline.branches) {
    fmt::format_to(std::back_inserter(out),
                   "{}{{\"parent\":{},\"depth\":{},\"blocks\":{},\"below\":{},\"in_use\":{},\"sequences\":{}}}",
                   &b == outline.branches.data() ? "" : ",", b.parent < 0 ? "null" : fmt::to_string(b.parent), b.depth,
                   b.blocks, b.below, b.in_use, b.sequences);
  }
  return out + "]}";
}

}  // namespace tactus::api
