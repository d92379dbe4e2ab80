// Each kind of fault, planted in a small kernel or a few calls: the emulator names the kind and the place.
#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/launch.h"
#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {
namespace {

class FindingsTest : public DeviceTest {
 protected:
  // Blocks one after another: races between blocks are then found from both sides.
  void SetUp() override {
    DeviceTest::SetUp();
    emulator::SetWorkers(1);
  }
  void TearDown() override {
    emulator::SetWorkers(0);
    DeviceTest::TearDown();
  }
  template <class... P, class... A>
  void Start(void (*kernel)(P...), int blocks, int threads, A... arguments) {
    Launch("Planted", stream(), kernel, dim3(static_cast<unsigned>(blocks)), threads, 256, arguments...);
  }
  // Something was found, and one finding has both texts.
  static void ExpectFound(const std::string& kind, const std::string& place = "findings_test.cc:") {
    bool found = false;
    std::string all;
    for (const std::string& finding : emulator::TakeFindings()) {
      found = found || (finding.find(kind) != std::string::npos && finding.find(place) != std::string::npos);
      all += finding + "\n";
    }
    EXPECT_TRUE(found) << "not found: " << kind << "; but:\n" << all;
  }
};
TACTUS_DEVICE_TESTS(FindingsTest);

constexpr unsigned kEveryLane = 0xffffffffu;

// What `auto x = s[i]` declares is of no use, so no kernel keeps a reference where it means a value.
template <class Accessor>
constexpr bool kReadsAsVariable = std::is_convertible_v<emulator::Reference<Accessor>&, typename Accessor::Value> ||
                                  std::is_assignable_v<emulator::Reference<Accessor>&, typename Accessor::Value> ||
                                  std::is_copy_constructible_v<emulator::Reference<Accessor>>;
static_assert(!kReadsAsVariable<Shared<float>> && !kReadsAsVariable<Global<int32_t>>);
static_assert(std::is_convertible_v<emulator::Reference<Shared<float>>, float>);

__global__ void PlainBesideAtomic(Global<int32_t> a) {
  if (blockIdx.x == 0) {
    a.AtomicAdd(0, 1);
  } else {
    a[0] = 1;
  }
}
__global__ void AtomicOnBothSides(Global<int32_t> a) {
  a.AtomicAdd(0, 1);
  a.AtomicMax(1, 5);
}
__global__ void ReadBesideAtomic(Global<int32_t> a, Global<int32_t> out) {
  if (threadIdx.x == 0) a.AtomicAdd(0, 1);
  const int32_t v = a[0];
  out[threadIdx.x] = v;
}
TEST_P(FindingsTest, AtomicOperationsOrderNothingElse) {
  const Buffer<int32_t> a(std::vector<int32_t>(2)), out(32);
  Start(PlainBesideAtomic, 2, 1, a.data());
  ExpectFound("race: write after write");
  Start(ReadBesideAtomic, 1, 32, a.data(), out.data());
  ExpectFound("race: ");
  Start(AtomicOnBothSides, 4, 64, a.data());
  stream().Synchronize();
  EXPECT_TRUE(emulator::TakeFindings().empty());
}

// Bytes and halves of one word by different threads are no race; the same byte is.
__global__ void WriteParts(Global<uint8_t> bytes, Global<uint16_t> halves, Global<uint32_t> words, int overlap) {
  const int i = static_cast<int>(threadIdx.x);
  bytes[i] = static_cast<uint8_t>(i);
  halves[i] = static_cast<uint16_t>(i);
  words[i] = static_cast<uint32_t>(i);
  if (overlap == 1 && i == 1) bytes[2] = 0;
  if (overlap == 2 && i == 1) bytes.Store<uint32_t>(0, 0);
  if (overlap == 3 && i == 1) halves[2] = 0;
}
TEST_P(FindingsTest, PartsOfAWordAreSeparate) {
  const Buffer<uint8_t> bytes(32);
  const Buffer<uint16_t> halves(32);
  const Buffer<uint32_t> words(32);
  for (const int overlap : {0, 1, 2, 3, 0}) {
    Start(WriteParts, 1, 32, bytes.data(), halves.data(), words.data(), overlap);
    if (overlap == 0) {
      EXPECT_TRUE(emulator::TakeFindings().empty());
    } else {
      ExpectFound("race: write after write");
    }
  }
  EXPECT_EQ(bytes.Read()[7], 7);
  EXPECT_EQ(halves.Read()[9], 9);
}

// Lanes of a group write, one of the group reads what all have written. `mask`: which lanes the barrier orders.
__global__ void GroupSum(Global<float> out, int group, bool orders_all) {
  TACTUS_SHARED(float, values, 32);
  const int lane = static_cast<int>(threadIdx.x), first = lane / group * group;
  const unsigned mask = (group == 32 ? kEveryLane : (1u << group) - 1) << first;
  values[lane] = 1.0f;
  if (orders_all || lane % group != group - 1) __syncwarp(orders_all ? mask : mask & ~(1u << (first + group - 1)));
  float sum = 0.0f;
  for (int i = 0; i < group; ++i) sum += values[first + i];
  if (orders_all) __syncwarp(mask);
  values[lane] = sum;
  out[lane] = sum;
}
TEST_P(FindingsTest, BarrierOfSomeLanesOrdersThemAlone) {
  const Buffer<float> out(32);
  for (const int group : {2, 4, 8, 16, 32}) {
    Start(GroupSum, 1, 32, out.data(), group, true);
    EXPECT_TRUE(emulator::TakeFindings().empty()) << group;
    if (group == 2) continue;
    Start(GroupSum, 1, 32, out.data(), group, false);
    emulator::TakeFindings();
  }
  Start(GroupSum, 1, 32, out.data(), 8, false);
  ExpectFound("race: ");
}

__global__ void ReadOnlyThenWrite(Global<const float> in, Global<float> same) {
  const float v = in[threadIdx.x];
  same[threadIdx.x] = v + 1.0f;
}
__global__ void WriteThenReadOnly(Global<const float> in, Global<float> same) {
  same[threadIdx.x] = 1.0f;
  const float v = in[threadIdx.x];
  same[threadIdx.x] = v;
}
TEST_P(FindingsTest, ReadOnlyMemoryIsNotWritten) {
  const Buffer<float> a(std::vector<float>(32));
  Start(ReadOnlyThenWrite, 1, 32, a.data(), a.data());
  ExpectFound("write of memory that this launch reads as read-only");
  Start(WriteThenReadOnly, 1, 32, a.data(), a.data());
  ExpectFound("read-only read of memory that this launch writes");
}

__global__ void CopyOne(Global<const float> from, Global<float> to, int64_t i) {
  const float v = from[i];
  to[threadIdx.x] = v;
}
TEST_P(FindingsTest, MemoryOutsideOfBuffersIsRefused) {
  const Buffer<float> to(32), from(std::vector<float>(8)), unwritten(8);
  const float* freed = nullptr;
  {
    const Buffer<float> gone(std::vector<float>(8));
    freed = gone.data();
  }
  Start(CopyOne, 1, 1, freed, to.data(), int64_t{0});
  ExpectFound("accessor of an address that is not device memory", "");
  Start(CopyOne, 1, 1, static_cast<const float*>(nullptr), to.data(), int64_t{0});
  ExpectFound("read out of bounds");
  Start(CopyOne, 1, 1, static_cast<const float*>(from.data()), to.data(), int64_t{8});
  ExpectFound("element 8 of 8");
  Start(CopyOne, 1, 1, static_cast<const float*>(from.data()), to.data(), int64_t{-1});
  ExpectFound("element -1 of 8");
  Start(CopyOne, 1, 1, static_cast<const float*>(unwritten.data()), to.data(), int64_t{3});
  ExpectFound("read of never-written memory");
}

__global__ void LoadFour(Global<const float> from, Global<float> to, int64_t i) {
  const float4 v = from.Load<float4>(i);
  to[0] = v.x;
}
TEST_P(FindingsTest, VectorsAreAligned) {
  const Buffer<float> from(std::vector<float>(8)), to(1);
  Start(LoadFour, 1, 1, from.data(), to.data(), int64_t{1});
  ExpectFound("misaligned access");
  Start(LoadFour, 1, 1, from.data(), to.data(), int64_t{5});
  ExpectFound("read out of bounds");
}

__global__ void Shuffles(Global<int32_t> out, int fault) {
  const int lane = static_cast<int>(threadIdx.x);
  int v = lane;
  if (fault == 0 && lane < 16) v = __shfl_sync(0x0000ffffu, v, 20);  // from a lane outside of the mask
  if (fault == 1) v = __shfl_sync(0x0000ffffu, v, 0);                // by lanes outside of the mask
  if (fault == 2 && lane != 5) v = __shfl_sync(kEveryLane, v, 0);    // one lane never comes: it ends
  if (fault == 3) v = lane < 16 ? __shfl_sync(kEveryLane, v, 0) : __shfl_xor_sync(kEveryLane, v, 1);
  if (fault == 2 && lane == 5) return;
  out[lane] = v;
}
TEST_P(FindingsTest, WarpFunctionsAreReachedByTheirMask) {
  const Buffer<int32_t> out(32);
  const char* const kinds[] = {"shuffle reads a lane outside its mask", "lane is not in the mask of its warp function",
                               "", "lanes of one mask reach different warp functions"};
  for (const int fault : {0, 1, 2, 3}) {
    Start(Shuffles, 1, 32, out.data(), fault);
    ExpectFound(kinds[fault]);
  }
}

__global__ void Barriers(Global<int32_t> out, int fault) {
  const int i = static_cast<int>(threadIdx.x);
  if (fault == 0) {
    if (i < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
  if (fault == 1) {
    if (i < 32) {
      __syncthreads();
    } else if (i == 32) {
      __syncwarp();
    }
  }
  if (fault == 2 && i == 40) return;
  __syncthreads();
  out[i] = i;
}
TEST_P(FindingsTest, BarriersAreReachedByAll) {
  const Buffer<int32_t> out(64);
  Start(Barriers, 1, 64, out.data(), 0);
  ExpectFound("__syncthreads reached at two places");
  Start(Barriers, 1, 64, out.data(), 1);
  ExpectFound("deadlock");
  Start(Barriers, 1, 64, out.data(), 2);
  ExpectFound("ended");
  // The next launch is not harmed by threads that never came back.
  Start(Barriers, 1, 64, out.data(), 3);
  EXPECT_EQ(out.Read()[63], 63);
}

__global__ void SharedFaults(Global<float> out, int fault) {
  TACTUS_SHARED(float, values, 32);
  const Shared<float> dynamic = DynamicShared<float>(0, fault == 0 ? 65 : 64);
  const int i = static_cast<int>(threadIdx.x);
  values[i] = 1.0f;
  dynamic[i] = 2.0f;
  float v = 0.0f;
  if (fault == 1) v = values[i + 1];
  if (fault == 2) v = values[(i + 1) % 32];
  if (fault == 3) v = dynamic[32 + i];
  out[i] = v;
}
TEST_P(FindingsTest, SharedMemoryIsChecked) {
  const Buffer<float> out(32);
  const char* const kinds[] = {"element 65 of 64 of shared memory", "element 32 of 32 of shared memory",
                               "race: ", "read of never-written memory"};
  for (const int fault : {0, 1, 2, 3}) {
    Start(SharedFaults, 1, 32, out.data(), fault);
    ExpectFound(kinds[fault]);
  }
}

__global__ void Copies(Global<const float> from, Global<float> out, int fault) {
  TACTUS_SHARED(float, values, 4);
  CpAsync16(values.At(0), from, fault == 3 ? 6 : 0, true);
  CpAsyncCommit();
  if (fault == 1) values[1] = 0.0f;
  if (fault != 2) CpAsyncWait<0>();
  if (fault == 0) CpAsync16(values.At(0), from, 0, true);
  const float v = values[fault == 2 ? 3 : 0];
  out[0] = v;
}
TEST_P(FindingsTest, AsynchronousCopiesAreWaitedFor) {
  const Buffer<float> from(std::vector<float>(8)), out(1);
  const char* const kinds[] = {"thread ends with cp.async that it never waited for", "write over cp.async in flight",
                               "read of cp.async data in flight", "read out of bounds"};
  for (const int fault : {0, 1, 2, 3}) {
    Start(Copies, 1, 1, from.data(), out.data(), fault);
    ExpectFound(kinds[fault]);
  }
}

TEST_P(FindingsTest, ProductsArePrepared) {
  const auto gemm = std::move(Gemm::Create(true)).value();
  ASSERT_TRUE(gemm->Prepare(4, 4, 2, Real::kF32, Real::kF32).ok());
  const Buffer<float> x(std::vector<float>(16)), w(std::vector<float>(16)), y(16), unwritten(16);
  GemmCall call{.x = x.data(), .w = w.data(), .type = Real::kF32, .tokens = 2, .rows = 4, .cols = 4};
  call.y = y.data();
  call.y_type = Real::kF32;
  call.y_stride = 4;
  gemm->Multiply(stream(), call);
  EXPECT_TRUE(emulator::TakeFindings().empty());
  call.tokens = 3;
  gemm->Multiply(stream(), call);
  ExpectFound("rows 4, cols 4, tokens 3 were not prepared", "Multiply");
  call.tokens = 2;
  call.x = unwritten.data();
  gemm->Multiply(stream(), call);
  ExpectFound("never-written memory", "Multiply: x");
  call.x = x.data() + 12;
  gemm->Multiply(stream(), call);
  ExpectFound("32 bytes from byte 48", "Multiply: x");
}

TEST_P(FindingsTest, CaptureAllocatesNothing) {
  stream().BeginCapture();
  const auto memory = DeviceMemory::Allocate(16, "late");
  stream().EndCapture();
  ExpectFound("late while a stream is captured", "DeviceMemory::Allocate");
}

TEST_P(FindingsTest, ShapesThatACardRefusesFailTheDevice) {
  const Buffer<int32_t> out(64);
  Start(Barriers, 1, 1025, out.data(), 3);
  stream().Synchronize();
  EXPECT_NE(DeviceStatus().message().find("1025 threads"), std::string::npos) << DeviceStatus().ToString();
  emulator::ResetDevice();
  Launch("Planted", stream(), Barriers, dim3(1), 64, 100 * 1024, out.data(), 3);
  EXPECT_NE(DeviceStatus().message().find("102400 bytes of shared memory"), std::string::npos);
  emulator::ResetDevice();
}

}  // namespace
}  // namespace tactus::compute::cuda
