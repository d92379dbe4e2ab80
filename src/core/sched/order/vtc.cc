// Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, Alg. 2): of the clients
// with waiting requests, the least served goes first; its own requests in order of arrival. A client's counter grows by
// its service: a prompt token counts --vtc-prompt-cost when its prompt starts, a sampled one --vtc-output-cost, each
// divided by the weight of the request's class. A client that returns to the queue is lifted to --vtc-credit below the
// least counter of the waiting clients, or of the last client that left: that bounds saved-up service.
//
// Bound (Theorem 4.4 there): of two clients that both have requests waiting throughout, neither is served more than the
// other by over twice the larger of prompt cost x the longest prompt and output cost x the tokens that fit the KV
// memory, plus the credit. As there, it holds for waiting clients; running sequences of any client continue.
//
// Ours: of the clients that hold KV, those within half of the credit of the most served one lead. They rank behind the
// others: their partly done prompts go after the others', compositions that pause (ranked) leave their sequences out
// first, and preemption takes from them first, until the others have caught up to that distance. If all are served
// alike, all lead. A flooding client leads alone: the others return a whole credit behind it.
//
// Counters are notes of the clients, so they outlive the requests. Heaps hold lower bounds of them: counters only grow,
// so an entry is checked when it reaches the top, and a step costs O(log clients) per sequence that it reads.
#include <algorithm>
#include <cmath>

#include "core/sched/choices.h"
#include "core/sched/index/slot_lists.h"

namespace tactus::core {
namespace {

constexpr Knob<double> kPromptCost{
    "vtc-prompt-cost",
    1.0,
    {.min = 0, .max = 1000, .help = "order vtc: cost of a prompt token in its client's counter"}};
constexpr Knob<double> kOutputCost{
    "vtc-output-cost",
    2.0,
    {.min = 0, .max = 1000, .help = "order vtc: cost of a generated token in its client's counter"}};

constexpr Knob<int64_t> kCredit{
    "vtc-credit",
    16384,
    {.unit = "tokens",
     .min = 0,
     .max = 1 << 30,
     .help = "order vtc: how far below the others' counters a client may come back to the queue; 0: as in the paper"}};

constexpr double kCounterUnit = 1000;  // counters are whole thousandths of a token's cost

struct VtcAccount {
  int64_t counter;  // of client 0: the counter of the client that last left the queue
};
struct VtcCharged {
  int32_t prompt_tokens;  // already counted, not counted again after a preemption
  bool leads;             // whether its client led when the last plan began, while it holds KV
};

class VtcOrder final : public Order {
 public:
  explicit VtcOrder(const SchedulerLimits& limits)
      : accounts_(limits.ClientNote<VtcAccount>()),
        charged_(limits.Note<VtcCharged>()),
        credit_(static_cast<int64_t>(kCounterUnit) * limits.policy[kCredit]),
        lists_(limits.slot_capacity, limits.client_capacity()),
        in_heap_(static_cast<size_t>(limits.client_capacity()), false) {
    const auto cost = [&limits](double tokens, size_t service_class) {
      const double weight = service_class == 0 ? 1.0 : limits.classes[service_class - 1].weight;
      return static_cast<int64_t>(std::llround(kCounterUnit * tokens / weight));
    };
    for (size_t c = 0; c <= limits.classes.size(); ++c)
      costs_.push_back({cost(limits.policy[kPromptCost], c), cost(limits.policy[kOutputCost], c)});
    waiting_.reserve(static_cast<size_t>(limits.client_capacity()));
    reranked_.reserve(static_cast<size_t>(limits.slot_capacity));
    walked_.reserve(static_cast<size_t>(limits.slot_capacity));
    passed_.reserve(static_cast<size_t>(limits.slot_capacity));
  }

  void Apply(const StepView& view) override {
    PutBack(view);
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) Insert(view, change.slot);
      if (change.kind == ChangeKind::kAdmitted || change.kind == ChangeKind::kUnqueued) Remove(view, change.slot);
    }
    FindLeaders(view);
  }

  // Restores the queue before the changes and then applies them, so that counters are lifted in the same way.
  void Rebuild(const StepView& view) override {
    lists_.Clear();
    waiting_.clear();
    walked_.clear();
    passed_.clear();
    std::fill(in_heap_.begin(), in_heap_.end(), false);
    std::vector<SlotId> before(view.waiting.begin(), view.waiting.end());
    for (size_t i = view.changes.size(); i-- > 0;) {
      const auto [slot, kind] = view.changes[i];
      if (kind == ChangeKind::kQueued) std::erase(before, slot);
      if (kind == ChangeKind::kAdmitted || kind == ChangeKind::kUnqueued) before.push_back(slot);
    }
    std::sort(before.begin(), before.end(),
              [&](SlotId a, SlotId b) { return view.seq.arrival_order[a] < view.seq.arrival_order[b]; });
    for (const SlotId slot : before) File(view, slot);
    Apply(view);
  }

  void Start(const StepView& view) override {
    PutBack(view);
    view_ = &view;
  }

  SlotId Next() override {
    CheckTop(*view_);
    const bool walked = !walked_.empty() && (waiting_.empty() || GoesFirst(walked_.front().entry, waiting_.front()));
    if (!walked && waiting_.empty()) return kNoSlot;
    Walk walk;
    if (walked) {
      std::pop_heap(walked_.begin(), walked_.end(), LaterWalk);
      walk = walked_.back();
      walked_.pop_back();
    } else {
      walk = {Pop(), kNoSlot};
      walk.next = lists_.Head(walk.entry.client);
      passed_.push_back(walk.entry.client);
    }
    const SlotId slot = walk.next;
    // If it starts now, its client is served this much more before the next comparison.
    const SequenceColumns& seq = view_->seq;
    walk.entry.counter += CostsOf(*view_, slot).prompt *
                          std::max(0, seq.prompt_tokens[slot] - charged_.At(view_->notes, slot).prompt_tokens);
    walk.next = lists_.Next(slot);
    if (walk.next != kNoSlot) {
      walked_.push_back(walk);
      std::push_heap(walked_.begin(), walked_.end(), LaterWalk);
    }
    return slot;
  }

  void Planned(const StepView& view, std::span<const StepItem> items) override {
    for (const StepItem& item : items) {
      const Costs& costs = CostsOf(view, item.slot);
      int64_t& counter = Account(view, view.seq.client[item.slot]);
      counter += item.sample ? costs.output : 0;
      if (view.seq.state[item.slot] != SeqState::kWaiting) continue;
      // The whole prompt at its start, as in the paper: else its client would count as less served than it will be.
      int32_t& charged = charged_.At(view.notes, item.slot).prompt_tokens;
      counter += costs.prompt * std::max(0, view.seq.prompt_tokens[item.slot] - std::max(charged, item.first_position));
      charged = view.seq.prompt_tokens[item.slot];
    }
  }

  bool ranks() const override { return credit_ > 0; }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    return view.seq.HoldsKv(slot) ? charged_.At(view.notes, slot).leads : Leads(view, view.seq.client[slot]);
  }
  std::span<const SlotId> Reranked(const StepView&) const override { return reranked_; }

  bool Before(const StepView& view, SlotId a, SlotId b) const override {
    const ClientId ca = view.seq.client[a], cb = view.seq.client[b];
    const int64_t of_a = accounts_.At(view.client_notes, ca).counter,
                  of_b = accounts_.At(view.client_notes, cb).counter;
    if (ca != cb) return of_a != of_b ? of_a < of_b : ca < cb;
    return view.seq.arrival_order[a] < view.seq.arrival_order[b];
  }

 private:
  struct Costs {
    int64_t prompt = 0, output = 0;  // per token, in units
  };
  struct Entry {
    int64_t counter = 0;  // a lower bound
    ClientId client = 0;
  };
  struct Walk {
    Entry entry;
    SlotId next = kNoSlot;
  };
  static bool GoesFirst(const Entry& a, const Entry& b) {
    return a.counter != b.counter ? a.counter < b.counter : a.client < b.client;
  }
  static bool Later(const Entry& a, const Entry& b) { return GoesFirst(b, a); }
  static bool LaterWalk(const Walk& a, const Walk& b) { return GoesFirst(b.entry, a.entry); }

  int64_t& Account(const StepView& view, ClientId client) const {
    return accounts_.At(view.client_notes, client).counter;
  }
  const Costs& CostsOf(const StepView& view, SlotId slot) const { return costs_[view.seq.service_class[slot]]; }

  void Insert(const StepView& view, SlotId slot) {
    const ClientId client = view.seq.client[slot];
    if (lists_.Head(client) == kNoSlot && view.seq.preemptions[slot] == 0) {
      CheckTop(view);
      int64_t& counter = Account(view, client);
      counter = std::max(counter, (waiting_.empty() ? Account(view, 0) : waiting_.front().counter) - credit_);
    }
    File(view, slot);
  }
  void File(const StepView& view, SlotId slot) {
    const ClientId client = view.seq.client[slot];
    lists_.InsertByKey(client, slot, view.seq.arrival_order[slot]);
    Push(view, client);
  }
  void Remove(const StepView& view, SlotId slot) {
    const ClientId client = lists_.ListOf(slot);
    lists_.Remove(slot);
    if (lists_.Head(client) == kNoSlot) Account(view, 0) = Account(view, client);
  }
  void Push(const StepView& view, ClientId client) {
    if (in_heap_[static_cast<size_t>(client)]) return;
    in_heap_[static_cast<size_t>(client)] = true;
    waiting_.push_back({Account(view, client), client});
    std::push_heap(waiting_.begin(), waiting_.end(), Later);
  }
  Entry Pop() {
    std::pop_heap(waiting_.begin(), waiting_.end(), Later);
    const Entry top = waiting_.back();
    waiting_.pop_back();
    in_heap_[static_cast<size_t>(top.client)] = false;
    return top;
  }
  bool Leads(const StepView& view, ClientId client) const { return Account(view, client) > most_ - credit_ / 2; }
  void FindLeaders(const StepView& view) {
    reranked_.clear();
    if (credit_ == 0) return;
    most_ = 0;
    for (const SlotId slot : view.running) most_ = std::max(most_, Account(view, view.seq.client[slot]));
    for (const SlotId slot : view.running) {
      bool& leads = charged_.At(view.notes, slot).leads;
      const bool now = Leads(view, view.seq.client[slot]);
      if (leads != now) reranked_.push_back(slot);
      leads = now;
    }
  }
  // Until the top is a waiting client with its current counter.
  void CheckTop(const StepView& view) {
    while (!waiting_.empty()) {
      const Entry& top = waiting_.front();
      const bool waits = lists_.Head(top.client) != kNoSlot;
      if (waits && top.counter == Account(view, top.client)) return;
      const ClientId client = Pop().client;
      if (waits) Push(view, client);
    }
  }
  // Puts back the clients that the last walk took out.
  void PutBack(const StepView& view) {
    for (const ClientId client : passed_) {
      if (lists_.Head(client) != kNoSlot) Push(view, client);
    }
    passed_.clear();
    walked_.clear();
  }

  const NoteColumn<VtcAccount> accounts_;
  const NoteColumn<VtcCharged> charged_;
  const int64_t credit_;
  std::vector<Costs> costs_;      // by class; [0]: no class
  SlotLists lists_;               // the queue of each client
  std::vector<Entry> waiting_;    // heap: clients with a queue, except those that the walk has passed
  std::vector<bool> in_heap_;     // [clients]
  int64_t most_ = 0;              // greatest counter of clients that hold KV, when the last plan began
  std::vector<SlotId> reranked_;  // sequences with KV whose client began or ceased to lead
  // The walk:
  const StepView* view_ = nullptr;
  std::vector<Walk> walked_;      // heap: clients of which it has returned a sequence, with more waiting
  std::vector<ClientId> passed_;  // all clients of which it has returned a sequence
};

}  // namespace

constinit const KnobList kVtcKnobs{&kPromptCost, &kOutputCost, &kCredit};

std::unique_ptr<Order> MakeVtcOrder(const SchedulerLimits& limits) {
  return std::make_unique<VtcOrder>(limits);
}

}  // namespace tactus::core
