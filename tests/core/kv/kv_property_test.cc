// Thousands of random operations against two oracles: NaiveKv (counts, costs, matches, eviction order) and a ghost
// memory that executes every step's reads and writes, so that a block that is reused too early, shared without having
// been computed, kept after a failure, or restored from the wrong host block shows wrong content. Sequences with
// OwnKeys are compared with a second cache that has the same keys from the start. A cache without queries for a while,
// so that many blocks enter the tree in a batch, is compared with one in which each block enters at once.
#include <gtest/gtest.h>

#include <deque>

#include "base/rng.h"
#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"
#include "naive_kv.h"

namespace tactus::kv_property_test {
namespace {

constexpr Hash128 kSecret{11, 12};
constexpr uint64_t kGarbage = 0xdeadbeefdeadbeef;

struct Sequence {
  bool live = false, running = false;
  std::vector<TokenId> tokens;
  std::vector<Hash128> keys;
  bool own_keys = false;      // OwnKeys, and MakeKeys was not called yet
  std::vector<Hash128> made;  // the keys that the cache may read
  Hash128 root;
  int32_t prompt = 0;
  int32_t computed = 0;   // planned
  int32_t committed = 0;  // by steps that have ended
  int32_t covered = 0;
  int32_t saved = 0;      // in host memory
  StepId last_step = -1;  // the last step that uses it
  int epoch = 0;
};

struct Item {
  SlotId slot;
  int32_t first, end;
  int epoch;
  std::vector<BlockId> table;  // at submission
  std::vector<TokenId> tokens;
};
struct Step {
  StepId id;
  std::vector<SwapCopy> swap_outs, swap_ins;
  std::vector<BlockCopy> copies;
  std::vector<Item> items;
};

enum class Twin { kNone, kKeysAtOnce, kEntersAtOnce };

struct World : core::OwnKeys {
  World(uint64_t seed, bool with_caching, bool with_failures, int steps_in_flight, Twin has_twin = Twin::kNone)
      : rng(seed),
        caching(with_caching),
        failures(with_failures),
        depth(steps_in_flight),
        block_size(static_cast<int32_t>(rng.UniformInt(1, 5))),
        total(rng.UniformInt(6, 40)),
        host_total(rng.UniformInt(0, 2) == 0 ? 0 : rng.UniformInt(1, total)),
        kv(ConfigOf(seed % 2 == 1)),
        twin(has_twin),
        listed(twin != Twin::kNone ? std::make_unique<core::KvCache>(ConfigOf(false)) : nullptr),
        naive(total, block_size, caching, host_total),
        sequences(kSlots),
        memory(static_cast<size_t>(total * block_size), kGarbage),
        host(static_cast<size_t>(host_total * block_size), kGarbage) {}

  static constexpr int kSlots = 8;

  core::KvCacheConfig ConfigOf(bool lean) const {
    return {.num_blocks = total,
            .block_size = block_size,
            .max_slots = kSlots,
            .max_blocks_per_slot = static_cast<int32_t>(total),
            .prefix_caching = caching,
            .swap_blocks = host_total,
            .lean = lean};
  }

  int32_t KeysKnown(SlotId s) const override { return static_cast<int32_t>(sequences[s].keys.size()); }
  void MakeKeys(SlotId s) override {
    sequences[s].own_keys = false;
    sequences[s].made = sequences[s].keys;
    ++made;
  }
  void MoreKeys(Sequence* q) {
    core::ExtendBlockKeys(kSecret, q->root, q->tokens, block_size, &q->keys);
    if (!q->own_keys) q->made = q->keys;
  }
  // Both caches must agree in all counts and even in all tables, except that blocks voided by a failed step may be
  // freed in another order.
  void CheckListed(const char* where) {
    ASSERT_EQ(listed->CheckIntegrity(), "") << where;
    const core::KvCacheStats a = kv.Stats(), b = listed->Stats();
    const auto all = [](const core::KvCacheStats& c) {
      return std::vector<int64_t>{c.blocks_free,         c.blocks_cached,     c.blocks_in_use,    c.blocks_draining,
                                  c.blocks_reserved,     c.prefix_hit_tokens, c.evictions,        c.swap_blocks_used,
                                  c.prefix_query_tokens, c.swap_outs,         c.swapped_in_blocks};
    };
    ASSERT_EQ(all(a), all(b)) << where << ": free, cached, in use, draining, ...";
    CompareTables(where);
  }
  void CompareTables(const char* where) {
    const bool alike = !failures || twin == Twin::kEntersAtOnce;
    for (SlotId s = 0; s < kSlots; ++s) {
      const auto table = kv.Table(s), other = listed->Table(s);
      ASSERT_EQ(table.size(), other.size()) << where << ": table of slot " << s;
      ASSERT_TRUE(!alike || std::equal(table.begin(), table.end(), other.begin())) << where << ": slot " << s;
    }
  }

  void Check(const char* where) {
    if (twin == Twin::kEntersAtOnce) {
      (void)listed->Stats();
      CompareTables(where);
      if (rng.UniformInt(0, 15) != 0) return;  // no query of `kv`
    }
    ASSERT_EQ(kv.CheckIntegrity(), "") << where;
    const core::KvCacheStats stats = kv.Stats();
    ASSERT_EQ(stats.blocks_free + stats.blocks_cached + stats.blocks_in_use + stats.blocks_draining, total) << where;
    if (listed) CheckListed(where);
    if (failures) return;  // the naive model has no failures
    ASSERT_EQ(kv.blocks_available(), naive.Available()) << where;
    ASSERT_EQ(stats.blocks_free, naive.Free()) << where;
    ASSERT_EQ(stats.blocks_cached, naive.Cached()) << where;
    ASSERT_EQ(stats.blocks_in_use, naive.InUse()) << where;
    ASSERT_EQ(stats.blocks_reserved, naive.Reserved()) << where;
    ASSERT_EQ(stats.evictions, naive.evictions) << where;
    ASSERT_EQ(stats.swap_blocks_used, naive.HostUsed()) << where;
    for (SlotId s = 0; s < kSlots; ++s) {
      if (!sequences[s].live || sequences[s].running) continue;
      const auto n = static_cast<int32_t>(sequences[s].tokens.size());
      ASSERT_EQ(kv.PeekMatch(s, n), naive.Peek(s, n)) << where;
      ASSERT_EQ(kv.StartCost(s, n, n, n + 3), naive.StartCost(s, n, n, n + 3)) << where;
    }
  }

  void Arrive(SlotId s) {
    Sequence& q = sequences[s];
    const int epoch = q.epoch + 1;
    q = Sequence{};
    q.epoch = epoch;
    q.live = true;
    const int64_t family = rng.UniformInt(0, 2),
                  length = rng.UniformInt(1, std::min<int64_t>(24, total * block_size - 1));
    const int64_t salt = rng.UniformInt(0, 9) == 0;
    for (int64_t i = 0; i < length; ++i) {  // few families with rare branches, so that much is shared
      q.tokens.push_back(static_cast<TokenId>(rng.UniformInt(0, 11) == 0 ? 100 + rng.UniformInt(0, 1) : family));
    }
    q.prompt = static_cast<int32_t>(length);
    q.own_keys = twin == Twin::kKeysAtOnce && rng.UniformInt(0, 1) == 0;
    q.root = core::RootKey(kSecret, "m", "", q.own_keys ? "own " + std::to_string(++own) : salt ? "salt" : "");
    q.keys.reserve(256);
    MoreKeys(&q);
    const bool shares = rng.UniformInt(0, 9) != 0;
    kv.Bind(s, shares ? &q.made : nullptr, q.own_keys ? this : nullptr);
    if (listed) listed->Bind(s, shares ? &q.keys : nullptr);
    if (!failures) naive.Bind(s, shares ? &q.keys : nullptr);
  }

  void AddItem(SlotId s, int32_t count) {
    Sequence& q = sequences[s];
    const int32_t end = q.computed + count;
    // An item that completes no block may be left unmarked.
    if (end / block_size > q.computed / block_size || rng.UniformInt(0, 1) == 0) {
      kv.MarkPending(s, end, plan.id);
      if (listed) listed->MarkPending(s, end, plan.id);
      if (twin == Twin::kEntersAtOnce) (void)listed->Stats();
      if (!failures) naive.MarkPending(s, end, plan.id);
    }
    const auto table = kv.Table(s);
    plan.items.push_back({s, q.computed, end, q.epoch, {table.begin(), table.end()}, q.tokens});
    q.computed = end;
    q.last_step = plan.id;
  }

  bool InPlan(SlotId s) const {
    for (const Item& item : plan.items) {
      if (item.slot == s && item.epoch == sequences[s].epoch) return true;
    }
    return false;
  }

  void TryStart(SlotId s) {
    Sequence& q = sequences[s];
    if (q.saved == static_cast<int32_t>(q.tokens.size())) {  // the token that its last step sampled
      q.tokens.push_back(static_cast<TokenId>(rng.UniformInt(0, 2)));
      MoreKeys(&q);
    }
    const auto known = static_cast<int32_t>(q.tokens.size());
    SlotId fork = kNoSlot;
    if (!q.own_keys && q.saved == 0 && q.computed == 0 && known == q.prompt && rng.UniformInt(0, 3) == 0) {
      for (SlotId o = 0; o < kSlots; ++o) {  // a choice of the same request: same prompt, already computed
        Sequence& p = sequences[o];
        if (o == s || !p.running || p.committed < p.prompt || p.prompt < 2 || InPlan(o) || p.own_keys) continue;
        fork = o;
        q.tokens.assign(p.tokens.begin(), p.tokens.begin() + p.prompt);
        q.prompt = p.prompt;
        q.root = p.root;
        q.keys.clear();
        MoreKeys(&q);
        break;
      }
    }
    const auto n = static_cast<int32_t>(q.tokens.size());
    const int32_t match = fork == kNoSlot ? kv.PeekMatch(s, n) : n - 1;
    const auto cover = static_cast<int32_t>(rng.UniformInt(match + 1, n));
    const auto reserve = static_cast<int32_t>(rng.UniformInt(0, 2) == 0 ? n + rng.UniformInt(0, 12) : cover);
    const int64_t cost = kv.StartCost(s, n, cover, reserve), available = kv.blocks_available();
    StepPlan out;
    out.step = plan.id;
    const core::KvStart start = kv.Start(s, n, cover, reserve, fork, &out);
    if (listed) {
      StepPlan same;
      same.step = plan.id;
      ASSERT_EQ(listed->Start(s, n, cover, reserve, fork, &same).ok, start.ok);
      ASSERT_TRUE(failures || same.table_blocks == out.table_blocks);
    }
    if (!failures) {
      ASSERT_EQ(start.ok ? start.matched_tokens : -1, naive.Start(s, n, cover, reserve, fork, plan.id));
    }
    if (fork == kNoSlot) {
      ASSERT_EQ(start.ok, cost <= available);
    }
    if (!start.ok) {
      ASSERT_EQ(kv.blocks_available(), available);
      ASSERT_TRUE(out.table_updates.empty() && out.copies.empty() && out.swap_ins.empty());
      return;
    }
    if (fork == kNoSlot) {
      ASSERT_EQ(kv.blocks_available(), available - cost);  // exactly the announced cost
      ASSERT_EQ(start.matched_tokens, match);
      if (q.saved == 0) {
        ASSERT_LE(start.matched_tokens, (n - 1) / block_size * block_size);
      }
    }
    ASSERT_TRUE(q.saved == 0 || start.matched_tokens == q.saved);
    swap_ins += !out.swap_ins.empty();
    shared_again += q.saved > 0 && static_cast<int32_t>(out.swap_ins.size()) < (q.saved + block_size - 1) / block_size;
    q.saved = 0;
    for (const SwapCopy& copy : out.swap_ins) plan.swap_ins.push_back(copy);
    for (const BlockCopy& copy : out.copies) plan.copies.push_back(copy);
    const auto table = kv.Table(s);
    ASSERT_TRUE(std::equal(table.begin(), table.end(), out.table_blocks.begin(), out.table_blocks.end()));
    q.running = true;
    q.computed = start.matched_tokens;
    q.covered = cover;
    AddItem(s, cover - start.matched_tokens);
  }

  void Advance(SlotId s) {
    Sequence& q = sequences[s];
    if (q.computed == static_cast<int32_t>(q.tokens.size())) {  // a decode: appends the sampled token
      q.tokens.push_back(static_cast<TokenId>(rng.UniformInt(0, 2)));
      MoreKeys(&q);
    }
    const auto count = static_cast<int32_t>(rng.UniformInt(1, static_cast<int64_t>(q.tokens.size()) - q.computed));
    const int64_t available = kv.blocks_available();
    if (q.computed + count > total * block_size) return Release(s, true);
    StepPlan out;
    out.step = plan.id;
    const bool ok = kv.Extend(s, q.computed + count, &out);
    if (listed) {
      StepPlan same;
      same.step = plan.id;
      ASSERT_EQ(listed->Extend(s, q.computed + count, &same), ok);
    }
    if (!failures) {
      ASSERT_EQ(ok, naive.Extend(s, q.computed + count));
    }
    if (!ok) {
      ASSERT_EQ(kv.blocks_available(), available);
      return Release(s, rng.UniformInt(0, 1) == 0);
    }
    AddItem(s, count);
  }

  void Drop(SlotId s) {
    if (sequences[s].saved > 0) {
      kv.DropSwapped(s);
      if (listed) listed->DropSwapped(s);
      if (!failures) naive.DropSwapped(s);
    }
    ASSERT_EQ(kv.SwappedTokens(s), 0);
    kv.Unbind(s);
    if (listed) listed->Unbind(s);
    if (!failures) naive.Unbind(s);
    sequences[s].live = false;
  }

  void Release(SlotId s, bool gone) {
    Sequence& q = sequences[s];
    if (InPlan(s)) return;
    const StepId last = q.last_step > ended ? q.last_step : -1;
    if (gone) {
      kv.End(s, last);
    } else {
      kv.Release(s, last);
    }
    if (listed) listed->Release(s, last);
    if (!failures) naive.Release(s, last);
    q.running = false;
    q.computed = q.committed = 0;
    ++q.epoch;
    if (!gone) return;
    if (listed) listed->Unbind(s);
    if (!failures) naive.Unbind(s);
    q.live = false;
  }

  void SwapOut(SlotId s) {
    Sequence& q = sequences[s];
    if (q.last_step > ended || InPlan(s)) return;  // a step in flight uses it
    ASSERT_EQ(q.committed, q.computed);
    StepPlan out;
    out.step = plan.id;
    const int64_t free = kv.swap_blocks_free();
    const bool saved = kv.SwapOut(s, q.computed, &out);
    if (listed) {
      StepPlan same;
      same.step = plan.id;
      ASSERT_EQ(listed->SwapOut(s, q.computed, &same), saved);
    }
    ASSERT_TRUE(!saved || (q.computed > 0 &&
                           (q.computed + block_size - 1) / block_size <= free));  // exact condition: naive.SwapOut
    ASSERT_EQ(kv.SwappedTokens(s), saved ? q.computed : 0);
    if (!failures) {
      ASSERT_EQ(naive.SwapOut(s, q.computed, plan.id), saved);
    }
    if (!saved) {
      ASSERT_TRUE(out.swap_outs.empty());
      return Release(s, false);
    }
    for (const SwapCopy& copy : out.swap_outs) plan.swap_outs.push_back(copy);
    q.saved = q.computed;
    q.running = false;
    q.computed = q.committed = 0;
    ++q.epoch;
  }

  void RunCopies(const Step& step, bool ok) {
    const auto copy = [&](const std::vector<uint64_t>& from, int64_t a, std::vector<uint64_t>& to, int64_t b,
                          int32_t tokens) {
      ASSERT_TRUE(tokens >= 1 && tokens <= block_size);
      for (int32_t i = 0; i < block_size; ++i) {  // positions that are not copied hold garbage
        to[static_cast<size_t>(b * block_size + i)] =
            ok && i < tokens ? from[static_cast<size_t>(a * block_size + i)] : kGarbage;
      }
    };
    for (const SwapCopy& c : step.swap_outs) copy(memory, c.block, host, c.host_block, c.tokens);
    if (ok) {
      for (const BlockCopy& c : step.copies) {
        for (int32_t i = 0; i < c.tokens; ++i) memory[c.to * block_size + i] = memory[c.from * block_size + i];
      }
    }
    for (const SwapCopy& c : step.swap_ins) copy(host, c.host_block, memory, c.block, c.tokens);
  }

  uint64_t* Cell(const std::vector<BlockId>& table, int32_t position) {
    return &memory[static_cast<size_t>(table[position / block_size] * block_size + position % block_size)];
  }

  // Runs the oldest step. The content of a position is the hash of all tokens up to it.
  void EndStep(bool ok) {
    const Step step = flight.front();
    flight.pop_front();
    RunCopies(step, ok);
    const auto stale = [&](const Item& item) {
      return sequences[item.slot].epoch != item.epoch || !sequences[item.slot].live;
    };
    for (const Item& item : step.items) {
      uint64_t h = 17;
      for (int32_t i = 0; i < item.end; ++i) {
        h = MixHash(h, static_cast<uint64_t>(item.tokens[i]));
        // A stale item may read and write anything, as long as no other item reads it.
        if (i >= item.first)
          *Cell(item.table, i) = ok && (i == 0 || !poisoned.count({step.id, item.slot})) ? h : kGarbage;
      }
    }
    if (ok) {
      for (const Item& item : step.items) {
        if (stale(item)) continue;
        sequences[item.slot].committed = item.end;
        uint64_t h = 17;
        for (int32_t i = 0; i < item.end; ++i) {
          h = MixHash(h, static_cast<uint64_t>(item.tokens[i]));
          ASSERT_EQ(*Cell(item.table, i), h) << "step " << step.id << " slot " << item.slot << " position " << i;
        }
      }
    }
    std::vector<SlotId> recompute;
    if (!ok) {  // the requests of the failed step end with an error
      ended = step.id;
      for (const Item& item : step.items) {
        if (!stale(item)) Poison(item.slot);
      }
      ended = step.id - 1;
      for (const Item& item : step.items) {
        if (!stale(item)) Release(item.slot, true);
      }
    }
    kv.StepEnded(step.id, ok, &recompute);
    if (listed) {
      std::vector<SlotId> same;
      listed->StepEnded(step.id, ok, &same);
      ASSERT_EQ(same, recompute);
    }
    if (!failures) naive.StepEnded(step.id);
    ended = step.id;
    ASSERT_TRUE(ok || failures);
    if (ok) {
      ASSERT_TRUE(recompute.empty());
    }
    for (const SlotId s : recompute) {
      if (!sequences[s].running) {  // the failed step should have saved its KV
        ASSERT_GT(sequences[s].saved, 0);
        ASSERT_EQ(kv.SwappedTokens(s), 0);
        sequences[s].saved = 0;
        ++lost;
        continue;
      }
      Poison(s);
      Release(s, false);
    }
  }
  // Steps in flight compute garbage for this sequence.
  void Poison(SlotId s) {
    for (const Step& step : flight) {
      for (const Item& item : step.items) {
        if (item.slot == s && item.epoch == sequences[s].epoch) poisoned.insert({step.id, s});
      }
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      plan = Step{.id = i};
      for (int op = 0; op < 8 && !testing::Test::HasFatalFailure(); ++op) {
        const auto s = static_cast<SlotId>(rng.UniformInt(0, kSlots - 1));
        Sequence& q = sequences[s];
        if (!q.live) {
          Arrive(s);
        } else if (InPlan(s)) {
          continue;
        } else if (!q.running) {
          if (rng.UniformInt(0, 15) == 0)
            Drop(s);
          else
            TryStart(s);
        } else if (rng.UniformInt(0, 4) == 0) {
          SwapOut(s);
        } else if (rng.UniformInt(0, 6) == 0) {
          Release(s, rng.UniformInt(0, 2) > 0);
        } else {
          Advance(s);
        }
        Check("operation");
      }
      flight.push_back(plan);
      plan = Step{.id = -2};
      while (!flight.empty() && (static_cast<int>(flight.size()) >= depth || rng.UniformInt(0, 1) == 0)) {
        EndStep(!failures || rng.UniformInt(0, 5) != 0);
        Check("end of a step");
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }

  Rng rng;
  const bool caching, failures;
  const int depth;
  const int32_t block_size;
  const int64_t total, host_total;
  core::KvCache kv;
  const Twin twin;
  const std::unique_ptr<core::KvCache> listed;
  core::NaiveKv naive;
  std::vector<Sequence> sequences;
  std::vector<uint64_t> memory;  // [total * block_size]
  std::deque<Step> flight;
  std::set<std::pair<StepId, SlotId>> poisoned;
  Step plan;
  std::vector<uint64_t> host;  // [host_total * block_size]
  StepId ended = -1;
  int64_t swap_ins = 0, shared_again = 0, lost = 0;
  int64_t own = 0, made = 0;  // sequences with OwnKeys, and those whose keys were needed
};

class KvProperty : public testing::TestWithParam<int> {};

TEST_P(KvProperty, MatchesNaiveModel) {
  int64_t swap_ins = 0, shared_again = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", depth " + std::to_string(GetParam()));
    World world(seed, seed % 5 != 0, false, GetParam());
    world.Run(250);
    if (HasFatalFailure()) return;
    swap_ins += world.swap_ins;
    shared_again += world.shared_again;
  }
  EXPECT_GT(swap_ins, 500);
  EXPECT_GT(shared_again, 100);
}

TEST_P(KvProperty, NoStepReadsVoidBlocks) {
  int64_t lost = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", depth " + std::to_string(GetParam()));
    World world(1000 + seed, seed % 5 != 0, true, GetParam());
    world.Run(250);
    if (HasFatalFailure()) return;
    lost += world.lost;
  }
  EXPECT_GT(lost, 20);  // swapped out by a failed step
}

TEST_P(KvProperty, LateKeysBehaveLikeKeysAtBind) {
  int64_t own = 0, made = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const bool failures = seed % 2 == 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", depth " + std::to_string(GetParam()));
    World world(2000 + seed, seed % 5 != 0, failures, GetParam(), Twin::kKeysAtOnce);
    world.Run(250);
    if (HasFatalFailure()) return;
    own += world.own;
    made += world.made;
  }
  EXPECT_GT(made, 500);
  EXPECT_GT(own - made, 500);  // most end without keys
}

TEST_P(KvProperty, BatchedTreeEntriesBehaveLikeImmediateOnes) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const bool failures = seed % 2 == 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", depth " + std::to_string(GetParam()));
    World world(3000 + seed, seed % 5 != 0, failures, GetParam(), Twin::kEntersAtOnce);
    world.Run(250);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Depth, KvProperty, testing::Values(1, 2, 4));

}  // namespace
}  // namespace tactus::kv_property_test
