// The work of blocks, counted from their declarations: parameters, arithmetic, and the weights and KV that a step
// reads. The cost model and `tactus models inspect` ask here, so that what is simulated is what is served.
//
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/config/blocks.h"
#include "compute/config/config.h"

namespace tactus::compute {

// The expected number of distinct experts that `tokens` tokens choose, each `share` of the `experts`, evenly and
// independently: E (1 - (1 - share)^n).
double ExpectedExperts(double experts, double share, double tokens);

// The work of one block, or of the blocks of one layer. Norms and biases are not counted: they are less than a
// thousandth.
struct BlockWork {
  int64_t every_token = 0;          // elements of the matrices that every token is multiplied with
  int64_t expert = 0;               // elements of one expert's matrices; 0: no experts
  int64_t experts = 0, chosen = 0;  // chosen: experts per token
  int64_t kv = 0;                   // elements of K and V per token
  int64_t inner = 0;                // values that a token has between the products of its widest feed-forward block

  int64_t elements() const { return every_token + experts * expert; }
  int64_t token_elements() const { return every_token + chosen * expert; }
  double flops_per_token() const { return 2.0 * static_cast<double>(token_elements()); }
  // Elements of weights that a step of `tokens` reads: of the experts those that are expected to be chosen.
  double ElementsRead(double tokens) const;
};
BlockWork WorkOf(const Block& block, int64_t hidden);
BlockWork WorkOf(const Layer& layer, int64_t hidden);

// A layer as one of `ranks` ranks has it, by the axes that the declarations name (Split); a rank has at least one KV
// head. `expert_ranks`: ranks that divide the experts among them, each with whole ones.
Layer ShareOf(const Layer& layer, int64_t ranks, int64_t expert_ranks = 1);

// Parameters that one token uses: all but those of the experts that it does not choose.
int64_t ActiveParameters(const ModelConfig& config);

// Equal layers of a model, and their numbers, rising.
struct LayerGroup {
  Layer layer;
  std::vector<int64_t> at;
};
std::vector<LayerGroup> GroupLayers(const std::vector<Layer>& layers);

}  // namespace tactus::compute
