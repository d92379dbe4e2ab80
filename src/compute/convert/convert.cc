#include "compute/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/input_file.h"
#include "base/json.h"
#include "compute/config/hf_config.h"
#include "compute/convert/compressed_tensors.h"
#include "compute/convert/config_json.h"
#include "compute/convert/gguf_metadata.h"
#include "compute/convert/output.h"
#include "compute/convert/safetensors_header.h"
#include "compute/convert/same_config.h"
#include "compute/convert/tensor_plan.h"
#include "compute/convert/write_tensor.h"
#include "compute/tensor/encode.h"
#include "compute/weights/gguf_config.h"
#include "compute/weights/gguf_split.h"
#include "compute/weights/open_weights.h"

namespace tactus::compute {
namespace {

constexpr int64_t kMostConfigBytes = int64_t{16} << 20;
constexpr DType kGgufTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ5_K,
                                DType::kQ5_1, DType::kQ5_0, DType::kQ4_K, DType::kQ4_1, DType::kQ4_0};
constexpr DType kSafetensorsTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// A conversion on its way: what is known of the source, and what goes where.
struct Conversion {
  const ModelDescription& description;
  const ConvertOptions& options;
  std::unique_ptr<OpenedWeights> opened;
  const Architecture* target = nullptr;
  std::optional<GgufModel> gguf;  // the source's metadata
  FieldRecord settings;
  std::vector<PlannedTensor> plan;
  std::vector<std::pair<TensorPlace, TensorPlace>> places;  // of each tensor, and of the scales of integers
  ConvertReport report;
  HeadOrder order = HeadOrder::kSame;
  std::map<std::string, int64_t> replaced;  // notes and how many matrices they are about
};

bool FromGguf(const ModelDescription& d) {
  return d.source == ModelDescription::Source::kGguf;
}

Status ReadSource(Conversion* c) {
  const ModelDescription& d = c->description;
  if (FromGguf(d)) {
    TACTUS_ASSIGN_OR_RETURN(auto file, MappedFile::Open(d.path));
    TACTUS_ASSIGN_OR_RETURN(c->gguf, OpenGguf(std::move(file)));
    TACTUS_RETURN_IF_ERROR(ConfigFromGguf(c->gguf->gguf, &c->settings).status());
  } else {
    const std::string path = d.path + "/config.json";
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostConfigBytes));
    TACTUS_RETURN_IF_ERROR(ConfigFromJson(text, path, &c->settings).status());
  }
  TACTUS_ASSIGN_OR_RETURN(c->opened, OpenWeights(d, MatrixUse::kRows));
  return Status();
}

// The format that takes the place of one whose blocks do not divide a matrix's columns.
DType Fallback(DType wanted, int64_t cols) {
  const auto fits = [cols](DType dtype) { return cols % InfoOf(dtype).block_elements == 0; };
  if (fits(wanted)) return wanted;
  const DType smaller = wanted == DType::kQ4_K ? DType::kQ5_0 : wanted == DType::kQ5_K ? DType::kQ5_1 : DType::kQ8_0;
  return fits(smaller) ? smaller : DType::kF16;
}

// Vectors and positions are f32, as readers of GGUF expect. The output matrix matters most: q6_k among q4_k and q5_k,
// unless it is in the wanted format already.
DType GgufFormat(Conversion* c, const TensorPart& part) {
  const Role role = part.to.tensor.role;
  const int64_t cols = part.to.tensor.cols;
  if (!IsMatrix(role) || role == Role::kPositions || IsRouting(role)) return DType::kF32;
  const DType given = c->options.matrices.dtype;
  if (part.matrix.dtype == given) return given;
  const bool output = role == Role::kLmHead || (role == Role::kEmbedding && c->description.config.tie_embeddings);
  const DType wanted = output && (given == DType::kQ4_K || given == DType::kQ5_K) ? DType::kQ6_K : given;
  const DType used = Fallback(wanted, cols);
  if (used != wanted) {
    ++c->replaced[fmt::format("{}: their {} columns are no multiple of {}'s {}", InfoOf(used).name, cols,
                              InfoOf(wanted).name, InfoOf(wanted).block_elements)];
  } else if (wanted != given) {
    ++c->replaced[fmt::format("{}: the output matrix is more sensitive than others", InfoOf(used).name)];
  }
  return used;
}

Status PlanGguf(Conversion* c) {
  const ModelConfig& config = c->description.config;
  const Architecture& own = *FindArchitecture(config.architecture);
  TACTUS_ASSIGN_OR_RETURN(c->target, GgufArchitectureOf(own));
  if (c->target->gguf_interleaved_rope && !config.rope.interleaved) c->order = HeadOrder::kToPairs;
  TACTUS_ASSIGN_OR_RETURN(c->plan, PlanTensors(config, *c->opened, *c->target, *c->target->gguf_names, c->order,
                                               [c](const TensorPart& part) { return GgufFormat(c, part); }));
  return Status();
}

// The metadata of the source, without what belongs to its files.
void CopyMetadata(const GgufFile& file, const Architecture& target, const ModelConfig& config, GgufHeader* header) {
  const std::string prefix = std::string(target.gguf_name) + ".";
  for (const auto& [key, value] : file.metadata) {
    // Layers that predict further tokens are not written.
    if (key == prefix + "block_count") header->Uint32(key, config.num_layers());
    if (key == prefix + "block_count" || key == prefix + "nextn_predict_layers") continue;
    const bool own = key == "general.alignment" || key == "general.file_type" ||
                     key == "general.quantization_version" || key.starts_with("split.");
    if (!own) header->Copy(key, value);
  }
}

// Reads what has been written so far; the data of tensors need not be there yet.
Status CheckStated(const Conversion& c, const std::string& path, ModelConfig wanted) {
  TACTUS_ASSIGN_OR_RETURN(ModelDescription stated, DescribeModel(path));
  if (c.order != HeadOrder::kSame) wanted.rope.interleaved = !wanted.rope.interleaved;
  wanted.rope = GgufRope(wanted);  // scalings are compared by their factors
  stated.config.rope = GgufRope(stated.config);
  std::string difference = DifferenceOf(wanted, stated.config);
  if (!difference.empty()) {
    const bool gguf = c.options.format == ModelFormat::kGguf;
    return Unimplemented(fmt::format(
        "a model of the family {} cannot be written in this form: a {} cannot state {} as this model has it; {}",
        c.description.config.architecture, gguf ? "GGUF file" : "config.json", difference,
        gguf ? "write a folder, which keeps its config.json" : "keep the GGUF file"));
  }
  return CheckWeights(stated);
}

Status WriteGgufHead(Conversion* c, NewOutput* output) {
  ModelConfig wanted = c->description.config;
  if (wanted.layer_inputs.size > 0) wanted.layer_inputs.rows = wanted.vocab_size;  // PlanTensors repeats a row
  GgufHeader header;
  if (c->gguf.has_value()) {
    CopyMetadata(c->gguf->gguf, *c->target, wanted, &header);
  } else {
    AddModelMetadata(c->description, *c->target, c->settings, &header);
    AddTokenizerMetadata(c->options.tokenizer, c->description, &header);
  }
  header.Uint32("general.file_type", FileTypeOf(c->options.matrices.dtype));
  header.Uint32("general.quantization_version", 2);
  for (const PlannedTensor& t : c->plan) header.Tensor(t.name, t.dtype, t.shape());
  const auto factors = FactorTensors(GgufRope(wanted));
  for (const auto& [name, values] : factors)
    header.Tensor(name, DType::kF32, std::vector<int64_t>{static_cast<int64_t>(values.size())});

  const std::string head = header.Bytes();
  const std::vector<int64_t> offsets = header.Offsets();
  c->report.bytes = header.FileBytes();
  TACTUS_ASSIGN_OR_RETURN(NewFile* const file, output->Add("", c->report.bytes));
  TACTUS_RETURN_IF_ERROR(file->Write(0, std::as_bytes(std::span(head))));
  for (size_t i = 0; i < factors.size(); ++i)
    TACTUS_RETURN_IF_ERROR(file->Write(offsets[c->plan.size() + i], std::as_bytes(std::span(factors[i].second))));
  for (size_t i = 0; i < c->plan.size(); ++i) c->places.push_back({{file, offsets[i]}, {}});
  return CheckStated(*c, output->temporary(), wanted);
}

Status PlanFolder(Conversion* c) {
  const ModelConfig& config = c->description.config;
  c->target = FromGguf(c->description) ? &HfArchitectureOf(config) : FindArchitecture(config.architecture);
  const bool pairs = FromGguf(c->description) && FindArchitecture(config.architecture)->gguf_interleaved_rope;
  if (pairs && !c->target->hf_interleaved_rope) c->order = HeadOrder::kToHalves;
  const IntegerForm* const integers = c->options.matrices.integers;
  const TensorNames* names = integers != nullptr ? c->target->hf_names_by_expert : nullptr;
  if (names == nullptr) names = c->target->hf_names;
  TACTUS_ASSIGN_OR_RETURN(c->plan, PlanTensors(config, *c->opened, *c->target, *names, c->order,
                                               [c](const TensorPart&) { return c->options.matrices.dtype; }));
  if (config.text_part) c->report.notes.push_back("the folder has the model's text alone, without pictures and sound");
  return integers != nullptr ? PlanIntegers(*integers, &c->plan, &c->report.notes) : Status();
}

Status WriteConfigs(const Conversion& c, NewOutput* output) {
  const ModelDescription& d = c.description;
  const auto [dtype, integers] = c.options.matrices;
  Json quantization = nullptr;
  if (integers != nullptr)
    quantization = QuantizationJson(*integers, c.plan, c.target->hf_names->Of(Role::kLmHead).pattern);
  std::string config_text, generation;
  if (FromGguf(d)) {
    config_text = ConfigText(d.config, *c.target, c.settings, dtype, quantization);
    generation = GenerationConfigText(d.config);
  } else {
    TACTUS_ASSIGN_OR_RETURN(config_text, ReadInputFile(d.path + "/config.json", kMostConfigBytes));
    config_text = ConfigWithType(config_text, *c.target, dtype, quantization);
  }
  TACTUS_RETURN_IF_ERROR(output->AddText("config.json", config_text));
  if (!generation.empty()) TACTUS_RETURN_IF_ERROR(output->AddText("generation_config.json", generation));
  for (const auto& [name, text] : c.options.files) TACTUS_RETURN_IF_ERROR(output->AddText(name, text));
  return Status();
}

// Gives the folder its files, with the data of tensors still missing but for the shapes of integers.
Status WriteFolderHeads(Conversion* c, NewOutput* output) {
  TACTUS_RETURN_IF_ERROR(WriteConfigs(*c, output));
  std::vector<SafetensorsEntry> entries;
  std::vector<std::pair<size_t, size_t>> origins;  // of an entry: the planned tensor, and its number among its entries
  for (size_t t = 0; t < c->plan.size(); ++t) {
    for (SafetensorsEntry& entry : EntriesOf(c->plan[t])) {
      origins.emplace_back(t, entries.empty() || origins.back().first != t ? 0 : origins.back().second + 1);
      entries.push_back(std::move(entry));
    }
  }
  const std::vector<SafetensorsFile> files = DivideIntoFiles(entries, c->options.most_file_bytes);
  if (files.size() > 1)
    TACTUS_RETURN_IF_ERROR(output->AddText("model.safetensors.index.json", IndexText(entries, files)));
  c->places.resize(c->plan.size());
  for (const SafetensorsFile& f : files) {
    auto bytes = static_cast<int64_t>(f.head.size());
    for (const size_t i : f.tensors) bytes += entries[i].bytes;
    TACTUS_ASSIGN_OR_RETURN(NewFile* const file, output->Add(f.name, bytes));
    TACTUS_RETURN_IF_ERROR(file->Write(0, std::as_bytes(std::span(f.head))));
    c->report.bytes += bytes;
    TensorPlace at{file, static_cast<int64_t>(f.head.size())};
    for (const size_t i : f.tensors) {
      const auto [t, part] = origins[i];
      if (part == 0) c->places[t].first = at;
      if (part == 1) c->places[t].second = at;
      const int64_t shape[] = {c->plan[t].rows, c->plan[t].cols};
      if (part == 2) TACTUS_RETURN_IF_ERROR(file->Write(at.offset, std::as_bytes(std::span(shape))));
      at.offset += entries[i].bytes;
    }
  }
  return CheckStated(*c, output->temporary(), c->description.config);
}

Status WriteTensors(Conversion* c) {
  int64_t done = 0, total = 0;
  std::map<DType, int64_t> counts;
  for (const PlannedTensor& t : c->plan) total += t.bytes(), ++counts[t.dtype];
  for (size_t i = 0; i < c->plan.size(); ++i) {
    const PlannedTensor& t = c->plan[i];
    const auto& [place, scales] = c->places[i];
    const auto progress = [&](int64_t bytes) {
      done += bytes;
      return c->options.progress ? c->options.progress(done, total) : Status();
    };
    TACTUS_RETURN_IF_ERROR(WriteTensor(t, *c->opened->source, c->options.threads, place, scales, progress));
  }
  c->report.format = FormatText({counts.begin(), counts.end()});
  for (const auto& [note, count] : c->replaced)
    c->report.notes.push_back(fmt::format("{} {} {}", count, count == 1 ? "matrix is" : "matrices are", note));
  return Status();
}

}  // namespace

Result<MatrixFormat> ConvertedFormat(const std::string& quantization, ModelFormat format) {
  const bool gguf = format == ModelFormat::kGguf;
  const std::span<const DType> known = gguf ? std::span<const DType>(kGgufTypes) : std::span(kSafetensorsTypes);
  std::string names;
  for (const DType dtype : known) {
    if (quantization == InfoOf(dtype).name) return MatrixFormat{dtype, nullptr};
    names += (names.empty() ? "" : ", ") + std::string(InfoOf(dtype).name);
  }
  const IntegerForm* const integers = FindIntegerForm(quantization);
  if (!gguf && integers != nullptr) return MatrixFormat{DType::kBF16, integers};
  if (!gguf) names += ", " + IntegerFormNames();
  return InvalidArgument(fmt::format("--quantization is '{}'; for {} there are {}", quantization,
                                     gguf ? "a GGUF file" : "a folder of safetensors", names),
                         "quantization");
}

Result<ConvertReport> ConvertModel(const ModelDescription& description, const ConvertOptions& options) {
  const bool folder = options.format == ModelFormat::kSafetensors;
  Conversion c{description, options, nullptr, nullptr, std::nullopt, {}, {}, {}, {}, {}};
  TACTUS_ASSIGN_OR_RETURN(const auto output, NewOutput::Create(options.out, folder, options.overwrite));
  TACTUS_RETURN_IF_ERROR(ReadSource(&c));
  TACTUS_RETURN_IF_ERROR(folder ? PlanFolder(&c) : PlanGguf(&c));
  TACTUS_RETURN_IF_ERROR(folder ? WriteFolderHeads(&c, output.get()) : WriteGgufHead(&c, output.get()));
  TACTUS_RETURN_IF_ERROR(WriteTensors(&c));
  TACTUS_RETURN_IF_ERROR(output->Finish());
  return std::move(c.report);
}

}  // namespace tactus::compute
