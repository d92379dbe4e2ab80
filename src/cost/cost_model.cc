#include "cost/cost_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "compute/config/block_work.h"
#include "cost/fitted.h"
#include "cost/hybrid_model.h"

namespace tactus::cost {
namespace {

bool HasExperts(const ModelSpec& m) {
  return std::any_of(m.layers.begin(), m.layers.end(),
                     [](const compute::Layer& layer) { return compute::ExpertsOf(layer) != nullptr; });
}

Status CheckHeads(const Deployment& d, const ModelSpec& m, const compute::AttentionBlock& a) {
  if (a.heads % d.tp != 0) {
    std::string fits;
    for (int32_t tp = 1; tp <= 64 && tp <= a.heads; ++tp) {
      if (DividesHeads(m, tp)) fits += fmt::format("{}{}", fits.empty() ? "" : ", ", tp);
    }
    return InvalidArgument(
        fmt::format("--tp {} does not divide the {} attention heads of {}; {} do", d.tp, a.heads, m.name, fits), "tp");
  }
  if (a.kv_heads % d.tp != 0 && d.tp % a.kv_heads != 0) {
    return InvalidArgument(
        fmt::format("--tp {} neither divides nor is a multiple of the {} KV heads of {}; give such a "
                    "number, for example {}",
                    d.tp, a.kv_heads, m.name, a.kv_heads),
        "tp");
  }
  return Status();
}

Status CheckSplit(const Deployment& d, const ModelSpec& m) {
  if (d.tp < 1 || d.pp < 1 || d.tp > 1024 || d.pp > 1024) {
    return InvalidArgument(fmt::format("--tp {} and --pp {} must be between 1 and 1024", d.tp, d.pp),
                           d.tp < 1 || d.tp > 1024 ? "tp" : "pp");
  }
  for (const compute::Layer& layer : m.layers) {
    const compute::AttentionBlock* const a = compute::AttentionOf(layer);
    if (a != nullptr) TACTUS_RETURN_IF_ERROR(CheckHeads(d, m, *a));
  }
  if (d.pp > m.num_layers()) {
    return InvalidArgument(fmt::format("--pp {} is more than the {} layers of {}; use at most {}", d.pp, m.num_layers(),
                                       m.name, m.num_layers()),
                           "pp");
  }
  if (d.ep < 1 || d.ep > 1024) return InvalidArgument(fmt::format("--ep {} must be between 1 and 1024", d.ep), "ep");
  if (d.ep > 1 && !HasExperts(m)) {
    return InvalidArgument(fmt::format("--ep {}: {} has no experts; leave it out", d.ep, m.name), "ep");
  }
  if (d.attention_kernels != "auto" && d.attention_kernels != "one" && d.attention_kernels != "two") {
    return InvalidArgument(
        fmt::format("attention kernels '{}' are not known; known are auto, one, two", d.attention_kernels),
        "attention-kernels");
  }
  if (d.overlap != "off" && d.overlap != "nano")
    return InvalidArgument(fmt::format("overlap '{}' is not known; known are off, nano", d.overlap), "overlap");
  const OverlapFit& fit = d.overlap_fit;
  if (!(fit.linear >= 0 && fit.quadratic >= 0 && fit.linear + fit.quadratic <= 1)) {
    return InvalidArgument(
        fmt::format(
            "overlap interference {:g} must be between 0 (both at full speed) and 1 (no faster than in sequence)",
            fit.linear + fit.quadratic),
        "overlap-interference");
  }
  if (d.peer_gbytes_per_s < 0) {
    return InvalidArgument(
        fmt::format("the bandwidth between devices of a node is {:g} GB/s; it cannot be negative", d.peer_gbytes_per_s),
        "peer-gbytes-per-s");
  }
  if (d.devices_per_node < 0 || d.network_gbytes_per_s < 0 || d.context < 0 || d.block_size < 1) {
    return InvalidArgument(
        "devices per node, network bandwidth and context cannot be negative, and a block holds at least 1 token");
  }
  return Status();
}

// Changes the device's usual cluster. Links do not leave a node. A switch joins the whole node, a bridge only a pair.
void ApplyCluster(const Deployment& d, DeviceSpec* device) {
  if (d.devices_per_node > 0) {
    device->node = d.devices_per_node;
    device->group = device->link == "nvswitch" ? device->node : std::min(device->group, device->node);
  }
  if (d.peer_gbytes_per_s > 0) device->peer_bandwidth = d.peer_gbytes_per_s * 1e9;
  if (d.peer_latency_ns >= 0) device->peer_hop_ns = static_cast<double>(d.peer_latency_ns);
  device->other_peers = d.peer_gbytes_per_s > 0 || d.peer_latency_ns >= 0;
  if (d.network_gbytes_per_s > 0) device->network_bandwidth = d.network_gbytes_per_s * 1e9;
  if (d.network_latency_ns >= 0) device->network_hop_ns = static_cast<double>(d.network_latency_ns);
}

// The largest median error that a file states for an operator with `left_out` left out; -1: none.
double StatedError(const Coefficients& c, std::string_view op, std::string_view left_out) {
  double median = -1;
  for (const FitError& e : c.errors) {
    if (e.op.substr(0, op.size()) == op && e.left_out == left_out) median = std::max(median, e.median);
  }
  return median;
}

std::string DescribeFit(const Coefficients& c, const FitCoverage& v, const Deployment& d, bool experts) {
  std::string text;
  const auto part = [&](const char* what, const char* op, bool fitted, const std::string& remark) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, fitted ? "fitted" : "roofline");
    double error = -1;
    std::string_view left_out;
    for (const std::string_view one : {"shape", "model", "region"}) {  // some files' rows could not be split by shape
      if (fitted && error < 0) error = StatedError(c, op, left_out = one);
    }
    if (error >= 0) text += fmt::format(" (median error on {}s left out {:.1f} %{})", left_out, 100 * error, remark);
    if (error < 0 && !remark.empty()) text += fmt::format(" ({})", remark.substr(2));
  };
  part("matrix products", "gemm", v.gemm, v.gemm_dtype_borrowed ? "; with bfloat16's efficiencies" : "");
  if (experts) part("experts", "experts", v.experts, "");
  part("prefill attention", "prefill", v.prefill, "");
  part("decode attention", "decode", v.decode, v.decode ? "; from " + v.geometry : "");
  if (v.beside_chunk) text += ", slower beside a chunk as measured";
  if (d.tp > 1) part("all-reduce", "allreduce", v.all_reduce, "");
  if (d.ep > 1) part("exchange of experts' tokens", "exchange", v.exchange, "");
  return text;
}

// The attention that most layers have.
compute::AttentionBlock MostLayersAttention(const ModelSpec& m) {
  const compute::AttentionBlock* most = nullptr;
  size_t layers = 0;
  const std::vector<compute::LayerGroup> groups = compute::GroupLayers(m.layers);
  for (const compute::LayerGroup& group : groups) {
    const compute::AttentionBlock* const a = compute::AttentionOf(group.layer);
    if (a != nullptr && group.at.size() > layers) most = a, layers = group.at.size();
  }
  return most != nullptr ? *most : compute::AttentionBlock{.heads = 1, .kv_heads = 1, .head_dim = 1};
}

}  // namespace

Result<std::unique_ptr<CostModel>> CostModel::Create(const Deployment& d) {
  TACTUS_ASSIGN_OR_RETURN(ModelSpec model, FindModel(d.model));
  TACTUS_ASSIGN_OR_RETURN(DeviceSpec device, FindDevice(d.device));
  TACTUS_RETURN_IF_ERROR(CheckSplit(d, model));
  TACTUS_ASSIGN_OR_RETURN(const HostTimes host, FindHostTimes(d.backend, d.cpu_overhead_ns, device, d.tp, d.pp));
  if (d.context > 0) model.context = d.context;
  ApplyCluster(d, &device);
  TACTUS_ASSIGN_OR_RETURN(WeightFormat format, FindWeightFormat(d.weight_dtype, device));
  if (d.kv_dtype != "bfloat16" && d.kv_dtype != "float16" && d.kv_dtype != "auto" && d.kv_dtype != "fp8") {
    return InvalidArgument(fmt::format("KV dtype '{}' is not known; known are bfloat16, fp8", d.kv_dtype),
                           "kv-cache-dtype");
  }
  if (d.source != "auto" && d.source != "roofline" && d.source != "fitted") {
    return InvalidArgument(fmt::format("cost source '{}' is not known; known are auto, roofline, fitted", d.source),
                           "cost");
  }
  TACTUS_ASSIGN_OR_RETURN(const Coefficients* coefficients, d.source == "roofline"
                                                                ? Result<const Coefficients*>(nullptr)
                                                                : FindCoefficients(device, d.backend));
  std::unique_ptr<OperatorTimes> operators = MakeRoofline(device);
  OperatorSource from{d.source == "roofline" ? "roofline of the device's figures"
                                             : "roofline of the device's figures (no measurements are known)",
                      {}};
  if (coefficients != nullptr) {
    TACTUS_ASSIGN_OR_RETURN(std::vector<BesideChunk> beside, FindBesideChunk(device, d.backend, d.attention_kernels));
    std::unique_ptr<FittedOperators> fitted =
        MakeFitted(device, *coefficients, std::move(beside), std::move(operators));
    from.coverage = fitted->Coverage(format, AttentionOf(MostLayersAttention(model), d), d.tp, d.ep);
    from.text = DescribeFit(*coefficients, from.coverage, d, HasExperts(model));
    operators = std::move(fitted);
  }
  operators = MakeScaled(d.scale, std::move(operators));
  return std::unique_ptr<CostModel>(std::make_unique<HybridModel>(
      d, std::move(model), std::move(device), std::move(format), host, std::move(operators), std::move(from)));
}

}  // namespace tactus::cost
