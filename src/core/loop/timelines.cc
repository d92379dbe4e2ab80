#include "core/loop/timelines.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "base/check.h"
#include "base/growing_vector.h"
#include "core/loop/sequence_line.h"

namespace tactus::core {
namespace {

using Phase = SequenceLine::Phase;

Cause CauseOf(Refusal why) {
  switch (why) {
    case Refusal::kTokens:
      return Cause::kBudget;
    case Refusal::kPlaces:
      return Cause::kPlaces;
    case Refusal::kBlocks:
      break;
  }
  return Cause::kKv;
}

template <class T>
T* Take(std::deque<T>* pool, std::vector<T*>* free) {
  if (free->empty()) return &pool->emplace_back();
  T* line = free->back();
  free->pop_back();
  return line;
}

}  // namespace

Timelines::Timelines(int32_t slot_capacity, int32_t kept, const Sequences* sequences)
    : sequences_(*sequences),
      most_kept_(kept),
      by_slot_(RoomFor<std::vector<SequenceLine*>>(static_cast<size_t>(slot_capacity))) {}
Timelines::~Timelines() = default;

// Holds the flag for the duration of a Find.
class Timelines::Turn {
 public:
  explicit Turn(const Timelines& timelines) : timelines_(timelines) { timelines_.Enter(); }
  Turn(const Turn&) = delete;
  ~Turn() { timelines_.Leave(); }

 private:
  const Timelines& timelines_;
};

void Timelines::Yield() {
  std::this_thread::yield();
}

RequestLine* Timelines::Arrived(const PreparedRequest& in) {
  RequestLine* line = Take(&request_pool_, &free_requests_);
  line->handle = in.handle;
  line->id = in.request->id;
  line->owner = in.request->owner;
  line->slo_class = in.request->slo_class;
  line->slo = in.request->slo;
  line->arrival_ns = in.arrival_ns;
  line->prompt_tokens = in.prompt_tokens;
  line->preemptions = line->sequences = 0;
  line->ended = false;
  line->finish = FinishReason::kNone;
  line->cache.reset();
  line->first = line->last = nullptr;
  line->live_index = live_.size();
  live_.push_back(line);
  return line;
}

void Timelines::SequenceArrived(RequestLine* request, SlotId slot, int32_t choice, bool held, bool others_ahead) {
  SequenceLine* s = Take(&sequence_pool_, &free_sequences_);
  MakeUpTo(&by_slot_, static_cast<size_t>(slot));
  by_slot_[static_cast<size_t>(slot)] = s;
  (request->first == nullptr ? request->first : request->last->next) = s;
  request->last = s;
  ++request->sequences;
  s->request = request;
  s->next = nullptr;
  s->slot = slot;
  s->choice = choice;
  s->arrival_ns = s->since_ns = request->arrival_ns;
  s->since_step = next_step_;
  s->others_ahead = others_ahead;
  s->left_out_step = -1;
  s->redo_until = 0;
  s->finish = FinishReason::kNone;
  s->first_token_ns = -1;
  s->longest_gap_ns = s->longest_gap_end_ns = s->beside_others_ns = 0;
  s->generated = 0;
  s->total_ns = {};
  s->num_segments = 0;
  s->Account(Cause::kIntake, now_ns_, next_step_);
  s->phase = held ? Phase::kWaiting : Phase::kArriving;
  s->open = held ? Cause::kSibling : Cause::kInFlight;
}

void Timelines::Imported(SlotId slot, TimeNs first_token_ns, int32_t preemptions, int32_t computed) {
  SequenceLine& s = line(slot);
  // So far only SequenceArrived has accounted time, as kIntake.
  std::swap(s.total_ns[static_cast<size_t>(Cause::kElsewhere)], s.total_ns[static_cast<size_t>(Cause::kIntake)]);
  for (uint32_t i = 0; i < s.num_segments; ++i) s.segments[i].cause = Cause::kElsewhere;
  if (first_token_ns > 0) s.first_token_ns = first_token_ns;
  s.redo_until = computed;
  s.request->preemptions = preemptions;
}

void Timelines::SetOpen(SlotId slot, Cause cause) {
  line(slot).open = cause;
}

void Timelines::Matched(RequestLine* request, const CacheMatch& match) {
  request->cache = match;
}

void Timelines::Unheld(SlotId slot) {
  SequenceLine& s = line(slot);
  Close(&s);
  s.phase = Phase::kArriving;
  s.open = Cause::kInFlight;
}

void Timelines::Planning(std::span<const SequenceChange> changes) {
  for (const SequenceChange& change : changes) {
    SequenceLine* s = by_slot_[static_cast<size_t>(change.slot)];
    if (change.kind != ChangeKind::kQueued || s == nullptr || s->phase != Phase::kArriving) continue;
    Close(s);
    s->phase = Phase::kUnseen;
  }
}

void Timelines::Look(const PlanBuilder& builder, size_t waiting) {
  for (const PlanBuilder::Refused& refused : builder.refused()) {
    // A refused sequence may have got an item later in the plan, after preemptions, or was preempted itself.
    if (!builder.Touched(refused.slot)) Refused(refused.slot, CauseOf(refused.why));
  }
  if (started_) {
    num_doors_ = 1;
    doors_[0] = {now_ns_, next_step_, Cause::kQueue};
    started_ = false;
  } else if (waiting > 0) {
    SetDoor(builder.looked_at_waiting()   ? Cause::kQueue
            : builder.starts_left() <= 0  ? Cause::kPlaces
            : builder.prefill_left() <= 0 ? Cause::kBudget
            : builder.has_preempted()     ? Cause::kKv
                                          : Cause::kQueue);
  }
}

void Timelines::SetDoor(Cause cause) {
  if (doors_[num_doors_ - 1].cause == cause || num_doors_ == doors_.size()) return;
  doors_[num_doors_++] = {now_ns_, next_step_, cause};
}

void Timelines::Refused(SlotId slot, Cause cause) {
  SequenceLine& s = line(slot);
  if (s.phase == Phase::kRunning) {
    s.left_out = cause;
    s.left_out_step = next_step_;
  } else if (s.phase == Phase::kUnseen ||
             (s.phase == Phase::kWaiting && s.open != cause && s.open != Cause::kPreempted)) {
    Close(&s);
    s.phase = Phase::kWaiting;
    s.open = cause;
  }
}

void Timelines::Started(SlotId slot, int32_t first_position, bool generated) {
  SequenceLine& s = line(slot);
  Close(&s);
  started_ = true;
  s.phase = Phase::kRunning;
  s.open = first_position < s.redo_until ? Cause::kRecompute : generated ? Cause::kDecode : Cause::kPrefill;
}

void Timelines::Resumed(SlotId slot) {
  if (line(slot).phase == Phase::kRunning) CloseRunning(&line(slot));  // otherwise Started follows
}

void Timelines::ChunkEnded(SlotId slot, const StepItem& item, int64_t step_tokens) {
  SequenceLine& s = line(slot);
  if (s.open == Cause::kPrefill && now_ns_ > s.since_ns) {
    // Division first, so that no duration overflows.
    const DurationNs took_ns = now_ns_ - s.since_ns;
    const int64_t others = step_tokens - item.count;
    s.beside_others_ns += took_ns / step_tokens * others + took_ns % step_tokens * others / step_tokens;
  }
  s.Account(s.open, now_ns_, next_step_);
  const int32_t next = item.first_position + item.count;
  s.open = next < s.redo_until                    ? Cause::kRecompute
           : item.sample || s.first_token_ns >= 0 ? Cause::kDecode
                                                  : Cause::kPrefill;
}

void Timelines::ShareEnded(SlotId slot) {
  SequenceLine& s = line(slot);
  s.Account(s.open, now_ns_, next_step_);
}

void Timelines::FirstToken(SlotId slot) {
  line(slot).first_token_ns = now_ns_;
}

void Timelines::Preempted(SlotId slot, int32_t computed) {
  SequenceLine& s = line(slot);
  Close(&s);
  s.phase = Phase::kWaiting;
  s.open = Cause::kPreempted;
  s.redo_until = std::max(s.redo_until, computed);
  ++s.request->preemptions;
}

void Timelines::Ended(SlotId slot, FinishReason finish) {
  SequenceLine& s = line(slot);
  Close(&s);
  const Running running = sequences_.RunningOf(slot);
  s.longest_gap_ns = running.longest_gap_ns;
  s.longest_gap_end_ns = running.longest_gap_end_ns;
  s.generated = running.generated;
  s.finish = finish;
  s.phase = Phase::kEnded;
  by_slot_[static_cast<size_t>(slot)] = nullptr;
}

std::array<Miss, kNumObjectives> Timelines::RequestEnded(RequestLine* request, FinishReason finish) {
  request->ended = true;
  request->finish = finish;
  live_.back()->live_index = request->live_index;
  live_[request->live_index] = live_.back();
  live_.pop_back();
  ended_.push_back(request);
  kept_sequences_ += request->sequences;
  // The one that has just ended is kept: its misses are read below.
  while (kept_sequences_ > most_kept_ && ended_.size() > 1) {
    kept_sequences_ -= ended_.front()->sequences;
    Recycle(ended_.front());
    ended_.pop_front();
  }
  return request->Misses();
}

void Timelines::Recycle(RequestLine* request) {
  for (SequenceLine* s = request->first; s != nullptr; s = s->next) free_sequences_.push_back(s);
  free_requests_.push_back(request);
}

// Accounts for all time up to now, by the sequence's phase.
void Timelines::Close(SequenceLine* s) const {
  switch (s->phase) {
    case Phase::kUnseen:
      return CloseUnseen(s);
    case Phase::kRunning:
      return CloseRunning(s);
    case Phase::kArriving:
    case Phase::kWaiting:
      return s->Account(s->open, now_ns_, next_step_);
    case Phase::kEnded:
      return;
  }
}

// A sequence that no plan considered waited in the queue until the last plan that started a sequence; since then, or
// since its arrival in an empty queue, it waited for the causes in doors_.
void Timelines::CloseUnseen(SequenceLine* s) const {
  if (!s->others_ahead || s->since_ns < doors_[0].since_ns) {
    s->Account(Cause::kQueue, doors_[0].since_ns, doors_[0].step);
    for (size_t i = 0; i + 1 < num_doors_; ++i) s->Account(doors_[i].cause, doors_[i + 1].since_ns, doors_[i + 1].step);
    return s->Account(doors_[num_doors_ - 1].cause, now_ns_, next_step_);
  }
  s->Account(Cause::kQueue, now_ns_, next_step_);
}

// The sequence computed until its last item ended; since then it is left out of steps.
void Timelines::CloseRunning(SequenceLine* s) const {
  const Running running = sequences_.RunningOf(s->slot);
  const TimeNs left_ns = std::max(s->since_ns, running.last_token_ns);
  if (running.in_flight || left_ns >= now_ns_) return s->Account(s->open, now_ns_, next_step_);
  s->Account(s->open, left_ns, running.last_step + 1);
  s->Account(s->left_out_step > running.last_step ? s->left_out : Cause::kPassedOver, now_ns_, next_step_);
}

std::vector<RequestTimeline> Timelines::Find(const TimelineQuery& query) const {
  const Turn turn(*this);
  std::vector<const RequestLine*> found, prompts;
  const auto consider = [&](const RequestLine* r) {
    if (r->owner != query.owner || (query.arrival_ns >= 0 && r->arrival_ns != query.arrival_ns)) return;
    if (r->id == query.id) found.push_back(r);
    if (IsPromptOf(r->id, query.id)) prompts.push_back(r);
  };
  const auto is_asked = [&](const RequestLine* r) { return r->handle == query.handle; };
  if (query.handle == 0) {
    for (const RequestLine* r : ended_) consider(r);
    for (const RequestLine* r : live_) consider(r);
    // From the newest: viewers ask for requests that have just started or ended, and a pass waits meanwhile.
  } else if (const auto live = std::find_if(live_.rbegin(), live_.rend(), is_asked); live != live_.rend()) {
    found.push_back(*live);
  } else if (const auto ended = std::find_if(ended_.rbegin(), ended_.rend(), is_asked); ended != ended_.rend()) {
    found.push_back(*ended);
  }
  if (found.empty()) found = std::move(prompts);
  TimeNs newest_ns = std::numeric_limits<TimeNs>::min();
  for (const RequestLine* r : found) newest_ns = std::max(newest_ns, r->arrival_ns);
  std::erase_if(found, [&](const RequestLine* r) { return r->arrival_ns != newest_ns; });
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->handle < b->handle; });
  std::vector<RequestTimeline> shown;
  for (const RequestLine* r : found) shown.push_back(Show(*r));
  return shown;
}

std::vector<RequestHandle> Timelines::Live() const {
  const Turn turn(*this);
  std::vector<RequestHandle> handles;
  handles.reserve(live_.size());
  for (const RequestLine* r : live_) handles.push_back(r->handle);
  return handles;
}

RequestTimeline Timelines::Show(const RequestLine& request) const {
  RequestTimeline shown;
  shown.handle = request.handle;
  shown.id = request.id;
  shown.owner = request.owner;
  shown.slo_class = request.slo_class;
  shown.ended = request.ended;
  shown.finish = request.finish;
  shown.arrival_ns = request.arrival_ns;
  shown.prompt_tokens = request.prompt_tokens;
  shown.preemptions = request.preemptions;
  shown.slo = request.slo;
  shown.cache = request.cache;
  // Live sequences are copied, and the copies closed as of the last pass.
  std::deque<SequenceLine> copies;
  RequestLine copy = request;
  copy.first = copy.last = nullptr;
  for (const SequenceLine* s = request.first; s != nullptr; s = s->next) {
    SequenceLine& c = copies.emplace_back(*s);
    c.next = nullptr;
    (copy.first == nullptr ? copy.first : copy.last->next) = &c;
    copy.last = &c;
    Close(&c);
    if (c.phase != Phase::kEnded) {
      const Running running = sequences_.RunningOf(c.slot);
      c.longest_gap_ns = running.longest_gap_ns;
      c.longest_gap_end_ns = running.longest_gap_end_ns;
      c.generated = running.generated;
    }
    shown.sequences.push_back(c.Show());
  }
  shown.misses = copy.Misses();
  return shown;
}

}  // namespace tactus::core
