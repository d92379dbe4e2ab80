// What a sequence's sampling depends on besides logits: the counts of its tokens, and the token before.
#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/sample.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256;

dim3 BlocksFor(int64_t values) {
  return dim3(static_cast<unsigned>((values + kThreads - 1) / kThreads));
}

// `prompt`: marks the tokens, whose words are 0; else counts them. Tokens outside the vocabulary have no word.
template <bool kPrompt>
__global__ void __launch_bounds__(kThreads)
    CountTokens(Global<uint32_t> counts, int64_t vocab, Global<const int32_t> tokens, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int32_t token = tokens[i];
  if (token < 0 || token >= vocab) return;
  if constexpr (kPrompt) {
    counts.AtomicMax(token, kInPrompt);
  } else {
    counts.AtomicAdd(token, 1u);
  }
}

__global__ void __launch_bounds__(kThreads)
    TakeChainedKernel(Global<int32_t> ids, int64_t tokens, Global<const int32_t> last_tokens) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= tokens) return;
  const int32_t id = ids[t];
  if (id < 0) ids[t] = last_tokens[-1 - id];
}

}  // namespace

void StartCounts(Stream& s, uint32_t* counts, int64_t row, int64_t vocab, const int32_t* prompt, int64_t prompt_tokens,
                 const int32_t* output, int64_t output_tokens) {
  uint32_t* const words = counts + row * vocab;
  s.Fill(words, 0, vocab * static_cast<int64_t>(sizeof(uint32_t)));
  Launch("CountPrompt", s, CountTokens<true>, BlocksFor(prompt_tokens), kThreads, 0, words, vocab, prompt,
         prompt_tokens);
  Launch("CountOutput", s, CountTokens<false>, BlocksFor(output_tokens), kThreads, 0, words, vocab, output,
         output_tokens);
}

void TakeChained(Stream& s, int32_t* ids, int64_t tokens, const int32_t* last_tokens) {
  Launch("TakeChained", s, TakeChainedKernel, BlocksFor(tokens), kThreads, 0, ids, tokens, last_tokens);
}

}  // namespace tactus::compute::cuda
