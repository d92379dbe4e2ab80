// The clients with live sequences and the most recent idle ones. Each has an id and a block of notes of the policies
// (as core/interfaces/sequence_notes.h for sequences). A client without live sequences is kept until its place is
// needed; the client that has been idle for longest is dropped first.
//
// Client 0 is no client: its notes hold what concerns all clients. Requests without a client name form one client.
// Thread rule: engine thread only. Nothing here allocates after construction; all operations are O(1) expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/free_ids.h"
#include "base/units.h"
#include "core/interfaces/sequence_notes.h"

namespace tactus::core {

class ClientTable {
 public:
  // `most_live`: most clients with live sequences at once. `most_idle`: most clients kept without live sequences.
  // `note_bytes`: per client; 0: there are no notes, and all clients are one.
  ClientTable(int32_t most_live, int32_t most_idle, size_t note_bytes);

  // Adds a live sequence of the client with this hash; Release removes one.
  ClientId Acquire(uint64_t hash);
  void Release(ClientId client);
  SequenceNotes notes() { return {notes_.data(), note_bytes_}; }
  int32_t live() const { return live_; }  // clients

 private:
  struct Record {
    uint64_t hash = 0;
    int32_t sequences = 0;  // live
    ClientId next_in_bucket = kNoClient;
    ClientId older = kNoClient, newer = kNoClient;  // in the list of idle clients
  };
  static constexpr ClientId kNoClient = -1;

  Record& At(ClientId c) { return records_[static_cast<size_t>(c)]; }
  ClientId& BucketOf(uint64_t hash) { return buckets_[(hash * 0x9e3779b97f4a7c15ULL >> 20) & mask_]; }
  void MakeRecord(ClientId client);
  ClientId Find(uint64_t hash);
  ClientId Make(uint64_t hash);
  void Forget(ClientId client);
  void PushIdle(ClientId client);
  void TakeFromIdle(ClientId client);

  size_t note_bytes_;
  FreeIds free_;
  std::vector<Record> records_;    // up to the highest client that was ever live, like notes_; room for all
  std::vector<ClientId> buckets_;  // heads of chains
  size_t mask_ = 0;
  ClientId oldest_ = kNoClient, newest_ = kNoClient;
  int32_t live_ = 0;
  std::vector<std::byte> notes_;  // blocks of note_bytes_
};

}  // namespace tactus::core
