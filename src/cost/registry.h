// The cost model's devices and models: the tables data/cost/devices.json and models.json, or a config.json. Models are
// read by the code that reads a served model's config.json.
//
// Thread rule: the tables are parsed once, on first use, and never change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/config/blocks.h"
#include "tactus/status.h"

namespace tactus::cost {

struct DeviceSpec {
  std::string name, help, link, fit;
  double bf16_flops = 0;     // FLOP/s, dense
  double fp8_flops = 0;      // 0: unsupported
  double int8_flops = 0;     // 0: unsupported
  bool fp4 = false;          // multiplies 4-bit floats, at twice the fp8 rate
  double bandwidth = 0;      // bytes/s
  int64_t memory_bytes = 0;  // usable by a process
  int32_t sms = 0;
  double link_bandwidth = 0;     // bytes/s, one direction, within a group
  int32_t group = 1;             // devices joined by that link
  int32_t node = 8;              // devices of one machine; PCIe joins those without the link
  double pcie_bandwidth = 0;     // bytes/s, one direction
  double peer_bandwidth = 0;     // bytes/s between two devices of a node over PCIe; 0: the usual share
  double peer_hop_ns = 3000;     // time of such a message beside its bytes: kernel synchronisation
  bool other_peers = false;      // the two above are a deployment's, so measurements of other machines do not apply
  double network_bandwidth = 0;  // bytes/s per device, between nodes
  std::string network;           // infiniband | ethernet
  double network_hop_ns = 0;     // time of a message between nodes beside its bytes
  double launch_ns = 0;          // minimum time of a small kernel
};

// A model as the blocks of its layers, those that the engine runs (compute/config/blocks.h).
struct ModelSpec {
  std::string name, help;
  int64_t hidden = 0, vocab = 0, context = 0;
  bool tied = false;
  std::vector<compute::Layer> layers;
  // Elements of matrices of no layer beside embedding and output matrix: tables, of which a token reads a row
  // (compute::LayerInputs), and those with which every token and every row of logits is multiplied.
  int64_t tables = 0, token_projections = 0, logit_projections = 0;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t EmbeddingParameters() const { return (tied ? 1 : 2) * vocab * hidden; }  // embedding, and lm_head unless tied
  int64_t streams() const { return layers.empty() ? 1 : compute::StreamsOf(layers[0]); }  // of the residual
  int64_t layer_inputs() const;  // elements that a token reads of `tables`, for all layers
  int64_t OutsideParameters() const { return tables + token_projections + logit_projections; }
  // Matrices; and of these, what one token uses.
  int64_t Parameters() const;
  int64_t ActiveParameters() const;
};

// A model with equal layers, each attention and one feed-forward block.
struct UniformShape {
  std::string name, help;
  int64_t layers = 0, hidden = 0, q_heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, context = 0, window = 0;
  bool gated = true, tied = false, parallel = false, rope = true, qk_norm = false;
};
ModelSpec UniformModel(const UniformShape& shape);

const std::vector<DeviceSpec>& Devices();
const std::vector<ModelSpec>& Models();

// kInvalidArgument lists the known ones.
Result<DeviceSpec> FindDevice(const std::string& name);
// A name of Models(), a folder with config.json or such a file. kNotFound for a path without one.
Result<ModelSpec> FindModel(const std::string& name);

}  // namespace tactus::cost
