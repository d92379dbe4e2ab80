// Blocks on disk: they are read back unchanged or not at all, whatever has happened to the files.
#include "engine/kv_store/block_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "engine/kv_store/store_fixture.h"

namespace tactus::engine {
namespace {

using test::kBlockBytes;
using test::StoreTest;

class BlockStoreTest : public StoreTest {};

TEST_F(BlockStoreTest, BlocksAreReadBackAlsoAfterAReopen) {
  for (int round = 0; round < 2; ++round) {
    const auto store = Open();
    if (round == 0) Put(*store, 0, 100);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(Has(*store, i)) << i;
    EXPECT_FALSE(Has(*store, 100));
    EXPECT_EQ(store->Stats().blocks, 100);
    EXPECT_EQ(store->Stats().bytes, BytesOfSegments());
    EXPECT_EQ(store->Stats().damaged, 0) << said_;
    EXPECT_TRUE(store->TakeWarnings().empty());
  }
}

TEST_F(BlockStoreTest, ABlockIsStoredOnce) {
  const auto store = Open();
  Put(*store, 0, 3);
  const int64_t bytes = store->Stats().bytes;
  Put(*store, 0, 3);
  EXPECT_EQ(store->Stats().bytes, bytes);
  EXPECT_EQ(store->Stats().written, 3);
}

TEST_F(BlockStoreTest, FindsTheLeadingBlocksAndReportsWhyThereAreNoMore) {
  const auto store = Open();
  Put(*store, 0, 5);
  std::vector<Hash128> keys;
  for (int i = 0; i < 8; ++i) keys.push_back(Key(i));
  EXPECT_EQ(store->Find(keys).blocks, 5);
  EXPECT_EQ(store->Find(keys).end, CacheEnd::kUnknown);
  EXPECT_EQ(store->Find(std::span(keys).first(5)).end, CacheEnd::kPrompt);
  EXPECT_EQ(store->Find(std::span(keys).subspan(5)).blocks, 0);
  EXPECT_EQ(store->Find({}).blocks, 0);
}

TEST_F(BlockStoreTest, BlocksOfAnotherIdentityAreNotFoundButTheirBytesCount) {
  Put(*Open(), 0, 10);
  const auto other = Open(int64_t{1} << 20, "another model");
  EXPECT_EQ(other->Stats().blocks, 0);
  EXPECT_FALSE(Has(*other, 0));
  EXPECT_EQ(other->Stats().bytes, BytesOfSegments());
}

// The files as left by a process that was killed while writing.
TEST_F(BlockStoreTest, ATornTailLosesOnlyTheLastBlock) {
  Put(*Open(), 0, 5);
  const auto whole = folder_.string() + "_whole";
  std::filesystem::remove_all(whole);
  std::filesystem::copy(folder_, whole, std::filesystem::copy_options::recursive);
  const int64_t index_bytes = kSegmentHeaderBytes + 5 * kSegmentRecordBytes, block_bytes = 5 * kBlockBytes;
  const auto cut = [&](int64_t index_to, int64_t blocks_to) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(whole, folder_, std::filesystem::copy_options::recursive);
    std::filesystem::resize_file(Files(".index").at(0), static_cast<uintmax_t>(index_to));
    std::filesystem::resize_file(Files(".blocks").at(0), static_cast<uintmax_t>(blocks_to));
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(Has(*store, i)) << index_to << " and " << blocks_to << " bytes, block " << i;
    EXPECT_FALSE(Has(*store, 4)) << index_to << " and " << blocks_to << " bytes";
    Put(*store, 4, 6);  // appending continues where the files were cut
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(Has(*store, i)) << index_to << " and " << blocks_to << " bytes, block " << i;
    EXPECT_EQ(store->Stats().bytes, BytesOfSegments());
  };
  for (int64_t less = 1; less <= kSegmentRecordBytes; ++less) cut(index_bytes - less, block_bytes);
  for (int64_t less = 1; less <= kBlockBytes; ++less) cut(index_bytes, block_bytes - less);
  for (int64_t less = 1; less <= kBlockBytes; less += 7) cut(index_bytes - kSegmentRecordBytes, block_bytes - less);
  std::filesystem::remove_all(whole);
}

TEST_F(BlockStoreTest, AFlippedBitLosesOneBlockOrTheSegmentAndNeverGivesWrongBytes) {
  Put(*Open(), 0, 3);
  const int64_t index_bytes = kSegmentHeaderBytes + 3 * kSegmentRecordBytes;
  const auto index = Files(".index").at(0), blocks = Files(".blocks").at(0);
  for (int64_t at = kSegmentHeaderBytes; at < index_bytes; ++at) {
    FlipBit(index, at, static_cast<int>(at % 8));
    {
      const auto store = Open();
      const auto hurt = static_cast<int>((at - kSegmentHeaderBytes) / kSegmentRecordBytes);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(Has(*store, i), i != hurt) << "byte " << at << " of the index, block " << i;
      EXPECT_EQ(store->Stats().damaged, 1);
      EXPECT_NE(said_.find("warning: KV cache: 1 records"), std::string::npos) << said_;
    }
    FlipBit(index, at, static_cast<int>(at % 8));
  }
  for (int64_t at = 0; at < 3 * kBlockBytes; ++at) {
    FlipBit(blocks, at, static_cast<int>(at % 8));
    {
      const auto store = Open();
      const auto hurt = static_cast<int>(at / kBlockBytes);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(Has(*store, i), i != hurt) << "byte " << at << " of the blocks, block " << i;
      EXPECT_FALSE(Has(*store, hurt));
      const auto warnings = store->TakeWarnings();
      ASSERT_EQ(warnings.size(), 1u) << "each damage is reported once";
      EXPECT_NE(warnings[0].find(".blocks' is damaged at byte " + std::to_string(hurt * kBlockBytes)),
                std::string::npos)
          << warnings[0];
      EXPECT_EQ(store->Stats().blocks, 2);
    }
    FlipBit(blocks, at, static_cast<int>(at % 8));
  }
}

// The files as left by a process that was killed before it wrote a header: nothing was lost, so there is no warning.
TEST_F(BlockStoreTest, ASegmentWithoutAHeaderIsRemovedWithoutAWarning) {
  Put(*Open(), 0, 3);
  const std::string stem = (Files(".index").at(0).parent_path() / "00000007").string();
  for (const int index_bytes : {-1, 0, 10, 63}) {
    std::ofstream(stem + ".blocks");
    if (index_bytes >= 0) std::ofstream(stem + ".index") << std::string(static_cast<size_t>(index_bytes), 'T');
    const auto store = Open();
    EXPECT_EQ(said_.find("warning"), std::string::npos) << said_;
    EXPECT_EQ(store->Stats().damaged, 0);
    EXPECT_EQ(store->Stats().blocks, 3);
    EXPECT_EQ(Files(".index").size(), 1u);
    EXPECT_EQ(Files(".blocks").size(), 1u);
  }
}

TEST_F(BlockStoreTest, ADamagedHeaderLosesTheSegmentWithAWarning) {
  Put(*Open(), 0, 3);
  for (int64_t at = 0; at < kSegmentHeaderBytes; at += 5) {
    FlipBit(Files(".index").at(0), at, 3);
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_NE(said_.find("warning: "), std::string::npos) << said_;
    EXPECT_NE(said_.find("damaged header"), std::string::npos) << said_;
    EXPECT_EQ(store->Stats().blocks, 0);
    Put(*store, 0, 3);
  }
}

// Another program has written into the folder: files that are not segments are skipped, and nothing outside the folder
// is modified or waited for.
TEST_F(BlockStoreTest, FilesThatAreNotSegmentsAreSkipped) {
  namespace fs = std::filesystem;
  Put(*Open(), 0, 3);
  const fs::path subfolder = Files(".index").at(0).parent_path(), outside = folder_.string() + "_outside";
  const std::string text(5000, 'x');
  std::ofstream(outside) << text;
  fs::create_symlink("loop", folder_ / "loop");
  fs::create_symlink(outside, subfolder / "00000005.blocks");
  fs::create_symlink(outside, subfolder / "00000005.index");
  fs::create_symlink("00000006.index", subfolder / "00000006.index");
  fs::create_directory(subfolder / "00000007.index");
  ASSERT_EQ(mkfifo((subfolder / "00000008.index").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((subfolder / "00000009.blocks").c_str(), 0600), 0);
  fs::remove(subfolder / "about");
  ASSERT_EQ(mkfifo((subfolder / "about").c_str(), 0600), 0);
  std::ofstream(subfolder / "00000010.index");
  fs::resize_file(subfolder / "00000010.index", uintmax_t{1} << 30);  // all zeros
  for (int round = 0; round < 2; ++round) {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    for (int i = 0; i < 3 + round; ++i) EXPECT_TRUE(Has(*store, i)) << i;
    Put(*store, 3, 4);
  }
  std::ifstream in(outside);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  fs::remove(outside);
}

TEST_F(BlockStoreTest, ADamagedBlockIsWrittenAnew) {
  Put(*Open(), 0, 3);
  FlipBit(Files(".blocks").at(0), kBlockBytes + 9, 0);
  {
    const auto store = Open();
    EXPECT_FALSE(Has(*store, 1));
    Put(*store, 1, 2);
    EXPECT_TRUE(Has(*store, 1));
  }
  EXPECT_TRUE(Has(*Open(), 1)) << "the damaged copy is used after a restart";
}

// As above, but the damaged block lies in another segment, which was used since and is therefore loaded last.
TEST_F(BlockStoreTest, ADamagedBlockOfAnOlderSegmentIsWrittenAnew) {
  const int64_t limit = 128 * (kBlockBytes + kSegmentRecordBytes);  // segments of two blocks
  Put(*Open(limit), 0, 7);
  FlipBit(Files(".blocks").at(0), 9, 0);
  {
    const auto store = Open(limit);
    EXPECT_FALSE(Has(*store, 0));
    Put(*store, 0, 1);
  }
  std::filesystem::last_write_time(Files(".index").at(0),
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  for (int round = 0; round < 2; ++round) {
    const auto store = Open(limit);
    EXPECT_TRUE(Has(*store, 0)) << "the damaged copy is used after a restart";
    Put(*store, 10 + round, 11 + round);
  }
  EXPECT_EQ(Files(".blocks").size(), 5u) << "appending does not continue in the newest segment";
}

// A restart knows uses only from the files' times.
TEST_F(BlockStoreTest, UsesReachTheDiskOnlyThroughNoteUses) {
  const int64_t limit = 128 * (kBlockBytes + kSegmentRecordBytes);  // segments of two blocks
  Put(*Open(limit), 0, 6);
  const auto files = Files(".index");
  ASSERT_EQ(files.size(), 3u);
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* extension : {".index", ".blocks"}) {
    for (const auto& file : Files(extension)) std::filesystem::last_write_time(file, long_ago);
  }
  const auto is_old = [&](size_t i) {
    return std::filesystem::last_write_time(files[i]) < long_ago + std::chrono::minutes(1);
  };
  {
    const auto store = Open(limit);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_old(i)) << "opening does not count as a use";
    const Hash128 first[] = {Key(0)};
    EXPECT_EQ(store->Find(first).blocks, 1);
    EXPECT_TRUE(is_old(0)) << "Find does not wait for the disk";
    store->NoteUses();
  }
  EXPECT_FALSE(is_old(0));
  EXPECT_TRUE(is_old(1));
  const auto store = Open(limit);
  std::filesystem::last_write_time(files[0], long_ago);
  store->NoteUses();
  EXPECT_TRUE(is_old(0)) << "segment 0 was not used since";
}

TEST_F(BlockStoreTest, StaysBelowItsLimitAndKeepsUsedBlocks) {
  const int64_t limit = 128 * (kBlockBytes + kSegmentRecordBytes);
  const auto store = Open(limit);
  const Hash128 first[] = {Key(0)};
  for (int i = 0; i < 1000; ++i) {
    Put(*store, i, i + 1);
    EXPECT_LE(store->Stats().bytes, limit);
    EXPECT_LE(BytesOfSegments(), limit);
    EXPECT_EQ(store->Find(first).blocks, 1) << "block 0 was used before every write, but was evicted after " << i;
  }
  EXPECT_TRUE(Has(*store, 999));
  EXPECT_FALSE(Has(*store, 500));
  const Hash128 gone[] = {Key(900 - 100)};
  EXPECT_EQ(store->Find(gone).end, CacheEnd::kEvicted);
  EXPECT_GT(store->Stats().blocks, 100);
  EXPECT_EQ(store->Stats().evicted, 1000 - store->Stats().blocks);
}

TEST_F(BlockStoreTest, ALowerLimitHoldsFromTheStart) {
  Put(*Open(), 0, 500);
  const int64_t limit = 64 * (kBlockBytes + kSegmentRecordBytes);
  const auto store = Open(limit);
  EXPECT_LE(BytesOfSegments(), limit);
  EXPECT_NE(said_.find("removed, to stay below"), std::string::npos) << said_;
}

TEST_F(BlockStoreTest, OlderBlocksOfOtherIdentitiesAreEvictedFirst) {
  const int64_t limit = 64 * (kBlockBytes + kSegmentRecordBytes) + 64 * kSegmentHeaderBytes;
  Put(*Open(limit, "old"), 0, 60);
  const auto store = Open(limit, "new");
  Put(*store, 0, 40);
  EXPECT_LE(BytesOfSegments(), limit);
  EXPECT_EQ(store->Stats().blocks, 40) << "own blocks were evicted before older ones of another model";
}

TEST_F(BlockStoreTest, ATooSmallLimitIsRefusedWithTheMinimum) {
  const auto store = TryOpen(100);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().param(), "kv-cache-dir-size");
  const int64_t least = 16 * (kBlockBytes + kSegmentRecordBytes) + kSegmentHeaderBytes;
  EXPECT_NE(store.status().message().find(std::to_string(least) + " bytes"), std::string::npos)
      << store.status().message();
  EXPECT_TRUE(TryOpen(least).ok());
}

// A limit on the file size simulates a full disk: a write fails, or writes only a part.
TEST_F(BlockStoreTest, AFullDiskIsReportedOnceAndStoredBlocksStay) {
  const auto store = Open();
  Put(*store, 0, 5);
  (void)signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = static_cast<rlim_t>(5 * kBlockBytes + kBlockBytes / 2);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_FALSE(store->Append(Key(5), Bytes(5).data()));
  EXPECT_FALSE(store->Append(Key(6), Bytes(6).data()));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(store->Stats().writing);
  EXPECT_FALSE(Has(*store, 5));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Has(*store, i)) << i;
  const auto warnings = store->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("no more blocks are written"), std::string::npos) << warnings[0];
  EXPECT_EQ(BytesOfSegments(), store->Stats().bytes) << "half a block was left behind";
}

TEST_F(BlockStoreTest, ReadersAndAWriterThatEvictsDoNotDisturbEachOther) {
  const auto store = Open(128 * (kBlockBytes + kSegmentRecordBytes));
  std::atomic<bool> done{false};
  std::atomic<int> newest{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      for (int i = r; !done; ++i) (void)Has(*store, std::max(0, newest - i % 200));
    });
  }
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(store->Append(Key(i), Bytes(i).data()));
    newest = i;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(store->Stats().damaged, 0);
  EXPECT_TRUE(store->TakeWarnings().empty());
}

}  // namespace
}  // namespace tactus::engine
