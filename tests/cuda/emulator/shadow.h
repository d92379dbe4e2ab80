// For every byte of a memory: the thread that wrote it last, and the threads that have read it since (stamp.h). A word
// of 4 bytes has one stamp of each kind until a part of it is accessed. Then its bytes have their own (kSplit), until
// all four mean the same again.
//
// Blocks that run at the same time access stamps without locks, except to split a word. A kernel without races gets no
// finding from that; of a race between two blocks one side may be missed.
#pragma once

#include <cstdint>
#include <cstring>

#include "findings.h"
#include "stamp.h"

namespace tactus::compute::cuda::emulator {

enum class Memory { kGlobal, kShared };

// What a stamp is compared with: the thread that accesses memory now. Part of Thread.
struct Moment {
  Stamp now = 0;                    // of the thread
  Stamp launch_floor = 0;           // stamps below are of earlier launches
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
  void Read(int64_t offset, int64_t size, const Moment& m, Stamp kind, const Where& where, const char* name) {
    if (((offset | size) & 3) != 0) return ReadBytes(offset, size, m, kind, where, name);
    const Stamp floor = Floor(m);
    const Stamp stamp = m.now | kind;
    for (int64_t i = offset >> 2, end = (offset + size) >> 2; i < end; ++i) {
      const Stamp written = Get(written_[i]), read = Get(read_[i]);
      if (written - 1 >= floor - 1) {  // also if it is 0
        ReadWord(i, m, kind, where, name);
      } else if (read < floor) {
        Set(read_[i], stamp);
      } else if (read != stamp) {
        AddReader(read_[i], m, kind);
      }
    }
  }
  void Write(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name) {
    if (((offset | size) & 3) != 0) return WriteBytes(offset, size, m, m.now, where, name);
    const Stamp floor = Floor(m);
    for (int64_t i = offset >> 2, end = (offset + size) >> 2; i < end; ++i) {
      const Stamp written = Get(written_[i]), read = Get(read_[i]);
      if (written < floor && read < floor) {
        Set(written_[i], m.now);
      } else {
        WriteWord(i, m, m.now, where, name);
      }
    }
  }
  // By an atomic operation: a read and a write in one.
  void Atomic(int64_t offset, int64_t size, const Moment& m, const Where& where, const char* name);
  // By cp.async into shared memory: 16 bytes at its issue, and when it has landed.
  void Issue(int64_t offset, const Moment& m, const Where& where);
  void Land(int64_t offset, const Moment& m);

  // Outside kernels.
  void MarkWritten(int64_t offset, int64_t size, Stamp stamp);
  void CopyWritten(int64_t offset, const Shadow& from, int64_t from_offset, int64_t size, Stamp stamp);
  bool AllWritten(int64_t offset, int64_t size) const;
  // Forgets all accesses.
  void Clear(int64_t offset, int64_t size);

 private:
  static Stamp Get(const Stamp& cell) { return __atomic_load_n(&cell, __ATOMIC_RELAXED); }
  static void Set(Stamp& cell, Stamp stamp) { __atomic_store_n(&cell, stamp, __ATOMIC_RELAXED); }
  Stamp WrittenByte(int64_t offset) const;

  void ReadWord(int64_t i, const Moment& m, Stamp kind, const Where& where, const char* name);
  void WriteWord(int64_t i, const Moment& m, Stamp stamp, const Where& where, const char* name);
  void ReadBytes(int64_t offset, int64_t size, const Moment& m, Stamp kind, const Where& where, const char* name);
  void WriteBytes(int64_t offset, int64_t size, const Moment& m, Stamp stamp, const Where& where, const char* name);
  void ReadCell(Stamp& written, Stamp& read, const Moment& m, Stamp kind, const Where& where, const char* name) const;
  void WriteCell(Stamp& written, Stamp& read, const Moment& m, Stamp stamp, const Where& where, const char* name) const;
  void AddReader(Stamp& cell, const Moment& m, Stamp kind) const;
  void Split(int64_t i);
  void Join(int64_t i, const Moment& m);

  Stamp Floor(const Moment& m) const { return memory_ == Memory::kShared ? m.block_floor : m.launch_floor; }

  Memory memory_;
  int64_t bytes_;
  Stamp *written_, *read_;            // [words]
  Stamp *byte_written_, *byte_read_;  // [bytes], of split words
};

}  // namespace tactus::compute::cuda::emulator
