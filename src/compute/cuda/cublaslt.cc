#include "compute/cuda/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace tactus::compute::cuda {
namespace {

constexpr size_t kOldest = 120000;  // 12.0: e4m3, and the enumerators of cublaslt.h

std::vector<std::string> Places() {
  if (const char* given = std::getenv("TACTUS_CUBLASLT"); given != nullptr && *given != '\0') return {given};
  std::vector<std::string> places;
  for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda-13/lib64/", "/usr/local/cuda-12/lib64/"}) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) places.push_back(std::string(folder) + name);
  }
  return places;
}

template <class Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// Empty: `lt` is filled. Else what is wrong with the library.
std::string Fill(void* library, Lt* lt) {
  const bool complete =
      Find(library, "cublasLtGetVersion", &lt->GetVersion) &&
      Find(library, "cublasLtGetStatusName", &lt->GetStatusName) && Find(library, "cublasLtCreate", &lt->Create) &&
      Find(library, "cublasLtDestroy", &lt->Destroy) &&
      Find(library, "cublasLtMatmulDescCreate", &lt->MatmulDescCreate) &&
      Find(library, "cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy) &&
      Find(library, "cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute) &&
      Find(library, "cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate) &&
      Find(library, "cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy) &&
      Find(library, "cublasLtMatrixLayoutSetAttribute", &lt->MatrixLayoutSetAttribute) &&
      Find(library, "cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate) &&
      Find(library, "cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy) &&
      Find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute) &&
      Find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic) &&
      Find(library, "cublasLtMatmulAlgoCheck", &lt->MatmulAlgoCheck) && Find(library, "cublasLtMatmul", &lt->Matmul);
  if (!complete) return "it lacks a function";
  const size_t version = lt->GetVersion();
  return version < kOldest ? fmt::format("its version {} is older than {}", version, kOldest) : "";
}

Result<Lt> LoadFirst() {
  std::string tried;
  for (const std::string& place : Places()) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string fault;
    if (library == nullptr) {
      const char* text = dlerror();
      fault = text == nullptr ? "cannot be loaded" : text;
    } else {
      Lt lt{};
      fault = Fill(library, &lt);
      if (fault.empty()) {
        lt.path = place;
        return lt;
      }
      dlclose(library);
    }
    tried += fmt::format("\n  {}: {}", place, fault);
  }
  return Status(StatusCode::kUnavailable,
                "products on the device need NVIDIA's cuBLASLt 12 or 13 (libcublasLt.so.13, package nvidia-cublas), "
                "which is not found; TACTUS_CUBLASLT names its file. Tried:" +
                    tried);
}

}  // namespace

Result<const Lt*> Lt::Load() {
  static std::mutex mutex;
  static const Lt* loaded = nullptr;  // stays loaded: handles may be destroyed at the end of the process
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(Lt lt, LoadFirst());
    loaded = new Lt(std::move(lt));
  }
  return loaded;
}

}  // namespace tactus::compute::cuda
