// --overlap nano: a step in two parts (step_split.h), each a pass over all layers. The parts take turns: while one
// multiplies, the attention of the other reads K and V on a second stream (Zhu et al., "NanoFlow", OSDI 2025; Zhao et
// al., "BlendServe", 2024). The values are those of one pass, as long as products are batch invariant.
//
// Products never run beside products: a turn waits for the end of the other part's. So part 0 has stored K and V of a
// layer before part 1 begins it. Attention runs on as many blocks as a share of the multiprocessors holds, so that
// products find room beside it however large the batch is.
//
// One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/overlap_fit.h"
#include "compute/cuda/decoder.h"

namespace tactus::compute::cuda {

class DecoderOverlap {
 public:
  // `first`: of whole steps; it computes part 0 of split ones. `options` are its own. `attention_share`: of the
  // multiprocessors. All outlive the result.
  static Result<std::unique_ptr<DecoderOverlap>> Create(const ModelConfig& config, const DeviceWeights& weights,
                                                        Decoder& first, const DecoderOptions& options,
                                                        double attention_share, int32_t block_size,
                                                        bool batch_invariant);
  // Options of the decoder of part 1, also for the memory plan.
  static DecoderOptions SecondOptions(DecoderOptions whole, int32_t block_size);

  // As first.shapes(), for the attention of a part: on `multiprocessors()` alone.
  std::span<const AttentionShape> shapes() const { return shapes_; }
  int32_t multiprocessors() const { return multiprocessors_; }
  // As Decoder::Forward of the whole step: the logit rows are first's.
  void Forward(Stream& s, const std::array<DeviceBatch, 2>& parts, std::span<const KvPages> kv);
  // Seconds of a step that has run. Compute is part 0's products, memory part 1's attention. Waits.
  OverlapTimes Measure(Stream& s, const DeviceBatch& whole, const std::array<DeviceBatch, 2>& parts,
                       std::span<const KvPages> kv);

 private:
  DecoderOverlap(Decoder& first, int32_t multiprocessors);
  void Enqueue(Stream& s, const std::array<DeviceBatch, 2>& parts, std::span<const KvPages> kv);
  template <class Work>
  double Seconds(Stream& s, Work work);

  Decoder& first_;
  const int32_t multiprocessors_;  // of the attention
  std::vector<AttentionShape> shapes_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Decoder> second_;
  std::unique_ptr<Stream> stream_;               // of part 1
  std::array<std::unique_ptr<Event>, 2> turns_;  // the end of each part's products
  std::unique_ptr<Event> begin_, end_, joined_;
};

}  // namespace tactus::compute::cuda
