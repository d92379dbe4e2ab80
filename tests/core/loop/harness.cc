#include "core/loop/harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "base/sim_request.h"

namespace tactus::testing {

std::string TextOf(const StepPlan& plan) {
  std::string line;
  for (const SlotId s : plan.preempts) line += "!" + std::to_string(s) + " ";
  for (const StepItem& item : plan.items) {
    line += std::to_string(item.slot) + ":" + std::to_string(item.first_position) + "+" + std::to_string(item.count) +
            (item.draft_tokens > 0 ? "d" + std::to_string(item.draft_tokens) : "") + (item.sample ? "* " : " ");
  }
  if (!plan.copies.empty()) line += "c" + std::to_string(plan.copies.size()) + " ";
  if (!plan.swap_outs.empty()) line += "out" + std::to_string(plan.swap_outs.size()) + " ";
  if (!plan.swap_ins.empty()) line += "in" + std::to_string(plan.swap_ins.size()) + " ";
  if (plan.padded_tokens > 0) line += "p" + std::to_string(plan.padded_tokens) + " ";
  if (!line.empty()) line.pop_back();
  return line;
}

void LoggingExecutor::Submit(const StepPlan& plan) {
  log.push_back(TextOf(plan));
  for (const SequenceStart& start : plan.starts) requests_[start.slot] = start.request;
  for (const StepItem& item : plan.items) {
    if (item.input == InputSource::kChained) ++chained_items[requests_[item.slot]];
  }
  inner_.Submit(plan);
}

Harness::Harness(const HarnessConfig& config, core::InjectedChoices injected) : config_(config), clock_(kMillisecond) {
  core::ReplicaConfig rc;
  rc.scheduler = config.scheduler;
  core::SchedulerLimits& sizes = rc.scheduler.limits;
  sizes.max_num_seqs = config.max_num_seqs;
  sizes.max_model_len = config.max_model_len;
  sizes.blocks_total = config.num_blocks;
  sizes.block_size = config.block_size;
  sizes.swap_blocks = config.swap_blocks;
  rc.import_blocks = config.import_blocks;
  rc.list_entered = config.list_entered;
  rc.max_queue = config.max_queue;
  rc.prefix_caching = config.prefix_caching;
  rc.keep_timelines = config.keep_timelines;
  rc.lean = config.lean;
  rc.secret = {1, 2};
  rc.model = "fake";
  rc.model_stop_ids = config.model_stop_ids;
  rc.adapters = config.executor.adapters;
  rc.max_draft_tokens = config.executor.max_draft_tokens;
  rc.guesses = rc.max_draft_tokens > 0;
  rc.true_lengths_known = true;
  core::ReplicaServices services;
  services.predictor = config.predictor;
  services.injected = std::move(injected);
  services.step_time = sizes.step_time;
  services.corrected = config.corrected;
  services.recorded = !config.trace_path.empty();
  auto replica = core::Replica::Create(std::move(rc), std::move(services));
  if (!replica.ok()) {
    scheduler_error_ = replica.status();
    return;
  }
  replica_ = std::move(replica).value();

  FakeExecutorConfig ec = config.executor;
  ec.num_blocks = config.num_blocks;
  ec.block_size = config.block_size;
  ec.max_slots = replica_->config().slots();
  ec.swap_blocks = config.swap_blocks + config.import_blocks;
  ec.clock = &clock_;
  executor_ = std::make_unique<FakeExecutor>(ec);
  drafts_ = std::make_unique<GuessingDrafts>(executor_.get(), config.draft_accuracy, ec.seed);
  auto logging = std::make_unique<LoggingExecutor>(executor_.get());
  logging_ = logging.get();
  faulty_ = std::make_unique<FaultyExecutor>(std::move(logging), config.faults);

  core::ReplicaParts parts;
  parts.executor = faulty_.get();
  parts.clock = &clock_;
  sinks_.Add(this);
  if (config.further_sink != nullptr) sinks_.Add(config.further_sink);
  parts.sink = &sinks_;
  if (ec.max_draft_tokens > 0) parts.drafts = drafts_.get();
  parts.about = config.about;
  parts.stopwatch = parts.clock;
  parts.stopwatch_every = config.stopwatch_every;
  if (!config.trace_path.empty()) parts.tap = core::RecordTo(config.trace_path);
  bytes_.resize(256);
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>('a' + i % 26);
  parts.token_bytes = [this](TokenId id) { return std::string_view(&bytes_[static_cast<size_t>(id) % 256], 1); };
  const Status connected = replica_->Connect(std::move(parts));
  EXPECT_TRUE(connected.ok()) << connected.ToString();
  loop_ = &replica_->loop();
  loop_->KeepPlanHashes();
}

Harness::~Harness() = default;

Result<RequestHandle> Harness::Submit(Request request) {
  return Submit(std::move(request), nullptr);
}

Result<RequestHandle> Harness::SubmitImported(Request request, core::ImportedSequence imported) {
  return Submit(std::move(request), &imported);
}

Result<RequestHandle> Harness::Submit(Request request, const core::ImportedSequence* imported) {
  // Predictors that need true lengths are allowed, since the fake model's output is known.
  SimRequest known{std::move(request), 1};
  known.output_tokens = static_cast<int32_t>(ExpectedOutput(config_.executor, known, 0, config_.model_stop_ids).size());
  std::shared_ptr<const Request> shared = std::make_shared<const SimRequest>(std::move(known));
  TACTUS_ASSIGN_OR_RETURN(core::PreparedRequest prepared, core::PrepareRequest(shared, replica_->limits()));
  prepared.tokens_on_host = config_.tokens_on_host && handles_.size() % 2 == 0;
  if (imported != nullptr) TACTUS_RETURN_IF_ERROR(core::AddImported(*imported, replica_->limits(), &prepared));
  if (prepare) prepare(&prepared);
  TACTUS_ASSIGN_OR_RETURN(const RequestHandle handle, loop_->Submit(std::move(prepared)));
  RequestOutput& out = outputs_[handle];
  out.request = shared;
  out.choices.resize(static_cast<size_t>(shared->n));
  if (imported != nullptr) out.choices[0].tokens = imported->snapshot.output;
  handles_.push_back(handle);
  return handle;
}

RequestHandle Harness::MustSubmit(Request request) {
  auto handle = Submit(std::move(request));
  EXPECT_TRUE(handle.ok()) << handle.status().ToString();
  return handle.ok() ? *handle : 0;
}

void Harness::OnStep(const core::StepEvents& events) {
  const auto complain = [this](const std::string& what) {
    if (event_error_.empty()) event_error_ = what;
  };
  records_.insert(records_.end(), events.steps.begin(), events.steps.end());
  scheduled_.insert(scheduled_.end(), events.scheduled.begin(), events.scheduled.end());
  gaps_.insert(gaps_.end(), events.gaps.begin(), events.gaps.end());
  decisions_timed_ += events.decision_ns >= 0;
  for (const core::PromptLogprobsEvent& e : events.prompt_logprobs)
    outputs_.at(e.handle).prompt_logprobs.push_back({e.first_row, e.rows});
  for (const core::TokenEvent& e : events.tokens) {
    auto it = outputs_.find(e.handle);
    if (it == outputs_.end()) return complain("an event of an unknown request");
    RequestOutput& out = it->second;
    if (out.done) return complain("an event after the request was done");
    ChoiceOutput& choice = out.choices.at(static_cast<size_t>(e.choice));
    if (choice.finish != FinishReason::kNone) return complain("an event after the choice's end");
    if (e.token >= 0) {
      if (e.first_token != choice.tokens.empty()) return complain("first_token is wrong");
      choice.tokens.push_back(e.token);
      choice.token_ns.push_back(events.now_ns);
    }
    if (e.token >= 0) choice.gap_ns.push_back(e.gap_ns);
    if (e.logprobs >= 0) choice.logprobs.push_back(events.logprobs[static_cast<size_t>(e.logprobs)].at(0));
    choice.finish = e.finish;
    choice.stop_string = e.stop_string;
    if (e.error >= 0) out.error = events.errors[static_cast<size_t>(e.error)];
    if (e.finish == FinishReason::kError && e.error < 0) complain("an error without its reason");
  }
  for (const core::RequestDoneEvent& e : events.done) {
    RequestOutput& out = outputs_.at(e.handle);
    if (out.done) complain("done twice");
    out.done = true;
    out.done_event = e;
    if (std::string broken = TakeTimeline(&out); !broken.empty()) complain(broken);
    for (const ChoiceOutput& choice : out.choices) {
      if (choice.finish == FinishReason::kNone) complain("done before a choice had ended");
    }
  }
}

std::string Harness::TakeTimeline(RequestOutput* out) const {
  const core::RequestDoneEvent& e = out->done_event;
  std::vector<RequestTimeline> found = loop_->Timelines({.handle = e.handle});
  if (found.size() != 1) return fmt::format("{} timelines of request {}", found.size(), e.handle);
  const RequestTimeline& t = out->timeline = std::move(found.front());
  if (std::string broken = BrokenTimeline(t); !broken.empty()) return broken;
  int64_t end_ns = 0, ttft_ns = -1, gap_ns = 0;
  for (const SequenceTimeline& s : t.sequences) {
    end_ns = std::max(end_ns, s.end_ns);
    if (s.ttft_ns >= 0 && (ttft_ns < 0 || s.ttft_ns < ttft_ns)) ttft_ns = s.ttft_ns;
    gap_ns = std::max(gap_ns, s.longest_gap_ns);
  }
  if (!t.ended || t.finish != e.finish) return "its timeline has another end";
  if (end_ns != e.done_ns - e.arrival_ns) {
    return fmt::format("request {}: its timeline has {} ns of {}", e.handle, end_ns, e.done_ns - e.arrival_ns);
  }
  if (e.first_token_ns > 0 && ttft_ns != e.first_token_ns - e.arrival_ns) return "its timeline has another first token";
  if (gap_ns != e.longest_gap_ns) return "its timeline has another longest gap";
  if (t.preemptions != e.preemptions) return "its timeline has other preemptions";
  return {};
}

std::string BrokenTimeline(const RequestTimeline& t) {
  const auto broken = [&](const SequenceTimeline& s, const std::string& what) {
    return fmt::format("timeline of request {}, choice {}: {}", t.handle, s.choice, what);
  };
  for (const SequenceTimeline& s : t.sequences) {
    int64_t at_ns = 0, total_ns = 0;
    std::array<int64_t, kNumCauses> by_cause{};
    bool mixed = false;
    for (const TimelineSegment& segment : s.segments) {
      if (segment.from_ns != at_ns || segment.to_ns <= at_ns)
        return broken(s, fmt::format("a segment from {} to {} ns after {}", segment.from_ns, segment.to_ns, at_ns));
      if (segment.steps < 0) return broken(s, fmt::format("{} steps", segment.steps));
      by_cause[static_cast<size_t>(segment.cause)] += segment.to_ns - at_ns;
      mixed = mixed || segment.mixed;
      at_ns = segment.to_ns;
    }
    for (const int64_t ns : s.total_ns) total_ns += ns;
    if (at_ns != s.end_ns) return broken(s, fmt::format("segments have {} ns of {}", at_ns, s.end_ns));
    if (total_ns != s.end_ns) return broken(s, fmt::format("causes have {} ns of {}", total_ns, s.end_ns));
    if (!mixed && by_cause != s.total_ns) return broken(s, "segments and causes disagree");
    if (s.prefill_beside_others_ns > s.total_ns[static_cast<size_t>(Cause::kPrefill)])
      return broken(s, "prefill_beside_others_ns is more than the prefill");
    if (s.segments.size() > core::Timelines::kMostSegments) return broken(s, "too many segments");
  }
  return {};
}

std::string Harness::Settle() {
  for (int passes = 0; passes < 1000; ++passes) {
    if (config_.fresh_policies) replica_->scheduler().Forget();
    const bool worked = loop_->RunOnce();
    if (!executor_->violation().empty()) return "executor: " + executor_->violation();
    if (!drafts_->violation().empty()) return "drafts: " + drafts_->violation();
    if (drafts_->live() > 0 && loop_->idle()) return "drafts: End was not called for all ended sequences";
    if (!event_error_.empty()) return "events: " + event_error_;
    if (config_.check_every_pass && worked) {
      if (std::string broken = loop_->CheckIntegrity(); !broken.empty()) return broken;
      // Another request in each pass.
      const RequestHandle some = handles_.empty() ? 1 : handles_[static_cast<size_t>(passes_++) % handles_.size()];
      for (const RequestTimeline& t : loop_->Timelines({.handle = some})) {
        if (std::string broken = BrokenTimeline(t); !broken.empty()) return broken;
      }
    }
    if (!worked) return {};
  }
  return "the loop does not become idle";
}

bool Harness::Advance() {
  const TimeNs next = executor_->NextReadyNs();
  if (next == kNever) return false;
  clock_.AdvanceTo(next);
  return true;
}

std::string Harness::Run(int64_t limit) {
  const int64_t first = steps();
  for (;;) {
    if (std::string broken = Settle(); !broken.empty()) return broken;
    if (!Advance()) return loop_->idle() ? "" : "nothing in flight, but not idle";
    if (steps() - first > limit) return "no end after " + std::to_string(limit) + " steps";
  }
}

Request MakeRequest(std::vector<TokenId> prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  r.stop.max_tokens = max_tokens;
  return r;
}

std::vector<TokenId> Tokens(uint64_t seed, int32_t length, int32_t vocab) {
  Rng rng(seed, 1234);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(rng.UniformInt(0, vocab - 1)));
  return tokens;
}

std::vector<TokenId> ExpectedOutput(const FakeExecutorConfig& executor, const Request& request, int32_t choice,
                                    const std::vector<TokenId>& model_stop_ids) {
  std::vector<TokenId> all = *request.prompt;
  const auto& names = executor.adapters;
  const auto named = std::find(names.begin(), names.end(), request.adapter);
  const int32_t adapter = named == names.end() ? 0 : static_cast<int32_t>(named - names.begin()) + 1;
  std::vector<TokenId> output;
  while (static_cast<int64_t>(output.size()) < request.stop.max_tokens) {
    const TokenId token = FakeExecutor::Expected(executor, all, choice, adapter);
    all.push_back(token);
    output.push_back(token);
    if (static_cast<int64_t>(output.size()) <= request.stop.min_tokens) continue;
    const auto& own = request.stop.stop_token_ids;
    if (std::find(own.begin(), own.end(), token) != own.end()) break;
    if (!request.stop.ignore_eos &&
        std::find(model_stop_ids.begin(), model_stop_ids.end(), token) != model_stop_ids.end()) {
      break;
    }
  }
  return output;
}

}  // namespace tactus::testing
