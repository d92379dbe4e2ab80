// Order vtc against its definition: counters, lifts, and the bound on the difference of two clients' service.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "core/sched/choices.h"
#include "core/sched/step_bed.h"
#include "core/sched/view_of.h"
#include "core/seq/sequence_table.h"

namespace tactus::core::vtc_test {
namespace {

using testing::Plans;
using testing::PresetConfig;
using testing::StepBed;
using testing::ViewOf;

constexpr int64_t kPrompt = 1000, kOutput = 2000;  // default costs, in thousandths of a token

std::vector<SlotId> Walk(Order* order, const StepView& view) {
  std::vector<SlotId> slots;
  order->Start(view);
  for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) slots.push_back(s);
  return slots;
}

// Counters in a map, the queue as a list that is searched.
struct NaiveVtc {
  std::map<ClientId, int64_t> counter;
  std::map<ClientId, std::set<std::pair<int64_t, SlotId>>> queue;  // by arrival; non-empty ones only
  std::map<SlotId, ClientId> filed;
  std::map<SlotId, int32_t> charged;
  std::map<SlotId, int64_t> occupant;  // 1 + its arrival
  int64_t last_left = 0, credit = 0;

  static int64_t Weighed(const StepView& view, SlotId s, int64_t cost) {
    return view.seq.service_class[s] == 1 ? cost / 4 : cost;
  }
  void Queued(const StepView& view, SlotId s) {
    const ClientId c = view.seq.client[s];
    if (occupant[s] != view.seq.arrival_order[s] + 1) charged[s] = 0;
    occupant[s] = view.seq.arrival_order[s] + 1;
    if (!queue.contains(c) && view.seq.preemptions[s] == 0) {
      int64_t least = queue.empty() ? last_left : std::numeric_limits<int64_t>::max();
      for (const auto& [client, waiting] : queue) least = std::min(least, counter[client]);
      counter[c] = std::max(counter[c], least - credit);
    }
    queue[c].insert({view.seq.arrival_order[s], s});
    filed[s] = c;
  }
  void Left(SlotId s) {
    const ClientId c = filed[s];
    std::erase_if(queue[c], [s](const auto& entry) { return entry.second == s; });
    if (!queue[c].empty()) return;
    queue.erase(c);
    last_left = counter[c];
  }
  std::vector<SlotId> Walk(const StepView& view) const {
    auto left = queue;
    auto served = counter;
    std::vector<SlotId> slots;
    while (!left.empty()) {
      ClientId least = left.begin()->first;
      for (const auto& [c, waiting] : left) {
        if (served[c] < served[least]) least = c;
      }
      const SlotId s = left[least].begin()->second;
      slots.push_back(s);
      served[least] += Weighed(view, s, kPrompt) * (view.seq.prompt_tokens[s] - charged.at(s));
      left[least].erase(left[least].begin());
      if (left[least].empty()) left.erase(least);
    }
    return slots;
  }
  void Served(const StepView& view, const StepItem& item) {
    int64_t& c = counter[view.seq.client[item.slot]];
    if (view.seq.state[item.slot] == core::SeqState::kWaiting) {
      for (int32_t p = item.first_position; p < view.seq.prompt_tokens[item.slot]; ++p) {
        if (p < charged[item.slot]) continue;
        c += Weighed(view, item.slot, kPrompt);
        charged[item.slot] = p + 1;
      }
    }
    if (item.sample) c += Weighed(view, item.slot, kOutput);
  }
};

struct Layouts {
  core::NoteLayout notes, clients;
};

SchedulerLimits LimitsOf(Layouts* layouts) {
  SchedulerLimits limits;
  limits.notes = &layouts->notes;
  limits.client_notes = &layouts->clients;
  limits.slot_capacity = 60;
  limits.max_model_len = 200;
  limits.blocks_total = 500;
  limits.block_size = 4;
  limits.classes = {{.name = "gold", .weight = 4}};
  return limits;
}

SlotId Any(Rng* rng, std::span<const SlotId> slots) {
  return slots[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(slots.size()) - 1))];
}

// A slot is reused only in a later interval than the one in which it became free: its client is its occupant's.
void Churn(core::SequenceTable* t, Rng* rng, TimeNs now_ns) {
  for (int64_t n = rng->UniformInt(0, 4); n > 0 && t->free_slots() > 0; --n) {
    core::SequenceSpec spec;
    spec.prompt_tokens = static_cast<int32_t>(rng->UniformInt(1, 60));
    spec.max_output_tokens = 30;
    spec.arrival_ns = now_ns;
    spec.client = static_cast<uint64_t>(rng->UniformInt(0, 5));
    spec.service_class = spec.client == 3 ? 1 : 0;
    t->Add(spec, now_ns);
  }
  for (int64_t n = rng->UniformInt(0, 3); n > 0 && !t->waiting().empty(); --n) {
    const SlotId s = Any(rng, t->waiting());
    t->Admit(s, 0);
    t->PlanItem(s, t->columns().known_committed[s], false, 0, false);
    t->CommitItem(s, t->columns().known_committed[s], 0);
  }
  if (rng->Uniform() < 0.3 && !t->running().empty()) {
    if (const SlotId s = Any(rng, t->running()); t->holds_kv(s)) t->Preempt(s, now_ns);
    t->Compact();
  }
  if (rng->Uniform() < 0.2 && !t->waiting().empty()) {
    const SlotId s = Any(rng, t->waiting());
    t->Finish(s);
    t->Free(s);
  }
  for (int64_t n = rng->UniformInt(0, 3); n > 0 && !t->running().empty(); --n) {
    const SlotId s = t->running().back();
    t->Finish(s);
    t->Compact();
    t->Free(s);
  }
}

TEST(Vtc, AgreesWithTheNaiveModelAlsoFromAFreshInstance) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    Layouts layouts;
    SchedulerLimits limits = LimitsOf(&layouts);
    *limits.policy.Find<int64_t>("vtc-credit") = 20 * static_cast<int64_t>(seed % 3);
    auto order = MakeVtcOrder(limits);
    core::SequenceTable t(limits.slot_capacity, layouts.notes.stride(), layouts.clients.stride());
    NaiveVtc naive;
    naive.credit = kPrompt * 20 * static_cast<int64_t>(seed % 3);
    size_t clients_made = 1;
    for (int step = 0; step < 150; ++step) {
      Churn(&t, &rng, step);
      StepView view = ViewOf(&t, step, step);
      const core::SequenceNotes kept = view.client_notes;
      std::vector<std::byte> clients(kept.stride * static_cast<size_t>(limits.client_capacity()));
      for (const auto& slots : {view.waiting, view.running}) {
        for (const SlotId s : slots) clients_made = std::max(clients_made, 1 + static_cast<size_t>(view.seq.client[s]));
      }
      std::copy_n(kept.bytes, kept.stride * clients_made, clients.begin());  // beyond them there are no notes yet
      step == 0 ? order->Rebuild(view) : order->Apply(view);
      for (const core::SequenceChange& change : view.changes) {
        if (change.kind == core::ChangeKind::kQueued) naive.Queued(view, change.slot);
        if (change.kind == core::ChangeKind::kAdmitted || change.kind == core::ChangeKind::kUnqueued)
          naive.Left(change.slot);
      }
      const std::vector<SlotId> expected = naive.Walk(view);
      ASSERT_EQ(Walk(order.get(), view), expected) << "seed " << seed << " step " << step;
      ASSERT_EQ(Walk(order.get(), view), expected) << "a second walk, seed " << seed << " step " << step;

      view.client_notes.bytes = clients.data();  // as before the step, for a fresh instance
      auto fresh = MakeVtcOrder(limits);
      fresh->Rebuild(view);
      ASSERT_EQ(Walk(fresh.get(), view), expected) << "fresh, seed " << seed << " step " << step;
      view.client_notes = kept;

      for (const SlotId a : view.waiting) {
        for (const SlotId b : view.waiting) {
          const int64_t ca = naive.counter[view.seq.client[a]], cb = naive.counter[view.seq.client[b]];
          if (ca == cb) continue;
          ASSERT_EQ(order->Before(view, a, b), ca < cb) << "seed " << seed << " step " << step;
        }
      }
      std::vector<StepItem> items;
      for (const SlotId s : view.running) {
        if (rng.Uniform() < 0.5) items.push_back({.slot = s, .count = 7, .sample = rng.Uniform() < 0.6});
      }
      for (const SlotId s : view.waiting) {
        const auto cached = static_cast<int32_t>(rng.UniformInt(0, view.seq.prompt_tokens[s] - 1));
        if (rng.Uniform() < 0.2) items.push_back({.slot = s, .first_position = cached, .count = 7});
      }
      order->Planned(view, items);
      for (const StepItem& item : items) naive.Served(view, item);
      t.ClearChanges();
    }
  }
}

testing::HarnessConfig FairConfig(int64_t budget) {
  testing::HarnessConfig c = PresetConfig("sarathi-serve", budget);
  c.scheduler.order = "vtc";
  *c.scheduler.limits.policy.Find<int64_t>("vtc-credit") = 0;
  c.scheduler.limits.classes = {{.name = "gold", .weight = 4}};
  return c;
}

core::SequenceSpec Of(uint64_t client, uint8_t service_class = 0) {
  core::SequenceSpec spec;
  spec.client = client;
  spec.service_class = service_class;
  return spec;
}

// Slots 0 to 3 are of client 7, slot 4 of client 8: it waits for one of the others, not for four.
TEST(Vtc, AFloodWaitsForItself) {
  StepBed bed(FairConfig(10));
  for (int i = 0; i < 4; ++i) bed.Waiting(10, Of(7));
  bed.Waiting(10, Of(8));
  Plans plans;
  for (int i = 0; i < 3; ++i) {
    bed.Plan();
    plans.emplace_back();
    for (const SequenceStart& start : bed.planned().starts) plans.back() += std::to_string(start.slot) + " ";
  }
  EXPECT_EQ(plans, Plans({"0 ", "4 ", "1 "}));
}

// Client 7 leads: once client 8 comes, a credit behind it, client 8's prompt gets whole steps, in two chunks, and
// client 7's started work is paused meanwhile. Without a credit none leads, and the earlier work continues.
TEST(Vtc, AFloodsStartedWorkIsPausedForOthers) {
  for (const int64_t credit : {0, 60}) {
    testing::HarnessConfig config = FairConfig(10);
    config.scheduler.composition = "ranked";
    *config.scheduler.limits.policy.Find<int64_t>("vtc-credit") = credit;
    StepBed bed(config);
    for (int i = 0; i < 8; ++i) bed.Waiting(25, Of(7));
    for (int i = 0; i < 6; ++i) bed.Plan();
    const SlotId late = bed.Waiting(18, Of(8));
    Plans plans;
    for (int i = 0; i < 3; ++i) plans.push_back(bed.Plan());
    const std::string chunk = std::to_string(late) + ":0+10";
    if (credit > 0) {
      EXPECT_EQ(plans[0], chunk);
      EXPECT_EQ(plans[1].find(std::to_string(late) + ":10+8*"), 0u) << plans[1];
      EXPECT_EQ(plans[2].find(std::to_string(late) + ":18+1*"), 0u) << plans[2];
    } else {
      EXPECT_NE(plans[0], chunk) << "the test needs started work";
    }
  }
}

TEST(Vtc, ALateClientHasNoClaimOnPastService) {
  StepBed bed(FairConfig(20));
  for (int i = 0; i < 5; ++i) bed.Waiting(20, Of(7));
  for (int i = 0; i < 3; ++i) bed.Plan();  // client 7 is served at least 60 tokens
  for (int i = 0; i < 4; ++i) bed.Waiting(20, Of(8));
  std::string starts;
  for (int i = 0; i < 12; ++i) {
    bed.Plan();
    for (const SequenceStart& start : bed.planned().starts) starts += start.slot < 5 ? "7" : "8";
  }
  ASSERT_GE(starts.size(), 4u);
  EXPECT_NE(starts.substr(0, 3), "888") << "client 8 is lifted to the other's counter, and they take turns";
}

TEST(Vtc, WeightsDivideTheService) {
  StepBed bed(FairConfig(10));
  for (int i = 0; i < 12; ++i) bed.Waiting(10, Of(7, 1));
  for (int i = 0; i < 12; ++i) bed.Waiting(10, Of(8));
  int of_gold = 0, all = 0;
  for (int i = 0; i < 12; ++i) {
    bed.Plan();
    for (const SequenceStart& start : bed.planned().starts) {
      ++all;
      of_gold += start.slot < 12;
    }
  }
  EXPECT_GE(all, 5);
  EXPECT_GE(of_gold, all * 7 / 10) << "weight 4 against 1, of " << all << " starts";
}

// Theorem 4.4 of the paper: while both wait, neither is ahead by more than twice the larger of the longest prompt's
// cost and the cost of the tokens that fit the memory. One client sends long prompts and short answers, the other the
// opposite.
TEST(Vtc, TheServiceOfTwoWaitingClientsStaysWithinTheBound) {
  testing::HarnessConfig config = FairConfig(64);
  config.max_num_seqs = 6;
  config.num_blocks = 60;
  config.block_size = 4;
  StepBed bed(config);
  constexpr int32_t kLongPrompt = 120, kShortPrompt = 8;
  std::map<SlotId, ClientId> client_of;
  std::map<uint64_t, int64_t> served;
  std::map<uint64_t, int> waiting;
  std::map<SlotId, uint64_t> sender;
  const int64_t bound = 2 * std::max<int64_t>(kPrompt * kLongPrompt, kOutput * 60 * 4) / kPrompt;
  int64_t widest = 0;
  int ended = 0;
  for (int step = 0; step < 400; ++step) {
    for (const uint64_t client : {7u, 8u}) {
      while (waiting[client] < 3) {
        core::SequenceSpec spec = Of(client);
        spec.max_output_tokens = client == 7 ? 3 : 40;
        sender[bed.Waiting(client == 7 ? kLongPrompt : kShortPrompt, spec)] = client;
        ++waiting[client];
      }
    }
    bed.Plan(step);
    const core::SequenceColumns& seq = bed.table().columns();
    for (const SequenceStart& start : bed.planned().starts) {
      if (seq.preemptions[start.slot] == 0) --waiting[sender[start.slot]];
    }
    for (const StepItem& item : bed.planned().items) {
      const int32_t end = std::min(item.first_position + item.count, seq.prompt_tokens[item.slot]);
      if (seq.preemptions[item.slot] == 0) served[sender[item.slot]] += std::max(0, end - item.first_position);
      served[sender[item.slot]] += item.sample ? 2 : 0;
    }
    for (const SlotId s : std::vector<SlotId>(bed.table().running().begin(), bed.table().running().end())) {
      if (seq.known_committed[s] - seq.prompt_tokens[s] < seq.max_output_tokens[s]) continue;
      bed.End(s);
      ++ended;
    }
    widest = std::max(widest, std::abs(served[7] - served[8]));
    ASSERT_LE(widest, bound) << "step " << step << ": " << served[7] << " against " << served[8];
  }
  EXPECT_GT(ended, 60) << "nothing was served";
}

}  // namespace
}  // namespace tactus::core::vtc_test
