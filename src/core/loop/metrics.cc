#include "core/loop/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace tactus::core {
namespace {

using results::PrometheusText;
using Type = PrometheusText::Type;
constexpr double kToSeconds = 1e-9;

// vLLM's buckets, so that its dashboards work unchanged.
const std::vector<double> kTtftBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const std::vector<double> kGapBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                         0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const std::vector<double> kRequestBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIterationBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kLengthBuckets = {1,   2,    5,    10,   20,    50,    100,   200,
                                            500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const std::vector<double> kChoicesBuckets = {1, 2, 5, 10, 20};
const std::vector<double> kStepBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
const std::vector<double> kRatioBuckets = {0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.5, 2, 4};

// --- The families of Text, in their order ---

double Value(int64_t count) {
  return static_cast<double>(count);
}

void AddLoad(const EngineStats& s, const KvCacheConfig& kv, PrometheusText* t) {
  t->Gauge("vllm:num_requests_running", "Sequences that hold KV.", Value(s.running));
  t->Gauge("vllm:num_requests_waiting", "Sequences waiting in the queue.", Value(s.waiting));
  t->Gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.",
           s.kv_blocks_total > 0 ? Value(s.kv_blocks_in_use) / Value(s.kv_blocks_total) : 0);
  t->Family("vllm:cache_config_info", Type::kGauge, "KV cache configuration.");
  t->Sample(1, {{"block_size", fmt::format("{}", kv.block_size)},
                {"num_gpu_blocks", fmt::format("{}", kv.num_blocks)},
                {"enable_prefix_caching", kv.prefix_caching ? "True" : "False"}});
  // vLLM's dashboards and gateways read its labels.
  t->Family("vllm:lora_requests_info", Type::kGauge, "LoRA adapters in use: none, as no backend computes them.");
  t->Sample(1, {{"max_lora", "0"}, {"running_lora_adapters", ""}, {"waiting_lora_adapters", ""}});
}

void AddTotals(const EngineStats& s, PrometheusText* t) {
  t->Counter("vllm:prompt_tokens_total", "Prompt tokens computed.", Value(s.prompt_tokens));
  t->Counter("vllm:generation_tokens_total", "Tokens generated.", Value(s.generation_tokens));
  t->Counter("vllm:num_preemptions_total", "Sequences that lost their KV and were queued again.", Value(s.preemptions));
  t->Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
             Value(s.prefix_query_tokens));
  t->Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", Value(s.prefix_hit_tokens));
  t->Family("vllm:request_success_total", Type::kCounter, "Requests that ended, by reason.");
  for (const auto& [reason, n] : {std::pair("stop", s.finished_stop), std::pair("length", s.finished_length),
                                  std::pair("abort", s.finished_cancelled), std::pair("error", s.finished_error)}) {
    t->Sample(Value(n), {{"finished_reason", reason}});
  }
}

void AddDrafts(const EngineStats& s, PrometheusText* t) {
  const std::pair<const char*, DraftCounts> sources[] = {
      {"forced", s.forced_drafts}, {"ngram", s.ngram_drafts}, {"model", s.model_drafts}};
  DraftCounts drafts;
  for (const auto& [name, counts] : sources) {
    drafts.drafts += counts.drafts;
    drafts.draft_tokens += counts.draft_tokens;
    drafts.accepted_tokens += counts.accepted_tokens;
  }
  t->Counter("vllm:spec_decode_num_drafts_total", "Decode items with draft tokens.", Value(drafts.drafts));
  t->Counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens that were verified.", Value(drafts.draft_tokens));
  t->Counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that were accepted.",
             Value(drafts.accepted_tokens));

  t->Family("tactus_draft_tokens_total", Type::kCounter, "Draft tokens that were verified, by draft source.");
  for (const auto& [name, counts] : sources) t->Sample(Value(counts.draft_tokens), {{"source", name}});
  t->Family("tactus_accepted_draft_tokens_total", Type::kCounter, "Draft tokens that were accepted, by draft source.");
  for (const auto& [name, counts] : sources) t->Sample(Value(counts.accepted_tokens), {{"source", name}});
}

void AddLostAndMovedKv(const EngineStats& s, PrometheusText* t) {
  t->Counter("tactus_recomputed_tokens_total", "Tokens computed again after a preemption.", Value(s.recomputed_tokens));
  t->Gauge("tactus_swap_blocks", "KV blocks that fit into the host's swap space.", Value(s.swap_blocks_total));
  t->Gauge("tactus_swap_blocks_used", "KV blocks of sequences swapped out to host memory.", Value(s.swap_blocks_used));
  t->Counter("tactus_swapped_sequences_total", "Preemptions that saved the sequence's KV in host memory.",
             Value(s.swapped_sequences));
  t->Counter("tactus_swapped_out_blocks_total", "KV blocks copied to host memory.", Value(s.swapped_out_blocks));
  t->Counter("tactus_swapped_in_blocks_total", "KV blocks copied back from host memory.", Value(s.swapped_in_blocks));
  t->Family("tactus_migrated_sequences_total", Type::kCounter, "Sequences migrated from or to other replicas.");
  t->Sample(Value(s.migrated_in), {{"direction", "in"}});
  t->Sample(Value(s.migrated_out), {{"direction", "out"}});
  t->Counter("tactus_migrated_out_blocks_total", "KV blocks read for other replicas.", Value(s.migrated_out_blocks));
}

void AddUtilization(const EngineStats& s, int64_t token_budget, PrometheusText* t) {
  t->Gauge("tactus_kv_blocks_cached", "KV blocks with a cached prefix that no live sequence uses.",
           Value(s.kv_blocks_cached));
  t->Gauge("tactus_kv_blocks_in_use", "KV blocks in a live sequence's table.", Value(s.kv_blocks_in_use));
  t->Gauge("tactus_kv_blocks", "Total KV blocks.", Value(s.kv_blocks_total));
  t->Gauge("tactus_token_budget", "Most tokens a step may compute.", Value(token_budget));
  t->Gauge("tactus_token_budget_utilization", "Tokens planned / token budget, over all steps.", s.budget_utilization);
  t->Gauge("tactus_kv_utilization", "KV blocks in use / all, mean over steps.", s.kv_utilization);
}

void AddObjectives(int64_t rejected, const std::map<std::string, ObjectiveCounts>& classes, PrometheusText* t) {
  t->Counter("tactus_requests_rejected_total",
             "Requests refused: no room in the queue, predicted to miss their objective, or can never fit.",
             Value(rejected));
  t->Family("tactus_slo_requests_total", Type::kCounter,
            "Requests that stated an SLO, by class and whether they kept it.");
  for (const auto& [name, slo] : classes) {
    t->Sample(Value(slo.kept), {{"class", name}, {"kept", "true"}});
    t->Sample(Value(slo.stated - slo.kept), {{"class", name}, {"kept", "false"}});
  }
}

}  // namespace

EngineMetrics::Counts::Counts()
    : ttft_s(kTtftBuckets),
      gap_s(kGapBuckets),
      e2e_s(kRequestBuckets),
      queue_s(kRequestBuckets),
      prefill_s(kRequestBuckets),
      decode_s(kRequestBuckets),
      inference_s(kRequestBuckets),
      prompt_tokens(kLengthBuckets),
      generation_tokens(kLengthBuckets),
      params_max_tokens(kLengthBuckets),
      params_n(kChoicesBuckets),
      iteration_tokens(kIterationBuckets),
      step_s(kStepBuckets),
      step_ratio(kRatioBuckets),
      ttft_ratio(kRatioBuckets) {}

EngineMetrics::EngineMetrics(std::string model_name, const KvCacheConfig& kv, int64_t token_budget, bool exact,
                             results::RunWindow window)
    : model_name_(std::move(model_name)), kv_(kv), token_budget_(token_budget), run_(exact, window) {}

void EngineMetrics::OnStep(const StepEvents& events) {
  std::lock_guard lock(mutex_);
  Counts& c = counts_;
  if (events.decision_ns >= 0) run_.Decision(events.decision_ns);
  for (const StepRecord& s : events.steps) {
    last_steps_[steps_ended_++ % last_steps_.size()] = s;
    c.iteration_tokens.Observe(s.prefill_tokens + s.decode_tokens);
    if (!s.ok) {
      ++c.executor_errors;
      continue;
    }
    c.step_s.Observe(static_cast<double>(s.end_ns - s.start_ns) * kToSeconds);
    if (s.predicted_ns > 0) {
      c.step_ratio.Observe(static_cast<double>(s.end_ns - s.start_ns) / static_cast<double>(s.predicted_ns));
      c.predicted_s += static_cast<double>(s.predicted_ns) * kToSeconds;
      c.measured_s += static_cast<double>(s.end_ns - s.start_ns) * kToSeconds;
    }
    run_.Step(s.end_ns, s.end_ns - s.start_ns, s.prefill_items + s.decode_tokens);
  }
  for (const GapEvent& gap : events.gaps) {
    (gap.first ? c.ttft_s : c.gap_s).Observe(static_cast<double>(gap.gap_ns) * kToSeconds, gap.count);
    run_.Tokens(events.now_ns, gap.gap_ns, gap.first, gap.count);
  }
  for (const RequestDoneEvent& d : events.done) CountDone(d);
}

void EngineMetrics::CountArrival(TimeNs arrival_ns) {
  std::lock_guard lock(mutex_);
  run_.Arrived(arrival_ns);
}

void EngineMetrics::CountRejected(const Slo& slo, std::string_view slo_class, std::string_view why, TimeNs arrival_ns) {
  std::lock_guard lock(mutex_);
  run_.Rejected(arrival_ns, slo, slo_class, why);
  objectives_.Refused(slo, slo_class);
}

results::EndedRequest EndedOf(const RequestDoneEvent& d) {
  results::EndedRequest r;
  r.ok = d.finish == FinishReason::kStop || d.finish == FinishReason::kLength;
  r.prompt_tokens = d.prompt_tokens;
  r.completion_tokens = d.completion_tokens;
  // A virtual clock may have scheduled it at 0.
  if (d.scheduled_ns > 0 || d.first_token_ns > 0) r.delay_ns = d.scheduled_ns - d.arrival_ns;
  if (d.first_token_ns > 0) r.ttft_ns = d.first_token_ns - d.arrival_ns;
  r.arrival_ns = d.arrival_ns;
  r.done_ns = d.done_ns;
  r.longest_gap_ns = d.longest_gap_ns;
  r.predicted_ttft_ns = d.predicted_ttft_ns;
  r.gaps = d.gaps;
  r.late_gaps = d.late_gaps;
  r.slo = d.request->slo;
  r.slo_class = d.request->slo_class;
  return r;
}

void EngineMetrics::CountDone(const RequestDoneEvent& d) {
  Counts& c = counts_;
  if (d.refused) {
    run_.Rejected(d.arrival_ns, d.request->slo, d.request->slo_class, "predicted to miss its time to first token");
    objectives_.Refused(d.request->slo, d.request->slo_class);
    return;
  }
  if (d.finish == FinishReason::kMigrated) return;  // counted at the replica where it ends
  const results::EndedRequest r = EndedOf(d);
  run_.Ended(r);
  objectives_.Ended(r, d.misses, r.ok ? "" : d.finish == FinishReason::kCancelled ? "cancelled" : "error");
  if (r.delay_ns >= 0) c.queue_s.Observe(static_cast<double>(r.delay_ns) * kToSeconds);
  if (r.predicted_ttft_ns > 0 && r.ttft_ns > 0)
    c.ttft_ratio.Observe(static_cast<double>(r.ttft_ns) / static_cast<double>(r.predicted_ttft_ns));
  if (!r.ok) return;
  c.prompt_tokens.Observe(d.prompt_tokens);
  c.generation_tokens.Observe(d.completion_tokens);
  c.params_max_tokens.Observe(static_cast<double>(d.request->stop.max_tokens));
  c.params_n.Observe(d.request->n);
  c.e2e_s.Observe(static_cast<double>(d.done_ns - d.arrival_ns) * kToSeconds);
  if (r.delay_ns >= 0) c.inference_s.Observe(static_cast<double>(d.done_ns - d.scheduled_ns) * kToSeconds);
  if (r.ttft_ns < 0) return;
  c.prefill_s.Observe(static_cast<double>(d.first_token_ns - d.scheduled_ns) * kToSeconds);
  c.decode_s.Observe(static_cast<double>(d.done_ns - d.first_token_ns) * kToSeconds);
}

void EngineMetrics::Counts::AddLatencies(PrometheusText* t) const {
  t->Histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", ttft_s);
  t->Histogram("vllm:inter_token_latency_seconds", "Gap between two tokens of a stream, every gap.", gap_s);
  t->Histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", e2e_s);
  t->Histogram("vllm:request_queue_time_seconds", "Arrival to the first item in a step.", queue_s);
  t->Histogram("vllm:request_prefill_time_seconds", "First item in a step to first token.", prefill_s);
  t->Histogram("vllm:request_decode_time_seconds", "First token to last.", decode_s);
  t->Histogram("vllm:request_inference_time_seconds", "First item in a step to last token.", inference_s);
  t->Histogram("vllm:request_prompt_tokens", "Prompt length.", prompt_tokens);
  t->Histogram("vllm:request_generation_tokens", "Tokens generated.", generation_tokens);
  t->Histogram("vllm:request_params_max_tokens", "Most tokens that a request allows for each choice (max_tokens).",
               params_max_tokens);
  t->Histogram("vllm:request_params_n", "Choices that a request asks for (n).", params_n);
  t->Histogram("vllm:iteration_tokens_total", "Tokens of a step.", iteration_tokens);
}

void EngineMetrics::Counts::AddSteps(const EngineStats& s, PrometheusText* t) const {
  t->Counter("tactus_steps_total", "Steps submitted.", Value(s.steps));
  t->Histogram("tactus_step_seconds", "Executor time of a step.", step_s);
  t->Counter("tactus_predicted_step_seconds_total", "Predicted time of the ended steps that had a prediction.",
             predicted_s);
  t->Counter("tactus_measured_step_seconds_total", "Executor time of the same steps.", measured_s);
  t->Histogram("tactus_step_measured_to_predicted",
               "Executor time of a step / its predicted time, with the correction at that time.", step_ratio);
  t->Gauge("tactus_step_time_correction",
           "Factor by which the step-time model is corrected: measured / predicted of the last steps with prompts.",
           s.step_time_correction);
  t->Histogram("tactus_ttft_measured_to_predicted",
               "Time to first token / the gate's prediction at the request's arrival (gate predict).", ttft_ratio);
  t->Counter("tactus_executor_errors_total", "Steps that failed.", Value(executor_errors));
}

std::string EngineMetrics::Text(const EngineStats& s) const {
  std::unique_lock lock(mutex_);
  const Counts counts = counts_;
  const double decision_p50_ns = run_.decision_ns().Quantile(0.5), decision_p99_ns = run_.decision_ns().Quantile(0.99);
  const std::map<std::string, ObjectiveCounts> classes = run_.objectives_by_class();
  const results::ObjectiveMetrics objectives = objectives_;
  const int64_t rejected = run_.rejected();
  lock.unlock();
  PrometheusText t(results::Labels{{"model_name", model_name_}, {"engine", "0"}});
  AddLoad(s, kv_, &t);
  AddTotals(s, &t);
  counts.AddLatencies(&t);
  AddDrafts(s, &t);
  counts.AddSteps(s, &t);
  AddLostAndMovedKv(s, &t);
  AddUtilization(s, token_budget_, &t);
  t.Family("tactus_decision_seconds", Type::kGauge, "Time to plan a step, by quantile over all steps.");
  t.Sample(decision_p50_ns * kToSeconds, {{"quantile", "0.5"}});
  t.Sample(decision_p99_ns * kToSeconds, {{"quantile", "0.99"}});
  AddObjectives(rejected, classes, &t);
  objectives.AppendTo(&t);
  return t.Take();
}

std::string EngineMetrics::LastSteps() const {
  std::unique_lock lock(mutex_);
  const auto records = last_steps_;
  const size_t ended = steps_ended_;
  lock.unlock();
  std::string text;
  const auto ms = [](DurationNs ns) { return static_cast<double>(ns) * 1e-6; };
  for (size_t i = ended - std::min(ended, records.size()); i < ended; ++i) {
    const StepRecord& s = records[i % records.size()];
    text += fmt::format("step {}: {:.3f} ms (predicted {}), {} prompt tokens, {} decodes, {} preemptions{}\n", s.step,
                        ms(s.end_ns - s.start_ns),
                        s.predicted_ns > 0 ? fmt::format("{:.3f} ms", ms(s.predicted_ns)) : "nothing", s.prefill_tokens,
                        s.decode_tokens, s.preemptions, s.ok ? "" : ", failed");
  }
  return text;
}

RunResult EngineMetrics::Outcome(const EngineStats& s) const {
  RunResult r;
  {
    std::lock_guard lock(mutex_);
    r = run_.Outcome();
    r.engine = run_.Engine();
  }
  EngineFigures& e = *r.engine;
  e.steps = s.steps;
  e.preemptions = s.preemptions;
  e.recomputed_tokens = s.recomputed_tokens;
  e.swapped_sequences = s.swapped_sequences;
  e.swapped_blocks = s.swapped_out_blocks + s.swapped_in_blocks;
  e.plan_hash = s.plan_hash;
  for (const DraftCounts& counts : {s.forced_drafts, s.ngram_drafts, s.model_drafts}) {
    e.draft_tokens += counts.draft_tokens;
    e.accepted_draft_tokens += counts.accepted_tokens;
  }
  if (s.steps > 0) {
    e.budget_utilization = s.budget_utilization;
    e.kv_utilization = s.kv_utilization;
  }
  if (s.prefix_query_tokens > 0) {
    e.prefix_sharing = static_cast<double>(s.prefix_hit_tokens) / static_cast<double>(s.prefix_query_tokens);
  }
  return r;
}

}  // namespace tactus::core
