// Best rates of a card and its host, as JSON: memory, copies, launches, flags and matrix products. See README.md.
// `rates [CUBLASLT_LIBRARY]`: if the library does not load, the products are omitted and the reason is written.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAVE_CUBLASLT_HEADER 1
#endif

namespace {

void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "rates: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

// ---- writing ----

bool first_in_list = true;
void Open(const char* key, char bracket) {
  std::printf("%s\n \"%s\": %c", first_in_list ? "" : ",", key, bracket);
  first_in_list = true;
}
void Close(char bracket) {
  std::printf("\n %c", bracket);
  first_in_list = false;
}
void Row(const std::string& text) {
  std::printf("%s\n  %s", first_in_list ? "" : ",", text.c_str());
  first_in_list = false;
}
template <class... A>
std::string Text(const char* format, A... a) {
  char text[512];
  std::snprintf(text, sizeof text, format, a...);
  return text;
}

// Median, least and greatest of the samples after `scale`.
std::string Spread(std::vector<double> v, double scale = 1, bool inverse = false) {
  for (double& x : v) x = inverse ? scale / x : x * scale;
  std::sort(v.begin(), v.end());
  return Text("\"median\": %.5g, \"least\": %.5g, \"greatest\": %.5g, \"samples\": %zu", v[v.size() / 2], v.front(),
              v.back(), v.size());
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaGraphExec_t Capture(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  work();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphUpload(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  return exec;
}

class Events {
 public:
  Events() {
    CHECK(cudaEventCreate(&from_));
    CHECK(cudaEventCreate(&to_));
  }
  ~Events() {
    cudaEventDestroy(from_);
    cudaEventDestroy(to_);
  }
  // Seconds of `work` on the stream; each sample runs it `times` times and is divided by `times`.
  std::vector<double> Time(cudaStream_t stream, int samples, int times, const std::function<void()>& work) {
    std::vector<double> out;
    for (int s = -2; s < samples; ++s) {
      CHECK(cudaEventRecord(from_, stream));
      for (int i = 0; i < times; ++i) work();
      CHECK(cudaEventRecord(to_, stream));
      CHECK(cudaEventSynchronize(to_));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, from_, to_));
      if (s >= 0) out.push_back(double(ms) * 1e-3 / times);
    }
    CHECK(cudaGetLastError());
    return out;
  }
  // The same with a graph of `times` runs, so that launches are not measured.
  std::vector<double> TimeGraph(cudaStream_t stream, int samples, int times, const std::function<void()>& work) {
    const cudaGraphExec_t exec = Capture(stream, [&] {
      for (int i = 0; i < times; ++i) work();
    });
    std::vector<double> out = Time(stream, samples, 1, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
    CHECK(cudaGraphExecDestroy(exec));
    for (double& x : out) x /= times;
    return out;
  }

 private:
  cudaEvent_t from_{}, to_{};
};

// ---- memory ----

__global__ void Copy(const uint4* from, uint4* to, size_t n) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < n; i += step) to[i] = from[i];
}

__global__ void Read(const uint4* from, size_t n, uint32_t* out) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  uint32_t x = 0;
  for (; i + 7 * step < n; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = from[i + size_t(j) * step];
#pragma unroll
    for (int j = 0; j < 8; ++j) x ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < n; i += step) x ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (x == 0x12345678u) *out = x;
}

__global__ void Write(uint4* to, size_t n) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += step) {
    to[i] = make_uint4(uint32_t(i), 1, 2, 3);
  }
}

__global__ void Fill(uint32_t* to, size_t n, uint32_t seed, bool bytes) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += step) {
    uint32_t x = uint32_t(i) * 2654435761u + seed;
    x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12, x *= 0x297a2d39u, x ^= x >> 15;
    // bf16 of sizes 2^-3 to 2^1, or e4m3 of 2^-3 to 2^1.
    to[i] = bytes ? (x & 0x9f9f9f9fu) | 0x20202020u : (x & 0x81ff81ffu) | 0x3e003e00u;
  }
}

void Memory(int processors) {
  Events events;
  cudaStream_t stream{};
  CHECK(cudaStreamCreate(&stream));
  const size_t greatest = size_t(4) << 30;
  uint4 *a = nullptr, *b = nullptr;
  uint32_t* flag = nullptr;
  CHECK(cudaMalloc(&a, greatest));
  CHECK(cudaMalloc(&b, greatest));
  CHECK(cudaMalloc(&flag, 4));
  Fill<<<1024, 256>>>(reinterpret_cast<uint32_t*>(a), greatest / 4, 1, false);
  CHECK(cudaDeviceSynchronize());
  Open("device_memory", '[');
  for (size_t mib : {1u, 4u, 16u, 32u, 64u, 256u, 1024u, 4096u}) {
    const size_t bytes = mib << 20, n = bytes / 16;
    const int times = int(std::max<size_t>(2, std::min<size_t>(100, (size_t(2) << 30) / bytes)));
    const auto row = [&](const char* what, const char* best, double moved, const std::vector<double>& t) {
      Row(Text("{\"what\": \"%s\", \"mib\": %zu, \"grid\": \"%s\", \"gb_per_s\": {", what, mib, best) +
          Spread(t, moved * 1e-9, true) + "}}");
    };
    // The best of several grid sizes.
    const auto best = [&](const char* what, double moved, const std::function<void(int, int)>& launch) {
      std::vector<double> least;
      std::string grid;
      for (int per : {2, 4, 8, 16, 32}) {
        for (int threads : {256, 512}) {
          if (per * threads > 8192) continue;
          const std::vector<double> t = events.TimeGraph(stream, 7, times, [&] { launch(processors * per, threads); });
          std::vector<double> sorted = t, was = least;
          std::sort(sorted.begin(), sorted.end());
          std::sort(was.begin(), was.end());
          if (least.empty() || sorted[3] < was[3]) {
            least = t;
            grid = Text("%dx%d", processors * per, threads);
          }
        }
      }
      row(what, grid.c_str(), moved, least);
    };
    best("copy, bytes read and written", 2.0 * double(bytes),
         [&](int g, int t) { Copy<<<g, t, 0, stream>>>(a, b, n); });
    best("read", double(bytes), [&](int g, int t) { Read<<<g, t, 0, stream>>>(a, n, flag); });
    best("write", double(bytes), [&](int g, int t) { Write<<<g, t, 0, stream>>>(b, n); });
    row("cudaMemcpyAsync, bytes read and written", "", 2.0 * double(bytes), events.TimeGraph(stream, 7, times, [&] {
      CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream));
    }));
  }
  Close(']');

  uint8_t* host = nullptr;
  uint8_t* host2 = nullptr;
  const size_t most = size_t(512) << 20;
  CHECK(cudaMallocHost(&host, most));
  CHECK(cudaMallocHost(&host2, most));
  cudaStream_t up{}, down{};
  CHECK(cudaStreamCreate(&up));
  CHECK(cudaStreamCreate(&down));
  Open("pinned_copies", '[');
  for (size_t kib : {4u, 64u, 1024u, 16384u, 524288u}) {
    const size_t bytes = kib << 10;
    const int times = kib >= 16384 ? 2 : 20;
    const auto row = [&](const char* what, double moved, const std::vector<double>& t) {
      Row(Text("{\"what\": \"%s\", \"kib\": %zu, \"us\": {", what, kib) + Spread(t, 1e6) + "}, \"gb_per_s\": {" +
          Spread(t, moved * 1e-9, true) + "}}");
    };
    row("host to device", double(bytes),
        events.Time(up, 9, times, [&] { CHECK(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, up)); }));
    row("device to host", double(bytes),
        events.Time(down, 9, times, [&] { CHECK(cudaMemcpyAsync(host2, b, bytes, cudaMemcpyDeviceToHost, down)); }));
    std::vector<double> both;
    for (int s = 0; s < 7; ++s) {
      const double from = Now();
      for (int i = 0; i < times; ++i) {
        CHECK(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, up));
        CHECK(cudaMemcpyAsync(host2, b, bytes, cudaMemcpyDeviceToHost, down));
      }
      CHECK(cudaStreamSynchronize(up));
      CHECK(cudaStreamSynchronize(down));
      both.push_back((Now() - from) / times);
    }
    row("both at once, host's clock", 2.0 * double(bytes), both);
  }
  Close(']');
  cudaStreamDestroy(stream);
  cudaStreamDestroy(up);
  cudaStreamDestroy(down);
  cudaFreeHost(host);
  cudaFreeHost(host2);
  cudaFree(a);
  cudaFree(b);
  cudaFree(flag);
}

// ---- launches ----

__global__ void Nothing() {}
struct Many {
  uint64_t words[24];
};
__global__ void NothingOf(Many) {}

__device__ uint64_t Nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
// One block per multiprocessor; the first block writes the start, the last to end the end.
__global__ void Stamp(unsigned long long* times) {
  if (threadIdx.x == 0) {
    atomicMin(&times[0], static_cast<unsigned long long>(Nanoseconds()));
    const long long from = clock64();
    while (clock64() - from < 8000) {
    }
    atomicMax(&times[1], static_cast<unsigned long long>(Nanoseconds()));
  }
}
__global__ void Spin(long long cycles) {
  const long long from = clock64();
  while (clock64() - from < cycles) {
  }
}
__global__ void SpinEarly(long long cycles) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const long long from = clock64();
  while (clock64() - from < cycles) {
  }
}

template <class Body>
std::vector<double> HostTimes(int samples, Body body) {
  std::vector<double> out;
  for (int s = -3; s < samples; ++s) {
    const double t = body();
    if (s >= 0) out.push_back(t);
  }
  return out;
}

void Launches(int processors) {
  cudaStream_t stream{};
  CHECK(cudaStreamCreate(&stream));
  Events events;
  Open("launches", '[');
  const auto us = [](const char* what, const std::vector<double>& t) {
    Row(Text("{\"what\": \"%s\", \"us\": {", what) + Spread(t, 1e6) + "}}");
  };
  const auto calls = [&](const char* what, const std::function<void()>& launch) {
    us(what, HostTimes(21, [&] {
         const double from = Now();
         for (int i = 0; i < 200; ++i) launch();
         const double t = (Now() - from) / 200;
         CHECK(cudaStreamSynchronize(stream));
         return t;
       }));
  };
  calls("host's time of a launch, no parameters", [&] { Nothing<<<1, 32, 0, stream>>>(); });
  calls("host's time of a launch, 192 bytes of parameters", [&] { NothingOf<<<1, 32, 0, stream>>>(Many{}); });
  us("launch and cudaStreamSynchronize", HostTimes(101, [&] {
       const double from = Now();
       Nothing<<<1, 32, 0, stream>>>();
       CHECK(cudaStreamSynchronize(stream));
       return Now() - from;
     }));
  us("empty kernel after empty kernel in a stream",
     events.Time(stream, 15, 1000, [&] { Nothing<<<1, 32, 0, stream>>>(); }));
  for (int nodes : {1, 10, 100, 1000}) {
    const cudaGraphExec_t exec = Capture(stream, [&] {
      for (int i = 0; i < nodes; ++i) NothingOf<<<processors, 128, 0, stream>>>(Many{});
    });
    us(Text("graph of %d kernels in a row: host's time of cudaGraphLaunch", nodes).c_str(), HostTimes(31, [&] {
         const double from = Now();
         CHECK(cudaGraphLaunch(exec, stream));
         const double t = Now() - from;
         CHECK(cudaStreamSynchronize(stream));
         return t;
       }));
    us(Text("graph of %d kernels in a row: launch and synchronize", nodes).c_str(), HostTimes(31, [&] {
         const double from = Now();
         CHECK(cudaGraphLaunch(exec, stream));
         CHECK(cudaStreamSynchronize(stream));
         return Now() - from;
       }));
    std::vector<double> t =
        events.Time(stream, 15, nodes == 1000 ? 2 : 10, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
    for (double& x : t) x /= nodes;
    us(Text("graph of %d kernels in a row: device's time of a node", nodes).c_str(), t);
    CHECK(cudaGraphExecDestroy(exec));
  }

  // Time between kernels of known length: N of them, less N times one's length in cycles.
  const long long cycles = 20000;
  const auto gap = [&](const char* what, const std::function<void(long long)>& launch) {
    const auto run = [&](long long length) {
      const cudaGraphExec_t exec = Capture(stream, [&] {
        for (int i = 0; i < 200; ++i) launch(length);
      });
      std::vector<double> t = events.Time(stream, 9, 1, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
      CHECK(cudaGraphExecDestroy(exec));
      for (double& x : t) x /= 200;
      return t;
    };
    const std::vector<double> once = run(cycles), twice = run(2 * cycles);
    std::vector<double> between;
    for (size_t i = 0; i < once.size(); ++i) between.push_back(2 * once[i] - twice[i]);
    us(what, between);
  };
  gap("gap of dependent kernels in a graph, a block to a processor",
      [&](long long length) { Spin<<<processors, 256, 0, stream>>>(length); });
  gap("gap of dependent kernels in a graph, 8 blocks to a processor",
      [&](long long length) { Spin<<<processors * 8, 256, 0, stream>>>(length); });
  gap("gap of dependent kernels in a graph, programmatic launch", [&](long long length) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(processors));
    config.blockDim = dim3(256);
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, SpinEarly, length));
  });

  // The same with the device's own clock: from the last block's end to the next kernel's first block.
  constexpr int kStamps = 200;
  unsigned long long* times = nullptr;
  CHECK(cudaMalloc(&times, kStamps * 16));
  for (const bool graph : {false, true}) {
    std::vector<unsigned long long> h(kStamps * 2);
    for (int i = 0; i < kStamps; ++i) h[size_t(2 * i)] = ~0ull;
    CHECK(cudaMemcpy(times, h.data(), kStamps * 16, cudaMemcpyHostToDevice));
    const auto all = [&] {
      for (int i = 0; i < kStamps; ++i) Stamp<<<processors, 128, 0, stream>>>(times + 2 * i);
    };
    if (graph) {
      const cudaGraphExec_t exec = Capture(stream, all);
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaGraphExecDestroy(exec));
    } else {
      all();
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(h.data(), times, kStamps * 16, cudaMemcpyDeviceToHost));
    std::vector<double> between;
    for (size_t i = 50; i < kStamps; ++i) between.push_back((double(h[2 * i]) - double(h[2 * i - 1])) * 1e-9);
    us(graph ? "last end to first start by globaltimer, in a graph"
             : "last end to first start by globaltimer, in a stream",
       between);
  }
  cudaFree(times);
  Close(']');
  cudaStreamDestroy(stream);
}

// ---- flags ----

__global__ void Raise(volatile uint32_t* flag, uint32_t value) {
  *flag = value;
  __threadfence_system();
}
// Replies to the host's numbers until `last`.
__global__ void Answer(volatile uint32_t* ask, volatile uint32_t* reply, uint32_t last) {
  for (uint32_t n = 1; n <= last; ++n) {
    const long long from = clock64();
    while (*ask < n) {
      if (clock64() - from > 4000000000ll) return;
    }
    *reply = n;
    __threadfence_system();
  }
}

void Flags() {
  cudaStream_t stream{};
  CHECK(cudaStreamCreate(&stream));
  uint32_t* host = nullptr;
  CHECK(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
  uint32_t* device = nullptr;
  CHECK(cudaHostGetDevicePointer(&device, host, 0));
  auto* const reply = reinterpret_cast<std::atomic<uint32_t>*>(host);
  auto* const ask = reinterpret_cast<std::atomic<uint32_t>*>(host + 64);
  reply->store(0);
  ask->store(0);
  Open("flags", '[');
  const auto us = [](const char* what, const std::vector<double>& t) {
    Row(Text("{\"what\": \"%s\", \"us\": {", what) + Spread(t, 1e6) + "}}");
  };
  const auto wait = [&](uint32_t n) {
    const double from = Now();
    while (reply->load(std::memory_order_acquire) != n) {
      if (Now() - from > 5) {
        std::fprintf(stderr, "rates: no flag after 5 s\n");
        std::exit(1);
      }
    }
  };
  uint32_t value = 0;
  us("launch, then the host sees a flag in mapped memory", HostTimes(201, [&] {
       ++value;
       const double from = Now();
       Raise<<<1, 1, 0, stream>>>(device, value);
       wait(value);
       const double t = Now() - from;
       CHECK(cudaStreamSynchronize(stream));
       return t;
     }));
  cudaEvent_t event{};
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  us("launch, record, then cudaEventQuery says so", HostTimes(201, [&] {
       ++value;
       const double from = Now();
       Raise<<<1, 1, 0, stream>>>(device, value);
       CHECK(cudaEventRecord(event, stream));
       while (cudaEventQuery(event) == cudaErrorNotReady) {
       }
       return Now() - from;
     }));
  uint32_t* word = nullptr;
  CHECK(cudaMalloc(&word, 4));
  us("launch, copy of 4 bytes to pinned memory, then the host sees it", HostTimes(201, [&] {
       ++value;
       const double from = Now();
       Raise<<<1, 1, 0, stream>>>(word, value);
       CHECK(cudaMemcpyAsync(host, word, 4, cudaMemcpyDeviceToHost, stream));
       wait(value);
       const double t = Now() - from;
       CHECK(cudaStreamSynchronize(stream));
       return t;
     }));
  reply->store(0);
  const uint32_t trips = 2000;
  Answer<<<1, 1, 0, stream>>>(device + 64, device, trips);
  std::vector<double> trip;
  for (uint32_t n = 1; n <= trips; ++n) {
    const double from = Now();
    ask->store(n, std::memory_order_release);
    wait(n);
    if (n > 100) trip.push_back(Now() - from);
  }
  CHECK(cudaStreamSynchronize(stream));
  us("host's flag to a running kernel and its answer back", trip);
  Close(']');
  cudaEventDestroy(event);
  cudaFree(word);
  cudaFreeHost(host);
  cudaStreamDestroy(stream);
}

// ---- products ----

#if defined(HAVE_CUBLASLT_HEADER)
struct Lt {
  void* library = nullptr;
#define LT_FUNCTION(name) decltype(&::name) name = nullptr
  LT_FUNCTION(cublasLtCreate);
  LT_FUNCTION(cublasLtGetVersion);
  LT_FUNCTION(cublasLtMatmul);
  LT_FUNCTION(cublasLtMatmulDescCreate);
  LT_FUNCTION(cublasLtMatmulDescDestroy);
  LT_FUNCTION(cublasLtMatmulDescSetAttribute);
  LT_FUNCTION(cublasLtMatrixLayoutCreate);
  LT_FUNCTION(cublasLtMatrixLayoutDestroy);
  LT_FUNCTION(cublasLtMatmulPreferenceCreate);
  LT_FUNCTION(cublasLtMatmulPreferenceDestroy);
  LT_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  LT_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
#undef LT_FUNCTION
  // Returns an empty string on success.
  std::string Load(const char* path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "it does not load";
#define LT_FUNCTION(name) \
  if ((name = reinterpret_cast<decltype(name)>(dlsym(library, #name))) == nullptr) return #name " is missing"
    LT_FUNCTION(cublasLtCreate);
    LT_FUNCTION(cublasLtGetVersion);
    LT_FUNCTION(cublasLtMatmul);
    LT_FUNCTION(cublasLtMatmulDescCreate);
    LT_FUNCTION(cublasLtMatmulDescDestroy);
    LT_FUNCTION(cublasLtMatmulDescSetAttribute);
    LT_FUNCTION(cublasLtMatrixLayoutCreate);
    LT_FUNCTION(cublasLtMatrixLayoutDestroy);
    LT_FUNCTION(cublasLtMatmulPreferenceCreate);
    LT_FUNCTION(cublasLtMatmulPreferenceDestroy);
    LT_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
    LT_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
#undef LT_FUNCTION
    return "";
  }
};

struct Shape {
  const char* name;
  int n, k;
};

// out[M, N] = x[M, K] * w[N, K]^T with x, w and out in row order, as in a model. Weights rotate over copies of
// `kRotated` in total, so that none stays in the cache.
class Products {
 public:
  explicit Products(Lt& lt) : lt_(lt) {
    if (lt_.cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) {
      std::fprintf(stderr, "rates: cublasLtCreate failed\n");
      std::exit(1);
    }
    CHECK(cudaStreamCreate(&stream_));
    CHECK(cudaMalloc(&weights_, kWeights));
    CHECK(cudaMalloc(&x_, kX));
    CHECK(cudaMalloc(&out_, kOut));
    CHECK(cudaMalloc(&workspace_, kWorkspace));
    CHECK(cudaMalloc(&scale_, 4));
    const float one = 1.0f;
    CHECK(cudaMemcpy(scale_, &one, 4, cudaMemcpyHostToDevice));
  }

  void Measure(bool fp8, bool fast) {
    Fill<<<4096, 256>>>(static_cast<uint32_t*>(weights_), kWeights / 4, 3, fp8);
    Fill<<<4096, 256>>>(static_cast<uint32_t*>(x_), kX / 4, 5, fp8);
    CHECK(cudaDeviceSynchronize());
    const Shape shapes[] = {{"qkv", 6144, 4096},
                            {"attention_out", 4096, 4096},
                            {"gate_up", 28672, 4096},
                            {"down", 4096, 14336},
                            {"lm_head", 128256, 4096}};
    for (const Shape& s : shapes) {
      for (int m : {1, 8, 32, 128, 256, 512, 2048, 8192}) One(s, m, fp8, fast);
    }
  }

 private:
  static constexpr size_t kWeights = size_t(1100) << 20, kX = size_t(240) << 20, kOut = size_t(2100) << 20;
  static constexpr size_t kWorkspace = size_t(64) << 20, kRotated = size_t(400) << 20;

  void One(const Shape& s, int m, bool fp8, bool fast) {
    const cudaDataType_t type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const size_t element = fp8 ? 1 : 2, weight_bytes = size_t(s.n) * size_t(s.k) * element;
    cublasLtMatmulDesc_t op{};
    cublasLtMatrixLayout_t w{}, x{}, out{};
    cublasLtMatmulPreference_t preference{};
    bool ok = lt_.cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    const cublasOperation_t transpose = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& v) {
      ok = ok && lt_.cublasLtMatmulDescSetAttribute(op, attribute, &v, sizeof v) == CUBLAS_STATUS_SUCCESS;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose);
    set(CUBLASLT_MATMUL_DESC_TRANSB, plain);
    if (fp8) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_);
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(fast));
    }
    const auto layout = [&](cublasLtMatrixLayout_t* to, cudaDataType_t t, int rows, int columns) {
      ok =
          ok && lt_.cublasLtMatrixLayoutCreate(to, t, uint64_t(rows), uint64_t(columns), rows) == CUBLAS_STATUS_SUCCESS;
    };
    layout(&w, type, s.k, s.n);
    layout(&x, type, s.k, m);
    layout(&out, CUDA_R_16BF, s.n, m);
    ok = ok && lt_.cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS;
    ok = ok && lt_.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &kWorkspace, sizeof kWorkspace) == CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    ok = ok && lt_.cublasLtMatmulAlgoGetHeuristic(handle_, op, w, x, out, out, preference, 8, found, &count) ==
                   CUBLAS_STATUS_SUCCESS;
    const std::string about = Text("{\"type\": \"%s\", \"shape\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d",
                                   !fp8   ? "bf16"
                                   : fast ? "e4m3, fast accumulation"
                                          : "e4m3",
                                   s.name, m, s.n, s.k);
    const double flops = 2.0 * m * s.n * s.k;
    const double bytes = double(weight_bytes) + double(element) * m * s.k + 2.0 * m * s.n;
    std::vector<double> best, first;
    int best_number = 0;
    const size_t copies =
        std::max<size_t>(1, std::min(kWeights / weight_bytes, (kRotated + weight_bytes - 1) / weight_bytes));
    size_t turn = 0;
    for (int number = 0; ok && number < count; ++number) {
      const float one = 1, zero = 0;
      cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
      const auto work = [&] {
        const char* const from = static_cast<const char*>(weights_) + weight_bytes * (turn++ % copies);
        const cublasStatus_t now = lt_.cublasLtMatmul(handle_, op, &one, from, w, x_, x, &zero, out_, out, out_, out,
                                                      &found[number].algo, workspace_, kWorkspace, stream_);
        if (now != CUBLAS_STATUS_SUCCESS) status = now;
      };
      const int times = flops > 1e12 ? 2 : flops > 1e11 ? 5 : 20;
      work();
      CHECK(cudaStreamSynchronize(stream_));
      if (status != CUBLAS_STATUS_SUCCESS) continue;
      const std::vector<double> t = events_.TimeGraph(stream_, 5, times, work);
      const auto median = [](std::vector<double> v) {
        std::sort(v.begin(), v.end());
        return v[v.size() / 2];
      };
      if (first.empty()) first = t;
      if (best.empty() || median(t) < median(best)) {
        best = t;
        best_number = number;
      }
    }
    if (best.empty()) {
      Row(about + ", \"unsupported\": true}");
    } else {
      Row(about + ", \"us\": {" + Spread(best, 1e6) + "}, \"tflops\": {" + Spread(best, flops * 1e-12, true) +
          "}, \"gb_per_s\": {" + Spread(best, bytes * 1e-9, true) + "}, \"first_choice_us\": {" + Spread(first, 1e6) +
          Text("}, \"choice\": %d, \"choices\": %d}", best_number, count));
    }
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    lt_.cublasLtMatrixLayoutDestroy(w);
    lt_.cublasLtMatrixLayoutDestroy(x);
    lt_.cublasLtMatrixLayoutDestroy(out);
    lt_.cublasLtMatmulDescDestroy(op);
  }

  Lt& lt_;
  cublasLtHandle_t handle_{};
  Events events_;
  cudaStream_t stream_{};
  void *weights_ = nullptr, *x_ = nullptr, *out_ = nullptr, *workspace_ = nullptr, *scale_ = nullptr;
};
#endif

void MatrixProducts(const char* path) {
#if defined(HAVE_CUBLASLT_HEADER)
  Lt lt;
  const std::string problem = path == nullptr ? "no library was named" : lt.Load(path);
  if (!problem.empty()) {
    Open("products_left_out", '[');
    Row("\"" + problem + "\"");
    Close(']');
    return;
  }
  Open("cublaslt", '[');
  Row(Text("{\"version\": %zu}", lt.cublasLtGetVersion()));
  Close(']');
  Open("products", '[');
  Products products(lt);
  products.Measure(false, false);
  products.Measure(true, false);
  products.Measure(true, true);
  Close(']');
#else
  (void)path;
  Open("products_left_out", '[');
  Row("\"built without cublasLt.h\"");
  Close(']');
#endif
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  CHECK(cudaGetDeviceProperties(&p, 0));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  std::printf(
      "{\n \"card\": \"%s\",\n \"capability\": \"%d.%d\",\n \"processors\": %d,\n \"memory_gib\": %.1f,\n"
      " \"l2_mib\": %.1f,\n \"driver_cuda\": %d,\n \"runtime_cuda\": %d",
      p.name, p.major, p.minor, p.multiProcessorCount, double(p.totalGlobalMem) / (1 << 30),
      double(p.l2CacheSize) / (1 << 20), driver, runtime);
  first_in_list = false;
  Launches(p.multiProcessorCount);
  Flags();
  Memory(p.multiProcessorCount);
  MatrixProducts(argc > 1 ? argv[1] : nullptr);
  std::printf("\n}\n");
}
