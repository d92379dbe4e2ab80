// Accesses of two streams, or of a stream and the host, that nothing orders are found; those that an event, the host, a
// stream or a graph orders are not.
#include <functional>

#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/launch.h"
#include "cuda/emulator/device_test.h"
#include "cuda/emulator/samples/samples.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kValues = 8;

__global__ void Double(Global<float> a) {
  const auto i = static_cast<int64_t>(threadIdx.x);
  a[i] = 2.0f * a[i];
}

class OrderTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_TRUE(gemm_->Prepare(kValues, kValues, 1, Real::kBF16, Real::kBF16).ok());
  }
  static std::unique_ptr<Event> MakeEvent() { return std::move(Event::Create()).value(); }
  static PinnedMemory MakePinned(int64_t bytes) { return std::move(PinnedMemory::Allocate(bytes)).value(); }
  // What was found since the last call, in one line each, after all work has run.
  static std::string Found() {
    std::string all;
    for (const std::string& finding : emulator::TakeFindings()) all += finding + "\n";
    return all;
  }
  void ReadX(Stream& s) { SampleNorm(s, x_.data(), weight_.data(), 1, kValues, 0.0f, spare_.data()); }
  void WriteX(Stream& s) { SampleNorm(s, z_.data(), weight_.data(), 1, kValues, 0.0f, x_.data()); }

  const std::unique_ptr<Stream> other_ = std::move(Stream::Create()).value();
  const std::unique_ptr<Event> event_ = MakeEvent();
  const std::unique_ptr<Gemm> gemm_ = std::move(Gemm::Create(true)).value();
  const Buffer<uint16_t> x_{std::vector<uint16_t>(kValues, 0x3f80)}, z_{std::vector<uint16_t>(kValues, 0x3f80)};
  const Buffer<uint16_t> w_{std::vector<uint16_t>(kValues * kValues, 0x3f80)}, spare_{kValues};
  const Buffer<float> weight_{std::vector<float>(kValues, 1.0f)};
  const PinnedMemory pinned_ = MakePinned(2 * kValues), more_pinned_ = MakePinned(2 * kValues);
};
INSTANTIATE_TEST_SUITE_P(Lanes, OrderTest, ::testing::Values(LaneOrder::kForward));

TEST_P(OrderTest, ConflictsOfTwoStreamsAreFoundInEitherOrder) {
  struct Access {
    std::string name;
    std::function<void(Stream&)> enqueue;
  };
  const Access kernel_reads = {"Norm", [&](Stream& s) { ReadX(s); }};
  const Access kernel_writes = {"Norm", [&](Stream& s) { WriteX(s); }};
  const Access fill = {"Fill", [&](Stream& s) { s.Fill(x_.data(), 0, 2 * kValues); }};
  const Access to_device = {"CopyToDevice", [&](Stream& s) { s.CopyToDevice(x_.data(), pinned_.as(), 2 * kValues); }};
  const Access to_host = {"CopyToHost", [&](Stream& s) { s.CopyToHost(more_pinned_.as(), x_.data(), 2 * kValues); }};
  const Access copy_reads = {"CopyOnDevice", [&](Stream& s) { s.CopyOnDevice(spare_.data(), x_.data(), 2 * kValues); }};
  const Access copy_writes = {"CopyOnDevice", [&](Stream& s) { s.CopyOnDevice(x_.data(), z_.data(), 2 * kValues); }};
  const Access product_reads = {"Multiply", [&](Stream& s) {
                                  gemm_->Multiply(s, {.x = x_.data(),
                                                      .w = w_.data(),
                                                      .tokens = 1,
                                                      .rows = kValues,
                                                      .cols = kValues,
                                                      .y = spare_.data(),
                                                      .y_stride = kValues});
                                }};
  const Access product_writes = {"Multiply", [&](Stream& s) {
                                   gemm_->Multiply(s, {.x = z_.data(),
                                                       .w = w_.data(),
                                                       .tokens = 1,
                                                       .rows = kValues,
                                                       .cols = kValues,
                                                       .y = x_.data(),
                                                       .y_stride = kValues});
                                 }};
  // A copy of results before the kernel that writes them, data that are sent while a kernel reads the last ones, ...
  const std::vector<std::pair<Access, Access>> conflicts = {
      {kernel_writes, to_host},      {kernel_reads, to_device},   {kernel_reads, fill},
      {kernel_reads, copy_writes},   {kernel_writes, copy_reads}, {fill, to_host},
      {kernel_writes, kernel_reads}, {kernel_writes, fill},       {kernel_reads, product_writes},
      {product_reads, fill},         {product_writes, to_host},   {product_writes, to_device}};
  for (const auto& [first, second] : conflicts) {
    SCOPED_TRACE(first.name + " and " + second.name);
    for (const bool in_order : {true, false}) {
      first.enqueue(stream());
      second.enqueue(*other_);
      (in_order ? stream() : *other_).Synchronize();
      const std::string found = Found();
      EXPECT_NE(found.find("race"), std::string::npos) << "nothing was found";
      EXPECT_NE(found.find((in_order ? first : second).name), std::string::npos) << found;
    }
    first.enqueue(stream());
    event_->Record(stream());
    other_->Wait(*event_);
    second.enqueue(*other_);
    EXPECT_EQ(Found(), "") << "an event orders them";
    first.enqueue(stream());
    stream().Synchronize();
    second.enqueue(*other_);
    EXPECT_EQ(Found(), "") << "the host has waited for the first";
    // The event is there, the wait for it is not.
    emulator::DropWaitAfter(0);
    first.enqueue(stream());
    event_->Record(stream());
    other_->Wait(*event_);
    second.enqueue(*other_);
    EXPECT_NE(Found(), "") << "the wait was dropped";
  }
}

TEST_P(OrderTest, FindingsNameBothSides) {
  WriteX(stream());
  other_->CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  stream().Synchronize();
  EXPECT_EQ(Found(), "race between streams: CopyToHost reads Buffer, nothing orders it with Norm\n");
  other_->Fill(x_.data(), 0, 2 * kValues);
  ReadX(stream());
  other_->Synchronize();
  const std::string found = Found();
  EXPECT_NE(found.find("race: read after write in Norm"), std::string::npos) << found;
  EXPECT_NE(found.find("Buffer, in another stream by Fill"), std::string::npos) << found;
}

TEST_P(OrderTest, ReadsAndOtherBytesAreNoRace) {
  ReadX(stream());
  ReadX(stream());
  other_->CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  stream().Fill(z_.data(), 1, 6);  // a part of a word
  other_->Fill(z_.data() + 3, 2, 2 * kValues - 6);
  EXPECT_EQ(Found(), "");
  EXPECT_EQ(z_.Read()[2], 0x0101);
  EXPECT_EQ(z_.Read()[3], 0x0202);
}

TEST_P(OrderTest, OrderGoesThroughOtherStreams) {
  const auto third = std::move(Stream::Create()).value();
  WriteX(stream());
  event_->Record(stream());
  other_->Wait(*event_);
  event_->Record(*other_);
  third->Wait(*event_);
  third->Fill(x_.data(), 0, 2 * kValues);
  EXPECT_EQ(Found(), "");
}

// An event stands for the work before its record alone.
TEST_P(OrderTest, WorkAfterTheEventIsNotOrdered) {
  event_->Record(stream());
  WriteX(stream());
  other_->Wait(*event_);
  other_->Fill(x_.data(), 0, 2 * kValues);
  EXPECT_NE(Found(), "");
  event_->Record(stream());
  WriteX(stream());
  event_->Synchronize();
  other_->Fill(x_.data(), 0, 2 * kValues);
  EXPECT_NE(Found(), "");
}

// A stream reads what another one has read, and writes it: it comes after its own read, not after the other's.
TEST_P(OrderTest, ReadIsKeptBesideALaterOne) {
  stream().CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  other_->CopyToHost(more_pinned_.as(), x_.data(), 2 * kValues);
  other_->Fill(x_.data(), 0, 2 * kValues);
  stream().Synchronize();
  EXPECT_EQ(Found(), "race between streams: Fill writes Buffer, nothing orders it with CopyToHost\n");
  ReadX(stream());
  SampleNorm(*other_, x_.data(), weight_.data(), 1, kValues, 0.0f, x_.data());
  stream().Synchronize();
  std::string found = Found();
  EXPECT_NE(found.find("race: write after read in Norm"), std::string::npos) << found;
  EXPECT_NE(found.find("in another stream by Norm"), std::string::npos) << found;
  ReadX(stream());
  Launch("Double", *other_, Double, dim3(1), static_cast<int>(kValues), 0, weight_.data());
  stream().Synchronize();
  found = Found();
  EXPECT_NE(found.find("race: write after read in Double"), std::string::npos) << found;
}

// A word of which two works have written a half each, and a third one reads all.
TEST_P(OrderTest, HalvesOfAWordKeepTheirOwnWrites) {
  stream().Fill(weight_.data(), 0, 2);
  event_->Record(stream());
  stream().Fill(reinterpret_cast<std::byte*>(weight_.data()) + 2, 0, 2);
  WriteX(stream());  // reads words of weight_
  other_->Wait(*event_);
  other_->CopyToHost(pinned_.as(), weight_.data(), 2);
  stream().Synchronize();
  EXPECT_EQ(Found(), "");
  stream().Fill(weight_.data(), 0, 2);
  event_->Record(stream());
  stream().Fill(reinterpret_cast<std::byte*>(weight_.data()) + 2, 0, 2);
  WriteX(stream());
  other_->Wait(*event_);
  other_->CopyToHost(pinned_.as(), weight_.data(), 4);
  stream().Synchronize();
  EXPECT_NE(Found(), "");
}

// Both reads are by several blocks, the first one alone comes before the write.
TEST_P(OrderTest, LaterReadOfManyBlocksIsSeen) {
  constexpr int64_t kTokens = 4;
  const Buffer<uint16_t> x(std::vector<uint16_t>(kTokens * kValues, 0x3f80)), y(kTokens * kValues);
  const auto read_weight = [&] { SampleNorm(stream(), x.data(), weight_.data(), kTokens, kValues, 0.0f, y.data()); };
  const auto filled = MakeEvent();
  other_->Fill(z_.data(), 0, 2);  // nothing orders the reads with it
  filled->Record(*other_);
  read_weight();
  event_->Record(stream());
  read_weight();
  other_->Wait(*event_);
  other_->Fill(weight_.data(), 0, 4);
  filled->Synchronize();
  stream().Synchronize();
  EXPECT_EQ(Found(), "race between streams: Fill writes Buffer, nothing orders it with Norm\n");
}

TEST_P(OrderTest, OrderedStreamsStayOrderedForManyRounds) {
  const auto back = MakeEvent();
  for (int round = 0; round < 300; ++round) {
    WriteX(*other_);
    event_->Record(*other_);
    if (round % 3 == 0) {
      event_->Synchronize();
    } else {
      stream().Wait(*event_);
    }
    ReadX(stream());
    back->Record(stream());
    other_->Wait(*back);
  }
  EXPECT_EQ(Found(), "");
}

TEST_P(OrderTest, OneGemmInTwoStreamsIsFound) {
  const Buffer<uint16_t> y(kValues);
  GemmCall call{.x = x_.data(),
                .w = w_.data(),
                .tokens = 1,
                .rows = kValues,
                .cols = kValues,
                .y = y.data(),
                .y_stride = kValues};
  gemm_->Multiply(stream(), call);
  call.y = spare_.data();
  gemm_->Multiply(*other_, call);
  EXPECT_EQ(Found(), "race between streams: products share scratch, nothing orders one with Multiply\n");
}

// ---- the host ----

// Data of a step that are written again before their copy has run.
TEST_P(OrderTest, PinnedMemoryChangedBeforeItIsReadIsFound) {
  stream().CopyToDevice(x_.data(), pinned_.as(), 2 * kValues);
  event_->Record(stream());
  event_->Synchronize();
  *pinned_.as<int32_t>() = 7;
  EXPECT_EQ(Found(), "");
  stream().CopyToDevice(x_.data(), pinned_.as(), 2 * kValues);
  event_->Record(stream());
  *pinned_.as<int32_t>() = 8;
  event_->Synchronize();
  EXPECT_EQ(Found(), "race with the host: memory was changed before CopyToDevice had read it\n");
}

TEST_P(OrderTest, PinnedMemoryChangedBeforeACopyIntoItIsFound) {
  stream().CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  *pinned_.as<int32_t>() = 7;
  EXPECT_EQ(Found(), "race with the host: memory was changed before CopyToHost had written it\n");
}

TEST_P(OrderTest, CopiesOfOneStreamMayUsePinnedMemoryAgain) {
  stream().CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  stream().CopyToDevice(spare_.data(), pinned_.as(), 2 * kValues);
  stream().CopyToHost(pinned_.as(), z_.data(), 2 * kValues);
  EXPECT_EQ(Found(), "");
}

TEST_P(OrderTest, PinnedMemoryOfTwoStreamsIsFound) {
  stream().CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  other_->CopyToDevice(spare_.data(), pinned_.as<char>() + kValues, kValues);
  EXPECT_EQ(Found(),
            "race between streams: CopyToDevice reads memory of the host, nothing orders it with CopyToHost\n");
  stream().CopyToHost(pinned_.as(), x_.data(), 2 * kValues);
  event_->Record(stream());
  other_->Wait(*event_);
  other_->CopyToDevice(spare_.data(), pinned_.as<char>() + kValues, kValues);
  EXPECT_EQ(Found(), "");
  stream().CopyToDevice(spare_.data(), pinned_.as(), kValues);
  other_->CopyToDevice(z_.data(), pinned_.as(), kValues);
  EXPECT_EQ(Found(), "") << "both read";
}

// On a card such a copy returns when the memory has been read.
TEST_P(OrderTest, CopyOfOrdinaryMemoryIsNotAwaited) {
  const std::vector<uint16_t> values(kValues, 0x3f80);
  stream().CopyToDevice(x_.data(), values.data(), 2 * kValues);
  ReadX(*other_);
  EXPECT_NE(Found(), "");
  stream().CopyToDevice(x_.data(), values.data(), 2 * kValues);
  stream().Synchronize();
  ReadX(*other_);
  EXPECT_EQ(Found(), "");
}

// ---- graphs ----

TEST_P(OrderTest, ForkOfAGraphThatComesTooEarlyIsFound) {
  const auto joined = MakeEvent();
  for (const bool too_early : {true, false}) {
    stream().BeginCapture();
    if (too_early) event_->Record(stream());
    WriteX(stream());
    if (!too_early) event_->Record(stream());
    other_->Wait(*event_);
    ReadX(*other_);
    joined->Record(*other_);
    stream().Wait(*joined);
    WriteX(stream());
    const auto graph = stream().EndCapture();
    ASSERT_NE(graph, nullptr) << DeviceStatus().ToString();
    EXPECT_EQ(Found(), "");
    for (int run = 0; run < 3; ++run) stream().Run(*graph);
    EXPECT_EQ(Found() != "", too_early);
  }
}

TEST_P(OrderTest, GraphBesideAnotherStreamIsFound) {
  stream().BeginCapture();
  WriteX(stream());
  const auto graph = stream().EndCapture();
  ASSERT_NE(graph, nullptr) << DeviceStatus().ToString();
  const auto copy = [&] { other_->CopyToHost(pinned_.as(), x_.data(), 2 * kValues); };
  stream().Run(*graph);
  copy();
  EXPECT_NE(Found(), "");
  stream().Run(*graph);
  event_->Record(stream());
  other_->Wait(*event_);
  copy();
  EXPECT_EQ(Found(), "");
  event_->Record(*other_);
  stream().Run(*graph);  // does not wait for the copy
  EXPECT_EQ(Found(), "") << "the host has waited for the copy";
  copy();
  stream().Run(*graph);
  EXPECT_NE(Found(), "");
}

}  // namespace
}  // namespace tactus::compute::cuda
