// Least slack first (AccelGen, section 4.3). Slack falls at the same rate for all that wait, so the order is that
// of the latest start `deadline - N_ck * T_max`; the deadline is fixed while a sequence waits, but L_c and T_max move
// with every step. So the queue is kept in classes of similar prompt length (within 1/8), each sorted by deadline,
// which never changes. A walk merges them: a class's head bounds from below all that follow in it, and a sequence is
// handed out once its exact latest start is no later than every bound. The order is exact, nothing is ever sorted
// again, and a walk costs what it reads.
//
// Ours: those that were preempted go first, as under fcfs. Their wait begins anew when they lose their KV, so by slack
// alone they would come after every sequence that is late already.
//
// Bound: a waiting request is passed over only by requests whose latest start is earlier: none that arrives after its
// own deadline plus the time of the longest prompt.
#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"
#include "sched/choices.h"
#include "sched/slack.h"

namespace tactus::sched {
namespace {

constexpr int kSmall = 16;  // lengths below it have a class each
constexpr int kPerOctave = 8;
constexpr int kPreempted = kSmall + kPerOctave * 27;  // a class of its own, of any length
constexpr int kClasses = kPreempted + 1;

int ClassOf(int64_t tokens) {
  if (tokens < kSmall) return static_cast<int>(tokens);
  const int octave = std::bit_width(static_cast<uint64_t>(tokens)) - 1;  // >= 4
  return kSmall + (octave - 4) * kPerOctave + static_cast<int>((tokens >> (octave - 3)) & 7);
}

int64_t LongestOf(int cls) {
  if (cls < kSmall) return cls;
  const int octave = 4 + (cls - kSmall) / kPerOctave;
  const int64_t eighth = int64_t{1} << (octave - 3);
  return (8 + (cls - kSmall) % kPerOctave + 1) * eighth - 1;
}

class SlackOrder final : public Order {
 public:
  explicit SlackOrder(const SchedulerLimits& limits) : slack_(limits) {
    const auto n = static_cast<size_t>(limits.slot_capacity);
    filed_.resize(n);
    revealed_.reserve(n);
    frontier_.reserve(kClasses);
    classes_.resize(kClasses);
  }

  void Apply(const StepView& view) override {
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) Insert(view, change.slot);
      if (change.kind == ChangeKind::kUnqueued || change.kind == ChangeKind::kAdmitted) Remove(change.slot);
    }
  }

  void Rebuild(const StepView& view) override {
    for (Class& c : classes_) c.Clear();
    std::fill(filed_.begin(), filed_.end(), Filed());
    for (const SlotId slot : view.waiting) {
      File(view, slot);
      classes_[static_cast<size_t>(filed_[static_cast<size_t>(slot)].cls)].entries.push_back(
          filed_[static_cast<size_t>(slot)].entry);
    }
    for (Class& c : classes_) std::sort(c.entries.begin(), c.entries.end());
  }

  void Start(const StepView& view) override {
    const StepWindow& w = slack_.Window(view);
    longest_step_ns_ = w.longest_step_ns;
    mean_chunk_ = w.mean_chunk_tokens;
    revealed_.clear();
    frontier_.clear();
    preempted_left_ = 0;
    for (const Entry& e : classes_[kPreempted].Waiting()) {
      Reveal(e);
      ++preempted_left_;
    }
    std::make_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    for (int c = 0; c < kPreempted; ++c) {
      Class& cls = classes_[static_cast<size_t>(c)];
      if (cls.empty()) continue;
      cls.cursor = cls.begin;
      cls.run_ns = SlackModel::Chunks(LongestOf(c), mean_chunk_) * longest_step_ns_;
      frontier_.push_back({cls.entries[cls.cursor].deadline_ns - cls.run_ns, c});
    }
    std::make_heap(frontier_.begin(), frontier_.end(), std::greater<>());
  }

  SlotId Next() override {
    while (preempted_left_ == 0 && !frontier_.empty() &&
           (revealed_.empty() || frontier_.front().first <= revealed_.front().latest_start_ns)) {
      Advance();
    }
    if (revealed_.empty()) return kNoSlot;
    if (preempted_left_ > 0) --preempted_left_;
    std::pop_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    const SlotId slot = revealed_.back().slot;
    revealed_.pop_back();
    return slot;
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override {
    const bool first_a = GoesFirst(view, a), first_b = GoesFirst(view, b);
    return first_a != first_b ? first_a : slack_.Before(view, a, b);
  }

 private:
  struct Entry {
    TimeNs deadline_ns = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
    auto operator<=>(const Entry&) const = default;
  };
  struct Filed {
    Entry entry;
    int cls = -1;  // -1: not in the queue
    int64_t tokens = 0;
    SlackModel::Deadlines deadlines;
  };
  struct Class {
    std::vector<Entry> entries;  // [begin, size) is sorted
    size_t begin = 0, cursor = 0;
    DurationNs run_ns = 0;  // of its longest prompt, in this walk
    bool empty() const { return begin == entries.size(); }
    std::span<const Entry> Waiting() const { return std::span(entries).subspan(begin); }
    void Clear() {
      entries.clear();
      begin = cursor = 0;
    }
  };
  struct Revealed {
    TimeNs latest_start_ns = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
    auto operator<=>(const Revealed&) const = default;
  };

  void File(const StepView& view, SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    f.deadlines = slack_.WaitingDeadlines(view, slot);
    f.tokens = view.seq.known_committed[slot];
    f.entry = {std::min(f.deadlines.prompt_by_ns, f.deadlines.job_by_ns), view.seq.arrival_order[slot], slot};
    // What only has a job deadline does not run against T_max.
    f.cls = view.seq.preemptions[slot] > 0 ? kPreempted : f.deadlines.prompt_by_ns == kNever ? 0 : ClassOf(f.tokens);
  }
  static bool GoesFirst(const StepView& view, SlotId slot) {
    return view.seq.state[slot] == SeqState::kWaiting && view.seq.preemptions[slot] > 0;
  }

  void Insert(const StepView& view, SlotId slot) {
    TACTUS_CHECK(filed_[static_cast<size_t>(slot)].cls < 0);
    File(view, slot);
    const Filed& f = filed_[static_cast<size_t>(slot)];
    Class& c = classes_[static_cast<size_t>(f.cls)];
    c.entries.insert(std::upper_bound(c.entries.begin() + static_cast<ptrdiff_t>(c.begin), c.entries.end(), f.entry),
                     f.entry);
  }

  void Remove(SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    TACTUS_CHECK(f.cls >= 0);
    Class& c = classes_[static_cast<size_t>(f.cls)];
    const auto first = c.entries.begin() + static_cast<ptrdiff_t>(c.begin);
    const auto at = std::lower_bound(first, c.entries.end(), f.entry);
    TACTUS_CHECK(at != c.entries.end() && at->slot == slot);
    f.cls = -1;
    if (at != first) {
      c.entries.erase(at);
      return;
    }
    ++c.begin;
    if (c.begin * 2 >= c.entries.size()) {  // each entry is moved at most once per removal
      c.entries.erase(c.entries.begin(), c.entries.begin() + static_cast<ptrdiff_t>(c.begin));
      c.begin = 0;
    }
  }

  void Reveal(const Entry& e) {
    const Filed& f = filed_[static_cast<size_t>(e.slot)];
    const TimeNs latest =
        SlackModel::LatestStart(f.deadlines, SlackModel::Chunks(f.tokens, mean_chunk_), longest_step_ns_);
    revealed_.push_back({latest, e.arrival, e.slot});
  }

  void Advance() {
    std::pop_heap(frontier_.begin(), frontier_.end(), std::greater<>());
    const int c = frontier_.back().second;
    frontier_.pop_back();
    Class& cls = classes_[static_cast<size_t>(c)];
    Reveal(cls.entries[cls.cursor++]);
    std::push_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    if (cls.cursor == cls.entries.size()) return;
    frontier_.push_back({cls.entries[cls.cursor].deadline_ns - cls.run_ns, c});
    std::push_heap(frontier_.begin(), frontier_.end(), std::greater<>());
  }

  const SlackModel slack_;
  std::vector<Class> classes_;
  std::vector<Filed> filed_;  // [capacity]
  // Of the walk.
  DurationNs longest_step_ns_ = 0;
  int64_t mean_chunk_ = 1;
  std::vector<std::pair<TimeNs, int>> frontier_;  // heap: lower bound of what a class has left, class
  std::vector<Revealed> revealed_;                // heap; the preempted alone until they have been handed out
  size_t preempted_left_ = 0;
};

}  // namespace

std::unique_ptr<Order> MakeSlackOrder(const SchedulerLimits& limits) {
  return std::make_unique<SlackOrder>(limits);
}

}  // namespace tactus::sched
