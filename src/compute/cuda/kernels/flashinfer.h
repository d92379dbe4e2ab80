// FlashInfer's attention (Ye et al., "FlashInfer: Efficient and Customizable Attention Engine for LLM Inference
// Serving", 2025) over our pages, in builds with its headers (CMake's TACTUS_FLASHINFER). The lists of a call are
// FlashInferPlan's (flashinfer_plan.h).
//
// A q row is as in attention.h: query * group + head. Tiles of q rows run by FlashInfer's prefill kernel, causal.
// Single decodes can run by its decode kernel, which uses no matrix unit.
//
// Two implementations besides FlashInfer's: a build without the headers has none, and tests compute the same lists in
// plain loops (tests/cuda/emulator/emulated_flashinfer.cc).
#pragma once

#include "compute/cuda/kernels/rope_store.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

bool HasFlashInfer();

// What the blocks of one launch compute: tile q_tiles[i] of items[i], against chunk kv_tiles[i] of its positions.
struct FlashInferUnits {
  const int32_t* items = nullptr;
  const int32_t* q_tiles = nullptr;
  const int32_t* kv_tiles = nullptr;
  const bool* valid = nullptr;  // false: the unit does nothing
  int64_t count = 0;
  int32_t tile_rows = 0;  // 16, 64, or 128 with a head_dim below 256; 0: by the decode kernel
  // Whether the positions are cut into chunks. Then results of chunks go through `partials`.
  bool split = false;
};

struct FlashInferCall {
  const void* q = nullptr;  // [tokens, heads * head_dim] of `type`, q_stride values apart
  void* out = nullptr;      // [tokens, heads * head_dim], rows one after another
  int64_t q_stride = 0;
  Real type = Real::kBF16;  // kBF16 or kF16; K and V have the same
  int32_t heads = 0;
  float scale = 1.0f;
  int64_t tokens = 0, items = 0;
  // Item i has tokens [first_token[i], first_token[i + 1]), which are the last ones of its positions, and pages
  // [first_page[i], first_page[i + 1]) of `pages`, with last_page_tokens[i] positions on the last one.
  const int32_t* first_token = nullptr;       // [items + 1]
  const int32_t* first_page = nullptr;        // [items + 1]
  const int32_t* pages = nullptr;             // block ids
  const int32_t* last_page_tokens = nullptr;  // [items]
  // Of the positions' chunks: their length [1], and the partial results before each item [items + 1] and each token
  // [tokens + 1]. A token's chunks are one after another.
  const int32_t* kv_chunk = nullptr;
  const int32_t* first_partial = nullptr;
  const int32_t* first_of_token = nullptr;
  // Memory of max_partials results: values [max_partials, heads, head_dim] of `type`, then logarithms of their weights
  // [max_partials, heads] in f32.
  void* partials = nullptr;
  int64_t max_partials = 0;
  // `decodes` first: their merge writes 0 to all tokens without partial results.
  FlashInferUnits decodes, chunks;
};

// Attention of the units' rows. kv: head_dim 64, 128 or 256.
void AttendByFlashInfer(Stream& s, const FlashInferCall& call, const KvPages& kv);

}  // namespace tactus::compute::cuda
