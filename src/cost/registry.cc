#include "cost/registry.h"

#include <charconv>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "base/check.h"
#include "base/input_file.h"
#include "cost/cost_model.h"
#include "cost/embedded_data.h"
#include "model_config/hf_config.h"

namespace tactus::cost {
namespace {

std::string_view EmbeddedText(std::string_view name) {
  for (const EmbeddedFile& f : EmbeddedFiles()) {
    if (f.name == name) return f.text;
  }
  return {};
}

// One row of a table: fields by the header's names; the last column ("help") takes the rest of the line.
class Row {
 public:
  Row(const std::vector<std::string>& header, std::string_view line) : header_(header) {
    size_t at = 0;
    while (fields_.size() < header.size()) {
      const size_t begin = line.find_first_not_of(' ', at);
      if (begin == std::string_view::npos) break;
      const bool last = fields_.size() + 1 == header.size();
      const size_t end = last ? line.size() : std::min(line.find(' ', begin), line.size());
      fields_.emplace_back(line.substr(begin, end - begin));
      at = end;
    }
    // The tables are part of the program: a broken one is a bug, not an input error.
    TACTUS_CHECK(fields_.size() == header.size());
  }
  const std::string& Text(std::string_view column) const {
    for (size_t i = 0; i < header_.size(); ++i) {
      if (header_[i] == column) return fields_[i];
    }
    TACTUS_CHECK(!"no such column");
    return fields_[0];
  }
  double Number(std::string_view column) const {
    const std::string& text = Text(column);
    if (text == "-") return 0;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    TACTUS_CHECK(error == std::errc() && end == text.data() + text.size());
    return value;
  }
  int64_t Integer(std::string_view column) const { return static_cast<int64_t>(Number(column)); }
  bool Flag(std::string_view column) const { return Integer(column) != 0; }

 private:
  const std::vector<std::string>& header_;
  std::vector<std::string> fields_;
};

template <class Visit>
void ForEachRow(std::string_view file, const Visit& visit) {
  std::vector<std::string> header;
  std::istringstream in{std::string(EmbeddedText(file))};
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (header.empty()) {
      std::istringstream words(line);
      for (std::string word; words >> word;) header.push_back(word);
      continue;
    }
    visit(Row(header, line));
  }
}

std::vector<DeviceSpec> ReadDevices() {
  std::vector<DeviceSpec> devices;
  ForEachRow("devices.txt", [&](const Row& row) {
    DeviceSpec d;
    d.name = row.Text("device");
    d.help = row.Text("help");
    d.link = row.Text("link");
    d.fit = row.Text("fit");
    d.bf16_flops = row.Number("bf16_tflops") * 1e12;
    d.fp8_flops = row.Number("fp8_tflops") * 1e12;
    d.int8_flops = row.Number("int8_tops") * 1e12;
    d.fp4 = row.Flag("fp4");
    d.bandwidth = row.Number("bw_gbps") * 1e9;
    d.memory_bytes = row.Integer("memory_mib") << 20;
    d.sms = static_cast<int32_t>(row.Integer("sms"));
    d.link_bandwidth = row.Number("link_gbps") * 1e9;
    d.group = static_cast<int32_t>(row.Integer("group"));
    d.pcie_bandwidth = row.Number("pcie_gbps") * 1e9;
    d.network_bandwidth = row.Number("net_gbps") * 1e9;
    d.launch_ns = row.Number("launch_us") * 1e3;
    devices.push_back(std::move(d));
  });
  return devices;
}

std::vector<ModelSpec> ReadModels() {
  std::vector<ModelSpec> models;
  ForEachRow("models.txt", [&](const Row& row) {
    ModelSpec m;
    m.name = row.Text("model");
    m.help = row.Text("help");
    m.layers = row.Integer("layers");
    m.hidden = row.Integer("hidden");
    m.q_heads = row.Integer("q_heads");
    m.kv_heads = row.Integer("kv_heads");
    m.head_dim = row.Integer("head_dim");
    m.ffn = row.Integer("ffn");
    m.vocab = row.Integer("vocab");
    m.context = row.Integer("context");
    m.window = row.Integer("window");
    m.gated = row.Flag("gated");
    m.tied = row.Flag("tied");
    m.parallel = row.Flag("parallel");
    m.rope = row.Flag("rope");
    m.qk_norm = row.Flag("qk_norm");
    models.push_back(std::move(m));
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
  constexpr int64_t kMostBytes = int64_t{16} << 20;  // as of the configuration of a model that is served
  auto text = ReadInputFile(path.string(), kMostBytes);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), "model");
  TACTUS_ASSIGN_OR_RETURN(const ModelConfig c, ConfigFromJson(*text, path.string()));
  ModelSpec m;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  m.name = !c.name.empty()                    ? c.name
           : path.filename() == "config.json" ? folder.filename().string()
                                              : path.stem().string();
  m.help = path.string();
  m.layers = c.num_layers;
  m.hidden = c.hidden_size;
  m.q_heads = c.num_heads;
  m.kv_heads = c.num_kv_heads;
  m.head_dim = c.head_dim;
  m.ffn = c.intermediate_size;
  m.vocab = c.vocab_size;
  m.context = c.max_position;
  m.tied = c.tie_embeddings;
  m.qk_norm = c.qk_norm;
  // One window stands for all layers; a model that mixes them counts as full attention: never too fast.
  if (!c.window.empty()) {
    m.window = c.window[0];
    for (int32_t w : c.window) {
      if (w != m.window) m.window = 0;
    }
  }
  return m;
}

}  // namespace

int64_t ModelSpec::LayerParameters() const {
  return hidden * (q_heads + 2 * kv_heads) * head_dim + q_heads * head_dim * hidden + (gated ? 3 : 2) * hidden * ffn;
}

int64_t ModelSpec::EmbeddingParameters() const {
  return (tied ? 1 : 2) * vocab * hidden;
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
    return NotFound(fmt::format("folder '{}' has no config.json", name), "model");
  }
  if (std::filesystem::exists(path, error)) return ReadConfigFile(path);
  if (name.find('/') != std::string::npos || path.extension() == ".json") {
    return NotFound(fmt::format("there is no model folder or config.json at '{}'", name), "model");
  }
  return InvalidArgument(fmt::format("model '{}' is not known; known are {}; or name a folder with a config.json", name,
                                     Names(KnownModels())),
                         "model");
}

}  // namespace tactus::cost
