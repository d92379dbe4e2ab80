#include "compute/cuda/decoder_overlap.h"

#include <algorithm>

namespace tactus::compute::cuda {

DecoderOverlap::DecoderOverlap(Decoder& first, int32_t multiprocessors)
    : first_(first), multiprocessors_(multiprocessors), shapes_(first.shapes().begin(), first.shapes().end()) {
  for (AttentionShape& shape : shapes_) shape.multiprocessors = multiprocessors_;
}

DecoderOptions DecoderOverlap::SecondOptions(DecoderOptions whole, int32_t block_size) {
  // A cut within a chunk is up to a block ahead of the middle. Logits are the first decoder's.
  whole.max_tokens = std::min(whole.max_tokens, whole.max_tokens / 2 + 1 + block_size);
  whole.max_logit_rows = 1;
  return whole;
}

Result<std::unique_ptr<DecoderOverlap>> DecoderOverlap::Create(const ModelConfig& config, const DeviceWeights& weights,
                                                               Decoder& first, const DecoderOptions& options,
                                                               double attention_share, int32_t block_size,
                                                               bool batch_invariant) {
  const auto multiprocessors = static_cast<int32_t>(options.multiprocessors * attention_share);
  std::unique_ptr<DecoderOverlap> o(new DecoderOverlap(first, std::max(1, multiprocessors)));
  TACTUS_ASSIGN_OR_RETURN(o->gemm_, Gemm::Create(batch_invariant));
  TACTUS_ASSIGN_OR_RETURN(o->second_, Decoder::Create(config, weights, *o->gemm_, SecondOptions(options, block_size)));
  TACTUS_ASSIGN_OR_RETURN(o->stream_, Stream::Create());
  for (std::unique_ptr<Event>* event : {&o->turns_[0], &o->turns_[1], &o->begin_, &o->end_, &o->joined_}) {
    TACTUS_ASSIGN_OR_RETURN(*event, Event::Create());
  }
  return o;
}

void DecoderOverlap::Forward(Stream& s, const std::array<DeviceBatch, 2>& parts, std::span<const KvPages> kv) {
  begin_->Record(s);
  stream_->Wait(*begin_);
  Enqueue(s, parts, kv);
  joined_->Record(*stream_);
  s.Wait(*joined_);
  first_.TakeLogitRows(s, *second_);
}

// Both parts, each in its stream.
void DecoderOverlap::Enqueue(Stream& s, const std::array<DeviceBatch, 2>& parts, std::span<const KvPages> kv) {
  const std::array<Decoder*, 2> decoders = {&first_, second_.get()};
  const std::array<Stream*, 2> streams = {&s, stream_.get()};
  first_.Begin(s, parts[0], kv);
  std::array<bool, 2> more{};
  more[0] = first_.Advance(turns_[0].get());
  stream_->Wait(*turns_[0]);
  second_->Begin(*stream_, parts[1], kv);
  more[1] = second_->Advance(turns_[1].get());
  for (size_t part = 0; more[0] || more[1]; part = 1 - part) {
    if (!more[part]) continue;
    streams[part]->Wait(*turns_[1 - part]);
    more[part] = decoders[part]->Advance(turns_[part].get());
  }
}

// The median of some runs, after one that warms up. Part 1's stream begins with `s`, which waits for it at the end.
template <class Work>
double DecoderOverlap::Seconds(Stream& s, Work work) {
  constexpr size_t kRuns = 3;
  std::array<double, kRuns> seconds{};
  for (size_t run = 0; run <= kRuns; ++run) {
    begin_->Record(s);
    stream_->Wait(*begin_);
    work();
    joined_->Record(*stream_);
    s.Wait(*joined_);
    end_->Record(s);
    end_->Synchronize();
    if (run > 0) seconds[run - 1] = end_->SecondsSince(*begin_);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

OverlapTimes DecoderOverlap::Measure(Stream& s, const DeviceBatch& whole, const std::array<DeviceBatch, 2>& parts,
                                     std::span<const KvPages> kv) {
  const auto products = [&] { first_.ForwardProducts(s, parts[0], kv); };
  const auto attention = [&] { second_->ForwardAttention(*stream_, parts[1], kv); };
  OverlapTimes times;
  times.split = Seconds(s, [&] { Enqueue(s, parts, kv); });
  times.compute = Seconds(s, products);
  times.memory = Seconds(s, attention);
  times.together = Seconds(s, [&] {
    products();
    attention();
  });
  times.whole = Seconds(s, [&] { first_.Forward(s, whole, kv); });
  return times;
}

}  // namespace tactus::compute::cuda
