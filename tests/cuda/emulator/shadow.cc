#include "shadow.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace tactus::compute::cuda::emulator {
namespace {

int64_t Words(int64_t bytes) {
  return (bytes + 3) / 4;
}

Stamp* Map(int64_t stamps) {
  void* p = mmap(nullptr, static_cast<size_t>(stamps) * sizeof(Stamp), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TACTUS_CHECK_MSG(p != MAP_FAILED, "no address space for the emulator's stamps");
  return static_cast<Stamp*>(p);
}
void Unmap(Stamp* p, int64_t stamps) {
  munmap(p, static_cast<size_t>(stamps) * sizeof(Stamp));
}

// Taken to split words, by the word's number.
class SplitLock {
 public:
  explicit SplitLock(int64_t word) : flag_(flags_[word & 63]) {
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

// Whether all accesses that `s` stands for, by threads of `spread`, come before the thread's next one.
bool IsBefore(Stamp s, Stamp spread, const Moment& m) {
  if (s < m.launch_floor) return true;
  if (spread == kManyBlocks || SerialOf(s) != SerialOf(m.now)) return false;
  if (s < m.block_floor) return true;
  if (spread == kOneBlock || !SameWarp(s, m.now)) return false;
  if (s < m.warp_floor || TickOf(s) < m.known[ThreadOf(s) % 32]) return true;
  return spread == kOneThread && ThreadOf(s) == ThreadOf(m.now);
}

// The stamp that stands for `s` and the thread of `m`.
Stamp Merge(Stamp s, const Moment& m, Stamp flag) {
  const Stamp spread = s & kSpread, kept = (s | flag) & ~kSpread & KindOf(~Stamp{0});
  Stamp wider = kOneThread;
  if (IsBefore(s, spread, m)) {
    wider = kOneThread;
  } else if (spread == kManyBlocks || SerialOf(s) != SerialOf(m.now)) {
    wider = kManyBlocks;
  } else if (spread == kOneBlock || !SameWarp(s, m.now)) {
    wider = kOneBlock;
  } else if (spread == kOneWarp || ThreadOf(s) != ThreadOf(m.now)) {
    wider = kOneWarp;
  }
  const uint64_t tick = wider == kOneThread ? TickOf(m.now) : std::max(TickOf(s), TickOf(m.now));
  return MakeStamp(SerialOf(m.now), tick, ThreadOf(m.now)) | kept | wider;
}

bool IsInFlight(Stamp s) {
  return SerialOf(s) == kInFlightSerial && s != kSplit;
}

std::string By(Stamp s, const Moment& m, const char* name) {
  const char* place = SerialOf(s) == SerialOf(m.now) ? "" : " of another block";
  return fmt::format("{}, {} {}{}", name, (s & kSpread) == kOneThread ? "by thread" : "by several threads, last",
                     ThreadOf(s), place);
}

}  // namespace

Shadow::Shadow(Memory memory, int64_t bytes) : memory_(memory), bytes_(bytes) {
  written_ = Map(Words(bytes));
  read_ = Map(Words(bytes));
  byte_written_ = Map(4 * Words(bytes));
  byte_read_ = Map(4 * Words(bytes));
}
Shadow::~Shadow() {
  Unmap(written_, Words(bytes_));
  Unmap(read_, Words(bytes_));
  Unmap(byte_written_, 4 * Words(bytes_));
  Unmap(byte_read_, 4 * Words(bytes_));
}

void Shadow::AddReader(Stamp& cell, const Moment& m, Stamp kind) const {
  const Stamp merged = Merge(Get(cell), m, kind);
  if (merged != Get(cell)) Set(cell, merged);
}

void Shadow::ReadCell(Stamp& written, Stamp& read, const Moment& m, Stamp kind, const Where& where,
                      const char* name) const {
  const Stamp w = Get(written), r = Get(read);
  if (w == 0) {
    Report("read of never-written memory", where, name);
  } else if (IsInFlight(w)) {
    Report("read of cp.async data in flight", where, fmt::format("issued by thread {}", ThreadOf(w)));
  } else if (kind == kReadOnly && w >= m.launch_floor) {
    Report("read-only read of memory that this launch writes", where, By(w, m, name));
  } else if (!IsBefore(w, w & kSpread, m)) {
    Report("race: read after write", where, By(w, m, name));
  }
  if (r < m.launch_floor) {
    Set(read, m.now | kind);
  } else if (r != (m.now | kind)) {
    AddReader(read, m, kind);
  }
}

void Shadow::WriteCell(Stamp& written, Stamp& read, const Moment& m, Stamp stamp, const Where& where,
                       const char* name) const {
  const Stamp w = Get(written), r = Get(read);
  const bool atomic = (stamp & kAtomic) != 0 && SerialOf(stamp) != kInFlightSerial;
  const bool joins = atomic && w >= m.launch_floor && !IsInFlight(w) && (w & kAtomic) != 0;
  if (IsInFlight(w)) {
    Report("write over cp.async in flight", where, fmt::format("issued by thread {}", ThreadOf(w)));
  } else if (!joins && !IsBefore(w, w & kSpread, m)) {
    Report("race: write after write", where, By(w, m, name));
  }
  if (r >= m.launch_floor && (r & kReadOnly) != 0) {
    Report("write of memory that this launch reads as read-only", where, By(r, m, name));
  } else if (!IsBefore(r, r & kSpread, m)) {
    Report("race: write after read", where, By(r, m, name));
  }
  Set(written, joins ? Merge(w, m, kAtomic) : stamp);
}

void Shadow::ReadWord(int64_t i, const Moment& m, Stamp kind, const Where& where, const char* name) {
  if (Get(written_[i]) == kSplit) Join(i, m);
  if (Get(written_[i]) == kSplit) return ReadBytes(4 * i, 4, m, kind, where, name);
  ReadCell(written_[i], read_[i], m, kind, where, name);
}

void Shadow::WriteWord(int64_t i, const Moment& m, Stamp stamp, const Where& where, const char* name) {
  if (Get(written_[i]) == kSplit) {
    WriteBytes(4 * i, 4, m, stamp, where, name);
    Join(i, m);
  } else {
    WriteCell(written_[i], read_[i], m, stamp, where, name);
  }
}

void Shadow::ReadBytes(int64_t offset, int64_t size, const Moment& m, Stamp kind, const Where& where,
                       const char* name) {
  for (int64_t b = offset; b < offset + size; ++b) {
    if (Get(written_[b >> 2]) != kSplit) Split(b >> 2);
    ReadCell(byte_written_[b], byte_read_[b], m, kind, where, name);
  }
}

void Shadow::WriteBytes(int64_t offset, int64_t size, const Moment& m, Stamp stamp, const Where& where,
                        const char* name) {
  for (int64_t b = offset; b < offset + size; ++b) {
    if (Get(written_[b >> 2]) != kSplit) Split(b >> 2);
    WriteCell(byte_written_[b], byte_read_[b], m, stamp, where, name);
  }
}

void Shadow::Atomic(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name) {
  for (int64_t i = offset >> 2, end = (offset + size) >> 2; i < end; ++i) {
    if (Get(written_[i]) == kSplit) Join(i, m);
    if (Get(written_[i]) == kSplit) {
      WriteBytes(4 * i, 4, m, m.now | kAtomic, where, name);
      continue;
    }
    if (Get(written_[i]) == 0) Report("atomic operation on never-written memory", where, name);
    WriteCell(written_[i], read_[i], m, m.now | kAtomic, where, name);
  }
}

void Shadow::Issue(int64_t offset, const Moment& m, const Where& where) {
  const Stamp stamp = MakeStamp(kInFlightSerial, TickOf(m.now), ThreadOf(m.now));
  for (int64_t i = offset >> 2, end = (offset + 16) >> 2; i < end; ++i) WriteWord(i, m, stamp, where, "shared memory");
}

void Shadow::Land(int64_t offset, const Moment& m) {
  for (int64_t i = offset >> 2, end = (offset + 16) >> 2; i < end; ++i) Set(written_[i], m.now);
}

void Shadow::Split(int64_t i) {
  const SplitLock lock(i);
  const Stamp written = Get(written_[i]), read = Get(read_[i]);
  if (written == kSplit) return;
  for (int64_t b = 4 * i; b < 4 * i + 4; ++b) {
    Set(byte_written_[b], written);
    Set(byte_read_[b], read);
  }
  Set(written_[i], kSplit);
}

// Stamps below the floor mean the same: all later accesses come after them.
void Shadow::Join(int64_t i, const Moment& m) {
  const Stamp floor = Floor(m);
  const SplitLock lock(i);
  if (Get(written_[i]) != kSplit) return;
  Stamp written = Get(byte_written_[4 * i]), read = Get(byte_read_[4 * i]);
  if (written == 0) return;
  for (int64_t b = 4 * i + 1; b < 4 * i + 4; ++b) {
    const Stamp w = Get(byte_written_[b]), r = Get(byte_read_[b]);
    if (w == 0 || (w != written && std::max(w, written) >= floor)) return;
    if (r != read && std::max(r, read) >= floor) return;
    written = std::max(written, w);
    read = std::max(read, r);
  }
  Set(read_[i], read);
  Set(written_[i], written);
}

Stamp Shadow::WrittenByte(int64_t offset) const {
  const Stamp word = Get(written_[offset >> 2]);
  return word == kSplit ? Get(byte_written_[offset]) : word;
}

void Shadow::MarkWritten(int64_t offset, int64_t size, Stamp stamp) {
  const int64_t end = offset + size;
  int64_t at = offset;
  const auto byte = [&] {
    if (Get(written_[at >> 2]) != kSplit) Split(at >> 2);
    Set(byte_written_[at], stamp);
    ++at;
  };
  while (at < end && (at & 3) != 0) byte();
  const int64_t words = (end - at) >> 2;
  if (words > 0) {
    std::fill(written_ + (at >> 2), written_ + (at >> 2) + words, stamp);
    at += 4 * words;
  }
  while (at < end) byte();
}

void Shadow::CopyWritten(int64_t offset, const Shadow& from, int64_t from_offset, int64_t size, Stamp stamp) {
  if (from.AllWritten(from_offset, size)) return MarkWritten(offset, size, stamp);
  for (int64_t b = 0; b < size; ++b) {
    const Stamp written = from.WrittenByte(from_offset + b);
    MarkWritten(offset + b, 1, written == 0 ? 0 : stamp);
  }
}

bool Shadow::AllWritten(int64_t offset, int64_t size) const {
  for (int64_t b = offset; b < offset + size;) {
    const Stamp word = Get(written_[b >> 2]);
    if (word == 0) return false;
    if (word != kSplit && (b & 3) == 0) {
      b += 4;
    } else {
      if (WrittenByte(b) == 0) return false;
      ++b;
    }
  }
  return true;
}

void Shadow::Clear(int64_t offset, int64_t size) {
  const int64_t first = offset >> 2, words = Words(offset + size) - first;
  std::memset(written_ + first, 0, static_cast<size_t>(words) * sizeof(Stamp));
  std::memset(read_ + first, 0, static_cast<size_t>(words) * sizeof(Stamp));
}

}  // namespace tactus::compute::cuda::emulator
