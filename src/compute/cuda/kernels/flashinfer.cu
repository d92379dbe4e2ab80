// FlashInfer's kernels, compiled from its headers. Nothing here is copied from it.
#include "compute/cuda/kernels/flashinfer.h"

#include "compute/cuda/runtime_cuda.h"

#if defined(TACTUS_FLASHINFER)

#include <exception>
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

namespace fi = flashinfer;

// Softmax without a custom mask, window, soft-cap or ALiBi.
using Plain = fi::DefaultAttention<false, false, false, false>;
constexpr bool kProgrammaticLaunch = false;
constexpr int32_t kNoWindow = -1;
constexpr float kNoSoftcap = 0.0f, kRopeScale = 1.0f, kRopeTheta = 10000.0f;  // positions are rotated before

template <class T>
T* Mutable(const T* p) {
  return const_cast<T*>(p);
}

template <class T>
fi::paged_kv_t<T, int32_t> PagesOf(const FlashInferCall& call, const KvPages& kv) {
  return {static_cast<uint32_t>(kv.kv_heads),
          static_cast<uint32_t>(kv.block_size),
          static_cast<uint32_t>(kv.head_dim),
          static_cast<uint32_t>(call.items),
          fi::QKVLayout::kHND,
          static_cast<T*>(kv.k),
          static_cast<T*>(kv.v),
          Mutable(call.pages),
          Mutable(call.first_page),
          Mutable(call.last_page_tokens)};
}

template <class T>
struct Partials {
  T* values = nullptr;
  float* logarithms = nullptr;
};
template <class T>
Partials<T> PartialsOf(const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  if (!units.split) return {};
  T* const values = static_cast<T*>(call.partials);
  return {values, reinterpret_cast<float*>(values + call.max_partials * call.heads * kv.head_dim)};
}

template <class T, uint32_t kHeadDim>
cudaError_t Decode(cudaStream_t s, const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  using Params = fi::BatchDecodeParams<T, T, T, int32_t>;
  Params p(static_cast<T*>(const_cast<void*>(call.q)), nullptr, PagesOf<T>(call, kv), static_cast<T*>(call.out),
           nullptr, nullptr, static_cast<uint32_t>(call.heads), static_cast<int32_t>(call.q_stride), kv.head_dim,
           kNoWindow, kNoSoftcap, call.scale, kRopeScale, kRopeTheta);
  p.padded_batch_size = static_cast<uint32_t>(units.count);
  p.request_indices = Mutable(units.items);
  p.kv_tile_indices = Mutable(units.kv_tiles);
  p.o_indptr = Mutable(call.first_partial);
  p.kv_chunk_size_ptr = Mutable(call.kv_chunk);
  p.block_valid_mask = Mutable(units.valid);
  const Partials<T> partials = PartialsOf<T>(call, kv, units);
  return fi::BatchDecodeWithPagedKVCacheDispatched<kHeadDim, fi::PosEncodingMode::kNone, Plain, Params>(
      p, partials.values, partials.logarithms, kProgrammaticLaunch, s);
}

template <class T, uint32_t kHeadDim, uint32_t kTileRows>
cudaError_t Tiles(cudaStream_t s, const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  using Params = fi::BatchPrefillPagedParams<T, T, T, int32_t>;
  Params p(static_cast<T*>(const_cast<void*>(call.q)), PagesOf<T>(call, kv), nullptr, Mutable(call.first_token),
           nullptr, nullptr, static_cast<T*>(call.out), nullptr, nullptr, static_cast<uint32_t>(call.heads),
           static_cast<int32_t>(call.q_stride), kv.head_dim, kNoWindow, kNoSoftcap, call.scale, kRopeScale, kRopeTheta);
  p.padded_batch_size = static_cast<uint32_t>(units.count);
  p.request_indices = Mutable(units.items);
  p.qo_tile_indices = Mutable(units.q_tiles);
  p.kv_tile_indices = Mutable(units.kv_tiles);
  p.o_indptr = Mutable(units.split ? call.first_partial : call.first_token);
  p.merge_indptr = Mutable(call.first_of_token);
  p.kv_chunk_size_ptr = Mutable(call.kv_chunk);
  p.block_valid_mask = Mutable(units.valid);
  p.max_total_num_rows = static_cast<uint32_t>(call.tokens);
  const Partials<T> partials = PartialsOf<T>(call, kv, units);
  return fi::BatchPrefillWithPagedKVCacheDispatched<true, kTileRows, kHeadDim, kHeadDim, fi::PosEncodingMode::kNone,
                                                    false, fi::MaskMode::kCausal, Plain, Params>(
      p, partials.values, partials.logarithms, kProgrammaticLaunch, s);
}

template <class T, uint32_t kHeadDim>
cudaError_t Run(cudaStream_t s, const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  switch (units.tile_rows) {
    case 0:
      return Decode<T, kHeadDim>(s, call, kv, units);
    case 16:
      return Tiles<T, kHeadDim, 16>(s, call, kv, units);
    case 64:
      return Tiles<T, kHeadDim, 64>(s, call, kv, units);
    case 128:
      if constexpr (kHeadDim < 256) return Tiles<T, kHeadDim, 128>(s, call, kv, units);
      break;
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

template <class T>
cudaError_t Run(cudaStream_t s, const FlashInferCall& call, const KvPages& kv, const FlashInferUnits& units) {
  switch (kv.head_dim) {
    case 64:
      return Run<T, 64>(s, call, kv, units);
    case 128:
      return Run<T, 128>(s, call, kv, units);
    case 256:
      return Run<T, 256>(s, call, kv, units);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

bool HasFlashInfer() {
  return true;
}

void AttendByFlashInfer(Stream& stream, const FlashInferCall& call, const KvPages& kv) {
  const cudaStream_t s = NativeStream(stream);
  for (const FlashInferUnits* const units : {&call.decodes, &call.chunks}) {
    if (units->count == 0 || !DeviceStatus().ok()) continue;
    try {
      CheckLaunch(call.type == Real::kBF16 ? Run<bf16>(s, call, kv, *units) : Run<f16>(s, call, kv, *units),
                  "FlashInfer's attention");
    } catch (const std::exception& e) {
      FailDevice(Internal(std::string("FlashInfer's attention: ") + e.what()));
    }
  }
}

}  // namespace tactus::compute::cuda

#elif defined(__CUDACC__)

namespace tactus::compute::cuda {

bool HasFlashInfer() {
  return false;
}

void AttendByFlashInfer(Stream&, const FlashInferCall&, const KvPages&) {
  FailDevice(Internal("this library was built without FlashInfer"));
}

}  // namespace tactus::compute::cuda

#endif
