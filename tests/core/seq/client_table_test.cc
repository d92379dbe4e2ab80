#include "core/seq/client_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/rng.h"

namespace tactus::core {
namespace {

struct ClientNote {
  int64_t served;
};

TEST(ClientTable, EvictsLongestIdleClientWhenFull) {
  NoteLayout layout;
  const NoteColumn<ClientNote> note = layout.Column<ClientNote>();
  ClientTable t(1, 2, layout.stride());
  const auto serve = [&](uint64_t hash, int64_t tokens) {
    const ClientId c = t.Acquire(hash);
    EXPECT_NE(c, 0) << "client 0 is reserved";
    const int64_t before = note.At(t.notes(), c).served;
    note.At(t.notes(), c).served += tokens;
    t.Release(c);
    return before;
  };
  EXPECT_EQ(serve(1, 10), 0);
  EXPECT_EQ(serve(2, 20), 0);
  EXPECT_EQ(serve(3, 30), 0);
  EXPECT_EQ(serve(1, 1), 10) << "there are three places: none was evicted";
  EXPECT_EQ(serve(4, 40), 0) << "evicts 2, idle for longest";
  EXPECT_EQ(serve(3, 0), 30);
  EXPECT_EQ(serve(1, 0), 11);
  EXPECT_EQ(serve(2, 0), 0);
}

TEST(ClientTable, AllClientsAreOneWithoutNotes) {
  ClientTable t(1, 0, 0);
  EXPECT_EQ(t.Acquire(5), 0);
  EXPECT_EQ(t.Acquire(6), 0);
  t.Release(0);
}

// Compares with a list of idle clients in order of their last release.
TEST(ClientTable, MatchesReferenceList) {
  NoteLayout layout;
  const NoteColumn<ClientNote> note = layout.Column<ClientNote>();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    constexpr int32_t kLive = 5, kIdle = 7;
    ClientTable t(kLive, kIdle, layout.stride());
    std::map<uint64_t, int> live;
    std::map<uint64_t, ClientId> ids;
    std::map<uint64_t, int64_t> served;
    std::deque<uint64_t> idle;
    std::vector<uint64_t> sequences;
    for (int i = 0; i < 3000; ++i) {
      if (rng.Uniform() < 0.5 && sequences.size() < kLive) {
        const auto hash = static_cast<uint64_t>(rng.UniformInt(0, 40));
        const ClientId c = t.Acquire(hash);
        if (const auto at = std::find(idle.begin(), idle.end(), hash); at != idle.end()) {
          idle.erase(at);
        } else if (live[hash] == 0) {
          size_t known = idle.size();
          for (const auto& [h, n] : live) known += n > 0;
          if (known == kLive + kIdle) {
            served.erase(idle.front());
            idle.pop_front();
          }
          served[hash] = 0;
        } else {
          ASSERT_EQ(c, ids[hash]);
        }
        ids[hash] = c;
        ++live[hash];
        sequences.push_back(hash);
        ASSERT_EQ(note.At(t.notes(), c).served, served[hash]) << "seed " << seed << " step " << i;
        note.At(t.notes(), c).served = served[hash] += i;
      } else if (!sequences.empty()) {
        const auto at = sequences.begin() + rng.UniformInt(0, static_cast<int64_t>(sequences.size()) - 1);
        const uint64_t hash = *at;
        sequences.erase(at);
        t.Release(ids[hash]);
        if (--live[hash] == 0) idle.push_back(hash);
      }
      int32_t clients = 0;
      for (const auto& [h, n] : live) clients += n > 0;
      ASSERT_EQ(t.live(), clients);
    }
  }
}

}  // namespace
}  // namespace tactus::core
