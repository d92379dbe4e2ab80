#include "api/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "api/fields/json.h"
#include "base/printable.h"

namespace tactus::api {
namespace {

// The request's id: with several prompts, each prompt's id has a suffix, which is removed.
std::string_view IdOf(const std::vector<RequestTimeline>& prompts) {
  std::string_view id = prompts.front().id;
  if (prompts.size() > 1) id = id.substr(0, id.rfind('-'));
  return id;
}

// Nanoseconds as milliseconds, exactly.
std::string Ms(int64_t ns) {
  const char* sign = ns < 0 ? "-" : "";
  const uint64_t magnitude = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  return fmt::format("{}{}.{:06}", sign, magnitude / 1000000, magnitude % 1000000);
}

std::string_view FinishName(FinishReason reason) {
  return reason == FinishReason::kNone ? "" : FinishReasonName(reason);
}

struct Place {
  size_t prompt = 0;
  const SequenceTimeline* sequence = nullptr;
};

// A request as a whole: the sequence whose timeline reaches furthest, and the request's latencies.
struct Whole {
  explicit Whole(const std::vector<RequestTimeline>& prompts) {
    ended = true;
    for (size_t p = 0; p < prompts.size(); ++p) {
      ended = ended && prompts[p].ended;
      finish = std::max(finish, prompts[p].finish);
      for (const SequenceTimeline& s : prompts[p].sequences) {
        all.push_back({p, &s});
        if (last.sequence == nullptr || s.end_ns > last.sequence->end_ns) last = all.back();
        if (s.ttft_ns >= 0 && (ttft_ns < 0 || s.ttft_ns < ttft_ns)) ttft_ns = s.ttft_ns;
        if (s.longest_gap_ns >= 0 && (gap.sequence == nullptr || s.longest_gap_ns > gap.sequence->longest_gap_ns))
          gap = all.back();
      }
    }
    if (!ended) finish = FinishReason::kNone;
  }
  std::vector<Place> all;
  Place last, gap;
  int64_t ttft_ns = -1;
  bool ended = false;
  FinishReason finish = FinishReason::kNone;
};

void AppendFinish(std::string* out, FinishReason finish) {
  *out += ",\"finish_reason\":";
  if (finish == FinishReason::kNone)
    *out += "null";
  else
    AppendJsonString(out, FinishName(finish));
}

void AppendSchedule(std::string* out, const SequenceTimeline& s) {
  auto to = std::back_inserter(*out);
  *out += "\"segments\":[";
  for (size_t i = 0; i < s.segments.size(); ++i) {
    const TimelineSegment& g = s.segments[i];
    fmt::format_to(to, "{}{{\"cause\":\"{}\",\"from_ms\":{},\"to_ms\":{},\"steps\":{}{}}}", i > 0 ? "," : "",
                   CauseName(g.cause), Ms(g.from_ns), Ms(g.to_ns), g.steps, g.mixed ? ",\"mixed\":true" : "");
  }
  *out += "],\"totals_ms\":{";
  bool first = true;
  for (size_t c = 0; c < kNumCauses; ++c) {
    if (s.total_ns[c] == 0) continue;
    fmt::format_to(to, "{}\"{}\":{}", first ? "" : ",", CauseName(static_cast<Cause>(c)), Ms(s.total_ns[c]));
    first = false;
  }
  fmt::format_to(to, "}},\"prefill_beside_others_ms\":{}", Ms(s.prefill_beside_others_ns));
}

// `cache` empty: the prompt has not started.
void AppendCache(std::string* out, const std::optional<CacheMatch>& cache) {
  *out += ",\"cache\":";
  if (!cache) {
    *out += "null";
    return;
  }
  fmt::format_to(std::back_inserter(*out),
                 "{{\"cached_tokens\":{},\"memory_tokens\":{},\"disk_tokens\":{},\"ended\":\"{}\"}}", cache->tokens,
                 cache->tokens - cache->disk_tokens, cache->disk_tokens, CacheEndName(cache->end));
}

void AppendGap(std::string* out, const SequenceTimeline* s) {
  *out += ",\"longest_gap\":";
  if (s == nullptr) {
    *out += "null";
    return;
  }
  fmt::format_to(std::back_inserter(*out), "{{\"ms\":{},\"from_ms\":{},\"to_ms\":{},\"cause\":\"{}\"}}",
                 Ms(s->longest_gap_ns), Ms(s->longest_gap_end_ns - s->longest_gap_ns), Ms(s->longest_gap_end_ns),
                 CauseName(s->longest_gap_cause));
}

struct Stated {
  Objective objective = Objective::kTtft;
  int64_t ns = 0;
  int64_t actual_ns = -1;  // so far; -1: none yet
  bool decided = false;
  Miss miss;
  bool missed() const { return miss.missed; }
};

// The request's stated objectives and whether they are kept. With several prompts, the latest one counts.
std::vector<Stated> StatedOf(const std::vector<RequestTimeline>& prompts, const Whole& whole) {
  std::vector<Stated> all;
  const Slo& slo = prompts.front().slo;
  const int64_t stated_ns[] = {slo.ttft_ns, slo.tbt_ns, slo.jct_ns};
  for (size_t o = 0; o < kNumObjectives; ++o) {
    if (stated_ns[o] <= 0) continue;
    Stated& s = all.emplace_back();
    s.objective = static_cast<Objective>(o);
    s.ns = stated_ns[o];
    for (const RequestTimeline& p : prompts) {
      int64_t actual_ns = -1, ttft_ns = -1;
      for (const SequenceTimeline& q : p.sequences) {
        if (q.ttft_ns >= 0 && (ttft_ns < 0 || q.ttft_ns < ttft_ns)) ttft_ns = q.ttft_ns;
        if (s.objective == Objective::kTbt) actual_ns = std::max(actual_ns, q.longest_gap_ns);
        if (s.objective == Objective::kJct) actual_ns = std::max(actual_ns, q.end_ns);
      }
      if (s.objective == Objective::kTtft) actual_ns = ttft_ns;
      s.actual_ns = std::max(s.actual_ns, actual_ns);
      s.decided = whole.ended || (s.objective == Objective::kTtft && ttft_ns >= 0);
      const Miss& miss = p.misses[o];
      if (miss.missed && (!s.miss.missed || miss.cost_ns > s.miss.cost_ns)) s.miss = miss;
    }
  }
  return all;
}

bool EndedBadly(FinishReason finish) {
  return finish == FinishReason::kCancelled || finish == FinishReason::kError;
}

// "true" or "false"; "null": not decided yet.
std::string_view KeptText(const Stated& s, const Whole& whole) {
  if (s.missed() || (whole.ended && EndedBadly(whole.finish))) return "false";
  return s.decided ? "true" : "null";
}

void AppendObjectives(std::string* out, const std::vector<RequestTimeline>& prompts, const Whole& whole) {
  *out += ",\"objectives\":[";
  bool first = true;
  for (const Stated& s : StatedOf(prompts, whole)) {
    fmt::format_to(std::back_inserter(*out), "{}{{\"objective\":\"{}\",\"stated_ms\":{},\"actual_ms\":{},\"kept\":{}",
                   first ? "" : ",", ObjectiveName(s.objective), Ms(s.ns), s.actual_ns < 0 ? "null" : Ms(s.actual_ns),
                   KeptText(s, whole));
    if (s.missed()) {
      fmt::format_to(std::back_inserter(*out), ",\"cause\":\"{}\",\"cost_ms\":{}", CauseName(s.miss.cause),
                     Ms(s.miss.cost_ns));
    }
    *out += '}';
    first = false;
  }
  *out += ']';
}

}  // namespace

std::string ExplainText(const std::vector<RequestTimeline>& prompts) {
  const Whole whole(prompts);
  const RequestTimeline& r = prompts.front();
  std::string out = "{\"object\":\"request.schedule\",\"id\":";
  const std::string_view id = IdOf(prompts);
  if (id.empty())
    out += "null";
  else
    AppendJsonString(&out, id);
  fmt::format_to(std::back_inserter(out), ",\"request\":{},\"class\":", r.handle);
  AppendJsonString(&out, r.slo_class);
  int64_t prompt_tokens = 0, completion_tokens = 0;
  int32_t preemptions = 0;
  for (const RequestTimeline& p : prompts) {
    prompt_tokens += p.prompt_tokens;
    preemptions += p.preemptions;
    for (const SequenceTimeline& s : p.sequences) completion_tokens += s.completion_tokens;
  }
  fmt::format_to(std::back_inserter(out), ",\"ended\":{}", whole.ended);
  AppendFinish(&out, whole.finish);
  fmt::format_to(std::back_inserter(out),
                 ",\"prompt_tokens\":{},\"completion_tokens\":{},\"preemptions\":{},\"ttft_ms\":{},\"e2e_ms\":{}",
                 prompt_tokens, completion_tokens, preemptions, whole.ttft_ns < 0 ? "null" : Ms(whole.ttft_ns),
                 Ms(whole.last.sequence->end_ns));
  AppendCache(&out, prompts[whole.last.prompt].cache);
  AppendGap(&out, whole.gap.sequence);
  AppendObjectives(&out, prompts, whole);
  out += ',';
  AppendSchedule(&out, *whole.last.sequence);
  if (whole.all.size() > 1) {
    out += ",\"sequences\":[";
    for (size_t i = 0; i < whole.all.size(); ++i) {
      const SequenceTimeline& s = *whole.all[i].sequence;
      fmt::format_to(std::back_inserter(out), "{}{{\"prompt\":{},\"choice\":{}", i > 0 ? "," : "", whole.all[i].prompt,
                     s.choice);
      AppendFinish(&out, s.finish);
      fmt::format_to(std::back_inserter(out), ",\"completion_tokens\":{},\"ttft_ms\":{},\"e2e_ms\":{}",
                     s.completion_tokens, s.ttft_ns < 0 ? "null" : Ms(s.ttft_ns), Ms(s.end_ns));
      AppendCache(&out, prompts[whole.all[i].prompt].cache);
      AppendGap(&out, s.longest_gap_ns >= 0 ? &s : nullptr);
      out += ',';
      AppendSchedule(&out, s);
      out += '}';
    }
    out += ']';
  }
  out += '}';
  return out;
}

std::string ExplainTable(const std::vector<RequestTimeline>& prompts) {
  const Whole whole(prompts);
  const RequestTimeline& r = prompts.front();
  const auto ms = [](int64_t ns) { return fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6); };
  std::string out = fmt::format(
      "request {}{}: {} prompt tokens, {}\n", r.handle,
      IdOf(prompts).empty() ? "" : " (" + Printable(IdOf(prompts)) + ")", r.prompt_tokens,
      whole.ended ? fmt::format("ended ({}) after {}", FinishName(whole.finish), ms(whole.last.sequence->end_ns))
                  : fmt::format("not ended after {}", ms(whole.last.sequence->end_ns)));
  out += whole.ttft_ns < 0 ? "first token: none\n" : fmt::format("first token after {}\n", ms(whole.ttft_ns));
  for (const RequestTimeline& p : prompts) {
    if (!p.cache) continue;
    out += fmt::format("cached: {} of {} prompt tokens, {} of them from disk; it ended there: {}\n", p.cache->tokens,
                       p.prompt_tokens, p.cache->disk_tokens, CacheEndName(p.cache->end));
  }
  if (const SequenceTimeline* gap = whole.gap.sequence; gap != nullptr) {
    out += fmt::format("longest gap {}, up to {}: {}\n", ms(gap->longest_gap_ns), ms(gap->longest_gap_end_ns),
                       CauseName(gap->longest_gap_cause));
  }
  for (const Stated& s : StatedOf(prompts, whole)) {
    const std::string_view kept = KeptText(s, whole);
    out += fmt::format("{} of {}: {}", ObjectiveName(s.objective), ms(s.ns),
                       kept == "true"    ? "kept"
                       : kept == "false" ? "missed"
                                         : "not decided");
    if (s.missed()) out += fmt::format(", {} of it by {}", ms(s.miss.cost_ns), CauseName(s.miss.cause));
    out += '\n';
  }
  for (const Place& place : whole.all) {
    const SequenceTimeline& s = *place.sequence;
    if (whole.all.size() > 1) out += fmt::format("\nprompt {}, choice {}\n", place.prompt, s.choice);
    out += fmt::format("{:>14} {:>14} {:>12} {:>7}\n", "from ms", "to ms", "cause", "steps");
    for (const TimelineSegment& g : s.segments) {
      out += fmt::format("{:>14} {:>14} {:>12} {:>7}{}\n", Ms(g.from_ns), Ms(g.to_ns), CauseName(g.cause), g.steps,
                         g.mixed ? "  (mostly)" : "");
    }
    out += "in all:";
    for (size_t c = 0; c < kNumCauses; ++c) {
      if (s.total_ns[c] > 0) out += fmt::format(" {} {}", CauseName(static_cast<Cause>(c)), ms(s.total_ns[c]));
    }
    if (s.prefill_beside_others_ns > 0)
      out += fmt::format(" (of prefill beside others {})", ms(s.prefill_beside_others_ns));
    out += '\n';
  }
  return out;
}

}  // namespace tactus::api
