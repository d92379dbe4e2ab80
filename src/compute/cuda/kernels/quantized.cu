#include "compute/cuda/kernels/quantized.h"

#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product_step.h"

namespace tactus::compute::cuda {
namespace {

static_assert(kRepackRows == kTileRows);
constexpr int kThreads = 256;

int64_t RowTiles(const DeviceMatrix& m) {
  return (m.rows + kTileRows - 1) / kTileRows;
}
int64_t CodeBytes(const DeviceMatrix& m) {
  const int64_t steps = (m.cols + kStep - 1) / kStep;
  return RowTiles(m) * steps * (m.format == MatrixFormat::kInt4 ? 512 : 1024);
}
// Groups per row. Those of less than a step fill the last step.
int64_t Groups(const DeviceMatrix& m) {
  if (m.group >= m.cols) return 1;
  return m.group < kStep ? (m.cols + kStep - 1) / kStep * kStep / m.group : (m.cols + m.group - 1) / m.group;
}
int64_t FactorBytes(const DeviceMatrix& m) {
  return RowTiles(m) * Groups(m) * kTileRows * SizeOf(m.real);
}
bool IsPacked(const DeviceMatrix& m) {
  return m.format == MatrixFormat::kInt4 || m.format == MatrixFormat::kInt8;
}

int32_t UnitOf(const DeviceMatrix& m) {
  return !IsPacked(m) ? 0 : m.group >= m.cols || m.group > kStep ? kStep : m.group;
}

// A thread writes a word of codes. Rows and columns behind the last have the code of 0.
template <bool kFour, int kRun>
__global__ void __launch_bounds__(kThreads)
    PackCodes(Global<const uint8_t> from, int64_t rows, int64_t cols, int64_t words, Global<uint32_t> to) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= words) return;
  constexpr int kLoads = kFour ? 1 : 2, kCodes = kFour ? 8 : 4;
  const int word = static_cast<int>(index % 4), lane = static_cast<int>(index / 4 % 32);
  const int64_t piece = index / 128, steps = (cols + kStep - 1) / kStep;
  const int load = static_cast<int>(piece % kLoads);
  const int64_t step = piece / kLoads % steps, tile = piece / kLoads / steps;
  const int64_t row = tile * kTileRows + lane / 4 + (kFour ? word / 2 : load) * 8;
  uint32_t out = 0;
  for (int i = 0; i < kCodes; ++i) {
    const int value = kFour ? word % 2 * 8 + i : word * 4 + i;
    const int64_t column = step * kStep + ColumnOf<kRun>(lane % 4, value);
    const bool exists = row < rows && column < cols;
    if constexpr (kFour) {
      uint32_t code = 8;
      if (exists) {
        const uint32_t both = from[(row * cols + column) / 2];
        code = column % 2 == 0 ? both & 15u : both >> 4;
      }
      out |= code << (i / 2 * 4 + i % 2 * 16);
    } else {
      uint32_t code = 0;
      if (exists) code = from[row * cols + column];
      // Values 0, 1, 2, 3 become bytes 0, 2, 1, 3.
      out |= (code ^ 0x80u) << (i % 2 * 16 + i / 2 * 8);
    }
  }
  to[index] = out;
}

// A thread writes a scale or an offset, 0 behind the last row or group. `from` has from_groups per row.
template <class V>
__global__ void __launch_bounds__(kThreads)
    PackFactors(Global<const V> from, int64_t rows, int64_t from_groups, int64_t groups, int64_t count, Global<V> to) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= count) return;
  const int64_t group = index / kTileRows % groups, tile = index / kTileRows / groups, place = index % kTileRows;
  const int64_t row = tile * kTileRows + place / 2 + place % 2 * 8;
  V value{};
  if (row < rows && group < from_groups) value = from[row * from_groups + group];
  to[index] = value;
}

template <bool kFour, int kRun>
void LaunchPackCodes(Stream& s, const DeviceMatrix& from, void* to) {
  const int64_t words = CodeBytes(from) / 4;
  Launch("PackCodes", s, PackCodes<kFour, kRun>, dim3(static_cast<unsigned>((words + kThreads - 1) / kThreads)),
         kThreads, 0, static_cast<const uint8_t*>(from.data), from.rows, from.cols, words, static_cast<uint32_t*>(to));
}
template <class V>
void LaunchPackFactors(Stream& s, const DeviceMatrix& m, const void* from, void* to) {
  const int64_t count = FactorBytes(m) / static_cast<int64_t>(sizeof(V));
  Launch("PackFactors", s, PackFactors<V>, dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), kThreads, 0,
         static_cast<const V*>(from), m.rows, (m.cols + m.group - 1) / m.group, Groups(m), count, static_cast<V*>(to));
}

// Address `at` within packed data, which has tiles of rows as its outermost dimension.
void* TileAt(const void* at, int64_t tile, int64_t tile_bytes) {
  return static_cast<uint8_t*>(const_cast<void*>(at)) + tile * tile_bytes;
}

}  // namespace

ProductShape ShapeOf(const DeviceMatrix& w, Real type, const ProductArgs& args, int64_t tokens_per_matrix) {
  constexpr int64_t kEnoughBlocks = 100;  // keep a large device busy with the large tile
  const int64_t large_blocks = (w.rows + 127) / 128 * MostTiles(args, 128);
  ProductShape shape{w.format, type, UnitOf(w), TokenTiles::k128};
  if (tokens_per_matrix <= 8) {
    shape.tiles = TokenTiles::k8;
  } else if (tokens_per_matrix <= 16) {
    shape.tiles = TokenTiles::k16;
  } else if (tokens_per_matrix <= 32) {
    shape.tiles = TokenTiles::k32;
  } else if (tokens_per_matrix <= 64 || large_blocks < kEnoughBlocks) {
    shape.tiles = TokenTiles::k64;
  }
  return shape;
}

ProductArgs ArgsOf(const DeviceMatrix& w) {
  ProductArgs args;
  args.codes = w.data;
  args.scales = w.scales;
  args.offsets = w.offsets;
  args.rows = static_cast<int32_t>(w.rows);
  args.cols = static_cast<int32_t>(w.cols);
  args.steps = static_cast<int32_t>((w.cols + kStep - 1) / kStep);
  const int32_t slice = (args.steps + kSlices - 1) / kSlices;
  args.slice_steps = slice < kMinSliceSteps ? kMinSliceSteps : slice;
  args.row_scales = w.format == MatrixFormat::kFp8 && w.group > 0;
  args.one_scale = w.format == MatrixFormat::kFp8 && w.group == 0;
  if (!IsPacked(w)) return args;
  args.groups = static_cast<int32_t>(Groups(w));
  args.group_shift = 31;
  for (int32_t shift = 4; args.groups > 1 && shift < 31; ++shift) {
    if (w.group == 1 << shift) args.group_shift = shift;
  }
  return args;
}

void LaunchProduct(Stream& s, const ProductShape& shape, const ProductArgs& args) {
  if (shape.type == Real::kF32) return MultiplyFloat(s, shape, args);
  switch (shape.format) {
    case MatrixFormat::kReal:
      return MultiplyReal(s, shape, args);
    case MatrixFormat::kFp8:
      return MultiplyFp8(s, shape, args);
    case MatrixFormat::kInt8:
      return MultiplyInt8(s, shape, args);
    case MatrixFormat::kInt4:
      return MultiplyInt4(s, shape, args);
  }
}

void MultiplyQuantized(Stream& s, const ProductCall& call) {
  ProductArgs args = ArgsOf(call.w);
  args.x = call.x;
  args.bias = call.bias;
  args.y = call.y;
  args.y_stride = call.y_stride;
  args.tokens = static_cast<int32_t>(call.tokens);
  args.y_float = call.y_type == Real::kF32;
  args.adds = call.adds;
  LaunchProduct(s, ShapeOf(call.w, call.type, args, call.tokens), args);
}

int64_t RepackedBytes(const DeviceMatrix& from) {
  if (!IsPacked(from)) return 0;
  return CodeBytes(from) + FactorBytes(from) * (from.offsets != nullptr ? 2 : 1);
}

DeviceMatrix PlaceRepacked(const DeviceMatrix& from, void* to) {
  if (!IsPacked(from)) return from;
  DeviceMatrix placed = from;
  auto* const at = static_cast<uint8_t*>(to);
  placed.data = at;
  placed.scales = at + CodeBytes(from);
  if (from.offsets != nullptr) placed.offsets = at + CodeBytes(from) + FactorBytes(from);
  return placed;
}

void RepackRows(Stream& s, const DeviceMatrix& part, int64_t first, const DeviceMatrix& placed) {
  const int64_t tile = first / kTileRows, tiles = RowTiles(part);
  void* const codes = TileAt(placed.data, tile, CodeBytes(part) / tiles);
  const bool sixteen = UnitOf(part) == 16;
  if (part.format == MatrixFormat::kInt4) {
    sixteen ? LaunchPackCodes<true, 4>(s, part, codes) : LaunchPackCodes<true, 8>(s, part, codes);
  } else {
    sixteen ? LaunchPackCodes<false, 4>(s, part, codes) : LaunchPackCodes<false, 8>(s, part, codes);
  }
  const auto pack = [&](const void* from, const void* to) {
    void* const at = TileAt(to, tile, FactorBytes(part) / tiles);
    part.real == Real::kF32 ? LaunchPackFactors<uint32_t>(s, part, from, at)
                            : LaunchPackFactors<uint16_t>(s, part, from, at);
  };
  pack(part.scales, placed.scales);
  if (part.offsets != nullptr) pack(part.offsets, placed.offsets);
}

DeviceMatrix Repack(Stream& s, const DeviceMatrix& from, void* to) {
  const DeviceMatrix placed = PlaceRepacked(from, to);
  if (IsPacked(from)) RepackRows(s, from, 0, placed);
  return placed;
}

}  // namespace tactus::compute::cuda
