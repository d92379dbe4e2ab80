// Results of single instructions of a CUDA card, bit by bit: see README.md. `instructions --quick` omits the cases that
// test all 2^32 inputs.
#include <cstring>

#include "cases.h"

namespace {

// The host functions of the inputs, so that another implementation can check them first.
void PrintGenerator() {
  conformance::Rng rng(1);
  conformance::Words drawn;
  for (int i = 0; i < 8; ++i) drawn.push_back(rng.Next());
  conformance::PrintCase("generator", "seed=1", drawn);
  conformance::PrintCase("specials.f32", "in=none", conformance::Specials(conformance::kF32));
  conformance::PrintCase("specials.e4m3", "in=none", conformance::Specials(conformance::kE4m3));
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  conformance::Check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  conformance::Check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  conformance::Check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf("# %s, compute capability %d.%d, driver's CUDA %d.%d, runtime %d.%d\n", p.name, p.major, p.minor,
              driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  PrintGenerator();
  conformance::RunWarpCases();
  conformance::RunMemoryCases();
  conformance::RunMatrixCases();
  conformance::RunPairCases();
  conformance::RunMathCases(quick);
  conformance::Check(cudaDeviceSynchronize(), "the end");
  std::printf("# end\n");
}
