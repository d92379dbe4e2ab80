// A class's share against its definition: what is owed, which requests go first for it, the bound, and that all else
// stays as it was.
#include "core/sched/class_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "core/sched/choices.h"
#include "core/sched/known_lengths.h"
#include "core/sched/step_bed.h"
#include "core/sched/view_of.h"
#include "core/seq/sequence_table.h"

namespace tactus::core {
namespace {

using testing::PresetConfig;
using testing::StepBed;
using testing::ViewOf;

constexpr int64_t kUnit = 1'000'000;

std::vector<SlotId> Walk(Order* order, const StepView& view) {
  std::vector<SlotId> slots;
  order->Start(view);
  for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) slots.push_back(s);
  return slots;
}

SchedulerLimits LimitsOf(NoteLayout* notes, NoteLayout* clients) {
  SchedulerLimits limits;
  limits.notes = notes;
  limits.client_notes = clients;
  limits.slot_capacity = 60;
  limits.max_model_len = 200;
  limits.blocks_total = 500;
  limits.block_size = 4;
  limits.classes = {{.name = "gold"}, {.name = "batch", .share = 0.2}, {.name = "report", .share = 0.3}};
  return limits;
}

// What each class is owed, and which requests a plan puts first.
struct Naive {
  const std::map<int, int64_t> share = {{2, 200'000}, {3, 300'000}};
  std::map<int, int64_t> owed;
  std::map<int64_t, int32_t> charged;  // by arrival

  std::vector<SlotId> Waiting(const StepView& view) const {
    std::vector<SlotId> slots(view.waiting.begin(), view.waiting.end());
    std::sort(slots.begin(), slots.end(),
              [&](SlotId a, SlotId b) { return view.seq.arrival_order[a] < view.seq.arrival_order[b]; });
    return slots;
  }
  // `plain`: the walk of the order without shares.
  std::vector<SlotId> Walk(const StepView& view, const std::vector<SlotId>& plain) {
    const std::vector<SlotId> queue = Waiting(view);
    std::set<SlotId> first;
    for (const auto& [c, ignored] : share) {
      int64_t left = owed[c];
      bool any = false;
      for (const SlotId s : queue) {
        if (view.seq.service_class[s] != c) continue;
        any = true;
        if (left <= 0) break;
        first.insert(s);
        left -= kUnit * std::max(0, view.seq.prompt_tokens[s] - charged[view.seq.arrival_order[s]]);
      }
      if (!any) owed[c] = 0;
    }
    std::vector<SlotId> walk;
    std::copy_if(queue.begin(), queue.end(), std::back_inserter(walk), [&](SlotId s) { return first.contains(s); });
    std::copy_if(plain.begin(), plain.end(), std::back_inserter(walk), [&](SlotId s) { return !first.contains(s); });
    return walk;
  }
  void Started(const StepView& view, const std::vector<StepItem>& items) {
    std::map<int, int64_t> of_class;
    int64_t all = 0;
    for (const StepItem& item : items) {
      if (view.seq.state[item.slot] != SeqState::kWaiting) continue;
      int32_t& done = charged[view.seq.arrival_order[item.slot]];
      for (; done < view.seq.prompt_tokens[item.slot]; ++done) {
        ++of_class[view.seq.service_class[item.slot]];
        ++all;
      }
    }
    const std::vector<SlotId> queue = Waiting(view);
    for (const auto& [c, millionths] : share) {
      const bool waits =
          std::any_of(queue.begin(), queue.end(), [&, cls = c](SlotId s) { return view.seq.service_class[s] == cls; });
      if (!waits || all == 0) continue;
      owed[c] += millionths * all - kUnit * of_class[c];
      if (of_class[c] > 0) owed[c] = std::max(owed[c], (millionths - kUnit) * of_class[c]);
    }
  }
};

// Arrivals, starts out of the policy's order, preemptions, cancellations and ends; slots are reused.
void Churn(SequenceTable* t, Rng* rng, TimeNs now_ns) {
  for (int64_t n = rng->UniformInt(0, 5); n > 0 && t->free_slots() > 0; --n) {
    SequenceSpec spec;
    spec.prompt_tokens = static_cast<int32_t>(rng->UniformInt(1, 60));
    spec.max_output_tokens = 30;
    spec.arrival_ns = now_ns;
    spec.service_class = static_cast<uint8_t>(rng->UniformInt(0, 3));
    t->Add(spec, now_ns);
  }
  const auto any = [rng](std::span<const SlotId> slots) {
    return slots[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(slots.size()) - 1))];
  };
  if (rng->Uniform() < 0.3 && !t->running().empty()) {
    if (const SlotId s = any(t->running()); t->holds_kv(s)) t->Preempt(s, now_ns);
    t->Compact();
  }
  if (rng->Uniform() < 0.2 && !t->waiting().empty()) {
    const SlotId s = any(t->waiting());
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

TEST(ClassShares, AgreeWithTheNaiveModelAlsoFromAFreshInstance) {
  int first = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    NoteLayout notes, clients;
    const SchedulerLimits limits = LimitsOf(&notes, &clients);
    auto order = WithClassShares(limits, MakeFcfsOrder(limits));
    auto plain = MakeFcfsOrder(limits);
    SequenceTable t(limits.slot_capacity, notes.stride(), clients.stride());
    Naive naive;
    for (int step = 0; step < 150; ++step) {
      Churn(&t, &rng, step);
      const StepView view = ViewOf(&t, step, step);
      for (Order* o : {order.get(), plain.get()}) step == 0 ? o->Rebuild(view) : o->Apply(view);
      const std::vector<SlotId> without = Walk(plain.get(), view), expected = naive.Walk(view, without);
      ASSERT_EQ(Walk(order.get(), view), expected) << "seed " << seed << " step " << step;
      ASSERT_EQ(Walk(order.get(), view), expected) << "a second walk, seed " << seed << " step " << step;
      for (size_t i = 1; i < expected.size(); ++i) {
        ASSERT_TRUE(order->Before(view, expected[i - 1], expected[i])) << "seed " << seed << " step " << step;
      }
      first += expected != without;
      auto fresh = WithClassShares(limits, MakeFcfsOrder(limits));
      fresh->Rebuild(view);
      ASSERT_EQ(Walk(fresh.get(), view), expected) << "fresh, seed " << seed << " step " << step;

      std::vector<StepItem> items;
      for (const SlotId s : expected) {
        if (items.size() == 2 || rng.Uniform() < 0.2) break;
        const auto cached = static_cast<int32_t>(rng.UniformInt(0, view.seq.prompt_tokens[s] - 1));
        items.push_back({.slot = s, .first_position = cached, .count = 1});
      }
      order->Planned(view, items);
      naive.Started(view, items);
      t.ClearChanges();
      for (const StepItem& item : items) {
        t.Admit(item.slot, 0);
        t.PlanItem(item.slot, t.columns().known_committed[item.slot], false, 0, false);
        t.CommitItem(item.slot, t.columns().known_committed[item.slot], 0);
      }
    }
  }
  EXPECT_GT(first, 500) << "too few requests went first for a share";
}

TEST(ClassShares, WithoutSharesTheOrderIsNotWrapped) {
  NoteLayout notes, clients;
  SchedulerLimits limits = LimitsOf(&notes, &clients);
  for (ServiceClass& c : limits.classes) c.share = 0;
  auto order = MakeFcfsOrder(limits);
  const Order* const plain = order.get();
  const size_t bytes = notes.stride();
  EXPECT_EQ(WithClassShares(limits, std::move(order)).get(), plain);
  EXPECT_EQ(notes.stride(), bytes) << "and there is no note";
}

// The other class keeps the queue full of requests that the scheduler puts before those of the class with a share.
class AnyScheduler : public ::testing::TestWithParam<const char*> {};

TEST_P(AnyScheduler, StartsAtLeastTheClassShare) {
  testing::HarnessConfig config = PresetConfig(GetParam(), 64);
  testing::KnownLengths lengths{{3}};
  config.predictor = &lengths;
  config.scheduler.limits.classes = {{.name = "gold", .slo = {.ttft_ns = 50'000, .tbt_ns = kSecond}},
                                     {.name = "batch", .share = 0.25}};
  config.max_num_seqs = 8;
  config.num_blocks = 120;
  config.block_size = 4;
  StepBed bed(config);
  Rng rng(7);
  std::map<SlotId, uint8_t> class_of;
  std::map<uint8_t, int> waiting;
  int64_t all = 0, of_batch = 0, largest_step = 0;
  for (int step = 0; step < 600; ++step) {
    for (const uint8_t c : {uint8_t{1}, uint8_t{2}}) {
      while (waiting[c] < 12) {
        SequenceSpec spec;
        spec.service_class = c;
        spec.arrival_ns = step;
        spec.max_output_tokens = 3;
        spec.priority = c == 1 ? 0 : 9;
        if (c == 1) spec.slo = config.scheduler.limits.classes[0].slo;
        class_of[bed.Waiting(static_cast<int32_t>(rng.UniformInt(4, 40)), spec)] = c;
        ++waiting[c];
      }
    }
    bed.Plan(step);
    const SequenceColumns& seq = bed.table().columns();
    int64_t in_step = 0;
    for (const SequenceStart& start : bed.planned().starts) {
      if (seq.preemptions[start.slot] > 0) continue;
      --waiting[class_of[start.slot]];
      in_step += seq.prompt_tokens[start.slot];
      of_batch += class_of[start.slot] == 2 ? seq.prompt_tokens[start.slot] : 0;
    }
    all += in_step;
    largest_step = std::max(largest_step, in_step);
    ASSERT_GE(4 * of_batch, all - largest_step) << "step " << step << ": " << of_batch << " of " << all
                                                << " prompt tokens are of the class with a share of 25 %, "
                                                << "and no step started more than " << largest_step;
    for (const SlotId s : std::vector<SlotId>(bed.table().running().begin(), bed.table().running().end())) {
      if (seq.known_committed[s] - seq.prompt_tokens[s] >= seq.max_output_tokens[s]) bed.End(s);
    }
  }
  EXPECT_GT(all, 4000) << "nothing was served";
  EXPECT_LT(of_batch, all * 2 / 3) << "a share is not all";
}

INSTANTIATE_TEST_SUITE_P(ClassShares, AnyScheduler,
                         ::testing::Values("sarathi-serve", "vllm", "vllm-v0", "larry", "accelgen", "tactus",
                                           "fastgen"),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Behind a flood that arrived before, the class gets its share, and not more.
TEST(ClassShares, AFloodedClassGetsItsShareAndNotMore) {
  testing::HarnessConfig config = PresetConfig("sarathi-serve", 32);
  config.scheduler.limits.classes = {{.name = "flood"}, {.name = "batch", .share = 0.25}};
  StepBed bed(config);
  Rng rng(3);
  for (const uint8_t c : {uint8_t{1}, uint8_t{2}}) {
    for (int i = 0; i < 30; ++i) {
      SequenceSpec spec;
      spec.service_class = c;
      spec.max_output_tokens = 1;
      bed.Waiting(static_cast<int32_t>(rng.UniformInt(4, 40)), spec);
    }
  }
  int64_t all = 0, of_batch = 0;
  while (all < 750) {
    bed.Plan();
    const SequenceColumns& seq = bed.table().columns();
    ASSERT_FALSE(bed.planned().starts.empty() && bed.planned().items.empty()) << all << " tokens have started";
    for (const SequenceStart& start : bed.planned().starts) {
      all += seq.prompt_tokens[start.slot];
      of_batch += start.slot < 30 ? 0 : seq.prompt_tokens[start.slot];
    }
    for (const SlotId s : std::vector<SlotId>(bed.table().running().begin(), bed.table().running().end())) {
      if (seq.known_committed[s] > seq.prompt_tokens[s]) bed.End(s);
    }
  }
  EXPECT_NEAR(static_cast<double>(of_batch) / static_cast<double>(all), 0.25, 0.04);
}

// Both places are taken by streams that can be kept. A request that is owed a start waits for one of them to end, like
// any other.
TEST(ClassShares, AKeptStreamDoesNotLoseItsPlaceForAShare) {
  testing::HarnessConfig config = PresetConfig("tactus", 64);
  testing::KnownLengths lengths{{20}};
  config.predictor = &lengths;
  config.max_num_seqs = 2;
  config.scheduler.limits.classes = {{.name = "chat"}, {.name = "batch", .share = 0.5}};
  StepBed bed(config);
  SequenceSpec chat, batch;
  chat.service_class = 1;
  chat.slo.tbt_ns = kSecond;
  batch.service_class = 2;
  const SlotId a = bed.Waiting(10, chat), b = bed.Waiting(10, chat), owed = bed.Waiting(10, batch);
  for (int step = 0; step < 6; ++step) bed.Plan(step);
  const SequenceColumns& seq = bed.table().columns();
  EXPECT_EQ(seq.state[owed], SeqState::kWaiting) << "the test needs a request that is owed a start";
  EXPECT_EQ(seq.preemptions[a] + seq.preemptions[b], 0);
}

// Once started, it is not the first to lose its KV, although it is late.
TEST(ClassShares, APromptStartedForAShareKeepsItsKv) {
  testing::HarnessConfig config = PresetConfig("accelgen", 8);
  config.scheduler.limits.classes = {{.name = "chat"}, {.name = "batch", .share = 0.5}};
  StepBed bed(config);
  SequenceSpec chat, batch;
  chat.service_class = 1;
  batch.service_class = 2;
  batch.slo.ttft_ns = 1;  // missed at once
  bed.Waiting(8, chat);
  const SlotId owed = bed.Waiting(100, batch);
  for (int step = 0; step < 4; ++step) bed.Plan(kSecond + step);
  ASSERT_EQ(bed.table().columns().state[owed], SeqState::kPrefill) << "the test needs a started prompt";
  EXPECT_TRUE(bed.Note<ClassShareNote>(owed)->goes_first);
  const std::string next = bed.Plan(kSecond + 5);
  EXPECT_NE(next.find(std::to_string(owed) + ":"), std::string::npos) << next;
}

// The last of a flood of ten would wait for nine others; with a share of one half it waits for one.
TEST(ClassShares, AClassWithAShareStartsWithinAFlood) {
  for (const double share : {0.0, 0.5}) {
    testing::HarnessConfig config = PresetConfig("sarathi-serve", 10);
    config.scheduler.limits.classes = {{.name = "flood"}, {.name = "quiet", .share = share}};
    StepBed bed(config);
    SequenceSpec of_flood, quiet;
    of_flood.service_class = 1;
    quiet.service_class = 2;
    for (int i = 0; i < 10; ++i) bed.Waiting(10, of_flood);
    const SlotId late = bed.Waiting(10, quiet);
    std::vector<SlotId> starts;
    for (int i = 0; i < 4; ++i) {
      bed.Plan();
      for (const SequenceStart& start : bed.planned().starts) starts.push_back(start.slot);
    }
    const bool early = std::find(starts.begin(), starts.end(), late) != starts.end();
    EXPECT_EQ(early, share > 0) << "share " << share;
  }
}

}  // namespace
}  // namespace tactus::core
