// runtime.h and the two functions of kernels/launch.h over the CUDA runtime, which is linked statically. The driver
// (libcuda.so.1) is loaded by the runtime itself, so a program that links this starts without one.
//
// An allocation that fails is the caller's to report; it does not fail the device.
#include "compute/cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <utility>

#include "base/unit_text.h"
#include "compute/cuda/device_support.h"
#include "compute/cuda/runtime_cuda.h"

namespace tactus::compute::cuda {

void CheckLaunch(cudaError_t status, const char* kernel);  // as kernels/launch.h declares it, which is for nvcc

namespace {

std::atomic<bool> g_failed{false};
std::mutex g_mutex;
Status g_error;  // guarded by g_mutex
std::atomic<int> g_device{0};

std::string ErrorText(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void Check(cudaError_t error, const char* what) {
  // A library that is unloaded at the end of the process frees what is left.
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  FailDevice(error == cudaErrorMemoryAllocation
                 ? Status(StatusCode::kResourceExhausted, fmt::format("{}: no device memory is left", what))
                 : Internal(fmt::format("{}: {}; an earlier kernel may have caused it", what, ErrorText(error))));
}

// False: the device has failed. The runtime keeps a current device for each thread.
bool Usable() {
  if (g_failed.load(std::memory_order_acquire)) return false;
  thread_local int current = 0;
  const int device = g_device.load(std::memory_order_relaxed);
  if (current != device) {
    Check(cudaSetDevice(device), "cudaSetDevice");
    current = device;
  }
  return !g_failed.load(std::memory_order_relaxed);
}

class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  ~CudaStream() override { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void CopyToDevice(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyHostToDevice, "copy to the device");
  }
  void CopyToHost(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToHost, "copy to the host");
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the device");
  }
  void GatherToHost(void* to, const void* from, int64_t stride, int64_t bytes, int64_t count) override {
    CopyPieces(Pieces(to, bytes, bytes), Pieces(from, stride, bytes), bytes, count, cudaMemcpyDeviceToHost, "gather");
  }
  void ScatterToDevice(void* to, int64_t stride, const void* from, int64_t bytes, int64_t count) override {
    CopyPieces(Pieces(to, stride, bytes), Pieces(from, bytes, bytes), bytes, count, cudaMemcpyHostToDevice, "scatter");
  }
  void Fill(void* to, int byte, int64_t bytes) override {
    if (bytes > 0 && Usable()) Check(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), stream_), "fill");
  }
  void Wait(const Event& event) override;
  void Synchronize() override {
    if (Usable()) Check(cudaStreamSynchronize(stream_), "synchronize a stream");
  }
  void BeginCapture() override {
    if (Usable()) Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin a capture");
  }
  std::unique_ptr<Graph> EndCapture() override;
  void Run(const Graph& graph) override;

  cudaStream_t native() const { return stream_; }

 private:
  void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what) {
    if (bytes > 0 && Usable()) Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), what);
  }

  // A copy in three dimensions: a piece is the first row of a plane. A pitch must be below 2^31 bytes, the distance of
  // two planes need not.
  static cudaPitchedPtr Pieces(const void* at, int64_t stride, int64_t bytes) {
    const auto row = static_cast<size_t>(bytes);
    return {const_cast<void*>(at), row, row, static_cast<size_t>(stride / std::max<int64_t>(bytes, 1))};
  }
  void CopyPieces(cudaPitchedPtr to, cudaPitchedPtr from, int64_t bytes, int64_t count, cudaMemcpyKind kind,
                  const char* what) {
    if (bytes <= 0 || count <= 0 || !Usable()) return;
    cudaMemcpy3DParms copy{};
    copy.srcPtr = from;
    copy.dstPtr = to;
    copy.extent = {static_cast<size_t>(bytes), 1, static_cast<size_t>(count)};
    copy.kind = kind;
    Check(cudaMemcpy3DAsync(&copy, stream_), what);
  }

  const cudaStream_t stream_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void Record(Stream& stream) override {
    if (Usable()) Check(cudaEventRecord(event_, static_cast<CudaStream&>(stream).native()), "record an event");
  }
  void Synchronize() override {
    if (Usable()) Check(cudaEventSynchronize(event_), "wait for an event");
  }
  double SecondsSince(const Event& start) const override {
    float ms = 0;
    if (Usable()) {
      Check(cudaEventElapsedTime(&ms, static_cast<const CudaEvent&>(start).event_, event_), "time of an event");
    }
    return 1e-3 * static_cast<double>(ms);
  }
  cudaEvent_t native() const { return event_; }

 private:
  const cudaEvent_t event_;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t native() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

void CudaStream::Wait(const Event& event) {
  if (Usable()) {
    Check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0), "wait of a stream");
  }
}

std::unique_ptr<Graph> CudaStream::EndCapture() {
  if (!Usable()) return nullptr;
  cudaGraph_t recorded = nullptr;
  Check(cudaStreamEndCapture(stream_, &recorded), "end a capture");
  if (recorded == nullptr) return nullptr;
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // else a later launch returns this error
  } else {
    Check(error, "make a graph");
  }
  cudaGraphDestroy(recorded);
  return error == cudaSuccess ? std::make_unique<CudaGraph>(graph) : nullptr;
}

void CudaStream::Run(const Graph& graph) {
  if (Usable()) Check(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), stream_), "run a graph");
}

// Memory of `bytes` from `allocate(void**)`. `shortage()`: what to say if there is not enough.
template <class Allocate, class Shortage>
Result<void*> Get(int64_t bytes, Allocate allocate, Shortage shortage) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  if (!Usable()) return DeviceStatus();
  void* data = nullptr;
  const cudaError_t error = allocate(&data);
  if (error == cudaSuccess) return data;
  cudaGetLastError();  // else a later launch returns this error
  if (error != cudaErrorMemoryAllocation) {
    Check(error, "allocate memory");
    return DeviceStatus();
  }
  return Status(StatusCode::kResourceExhausted, shortage());
}

// "580.159.04" from the kernel module; empty: not there.
std::string DriverRelease() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  return DriverReleaseOf(line);
}

Status Unavailable(std::string text) {
  return Status(StatusCode::kUnavailable, std::move(text));
}

// The number of devices.
Result<int> CountDevices() {
  int driver = 0;
  cudaDriverGetVersion(&driver);  // 0: no driver
  if (driver / 1000 < CUDART_VERSION / 1000) return Unavailable(OldDriverText(driver, DriverRelease(), CUDART_VERSION));
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Unavailable(
        "the NVIDIA driver is loaded, but it offers no device: no GPU is there, or CUDA_VISIBLE_DEVICES "
        "hides it");
  }
  if (error != cudaSuccess) return Unavailable(fmt::format("the CUDA driver cannot be used: {}", ErrorText(error)));
  return count;
}

}  // namespace

Result<DeviceInfo> OpenDevice(int32_t number) {
  TACTUS_ASSIGN_OR_RETURN(const int count, CountDevices());
  if (number < 0 || number >= count) {
    return InvalidArgument(fmt::format("device {}: devices are numbered from 0 to {} here", number, count - 1));
  }
  cudaDeviceProp found{};
  cudaError_t error = cudaGetDeviceProperties(&found, number);
  DeviceInfo info;
  if (error == cudaSuccess) {
    info.name = found.name;
    info.capability = 10 * found.major + found.minor;
    if (!HasCodeFor(TACTUS_CUDA_ARCHITECTURES, info.capability)) {
      return Unavailable(NoCodeText(info.name, info.capability, TACTUS_CUDA_ARCHITECTURES));
    }
    error = cudaSetDevice(number);
  }
  size_t free = 0, total = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);  // creates the context
  if (error != cudaSuccess) return Unavailable(fmt::format("device {}: {}", number, ErrorText(error)));

  info.multiprocessors = found.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(total);
  info.free_bytes = static_cast<int64_t>(free);
  info.l2_bytes = found.l2CacheSize;
  info.shared_bytes_per_block = static_cast<int64_t>(found.sharedMemPerBlockOptin);
  int driver = 0;
  cudaDriverGetVersion(&driver);
  info.driver = fmt::format("{}, CUDA {}", DriverRelease(), CudaVersionText(driver));
  const std::lock_guard lock(g_mutex);
  g_device = number;
  g_error = Status();
  g_failed = false;
  return info;
}

void FailDevice(Status error) {
  const std::lock_guard lock(g_mutex);
  if (g_failed) return;
  g_error = std::move(error);
  g_failed = true;
}

Status DeviceStatus() {
  if (!g_failed.load(std::memory_order_acquire)) return Status();
  const std::lock_guard lock(g_mutex);
  return g_error;
}

Result<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, const char* name) {
  DeviceMemory memory;
  const auto allocate = [&](void** p) { return cudaMalloc(p, static_cast<size_t>(bytes)); };
  const auto shortage = [&] {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return fmt::format("{}: {} could not be allocated; {} of the device's {} are free", name, FormatBytes(bytes),
                       FormatBytes(static_cast<int64_t>(free)), FormatBytes(static_cast<int64_t>(total)));
  };
  TACTUS_ASSIGN_OR_RETURN(void* data, Get(bytes, allocate, shortage));
  memory.data_.reset(data);
  memory.bytes_ = bytes;
  return memory;
}
void DeviceMemory::Free::operator()(void* p) const {
  if (Usable()) Check(cudaFree(p), "free device memory");
}

Result<PinnedMemory> PinnedMemory::Allocate(int64_t bytes) {
  PinnedMemory memory;
  const auto allocate = [&](void** p) { return cudaHostAlloc(p, static_cast<size_t>(bytes), cudaHostAllocPortable); };
  const auto shortage = [&] {
    return fmt::format("{} of the host's memory could not be pinned: lower --swap-space, or free memory of the host",
                       FormatBytes(bytes));
  };
  TACTUS_ASSIGN_OR_RETURN(void* data, Get(bytes, allocate, shortage));
  memory.data_.reset(data);
  memory.bytes_ = bytes;
  return memory;
}
void PinnedMemory::Free::operator()(void* p) const {
  if (Usable()) Check(cudaFreeHost(p), "free pinned memory");
}

Result<std::unique_ptr<Stream>> Stream::Create() {
  if (!Usable()) return DeviceStatus();
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  if (stream == nullptr) return DeviceStatus();
  return std::unique_ptr<Stream>(std::make_unique<CudaStream>(stream));
}

Result<std::unique_ptr<Event>> Event::Create() {
  if (!Usable()) return DeviceStatus();
  cudaEvent_t event = nullptr;
  Check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "create an event");
  if (event == nullptr) return DeviceStatus();
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(event));
}

cudaStream_t NativeStream(Stream& stream) {
  Usable();  // the launch that follows needs this thread's current device
  return static_cast<CudaStream&>(stream).native();
}

void CheckLaunch(cudaError_t status, const char* kernel) {
  Check(status, kernel);
}

}  // namespace tactus::compute::cuda
