// Least slack first (AccelGen, section 4.3). The slack of all waiting sequences falls at the same rate, so the order is
// that of the latest start `deadline - N_ck * T_max`; the deadline is fixed while a sequence waits, but L_c and T_max
// change with every step. So the queue is kept in classes of similar prompt length (within 1/8), each sorted by
// deadline, which never changes. A walk merges them: a class's head gives a lower bound for all that follow in it, and
// a sequence is returned once its exact latest start is no later than every bound. The order is exact, nothing is
// sorted again, and a walk costs what it reads.
//
// Ours: preempted sequences go first, as under fcfs. Their wait starts again from zero when they lose their KV, so by
// slack alone they would come after every sequence that is already late. Those that have missed
// (core/sched/accelgen/slack.h) go last, in the order in which they missed, except for the first of them when it has
// its turn. A heap of the times at which the others will have missed shows which join them.
//
// Bound: a waiting request that can still be kept is passed over only by requests whose latest start is earlier: by
// none that arrives after its own deadline plus the time of the longest prompt. Once it has missed, it is passed over
// by none that misses later, and by others for --accelgen-missed-turn steps after the turn of the one before it.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/check.h"
#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr int kSmall = 16;  // each shorter length is a class
constexpr int kPerOctave = 8;
constexpr int kPreemptedClass = kSmall + kPerOctave * 27;  // one class for any length
constexpr int kMissedClass = kPreemptedClass + 1;          // likewise
constexpr int kSlackClasses = kMissedClass + 1;

int ClassOf(int64_t tokens) {
  if (tokens < kSmall) return static_cast<int>(tokens);
  const int octave = std::bit_width(static_cast<uint64_t>(tokens)) - 1;  // >= 4
  return kSmall + (octave - 4) * kPerOctave + static_cast<int>((tokens >> (octave - 3)) & 7);
}

class SlackOrder final : public Order {
 public:
  explicit SlackOrder(const SchedulerLimits& limits) : slack_(limits) {
    const auto n = static_cast<size_t>(limits.slot_capacity);
    filed_.resize(n);
    revealed_.reserve(n);
    frontier_.reserve(kSlackClasses);
    classes_.resize(kSlackClasses);
    misses_.reserve(MostMisses(n));
    handed_out_.reserve(n);
  }

  void Apply(const StepView& view) override {
    walks_ = false;
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) Insert(view, change.slot);
      if (change.kind == ChangeKind::kUnqueued || change.kind == ChangeKind::kAdmitted) Remove(change.slot);
    }
  }

  void Rebuild(const StepView& view) override {
    walks_ = false;
    for (Class& c : classes_) c.Clear();
    occupied_.fill(0);
    misses_.clear();
    std::fill(filed_.begin(), filed_.end(), Filed());
    for (const SlotId slot : view.waiting) {
      File(view, slot);
      const Filed& f = filed_[static_cast<size_t>(slot)];
      Class& c = classes_[static_cast<size_t>(f.cls)];
      c.NoteLength(f);
      c.entries.push_back(f.entry);
      Occupy(f.cls);
    }
    for (Class& c : classes_) std::sort(c.entries.begin(), c.entries.end());
    std::make_heap(misses_.begin(), misses_.end(), std::greater<>());
  }

  void Start(const StepView& view) override {
    replayed_ = 0;
    if (walks_ && view.now_ns == walk_ns_) return;  // the budget has started this walk
    walks_ = true;
    walk_ns_ = view.now_ns;
    handed_out_.clear();
    MoveMissed(view);
    const StepWindow& w = slack_.Window(view);
    longest_step_ns_ = w.longest_step_ns;
    mean_chunk_ = w.mean_chunk_tokens;
    revealed_.clear();
    frontier_.clear();
    preempted_left_ = 0;
    for (const Entry& e : classes_[kPreemptedClass].Waiting()) {
      Reveal(e);
      ++preempted_left_;
    }
    std::make_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    Class& missed = classes_[kMissedClass];
    missed.cursor = missed.begin;
    turn_left_ = false;
    if (!missed.empty()) {
      const SlotId first = missed.entries[missed.begin].slot;
      slack_.AwaitTurn(view, first);
      turn_left_ = slack_.HasTurn(view, first);
    }
    for (size_t word = 0; word < occupied_.size(); ++word) {
      for (uint64_t left = occupied_[word]; left != 0; left &= left - 1) {
        const int c = static_cast<int>(word) * 64 + std::countr_zero(left);
        Class& cls = classes_[static_cast<size_t>(c)];
        cls.cursor = cls.begin;
        cls.run_ns = SlackModel::Chunks(cls.longest_tokens, mean_chunk_) * longest_step_ns_;
        frontier_.push_back(cls.LeastLeft(c));
        PrefetchReveal(cls);
      }
    }
    std::make_heap(frontier_.begin(), frontier_.end(), std::greater<>());
  }

  SlotId Next() override {
    if (replayed_ == handed_out_.size()) {
      const SlotId slot = NextOfWalk();
      if (slot == kNoSlot) return kNoSlot;
      handed_out_.push_back(slot);
    }
    return handed_out_[replayed_++];
  }

  bool Before(const StepView& view, SlotId a, SlotId b) const override {
    const Group group_a = GroupOf(view, a), group_b = GroupOf(view, b);
    if (group_a != group_b) return group_a < group_b;
    if (group_a != Group::kMissed) return slack_.Before(view, a, b);
    const TimeNs missed_a = MissedAt(view, a), missed_b = MissedAt(view, b);
    return missed_a != missed_b ? missed_a < missed_b : view.seq.arrival_order[a] < view.seq.arrival_order[b];
  }

 private:
  enum class Group : uint8_t { kPreempted, kTurn, kKept, kMissed };
  struct Entry {
    TimeNs deadline_ns = 0;
    int64_t arrival = 0;
    SlotId slot = kNoSlot;
    int32_t tokens = kSeeFiled;  // that run against the deadline: of most entries a walk reads nothing else
    auto operator<=>(const Entry&) const = default;
  };
  static constexpr int32_t kSeeFiled = -1;
  struct Filed {
    Entry entry;
    int cls = -1;  // -1: not in the queue
    int64_t tokens = 0;
    SlackModel::Deadlines deadlines;
  };
  // Position in the queue. The outcome of a comparison is unpredictable, so it is branch-free.
  struct Place {
    TimeNs latest_start_ns = 0;
    int64_t arrival = 0;  // unique
    bool operator<(const Place& other) const {
      const bool earlier = latest_start_ns < other.latest_start_ns, same = latest_start_ns == other.latest_start_ns;
      return (static_cast<int>(earlier) | (static_cast<int>(same) & static_cast<int>(arrival < other.arrival))) != 0;
    }
    bool operator>(const Place& other) const { return other < *this; }
  };
  struct Revealed : Place {
    SlotId slot = kNoSlot;
  };
  // No sequence left in a class is returned before this: among those with its head's deadline the head comes first, and
  // later deadlines start later than the bound. So equal deadlines need not be compared one by one.
  struct LowerBound : Place {
    int cls = 0;
  };
  struct Class {
    std::vector<Entry> entries;  // [begin, size) is sorted
    size_t begin = 0, cursor = 0;
    int64_t longest_tokens = 0;  // longest prompt since the class was empty
    DurationNs run_ns = 0;       // time of such a prompt, in this walk
    bool empty() const { return begin == entries.size(); }
    std::span<const Entry> Waiting() const { return std::span(entries).subspan(begin); }
    LowerBound LeastLeft(int cls) const {
      return {{entries[cursor].deadline_ns - run_ns, entries[cursor].arrival}, cls};
    }
    // Call before the entry is inserted. An entry with only a job deadline does not run against T_max.
    void NoteLength(const Filed& f) {
      const int64_t tokens = f.deadlines.prompt_by_ns == kNever ? 0 : f.tokens;
      longest_tokens = empty() ? tokens : std::max(longest_tokens, tokens);
    }
    void Clear() {
      entries.clear();
      begin = cursor = 0;
    }
  };

  // When a waiting sequence missed, at the earliest its queueing: later arrivals go behind. A preempted one counts from
  // its arrival.
  TimeNs MissedAt(const StepView& view, SlotId slot) const {
    if (view.seq.preemptions[slot] > 0) return view.seq.arrival_ns[slot];
    return std::max(slack_.KeepByNs(view, slot), view.seq.queued_ns[slot]);
  }

  void File(const StepView& view, SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    f.deadlines = slack_.WaitingDeadlines(view, slot);
    f.tokens = view.seq.known_committed[slot];
    f.entry = {std::min(f.deadlines.prompt_by_ns, f.deadlines.job_by_ns), view.seq.arrival_order[slot], slot,
               f.deadlines.job_by_ns == kNever ? view.seq.known_committed[slot] : kSeeFiled};
    // An entry with only a job deadline does not run against T_max.
    f.cls = view.seq.preemptions[slot] > 0       ? kPreemptedClass
            : f.deadlines.prompt_by_ns == kNever ? 0
                                                 : ClassOf(f.tokens);
    if (slack_.Missed(view, slot)) {
      f.entry.deadline_ns = MissedAt(view, slot);
      f.cls = kMissedClass;
    } else if (f.cls != kPreemptedClass) {
      misses_.push_back({slack_.KeepByNs(view, slot), f.entry.arrival, slot});
    }
  }
  Group GroupOf(const StepView& view, SlotId slot) const {
    if (slack_.Missed(view, slot)) return slack_.HasTurn(view, slot) ? Group::kTurn : Group::kMissed;
    const bool preempted = view.seq.state[slot] == SeqState::kWaiting && view.seq.preemptions[slot] > 0;
    return preempted ? Group::kPreempted : Group::kKept;
  }

  void Insert(const StepView& view, SlotId slot) {
    TACTUS_CHECK(filed_[static_cast<size_t>(slot)].cls < 0);
    File(view, slot);
    if (filed_[static_cast<size_t>(slot)].cls < kPreemptedClass) {
      std::push_heap(misses_.begin(), misses_.end(), std::greater<>());
      ForgetOldMisses();
    }
    Enter(slot);
  }
  void Enter(SlotId slot) {
    const Filed& f = filed_[static_cast<size_t>(slot)];
    Class& c = classes_[static_cast<size_t>(f.cls)];
    c.NoteLength(f);
    c.entries.insert(std::upper_bound(c.entries.begin() + static_cast<ptrdiff_t>(c.begin), c.entries.end(), f.entry),
                     f.entry);
    Occupy(f.cls);
  }
  // Only the length classes: a walk needs to know which of them are not empty.
  void Occupy(int cls) {
    if (cls < kPreemptedClass) occupied_[static_cast<size_t>(cls) / 64] |= uint64_t{1} << (cls % 64);
  }
  void VacateIfEmpty(int cls) {
    if (cls < kPreemptedClass && classes_[static_cast<size_t>(cls)].empty()) {
      occupied_[static_cast<size_t>(cls) / 64] &= ~(uint64_t{1} << (cls % 64));
    }
  }

  void Remove(SlotId slot) {
    Filed& f = filed_[static_cast<size_t>(slot)];
    TACTUS_CHECK(f.cls >= 0);
    Class& c = classes_[static_cast<size_t>(f.cls)];
    const auto first = c.entries.begin() + static_cast<ptrdiff_t>(c.begin);
    const auto at = std::lower_bound(first, c.entries.end(), f.entry);
    TACTUS_CHECK(at != c.entries.end() && at->slot == slot);
    const int cls = f.cls;
    f.cls = -1;
    if (at != first) {
      c.entries.erase(at);
      return;
    }
    ++c.begin;
    VacateIfEmpty(cls);
    if (c.begin * 2 >= c.entries.size()) {  // amortised: each entry moves at most once per removal
      c.entries.erase(c.entries.begin(), c.entries.begin() + static_cast<ptrdiff_t>(c.begin));
      c.begin = 0;
    }
  }

  // --- misses_: the entries of the length classes, and some that have left them ---
  static size_t MostMisses(size_t capacity) { return 2 * capacity + 64; }
  bool MayMiss(const Entry& e) const {
    const Filed& f = filed_[static_cast<size_t>(e.slot)];
    return f.cls >= 0 && f.cls < kPreemptedClass && f.entry.arrival == e.arrival;
  }
  void ForgetOldMisses() {
    if (misses_.size() < MostMisses(filed_.size())) return;
    std::erase_if(misses_, [this](const Entry& e) { return !MayMiss(e); });
    std::make_heap(misses_.begin(), misses_.end(), std::greater<>());
  }
  void MoveMissed(const StepView& view) {
    while (!misses_.empty() && misses_.front().deadline_ns < view.now_ns) {
      std::pop_heap(misses_.begin(), misses_.end(), std::greater<>());
      const Entry e = misses_.back();
      misses_.pop_back();
      if (!MayMiss(e)) continue;
      Remove(e.slot);
      File(view, e.slot);
      TACTUS_CHECK(filed_[static_cast<size_t>(e.slot)].cls == kMissedClass);
      Enter(e.slot);
    }
  }
  SlotId NextMissed() {
    Class& c = classes_[kMissedClass];
    return c.cursor < c.entries.size() ? c.entries[c.cursor++].slot : kNoSlot;
  }

  SlotId NextOfWalk() {
    if (preempted_left_ == 0 && turn_left_) {
      turn_left_ = false;
      return NextMissed();
    }
    while (preempted_left_ == 0 && !frontier_.empty() && (revealed_.empty() || frontier_.front() < revealed_.front())) {
      Advance();
    }
    if (revealed_.empty()) return NextMissed();
    if (preempted_left_ > 0) --preempted_left_;
    std::pop_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    const SlotId slot = revealed_.back().slot;
    revealed_.pop_back();
    return slot;
  }

  void Reveal(const Entry& e) {
    TimeNs latest = 0;
    if (e.tokens == kSeeFiled) {
      const Filed& f = filed_[static_cast<size_t>(e.slot)];
      latest = SlackModel::LatestStart(f.deadlines, SlackModel::Chunks(f.tokens, mean_chunk_), longest_step_ns_);
    } else {
      latest = e.deadline_ns - SlackModel::Chunks(e.tokens, mean_chunk_) * longest_step_ns_;
    }
    revealed_.push_back({{latest, e.arrival}, e.slot});
  }

  void Advance() {
    const int c = frontier_.front().cls;
    Class& cls = classes_[static_cast<size_t>(c)];
    Reveal(cls.entries[cls.cursor++]);
    std::push_heap(revealed_.begin(), revealed_.end(), std::greater<>());
    if (cls.cursor == cls.entries.size()) {
      std::pop_heap(frontier_.begin(), frontier_.end(), std::greater<>());
      frontier_.pop_back();
    } else {
      ReplaceFront(cls.LeastLeft(c));
      PrefetchReveal(cls);
    }
  }
  // Prefetches what Reveal of its next entry, and of those behind it, will read.
  void PrefetchReveal(const Class& cls) const {
    const Entry* next = cls.entries.data() + cls.cursor;
    Prefetch(next + 2);
    if (next->tokens == kSeeFiled) Prefetch(&filed_[static_cast<size_t>(next->slot)].deadlines);
  }
  // Replaces the heap's least entry by one that is no less.
  void ReplaceFront(const LowerBound& bound) {
    const size_t n = frontier_.size();
    size_t at = 0;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
      if (child + 1 < n) child += static_cast<size_t>(frontier_[child + 1] < frontier_[child]);
      if (!(frontier_[child] < bound)) break;
      frontier_[at] = frontier_[child];
      at = child;
    }
    frontier_[at] = bound;
  }

  const SlackModel slack_;
  std::vector<Class> classes_;
  std::array<uint64_t, (kPreemptedClass + 63) / 64> occupied_{};  // a bit for each length class that is not empty
  std::vector<Filed> filed_;                                      // [capacity]
  std::vector<Entry> misses_;                                     // heap of the last times at which they can be kept
  // The current walk. Its returned slots are kept: the composition reads again what the budget has read.
  bool walks_ = false;  // the walk is valid: no changes since
  TimeNs walk_ns_ = 0;
  std::vector<SlotId> handed_out_;
  size_t replayed_ = 0;
  DurationNs longest_step_ns_ = 0;
  int64_t mean_chunk_ = 1;
  std::vector<LowerBound> frontier_;  // heap
  std::vector<Revealed> revealed_;    // heap; only preempted sequences until all of them are returned
  size_t preempted_left_ = 0;
  bool turn_left_ = false;  // the first missed sequence has its turn, and was not returned yet
};

}  // namespace

std::unique_ptr<Order> MakeSlackOrder(const SchedulerLimits& limits) {
  return std::make_unique<SlackOrder>(limits);
}

}  // namespace tactus::core
