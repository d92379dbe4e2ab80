// Shared by AccelGen's tests: a table of sequences with results of past steps, limits, and a step-time model.
#pragma once

#include <vector>

#include "core/sched/accelgen/slack.h"
#include "core/sched/policy.h"
#include "core/sched/view_of.h"
#include "core/seq/sequence_table.h"

namespace tactus::core {

inline constexpr DurationNs kMs = kMillisecond;

// The only note that the choices here use is SlackNote.
inline NoteLayout& Notes() {
  static NoteLayout notes;
  notes.Column<SlackNote>();
  return notes;
}

// A table of sequences and results of past steps.
struct Bed {
  explicit Bed(int32_t capacity = 64) : table(capacity, Notes().stride()) {}

  StepView View(TimeNs now_ns) {
    StepView v = testing::ViewOf(&table, step, now_ns);
    v.recent = recent;
    return v;
  }
  void Step(DurationNs took_ns, int32_t prefill_tokens, int32_t chunks, int32_t decodes, int32_t preemptions = 0,
            DurationNs longest_preemption_ns = 0) {
    StepRecord r;
    r.step = static_cast<StepId>(recent.size());
    r.end_ns = took_ns;
    r.prefill_tokens = prefill_tokens;
    r.prefill_items = chunks;
    r.decode_tokens = decodes;
    r.preemptions = preemptions;
    r.longest_preemption_ns = longest_preemption_ns;
    recent.push_back(r);
  }
  // The steps of the examples: T_max = 20 ms, L_c = 300 / 4 = 75, P_max = 30 ms, P = 1 / 60.
  void ThreeSteps() {
    Step(10 * kMs, 100, 2, 10);
    Step(20 * kMs, 0, 0, 20, 1);
    Step(15 * kMs, 200, 2, 30, 0, 30 * kMs);
  }
  SlotId Wait(int32_t prompt, Slo slo, TimeNs at_ns = 0, int32_t output = 8) {
    SequenceSpec spec;
    spec.prompt_tokens = prompt;
    spec.max_output_tokens = output;
    spec.slo = slo;
    spec.arrival_ns = at_ns;
    return table.Add(spec, at_ns);
  }
  // Admits it and computes `tokens` of its prompt; at the prompt's end it has its first token.
  void Compute(SlotId s, int32_t tokens) {
    if (!table.holds_kv(s)) table.Admit(s, 0);
    const bool ends = table.columns().computed_planned[s] + tokens == table.columns().goal_tokens[s];
    table.PlanItem(s, tokens, ends, 0, false);
    table.CommitItem(s, tokens, ends ? 1 : 0);
  }

  void Decode(SlotId s) {
    table.PlanItem(s, 1, true, 0, false);
    table.CommitItem(s, 1, 1);
  }

  SequenceTable table;
  std::vector<StepRecord> recent;
  StepId step = 0;
};

inline SchedulerLimits Limits() {
  SchedulerLimits l;
  l.max_num_seqs = 64;
  l.max_model_len = 8192;
  l.slot_capacity = 64;
  l.blocks_total = 1000;
  l.block_size = 16;
  l.notes = &Notes();
  return l;
}

// base + per_token * max(tokens, flat), plus the decodes' context reads: throughput rises until `flat` and a little
// beyond.
struct FlatThenLinear final : StepTimeModel {
  DurationNs base_ns = 0, token_ns = 1000, context_ns = 0, row_ns = 0;
  int64_t flat = 0;
  int32_t tile = 64;
  DurationNs StepTimeNs(const StepShape& shape) const override {
    const int64_t behind = shape.chunks.empty() ? 0 : shape.chunks[0].context_tokens;
    return base_ns + token_ns * std::max<int64_t>(shape.tokens(), flat) +
           context_ns * (shape.decode_context_tokens + behind) + row_ns * shape.logit_rows;
  }
  int32_t tile_tokens() const override { return tile; }
};

}  // namespace tactus::core
