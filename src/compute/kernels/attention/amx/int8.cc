// Attention by tdpbssd and tdpbusd for tiles of many rows, by vpdpbusd for those of few. Sums are exact, so both have
// the same bits (avx512/int8.cc).
#include "compute/kernels/attention/amx/int8.h"

#include "compute/kernels/attention/amx/int8_tile.h"
#include "compute/kernels/attention/avx512/int8_format.h"
#include "compute/kernels/attention/avx512/tiles.h"
#include "compute/kernels/simd/amx.h"

namespace tactus::compute {
namespace {

struct JoinLanes {
  static __m512i Load(const int32_t* p) { return _mm512_load_si512(p); }
  static void StoreScores(const int32_t* high, const int32_t* low, const float* scale, float* to) {
    const __m512i sum = Join(Load(high), Load(low), _mm512_setzero_si512());
    _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(scale)));
  }
  static void StoreValues(const int32_t* high, const int32_t* low, bool resume, float* to) {
    const __m512i before = resume ? _mm512_loadu_si512(to) : _mm512_setzero_si512();
    _mm512_storeu_si512(to, Join(Load(high), Load(low), before));
  }
};

struct AmxInt8 : Int8Rows {
  static constexpr int32_t kTileRows = kAmxRows, kGroupRows = kTileRows, kBlockRows = kAttentionTileRows;
  static constexpr int32_t kTaskRows = kMostTileRows;
  static constexpr int32_t kColumns = 64;
  static constexpr ValueUse kValues = ValueUse::kTiles;
  static void BeginScores(int32_t rows) { ConfigureInt8<AmxTiles>(rows); }
  static void BeginValues(int32_t rows) { ConfigureInt8<AmxTiles>(rows); }
  static void End() { AmxTiles::Release(); }

  static int VecsFor(int32_t) { return 4; }
  static ScoreFn Score(int32_t, int, bool fetch) {
    return fetch ? ScoreInt8<AmxTiles, JoinLanes, true> : ScoreInt8<AmxTiles, JoinLanes, false>;
  }
  static WeighFn Weigh(int32_t, int, bool) { return WeighInt8<AmxTiles, JoinLanes>; }
};

bool ManyRows(const AttentionTile& tile) {
  return tile.members == nullptr && tile.rows_per_kv_head() > kNarrowRows;
}

void RunInt8Tile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, std::byte* scratch) {
  ManyRows(tile) ? RunTile<AmxInt8>(call, tile, next, scratch) : RunTile<Int8>(call, tile, next, scratch);
}
void RunInt8Partition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                      float* results, int64_t stride) {
  ManyRows(tile) ? RunTilePartition<AmxInt8>(call, tile, index, scratch, results, stride)
                 : RunTilePartition<Int8>(call, tile, index, scratch, results, stride);
}

}  // namespace

bool AmxReadsInt8(const KvLayer& kv) {
  return kv.dtype == DType::kInt8 && kv.head_dim % (4 * kTileQuads) == 0;
}

void AttentionAmxInt8(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch) {
  static constexpr AttentionKernel kKernel = {
      .tile_rows = AmxInt8::kTaskRows,
      .takes_kv_heads = ReadsInChunks,
      .takes_members = ReadsInChunks,
      .run_tile = RunInt8Tile,
      .run_partition = RunInt8Partition,
      .merge = MergeResults,
  };
  RunAttention(pool, kKernel, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
