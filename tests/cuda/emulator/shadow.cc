#include "shadow.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "order.h"

namespace tactus::compute::cuda::emulator {
namespace {

int64_t Words(int64_t bytes) {
  return (bytes + 3) / 4;
}

// Taken to split and join units, by their number.
class SplitLock {
 public:
  explicit SplitLock(int64_t unit) : flag_(flags_[unit & 63]) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SplitLock() { flag_.clear(std::memory_order_release); }
  SplitLock(const SplitLock&) = delete;
  SplitLock& operator=(const SplitLock&) = delete;

 private:
  static inline std::atomic_flag flags_[64];
  std::atomic_flag& flag_;
};

bool SameWarp(Stamp a, Stamp b) {
  return ThreadOf(a) / 32 == ThreadOf(b) / 32;
}

bool KnowsGroup(Stamp s, const Moment& m) {
  const LaneGroup group = GroupOf(s);
  for (uint32_t lane = group.first; lane < group.first + group.size; ++lane) {
    if (TickOf(s) >= m.known[lane]) return false;
  }
  return true;
}

// Whether all accesses that `s` stands for, by threads of `spread`, come before the thread's next one.
bool IsBefore(Stamp s, Stamp spread, const Moment& m) {
  if (s < m.launch_floor) return s < m.order_floor || UnorderedWork(SerialOf(s)) == nullptr;
  if (spread == kManyBlocks || SerialOf(s) != SerialOf(m.now)) return false;
  if (s < m.block_floor) return true;
  if (spread == kOneBlock || !SameWarp(s, m.now)) return false;
  return s < m.warp_floor || (spread == kOneThread && ThreadOf(s) == ThreadOf(m.now)) || KnowsGroup(s, m);
}

// The stamp that stands for `s` and the thread of `m`.
Stamp Merge(Stamp s, const Moment& m, Stamp flag) {
  const Stamp spread = s & kSpread, kept = (s | flag) & ~kSpread & KindOf(~Stamp{0});
  if (IsBefore(s, spread, m)) return m.now | kept;
  if (spread == kManyBlocks || SerialOf(s) != SerialOf(m.now)) return m.now | kept | kManyBlocks;
  const uint64_t tick = std::max(TickOf(s), TickOf(m.now));
  uint32_t thread = ThreadOf(m.now);
  Stamp wider = kOneBlock;
  if (spread != kOneBlock && SameWarp(s, m.now)) {
    LaneGroup group = GroupOf(s);
    while (thread % 32 - group.first >= group.size) {
      group.size *= 2;
      group.first &= ~(group.size - 1);
    }
    wider = group.size == 1 ? kOneThread : kOneWarp;
    thread = thread / 32 * 32 + group.first + group.size / 2;
  }
  return MakeStamp(SerialOf(m.now), tick, thread) | kept | wider;
}

constexpr const char* kNeverWritten = "read of never-written memory";

bool IsInFlight(Stamp s) {
  return SerialOf(s) == kInFlightSerial && s != kSplit;
}

std::string By(Stamp s, const Moment& m, const char* name) {
  if (s < m.launch_floor) {
    const char* const other = UnorderedWork(SerialOf(s));
    return fmt::format("{}, in another stream by {}", name, other == nullptr ? "an earlier work" : other);
  }
  const char* place = SerialOf(s) == SerialOf(m.now) ? "" : " of another block";
  return fmt::format("{}, {} {}{}", name, (s & kSpread) == kOneThread ? "by thread" : "by several threads, near",
                     ThreadOf(s), place);
}

}  // namespace

Shadow::Shadow(Memory memory, int64_t bytes) : memory_(memory), bytes_(bytes) {
  for (int level = 0; level < kLevels; ++level) {
    const size_t size = static_cast<size_t>(Words(bytes) << level) * sizeof(Cell);
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TACTUS_CHECK_MSG(p != MAP_FAILED, "no address space for the emulator's stamps");
    cells_[level] = static_cast<Cell*>(p);
  }
}
Shadow::~Shadow() {
  for (int level = 0; level < kLevels; ++level) {
    munmap(cells_[level], static_cast<size_t>(Words(bytes_) << level) * sizeof(Cell));
  }
}

void Shadow::AddReader(Cell& cell, const Moment& m, Stamp kind) {
  const Stamp read = Get(cell.read);
  if (read >= m.launch_floor) return Set(cell.read, Merge(read, m, kind));
  KeepRead(cell, read);
  Set(cell.read, m.now | kind);
}

Shadow::Bytes Shadow::BytesOf(const Cell& cell) const {
  const auto at = reinterpret_cast<uintptr_t>(&cell);
  for (int level = kLevels - 1;; --level) {
    const auto first = reinterpret_cast<uintptr_t>(cells_[level]);
    const auto units = static_cast<uintptr_t>(Words(bytes_) << level);
    const uintptr_t unit = (at - first) / sizeof(Cell);
    if (level > 0 && (at < first || unit >= units)) continue;
    const int size = 4 >> level, in_word = static_cast<int>(unit & ((uintptr_t{1} << level) - 1));
    return {static_cast<int64_t>(unit >> level), ((1u << size) - 1) << (size * in_word)};
  }
}

void Shadow::KeepRead(const Cell& cell, Stamp read) {
  if (UnorderedWork(SerialOf(read)) == nullptr) return;
  const Bytes at = BytesOf(cell);
  const std::lock_guard lock(kept_mutex_);
  std::vector<KeptRead>& kept = kept_[at.word];
  // The reads that come before the one that runs are as good as that one.
  std::erase_if(kept, [&](const KeptRead& k) {
    return (k.bytes & ~at.bytes) == 0 &&
           (IsSameWork(SerialOf(k.stamp), SerialOf(read)) || UnorderedWork(SerialOf(k.stamp)) == nullptr);
  });
  kept.push_back({read, at.bytes});
  Set(newest_kept_, std::max(Get(newest_kept_), read));
}

Stamp Shadow::FindKept(const Cell& cell) const {
  const Bytes at = BytesOf(cell);
  const std::lock_guard lock(kept_mutex_);
  const auto kept = kept_.find(at.word);
  if (kept == kept_.end()) return 0;
  for (const KeptRead& k : kept->second) {
    if ((k.bytes & at.bytes) != 0 && UnorderedWork(SerialOf(k.stamp)) != nullptr) return k.stamp;
  }
  return 0;
}

void Shadow::ReadCell(Cell& cell, const Moment& m, Stamp kind, const Where& where, const char* name) {
  const Stamp w = Get(cell.written), r = Get(cell.read);
  const auto report = [&](const char* finding) {
    if (!IsReported(finding, where)) Report(finding, where, By(w, m, name));
  };
  if (w == 0) {
    if (!IsReported(kNeverWritten, where)) Report(kNeverWritten, where, name);
  } else if (IsInFlight(w)) {
    report("read of cp.async data in flight");
  } else if (kind == kReadOnly && w >= m.launch_floor) {
    report("read-only read of memory that this launch writes");
  } else if (!IsBefore(w, w & kSpread, m)) {
    report("race: read after write");
  }
  if (r < Floor(m)) {
    Set(cell.read, m.now | kind);
  } else if (r < m.launch_floor || !Covers(r, m.now | kind)) {
    AddReader(cell, m, kind);
  }
}

void Shadow::WriteCell(Cell& cell, const Moment& m, Stamp stamp, const Where& where, const char* name) {
  const Stamp w = Get(cell.written), r = Get(cell.read);
  const auto report = [&](const char* finding, Stamp by) {
    if (!IsReported(finding, where)) Report(finding, where, By(by, m, name));
  };
  const bool atomic = (stamp & kAtomic) != 0 && SerialOf(stamp) != kInFlightSerial;
  const bool joins = atomic && w >= m.launch_floor && !IsInFlight(w) && (w & kAtomic) != 0;
  if (IsInFlight(w)) {
    report("write over cp.async in flight", w);
  } else if (!joins && !IsBefore(w, w & kSpread, m)) {
    report("race: write after write", w);
  }
  if (r >= m.launch_floor && (r & kReadOnly) != 0) {
    report("write of memory that this launch reads as read-only", r);
  } else if (!IsBefore(r, r & kSpread, m)) {
    report("race: write after read", r);
  }
  if (Get(newest_kept_) >= Floor(m)) {
    const Stamp kept = FindKept(cell);
    if (kept != 0) report("race: write after read", kept);
  }
  Set(cell.written, joins ? Merge(w, m, kAtomic) : stamp);
}

template <class F>
void Shadow::ForCells(int level, int64_t unit, const F& f) const {
  Cell& cell = cells_[level][unit];
  if (Get(cell.written) != kSplit) return f(cell);
  ForCells(level + 1, 2 * unit, f);
  ForCells(level + 1, 2 * unit + 1, f);
}

template <class F>
void Shadow::ForCellsOf(int64_t offset, int64_t size, const F& f) const {
  for (const int64_t end = offset + size; offset < end;) {
    int level = 0;
    while (((offset & 3) != 0 || end - offset < 4) && level + 1 < kLevels &&
           Get(cells_[level][offset >> (2 - level)].written) == kSplit) {
      ++level;
    }
    ForCells(level, offset >> (2 - level), f);
    offset = std::min(end, ((offset >> (2 - level)) + 1) << (2 - level));
  }
}

template <class F>
void Shadow::ForPart(int64_t offset, int64_t size, const F& f) {
  for (const int64_t end = offset + size; offset < end;) {
    int level = 0;
    while ((offset & ((4 >> level) - 1)) != 0 || end - offset < 4 >> level) ++level;
    for (int above = 0; above < level; ++above) Split(above, offset >> (2 - above));
    ForCells(level, offset >> (2 - level), f);
    offset += 4 >> level;
  }
}

void Shadow::ReadSlowly(int64_t offset, int64_t size, const Moment& m, Stamp kind, const Where& where,
                        const char* name) {
  if (size >= 4) {
    for (int64_t i = offset >> 2; i < (offset + size) >> 2; ++i) Join(0, i, JoinFloor(m));
  }
  ForPart(offset, size, [&](Cell& cell) { ReadCell(cell, m, kind, where, name); });
}

void Shadow::WriteSlowly(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name) {
  ForPart(offset, size, [&](Cell& cell) { WriteCell(cell, m, m.now, where, name); });
  if (size < 4) return;
  for (int64_t i = offset >> 2; i < (offset + size) >> 2; ++i) Join(0, i, JoinFloor(m));
}

void Shadow::Atomic(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name) {
  for (int64_t i = offset >> 2; i < (offset + size) >> 2; ++i) Join(0, i, JoinFloor(m));
  ForPart(offset, size, [&](Cell& cell) {
    if (Get(cell.written) == 0) Report("atomic operation on never-written memory", where, name);
    WriteCell(cell, m, m.now | kAtomic, where, name);
  });
}

void Shadow::Issue(int64_t offset, const Moment& m, const Where& where) {
  const Stamp stamp = MakeStamp(kInFlightSerial, TickOf(m.now), ThreadOf(m.now));
  ForPart(offset, 16, [&](Cell& cell) { WriteCell(cell, m, stamp, where, "shared memory"); });
  for (int64_t i = offset >> 2; i < (offset + 16) >> 2; ++i) Join(0, i, JoinFloor(m));
}

void Shadow::Land(int64_t offset, const Moment& m) {
  ForPart(offset, 16, [&](Cell& cell) { Set(cell.written, m.now); });
}

void Shadow::Split(int level, int64_t unit) {
  Cell& cell = cells_[level][unit];
  if (Get(cell.written) == kSplit) return;
  const SplitLock lock(unit);
  const Stamp written = Get(cell.written), read = Get(cell.read);
  if (written == kSplit) return;
  for (int64_t part = 2 * unit; part < 2 * unit + 2; ++part) {
    Set(cells_[level + 1][part].written, written);
    Set(cells_[level + 1][part].read, read);
  }
  __atomic_store_n(&cell.written, kSplit, __ATOMIC_RELEASE);
}

// Stamps of one earlier work mean the same.
void Shadow::Join(int level, int64_t unit, Stamp floor) {
  Cell& cell = cells_[level][unit];
  if (Get(cell.written) != kSplit) return;
  const Cell* parts = &cells_[level + 1][2 * unit];
  if (level + 2 < kLevels) {
    Join(level + 1, 2 * unit, floor);
    Join(level + 1, 2 * unit + 1, floor);
  }
  const SplitLock lock(unit);
  if (Get(cell.written) != kSplit) return;
  const Stamp w[2] = {Get(parts[0].written), Get(parts[1].written)}, r[2] = {Get(parts[0].read), Get(parts[1].read)};
  const Stamp written = std::max(w[0], w[1]), read = std::max(r[0], r[1]);
  const auto same = [&](const Stamp* s, Stamp last) {
    return s[0] == s[1] || (last < floor && (memory_ == Memory::kShared || IsSameWork(SerialOf(s[0]), SerialOf(s[1]))));
  };
  if (w[0] == 0 || w[1] == 0 || written == kSplit || !same(w, written) || !same(r, read)) return;
  Set(cell.read, read);
  Set(cell.written, written);
}

void Shadow::MarkWritten(int64_t offset, int64_t size, Stamp stamp) {
  ForPart(offset, size, [&](Cell& cell) { Set(cell.written, stamp); });
  for (int64_t i = (offset + 3) >> 2; i < (offset + size) >> 2; ++i) Join(0, i, stamp);
}

void Shadow::MarkRead(int64_t offset, int64_t size, Stamp stamp) {
  const Stamp first = FirstUnordered();
  ForPart(offset, size, [&](Cell& cell) {
    const Stamp read = Get(cell.read);
    if (read >= first) KeepRead(cell, read);
    Set(cell.read, stamp);
  });
  for (int64_t i = (offset + 3) >> 2; i < (offset + size) >> 2; ++i) Join(0, i, stamp);
}

const char* Shadow::FindUnordered(int64_t offset, int64_t size, bool writes) const {
  const Stamp first = FirstUnordered();
  if (first == ~Stamp{0}) return nullptr;
  const bool kept = writes && Get(newest_kept_) >= first;
  const char* found = nullptr;
  const auto look = [&](Stamp s) {
    if (found == nullptr && s >= first) found = UnorderedWork(SerialOf(s));
  };
  ForCellsOf(offset, size, [&](const Cell& cell) {
    look(Get(cell.written));
    if (writes) look(Get(cell.read));
    if (kept) look(FindKept(cell));
  });
  return found;
}

void Shadow::CopyWritten(int64_t offset, const Shadow& from, int64_t from_offset, int64_t size, Stamp stamp) {
  if (from.AllWritten(from_offset, size)) return MarkWritten(offset, size, stamp);
  for (int64_t b = 0; b < size; ++b) MarkWritten(offset + b, 1, from.AllWritten(from_offset + b, 1) ? stamp : 0);
}

bool Shadow::AllWritten(int64_t offset, int64_t size) const {
  bool all = true;
  ForCellsOf(offset, size, [&](const Cell& cell) { all = all && Get(cell.written) != 0; });
  return all;
}

void Shadow::Clear(int64_t offset, int64_t size) {
  const int64_t first = offset >> 2, words = Words(offset + size) - first;
  std::memset(static_cast<void*>(cells_[0] + first), 0, static_cast<size_t>(words) * sizeof(Cell));
}

}  // namespace tactus::compute::cuda::emulator
