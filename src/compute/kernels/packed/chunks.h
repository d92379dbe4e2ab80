// Iterates over a panel of integer codes in chunks of one token block: prepares a chunk's scales and codes and passes
// them to the tiles (tile.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/scales.h"
#include "compute/kernels/packed/tile_tokens.h"

namespace tactus::compute {
namespace {

template <class D>
void OpenNibbles(const std::byte* from, int64_t bytes, std::byte* to) {
  for (int64_t i = 0; i < bytes; i += kGroupBytes, to += 2 * kGroupBytes) {
    for (int64_t j = 0; j < kGroupBytes; j += 4 * D::kWidth) {
      const auto pair = D::LoadBytes(from + i + j);
      D::StoreBytes(to + j, D::Low(pair));
      D::StoreBytes(to + kGroupBytes + j, D::High(pair));
    }
  }
}

// zeros: [64] of the block.
template <class D>
void OpenZeroed(const std::byte* from, int64_t bytes, const uint8_t* zeros, std::byte* to) {
  alignas(64) uint32_t centres[kPanelRows];  // in all four bytes
  for (int64_t i = 0; i < kPanelRows; ++i) centres[i] = 0x1010101u * static_cast<uint32_t>(kZeroedCentre - zeros[i]);
  const auto* centre = reinterpret_cast<const std::byte*>(centres);
  for (int64_t i = 0; i < bytes; i += kGroupBytes, to += 2 * kGroupBytes) {
    for (int64_t j = 0; j < kGroupBytes; j += 4 * D::kWidth) {
      const auto pair = D::LoadBytes(from + i + j), middle = D::LoadBytes(centre + j);
      D::StoreBytes(to + j, D::Zeroed(D::Low(pair), middle));
      D::StoreBytes(to + kGroupBytes + j, D::Zeroed(D::High(pair), middle));
    }
  }
}

// Codes to v in 16 bits. zeros: [64] of the block, for 4-bit codes; or null, then `zero` applies to all.
template <class D, bool kU4, bool kZeros>
void OpenWide(const std::byte* from, int64_t bytes, const uint8_t* zeros, int32_t zero, std::byte* to) {
  alignas(64) int32_t centres[kPanelRows];  // in both halves
  for (int64_t i = 0; i < kPanelRows; ++i) centres[i] = 0x10001 * (kZeros ? zeros[i] : zero);
  const auto* centre = reinterpret_cast<const std::byte*>(centres);
  for (const std::byte* end = from + bytes; from < end; from += kGroupBytes, to += (kU4 ? 4 : 2) * kGroupBytes) {
#pragma GCC unroll 8
    for (int64_t j = 0; j < kGroupBytes; j += 4 * D::kWidth) {
      const auto codes = D::LoadBytes(from + j), middle = D::LoadBytes(centre + j);
      std::byte* out = to + j;
      D::template Open<kZeros ? 2 : 0>(kU4 ? D::Low(codes) : codes, middle, out, out + kGroupBytes);
      if constexpr (kU4) {
        D::template Open<kZeros ? 2 : 0>(D::High(codes), middle, out + 2 * kGroupBytes, out + 3 * kGroupBytes);
      }
    }
  }
}

// Offsets of the parts of a panel's blocks.
struct PanelLayout {
  int64_t block, code_bytes, block_bytes, scale_bytes, blocks;
  bool u4, scaled;

  explicit PanelLayout(const PackedMatrix& w)
      : block(w.block > 0 ? w.block : kTokenBlock),
        code_bytes(block * kPanelRows / (w.code == PackedCode::kU4 ? 2 : 1)),
        block_bytes(w.block > 0 ? w.block_bytes() : code_bytes),
        scale_bytes(kPanelRows * 2),
        blocks((w.cols + block - 1) / block),
        u4(w.code == PackedCode::kU4),
        scaled(w.block > 0) {}
};

// The buffers of one chunk.
struct ChunkMemory {
  alignas(64) std::byte opened[2 * kChunkColumns * kPanelRows];
  alignas(64) float scales[kChunkBlocks * kPanelRows], minima[kChunkBlocks * kPanelRows];
  alignas(64) int32_t zeros[kChunkBlocks * kPanelRows];
};

template <class D>
void OpenCodes(const PackedMatrix& w, const PanelLayout& layout, const std::byte* at, ChunkMemory* memory,
               ChunkOfWeights* chunk) {
  for (int64_t b = 0; b < chunk->blocks; ++b, at += layout.block_bytes) {
    const int64_t codes = layout.block * kPanelRows;
    const auto* zeros = reinterpret_cast<const uint8_t*>(at + layout.code_bytes + layout.scale_bytes);
    if constexpr (D::kOpened == Opened::kWide) {
      std::byte* to = memory->opened + b * 2 * codes;
      const auto open = w.has_zeros ? OpenWide<D, true, true>
                        : layout.u4 ? OpenWide<D, true, false>
                                    : OpenWide<D, false, false>;
      open(at, layout.code_bytes, zeros, w.zero, to);
    } else {
      if constexpr (D::kOpensZeros) {
        if (w.has_zeros) {
          OpenZeroed<D>(at, layout.code_bytes, zeros, memory->opened + b * codes);
          continue;
        }
      }
      OpenNibbles<D>(at, layout.code_bytes, memory->opened + b * codes);
    }
  }
  chunk->codes = memory->opened;
  chunk->codes_each = layout.block * kPanelRows * (D::kOpened == Opened::kWide ? 2 : 1);
  if (D::kOpened == Opened::kWide) {
    chunk->zero = 0;
    chunk->zeros = nullptr;
  } else if (D::kOpensZeros && w.has_zeros) {
    chunk->zero = kZeroedCentre;
    chunk->zeros = nullptr;
  }
}

// Few rows use codes as packed (8 bits: D, 4 bits: D4), more rows the widened ones (DOpened).
template <class D, class D4, class DOpened>
void SumPanelInt(const PanelSums& run) {
  static_assert(D4::kCodeOffset == 0 && DOpened::kCodeOffset == 0, "zero points are subtracted from products of codes");
  const PackedMatrix& w = *run.w;
  const PanelLayout layout(w);
  const int64_t per_chunk = kChunkColumns / layout.block;
  const bool open =
      (layout.u4 || D::kOpened == Opened::kWide) && run.rows >= (layout.u4 ? D4::kOpenedRows : D::kOpenedRows);
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  ChunkMemory memory;
  for (int64_t b = 0; b < layout.blocks; b += per_chunk) {
    const std::byte* at = w.data + run.panel * w.panel_bytes + b * layout.block_bytes;
    ChunkOfWeights chunk = {};
    chunk.codes = at;
    chunk.codes_each = layout.block_bytes;
    chunk.blocks = per_chunk < layout.blocks - b ? per_chunk : layout.blocks - b;
    chunk.block = layout.block;
    chunk.zero = w.zero;
    const std::byte* scales = at + layout.code_bytes;
    if (layout.scaled) {
      LoadScales(w, scales, chunk.blocks, 0, memory.scales);
      chunk.scales = memory.scales;
    }
    if (w.has_minimum) {
      LoadScales(w, scales, chunk.blocks, 1, memory.minima);
      chunk.minima = memory.minima;
    }
    if (w.has_zeros) {
      for (int64_t block = 0; block < chunk.blocks; ++block) {
        const auto* zeros = reinterpret_cast<const uint8_t*>(scales + layout.scale_bytes + block * layout.block_bytes);
        D::PackZeros(zeros, memory.zeros + block * kPanelRows);
      }
      chunk.zeros = memory.zeros;
    }
    const int64_t bytes = chunk.blocks * layout.block_bytes;
    const std::byte* next = at + bytes;
    if (open) {
      OpenCodes<D>(w, layout, at, &memory, &chunk);
      RunChunk<DOpened, false>(run, chunk, b * layout.block, next, bytes);
    } else if (layout.u4) {
      RunChunk<D4, true>(run, chunk, b * layout.block, next, bytes);
    } else {
      RunChunk<D, false>(run, chunk, b * layout.block, next, bytes);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
