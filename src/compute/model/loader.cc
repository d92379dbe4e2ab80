#include "compute/model/loader.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "compute/model/calibrate.h"
#include "compute/packing/weight_cache.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/weight_storage.h"

namespace tactus::compute {
namespace {

// Matrices of packed weights are read as rows, piece by piece.
Result<std::unique_ptr<OpenedWeights>> Open(const ModelDescription& d, const LoadWeightsOptions& options) {
  const MatrixUse use = options.dequantize_to_f32 ? MatrixUse::kF32
                        : options.pack            ? MatrixUse::kRows
                                                  : MatrixUse::kViews;
  return OpenWeights(d, use, options.dummy);
}

// Reports packing that takes longer than two seconds, every two seconds.
class PackReport {
 public:
  PackReport(const std::function<void(const std::string&)>& say, int64_t total_bytes, Clock& clock)
      : say_(say), total_bytes_(total_bytes), clock_(clock) {}
  void Progress(int64_t done_bytes) {
    Say([&] {
      const double total = static_cast<double>(std::max<int64_t>(total_bytes_, 1)),
                   done = static_cast<double>(done_bytes);
      return fmt::format("weights: {:.0f} % read, {:.2f} GB/s{}", 100 * done / total, done * 1e-9 / seconds(),
                         Left(done / total, start_ns_));
    });
  }
  void Rounded(double part) {
    if (rounding_ns_ == 0) rounding_ns_ = clock_.NowNs();
    Say([&] {
      return fmt::format("weights: {:.0f} % rounded to int4 by least squares{}", 100.0 * part,
                         Left(part, rounding_ns_));
    });
  }
  double seconds() const { return std::max(static_cast<double>(clock_.NowNs() - start_ns_) * 1e-9, 1e-6); }

 private:
  template <class Text>
  void Say(Text text) {
    const TimeNs now_ns = clock_.NowNs();
    if (!say_ || now_ns - said_ns_ < 2 * kSecond) return;
    said_ns_ = now_ns;
    say_(text());
  }
  std::string Left(double part, TimeNs since_ns) const {
    if (part <= 0 || part >= 1) return "";
    const double passed_s = static_cast<double>(clock_.NowNs() - since_ns) * 1e-9;
    return fmt::format(", {:.0f} s left", passed_s * (1 - part) / part);
  }
  const std::function<void(const std::string&)>& say_;
  const int64_t total_bytes_;
  Clock& clock_;
  const TimeNs start_ns_ = clock_.NowNs();
  TimeNs said_ns_ = start_ns_, rounding_ns_ = 0;
};

// Norms and biases of the source, and the packed matrices.
struct PackedStorage {
  std::shared_ptr<const void> vectors;
  WeightStorage memory;
};

// Reuses packed weights of earlier starts; reports the reason where it cannot.
class WeightCache {
 public:
  WeightCache(const ModelDescription& d, const LoadWeightsOptions& options, const TensorSet& tensors,
              const PackPlan& plan)
      : options_(options) {
    if (options.cache_folder.empty()) return;
    auto key = options.dummy ? InvalidArgument("dummy weights have no files")
                             : MakeWeightCacheKey(options.cache_folder, d.path, tensors, plan);
    usable_ = key.ok();
    if (key.ok()) {
      key_ = std::move(*key);
    } else {
      Say("warning: --weight-cache is not used: " + key.status().message());
    }
  }
  CachedWeights Open(ThreadPool& pool) const {
    if (!usable_) return {};
    auto cached = OpenWeightCache(key_, pool);
    if (cached.ok()) return *cached;
    if (cached.status().code() != StatusCode::kNotFound) {
      Say("warning: weight cache " + key_.path + " is not used and is written again: " + cached.status().message());
    }
    return {};
  }
  void Write(const std::byte* memory, ThreadPool& pool) const {
    if (!usable_) return;
    const Status written = WriteWeightCache(key_, memory, pool);
    Say(written.ok() ? "weight cache written to " + key_.path : "warning: " + written.message());
  }
  const std::string& path() const { return key_.path; }

 private:
  void Say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }
  const LoadWeightsOptions& options_;
  WeightCacheKey key_;
  bool usable_ = false;
};

std::string Gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

Result<CpuWeights> LoadPacked(const ModelDescription& d, const LoadWeightsOptions& options, Clock& clock,
                              const OpenedWeights& opened) {
  CpuWeights weights{opened.weights, nullptr};
  const TensorNames& names = *opened.names;
  TACTUS_ASSIGN_OR_RETURN(const PackPlan plan, PlanPacking(d.config, names, options.packing, &weights));
  ThreadPool pool(std::max(options.threads, 1), clock);
  PackReport report(options.say, plan.source_bytes, clock);
  auto storage = std::make_shared<PackedStorage>();
  storage->vectors = weights.storage;
  const WeightCache cache(d, options, opened.tensors, plan);
  const CachedWeights cached = cache.Open(pool);
  const std::byte* memory = cached.memory;
  std::string how;
  if (memory != nullptr) {
    storage->memory.Keep(cached.file);
    how =
        fmt::format("{} of packed weights from {} in {:.2f} s", Gigabytes(plan.bytes), cache.path(), report.seconds());
  } else {
    std::byte* fresh = storage->memory.AllocateHuge(plan.bytes);
    if (fresh == nullptr) {
      return Status(StatusCode::kResourceExhausted,
                    "the system gave no memory for " + std::to_string(plan.bytes) +
                        " bytes of packed weights: raise the limit on memory ('ulimit -v', the container's), or use a "
                        "smaller model or --quantization",
                    "model");
    }
    TACTUS_RETURN_IF_ERROR(
        PackAll(plan, *opened.source, pool, fresh, [&](int64_t done_bytes) { report.Progress(done_bytes); }));
    if (plan.calibrate && !options.dummy) {
      TACTUS_RETURN_IF_ERROR(PackCalibrated(plan, d.config, names, *opened.source, weights, pool, fresh,
                                            [&](double part) { report.Rounded(part); }));
    }
    const double seconds = report.seconds();
    how = fmt::format(
        "{} of weights packed into {} in {:.2f} s ({:.2f} GB/s), {:.0f} % of it in huge pages",
        Gigabytes(plan.source_bytes), Gigabytes(plan.bytes), seconds,
        static_cast<double>(plan.source_bytes) * 1e-9 / seconds,
        100.0 * static_cast<double>(HugePageBytes(fresh)) / static_cast<double>(std::max<int64_t>(plan.bytes, 1)));
    cache.Write(fresh, pool);
    memory = fresh;
  }
  if (options.say) options.say(how);
  BindPacked(plan, d.config, options.packing, memory, &weights);
  weights.format = PackedFormatText(options.packing, weights.format);
  weights.storage = std::move(storage);
  return weights;
}

}  // namespace

Result<CpuWeights> LoadWeights(const ModelDescription& d, const LoadWeightsOptions& options, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(const auto opened, Open(d, options));
  if (options.pack) return LoadPacked(d, options, clock, *opened);
  return CpuWeights{std::move(opened->weights), nullptr};
}

Result<int64_t> PlanWeightBytes(const ModelDescription& d, const LoadWeightsOptions& options) {
  if (!options.pack) {
    if (options.dequantize_to_f32) return d.config.NumParameters() * 4;
    return options.dummy ? d.config.NumParameters() * 2 : d.weight_file_bytes;
  }
  TACTUS_ASSIGN_OR_RETURN(const auto opened, Open(d, options));
  TACTUS_ASSIGN_OR_RETURN(const PackPlan plan,
                          PlanPacking(d.config, *opened->names, options.packing, &opened->weights));
  return opened->weights.bytes + plan.bytes;
}

}  // namespace tactus::compute
