// What the program's files share: device memory, and the printed lines.
#pragma once

#include <cuda_runtime.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "inputs.h"

namespace conformance {

inline void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "instructions: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

class DeviceWords {
 public:
  explicit DeviceWords(size_t n) : n_(n) {
    Check(cudaMalloc(&at_, n * 4 + 4), "cudaMalloc");
    Check(cudaMemset(at_, 0xee, n * 4 + 4), "cudaMemset");
  }
  explicit DeviceWords(const Words& from) : DeviceWords(from.size()) {
    Check(cudaMemcpy(at_, from.data(), n_ * 4, cudaMemcpyHostToDevice), "copy to the device");
  }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  ~DeviceWords() { cudaFree(at_); }
  uint32_t* Get() const { return at_; }
  Words Read() const {
    Check(cudaGetLastError(), "launch");
    Words out(n_);
    Check(cudaMemcpy(out.data(), at_, n_ * 4, cudaMemcpyDeviceToHost), "copy to the host");
    return out;
  }

 private:
  uint32_t* at_ = nullptr;
  size_t n_;
};

// 10 x major + minor of the card's compute capability.
inline int Capability() {
  static const int capability = [] {
    cudaDeviceProp p{};
    Check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    return p.major * 10 + p.minor;
  }();
  return capability;
}

// case NAME ABOUT n=WORDS hash=HASH out=HEX...: at most `shown` words, all hashed.
inline void PrintCase(const std::string& name, const std::string& about, const Words& out, size_t shown = 128) {
  std::printf("case %s %s n=%zu hash=%016" PRIx64 " out=", name.c_str(), about.c_str(), out.size(),
              Hash(out.data(), out.size()));
  for (size_t i = 0; i < out.size() && i < shown; ++i) std::printf("%s%x", i ? "," : "", out[i]);
  std::printf("%s\n", out.size() > shown ? ",.." : "");
}

inline std::string Hex(uint32_t v, int digits = 1) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*x", digits, v);
  return text;
}

// Each file's cases. `quick` omits those that test all 2^32 inputs.
void RunMatrixCases();
void RunMathCases(bool quick);
void RunPairCases();
void RunWarpCases();
void RunMemoryCases();

}  // namespace conformance
