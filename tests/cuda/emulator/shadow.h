// For every byte of a memory: the thread that wrote it last, and the threads that have read it since (stamp.h). A word
// of 4 bytes has one cell until a half of it is accessed. Then its halves have cells (kSplit), until both mean the same
// again, and likewise the bytes of a half.
//
// Reads by works of several streams that nothing orders are all kept: a later write may come after one of them alone.
//
// Blocks that run at the same time access stamps without locks, except to split a unit. A kernel without races gets no
// finding from that; of a race between two blocks one side may be missed.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "findings.h"
#include "stamp.h"

namespace tactus::compute::cuda::emulator {

enum class Memory { kGlobal, kShared };

// What a stamp is compared with: the thread that accesses memory now. Part of Thread.
struct Moment {
  Stamp now = 0;                    // of the thread
  Stamp launch_floor = 0;           // stamps below are of earlier works
  Stamp order_floor = 0;            // those below this are of works that come before the launch (order.h)
  Stamp block_floor = 0;            // stamps of this block below are before its last barrier
  Stamp warp_floor = 0;             // likewise of this warp, and the last barrier of all of its lanes
  const uint32_t* known = nullptr;  // [32], ticks of the lanes that barriers of some lanes have ordered before
};

class Shadow {
 public:
  Shadow(Memory memory, int64_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Accesses of [offset, offset + size) by the thread of `m`. `name` names the memory.
  template <int64_t kSize>
  [[gnu::always_inline]] void Read(int64_t offset, const Moment& m, Stamp kind, const Where& where, const char* name) {
    const Stamp floor = Floor(m);
    const bool all = ForUnits<kSize>(offset, [&](Cell& cell) [[gnu::always_inline]] {
      const Stamp written = Get(cell.written), read = Get(cell.read);
      if (written - 1 >= floor - 1 && (kind != 0 || !IsBySame(written, m.now))) return false;  // also if it is 0
      if (read < floor) {
        Set(cell.read, m.now | kind);
      } else if (read < m.launch_floor || !Covers(read, m.now | kind)) {
        AddReader(cell, m, kind);
      }
      return true;
    });
    if (!all) ReadSlowly(offset, kSize, m, kind, where, name);
  }
  template <int64_t kSize>
  [[gnu::always_inline]] void Write(int64_t offset, const Moment& m, const Where& where, const char* name) {
    const Stamp floor = Floor(m);
    if (Get(newest_kept_) >= floor) return WriteSlowly(offset, kSize, m, where, name);
    const bool all = ForUnits<kSize>(offset, [&](Cell& cell) [[gnu::always_inline]] {
      const Stamp written = Get(cell.written), read = Get(cell.read);
      if ((written >= floor && !IsBySame(written, m.now)) || (read >= floor && !IsBySame(read, m.now))) return false;
      Set(cell.written, m.now);
      return true;
    });
    if (!all) WriteSlowly(offset, kSize, m, where, name);
  }
  // By an atomic operation: a read and a write in one.
  void Atomic(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name);
  // By cp.async into shared memory: 16 bytes at its issue, and when it has landed.
  void Issue(int64_t offset, const Moment& m, const Where& where);
  void Land(int64_t offset, const Moment& m);

  // Outside kernels.
  void MarkWritten(int64_t offset, int64_t size, Stamp stamp);
  void MarkRead(int64_t offset, int64_t size, Stamp stamp);
  // The work that wrote, or for a write also read, a byte of the range, if nothing orders it with the work that runs;
  // null: none.
  const char* FindUnordered(int64_t offset, int64_t size, bool writes) const;
  void CopyWritten(int64_t offset, const Shadow& from, int64_t from_offset, int64_t size, Stamp stamp);
  bool AllWritten(int64_t offset, int64_t size) const;
  // Forgets all accesses.
  void Clear(int64_t offset, int64_t size);

 private:
  struct Cell {
    Stamp written, read;
  };
  static constexpr int kLevels = 3;  // words, halves, bytes

  [[gnu::always_inline]] static Stamp Get(const Stamp& stamp) { return __atomic_load_n(&stamp, __ATOMIC_RELAXED); }
  [[gnu::always_inline]] static void Set(Stamp& to, Stamp stamp) { __atomic_store_n(&to, stamp, __ATOMIC_RELAXED); }
  // Calls access(cell) for the words of an access, or for its one half or byte, while it returns true.
  template <int64_t kSize, class F>
  [[gnu::always_inline]] bool ForUnits(int64_t offset, const F& access) const {
    if constexpr (kSize % 4 == 0) {
      if ((offset & 3) != 0) return false;
      for (int64_t i = offset >> 2, end = i + kSize / 4; i < end; ++i) {
        if (!access(cells_[0][i])) return false;
      }
      return true;
    } else if constexpr (kSize == 2) {
      return (offset & 1) == 0 && Get(cells_[0][offset >> 2].written) == kSplit && access(cells_[1][offset >> 1]);
    } else {
      return kSize == 1 && Get(cells_[0][offset >> 2].written) == kSplit &&
             Get(cells_[1][offset >> 1].written) == kSplit && access(cells_[2][offset]);
    }
  }
  // Whether a read of stamp `s` adds nothing to `read`, which is of the same launch.
  [[gnu::always_inline]] static bool Covers(Stamp read, Stamp s) {
    const Stamp spread = read & kSpread;
    if ((s & ~read & kReadOnly) != 0) return false;
    if (read == s || spread == kManyBlocks) return true;
    const bool later = (read >> kSerialShift) == (s >> kSerialShift) && (read >> kTickShift) >= (s >> kTickShift);
    if (!later || spread == kOneThread) return false;
    if (spread == kOneBlock) return true;
    const LaneGroup group = GroupOf(read);
    return ThreadOf(read) / 32 == ThreadOf(s) / 32 && ThreadOf(s) % 32 - group.first < group.size;
  }
  [[gnu::always_inline]] Stamp Floor(const Moment& m) const {
    return memory_ == Memory::kShared ? m.block_floor : m.order_floor;
  }

  [[gnu::noinline]] void ReadSlowly(int64_t offset, int64_t size, const Moment& m, Stamp kind, const Where& where,
                                    const char* name);
  [[gnu::noinline]] void WriteSlowly(int64_t offset, int64_t size, const Moment& m, const Where& where,
                                     const char* name);
  [[gnu::noinline]] void AddReader(Cell& cell, const Moment& m, Stamp kind);
  void ReadCell(Cell& cell, const Moment& m, Stamp kind, const Where& where, const char* name);
  void WriteCell(Cell& cell, const Moment& m, Stamp stamp, const Where& where, const char* name);
  // The cells of a unit; of a part of the memory, as units are split; the same, for which larger units are split.
  template <class F>
  void ForCells(int level, int64_t unit, const F& f) const;
  template <class F>
  void ForCellsOf(int64_t offset, int64_t size, const F& f) const;
  template <class F>
  void ForPart(int64_t offset, int64_t size, const F& f);
  void Split(int level, int64_t unit);
  // `floor`: stamps below are of earlier works; in shared memory, they come before all that follows.
  void Join(int level, int64_t unit, Stamp floor);
  [[gnu::always_inline]] Stamp JoinFloor(const Moment& m) const {
    return memory_ == Memory::kShared ? m.block_floor : m.launch_floor;
  }

  // A read that is no longer in its cell, because a later one is, and nothing orders the two.
  struct KeptRead {
    Stamp stamp = 0;
    unsigned bytes = 0;  // of the word, as bits
  };
  struct Bytes {
    int64_t word = 0;
    unsigned bytes = 0;
  };
  Bytes BytesOf(const Cell& cell) const;
  [[gnu::noinline, gnu::cold]] void KeepRead(const Cell& cell, Stamp read);
  // A kept read of the cell that nothing orders with the work that runs; 0: none.
  [[gnu::noinline, gnu::cold]] Stamp FindKept(const Cell& cell) const;

  Memory memory_;
  int64_t bytes_;
  Cell* cells_[kLevels];  // those of split units' parts are not touched until then
  mutable std::mutex kept_mutex_;
  std::unordered_map<int64_t, std::vector<KeptRead>> kept_;  // by word
  Stamp newest_kept_ = 0;
};

}  // namespace tactus::compute::cuda::emulator
