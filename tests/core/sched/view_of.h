// A StepView of a table of sequences, as a step loop makes it: live, nothing is copied.
#pragma once

#include "core/sched/policy.h"
#include "core/seq/sequence_table.h"

namespace tactus::testing {

inline core::StepView ViewOf(core::SequenceTable* table, StepId step = 0, TimeNs now_ns = 0) {
  core::StepView v;
  v.step = step;
  v.now_ns = now_ns;
  v.seq = table->columns();
  v.notes = table->notes();
  v.client_notes = table->client_notes();
  v.waiting = table->waiting();
  v.running = table->running();
  v.running_by_arrival = table->running_by_arrival();
  v.changes = table->changes();
  v.num_prefilling = table->num_prefilling();
  return v;
}

}  // namespace tactus::testing
