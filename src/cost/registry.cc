#include "cost/registry.h"

#include <filesystem>
#include <functional>

#include <fmt/format.h>

#include "base/check.h"
#include "base/input_file.h"
#include "compute/config/block_work.h"
#include "compute/config/config.h"
#include "compute/config/hf_config.h"
#include "cost/cost_model.h"
#include "cost/embedded_data.h"
#include "cost/json_record.h"

namespace tactus::cost {
namespace {

// The tables are part of the program: a broken one is a bug, not an input error.
void ReadTable(const char* file, const char* rows, const std::function<void(JsonRecord&)>& read) {
  const Status status = JsonRecord::Read(EmbeddedText(file), file, [&](JsonRecord& table) { table.Each(rows, read); });
  TACTUS_CHECK_MSG(status.ok(), status.message());
}

std::vector<DeviceSpec> ReadDevices() {
  constexpr double kMost = 1e9;
  std::vector<DeviceSpec> devices;
  ReadTable("devices.json", "devices", [&](JsonRecord& row) {
    const auto peak = [&](const char* key) { return row.Has(key) ? row.Number(key, 0, kMost) * 1e12 : 0; };
    DeviceSpec d;
    d.name = row.Text("device");
    d.help = row.Text("help");
    d.link = row.Text("link");
    d.fit = row.Text("fit");
    d.bf16_flops = row.Number("bf16_tflops", 0, kMost) * 1e12;
    d.fp8_flops = peak("fp8_tflops");
    d.int8_flops = peak("int8_tops");
    d.fp4 = row.Flag("fp4", false);
    d.bandwidth = row.Number("bw_gbps", 0, kMost) * 1e9;
    d.memory_bytes = row.Integer("memory_mib", 0, 1 << 30) << 20;
    d.sms = static_cast<int32_t>(row.Integer("sms", 1, 1 << 20));
    d.link_bandwidth = row.Number("link_gbps", 0, kMost) * 1e9;
    d.group = static_cast<int32_t>(row.Integer("group", 1, 1 << 20));
    d.node = static_cast<int32_t>(row.Integer("node", 1, 1 << 20));
    d.pcie_bandwidth = row.Number("pcie_gbps", 0, kMost) * 1e9;
    d.peer_bandwidth = row.Has("peer_gbps") ? row.Number("peer_gbps", 0, kMost) * 1e9 : 0;
    d.network_bandwidth = row.Number("net_gbps", 0, kMost) * 1e9;
    d.network = row.Text("net");
    d.network_hop_ns = row.Number("net_us", 0, kMost) * 1e3;
    d.launch_ns = row.Number("launch_us", 0, kMost) * 1e3;
    devices.push_back(std::move(d));
  });
  return devices;
}

ModelSpec SpecOf(const compute::ModelConfig& c, std::string name, std::string help) {
  ModelSpec m{std::move(name), std::move(help),  c.hidden_size, c.vocab_size,
              c.max_position,  c.tie_embeddings, c.layers};
  for (const compute::ModelTensor& t : c.Tensors()) {
    if (t.role == compute::Role::kInputTable) m.tables += t.elements();
    if (t.role == compute::Role::kInputProjection || t.role == compute::Role::kStreamIn)
      m.token_projections += t.elements();
    if (t.role == compute::Role::kStreamOut) m.logit_projections += t.elements();
  }
  return m;
}

UniformShape ReadUniform(JsonRecord& row) {
  constexpr int64_t kMost = 1 << 30;
  UniformShape m;
  m.layers = row.Integer("layers", 1, compute::kMaxLayers);
  m.hidden = row.Integer("hidden", 1, kMost);
  m.q_heads = row.Integer("q_heads", 1, kMost);
  m.kv_heads = row.Integer("kv_heads", 1, kMost);
  m.head_dim = row.Integer("head_dim", 1, kMost);
  m.ffn = row.Integer("ffn", 1, kMost);
  m.vocab = row.Integer("vocab", 1, kMost);
  m.context = row.Integer("context", 1, kMost);
  m.window = row.Has("window") ? row.Integer("window", 1, kMost) : 0;
  m.gated = row.Flag("gated", m.gated);
  m.tied = row.Flag("tied", m.tied);
  m.parallel = row.Flag("parallel", m.parallel);
  m.rope = row.Flag("rope", m.rope);
  m.qk_norm = row.Flag("qk_norm", m.qk_norm);
  return m;
}

std::vector<ModelSpec> ReadModels() {
  std::vector<ModelSpec> models;
  ReadTable("models.json", "models", [&](JsonRecord& row) {
    const std::string name = row.Text("model"), help = row.Text("help");
    if (row.Has("config")) {
      const Result<compute::ModelConfig> config = compute::ConfigFromJson(row.Object("config"), "models.json: " + name);
      TACTUS_CHECK_MSG(config.ok(), config.status().message());
      models.push_back(SpecOf(*config, name, help));
      return;
    }
    if (row.Has("family")) row.Text("family");  // for docs/reference/models.md
    UniformShape shape = ReadUniform(row);
    shape.name = name;
    shape.help = help;
    models.push_back(UniformModel(shape));
  });
  return models;
}

std::string Names(const std::vector<NamedEntry>& entries) {
  std::string names;
  for (const NamedEntry& e : entries) names += (names.empty() ? "" : ", ") + e.name;
  return names;
}

template <class Spec>
std::vector<NamedEntry> Entries(const std::vector<Spec>& specs) {
  std::vector<NamedEntry> entries;
  for (const Spec& s : specs) entries.push_back({s.name, s.help});
  return entries;
}

Result<ModelSpec> ReadConfigFile(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;  // the limit for a served model's configuration
  auto text = ReadInputFile(path.string(), kMostBytes);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), "model");
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelConfig c, compute::ConfigFromJson(*text, path.string()));
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const std::string name = !c.name.empty()                    ? c.name
                           : path.filename() == "config.json" ? folder.filename().string()
                                                              : path.stem().string();
  return SpecOf(c, name, path.string());
}

}  // namespace

ModelSpec UniformModel(const UniformShape& s) {
  using compute::NormSpec, compute::Role, compute::RmsNormOf;
  constexpr float kEps = 1e-5f;
  compute::AttentionBlock attention{
      .heads = s.q_heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = static_cast<int32_t>(s.window)};
  attention.qk_norm = s.qk_norm ? compute::QkNorm::kHeads : compute::QkNorm::kNone;
  attention.rope = s.rope ? compute::RopeChoice::kMain : compute::RopeChoice::kNone;
  const compute::Block feed_forward = s.gated ? compute::Block(compute::GatedFeedForwardBlock{.inner = s.ffn})
                                              : compute::Block(compute::FeedForwardBlock{.inner = s.ffn});
  const NormSpec first = RmsNormOf(Role::kAttentionNorm, kEps), second = RmsNormOf(Role::kFeedForwardNorm, kEps);
  const compute::Layer layer = {{.norm = first, .block = attention},
                                {.norm = s.parallel ? first : second, .block = feed_forward, .parallel = s.parallel}};
  return {s.name,
          s.help,
          s.hidden,
          s.vocab,
          s.context,
          s.tied,
          std::vector<compute::Layer>(static_cast<size_t>(s.layers), layer)};
}

int64_t ModelSpec::layer_inputs() const {
  int64_t elements = 0;
  for (const compute::Layer& layer : layers) {
    for (const compute::LayerBlock& b : layer) {
      if (const auto* const input = std::get_if<compute::LayerInputBlock>(&b.block)) elements += input->inner;
    }
  }
  return elements;
}

int64_t ModelSpec::Parameters() const {
  int64_t sum = EmbeddingParameters() + OutsideParameters();
  for (const compute::Layer& layer : layers) sum += compute::WorkOf(layer, hidden).elements();
  return sum;
}

int64_t ModelSpec::ActiveParameters() const {
  int64_t sum = EmbeddingParameters() + token_projections + logit_projections;
  for (const compute::Layer& layer : layers) sum += compute::WorkOf(layer, hidden).token_elements();
  return sum;
}

const std::vector<DeviceSpec>& Devices() {
  static const std::vector<DeviceSpec> devices = ReadDevices();
  return devices;
}

const std::vector<ModelSpec>& Models() {
  static const std::vector<ModelSpec> models = ReadModels();
  return models;
}

const std::vector<NamedEntry>& KnownDevices() {
  static const std::vector<NamedEntry> entries = Entries(Devices());
  return entries;
}

const std::vector<NamedEntry>& KnownModels() {
  static const std::vector<NamedEntry> entries = Entries(Models());
  return entries;
}

Result<DeviceSpec> FindDevice(const std::string& name) {
  for (const DeviceSpec& d : Devices()) {
    if (d.name == name) return d;
  }
  return InvalidArgument(fmt::format("device '{}' is not known; known are {}", name, Names(KnownDevices())), "device");
}

Result<ModelSpec> FindModel(const std::string& name) {
  for (const ModelSpec& m : Models()) {
    if (m.name == name) return m;
  }
  std::error_code error;
  const std::filesystem::path path(name);
  if (std::filesystem::is_directory(path, error)) {
    if (std::filesystem::exists(path / "config.json", error)) return ReadConfigFile(path / "config.json");
    return NotFound(fmt::format("folder '{}' has no config.json; name a folder that has one", name), "model");
  }
  if (std::filesystem::exists(path, error)) return ReadConfigFile(path);
  if (name.find('/') != std::string::npos || path.extension() == ".json") {
    return NotFound(
        fmt::format("there is no model folder or config.json at '{}'; 'tactus sim --list' has the known models", name),
        "model");
  }
  return InvalidArgument(fmt::format("model '{}' is not known; known are {}; or name a folder with a config.json", name,
                                     Names(KnownModels())),
                         "model");
}

}  // namespace tactus::cost
