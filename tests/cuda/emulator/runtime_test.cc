// runtime.h on the emulated device: order of work, late results, graphs, errors.
#include <cstring>
#include <optional>

#include "cuda/emulator/device_test.h"
#include "cuda/emulator/samples/samples.h"

namespace tactus::compute::cuda {
namespace {

class RuntimeTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Lanes, RuntimeTest, ::testing::Values(LaneOrder::kForward));

PinnedMemory Pinned(int64_t bytes) {
  return std::move(PinnedMemory::Allocate(bytes)).value();
}
DeviceMemory OnDevice(int64_t bytes) {
  return std::move(DeviceMemory::Allocate(bytes, "test")).value();
}
std::unique_ptr<Event> NewEvent() {
  return std::move(Event::Create()).value();
}

TEST_P(RuntimeTest, ResultsArriveWithTheirEvent) {
  const PinnedMemory from = Pinned(4), to = Pinned(4);
  const DeviceMemory device = OnDevice(4);
  const auto event = NewEvent();
  *from.as<int32_t>() = 7;
  *to.as<int32_t>() = 5;
  stream().CopyToDevice(device.as(), from.as(), 4);
  stream().CopyToHost(to.as(), device.as(), 4);
  event->Record(stream());
  EXPECT_EQ(*to.as<int32_t>(), -1);
  event->Synchronize();
  EXPECT_EQ(*to.as<int32_t>(), 7);
}

TEST_P(RuntimeTest, PinnedMemoryReusedTooEarlyGivesWrongData) {
  const PinnedMemory from = Pinned(4);
  const Buffer<int32_t> device(1);
  *from.as<int32_t>() = 7;
  stream().CopyToDevice(device.data(), from.as(), 4);
  *from.as<int32_t>() = 8;
  EXPECT_EQ(device.Read()[0], 8);
  EXPECT_EQ(emulator::TakeFindings().size(), 1u);
}

TEST_P(RuntimeTest, CopyOfOrdinaryMemoryReadsItAtOnce) {
  const Buffer<int32_t> device(1);
  int32_t value = 7;
  stream().CopyToDevice(device.data(), &value, 4);
  value = 8;
  EXPECT_EQ(device.Read()[0], 7);
}

TEST_P(RuntimeTest, StreamWaitsForEventOfAnother) {
  const auto other = std::move(Stream::Create()).value();
  const Buffer<int32_t> a(1), b(1), c(1);
  const auto event = NewEvent();
  other->Fill(a.data(), 3, 4);
  event->Record(*other);
  other->Fill(c.data(), 4, 4);
  stream().Wait(*event);
  stream().CopyOnDevice(b.data(), a.data(), 4);
  stream().Synchronize();
  EXPECT_EQ(b.Read()[0], 0x03030303);
  other->Synchronize();
  EXPECT_EQ(c.Read()[0], 0x04040404);
}

TEST_P(RuntimeTest, PiecesAreGatheredAndScattered) {
  const PinnedMemory host = Pinned(24);
  const Buffer<int32_t> from(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Buffer<int32_t> to(std::vector<int32_t>(12, -1));
  stream().GatherToHost(host.as(), from.data() + 2, 16, 8, 3);
  stream().ScatterToDevice(to.data(), 16, host.as(), 8, 3);
  EXPECT_EQ(to.Read(), (std::vector<int32_t>{2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1}));
  stream().GatherToHost(host.as(), from.data() + 4, 16, 8, 3);
  const auto findings = emulator::TakeFindings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].find("CopyToHost: 8 bytes from byte 48 of Buffer, which has 48"), std::string::npos)
      << findings[0];
}

TEST_P(RuntimeTest, GraphRepeatsItsWork) {
  const PinnedMemory from = Pinned(4);
  const Buffer<int32_t> a(1), b(1);
  const auto other = std::move(Stream::Create()).value();
  const auto fork = NewEvent(), join = NewEvent();
  stream().BeginCapture();
  stream().CopyToDevice(a.data(), from.as(), 4);
  fork->Record(stream());
  other->Wait(*fork);
  other->CopyOnDevice(b.data(), a.data(), 4);
  join->Record(*other);
  stream().Wait(*join);
  const auto graph = stream().EndCapture();
  ASSERT_NE(graph, nullptr) << DeviceStatus().ToString();
  for (const int32_t value : {3, 4}) {
    *from.as<int32_t>() = value;
    stream().Run(*graph);
    EXPECT_EQ(b.Read()[0], value);
  }
}

TEST_P(RuntimeTest, GraphWithForkThatIsNotJoinedFails) {
  const auto other = std::move(Stream::Create()).value();
  const auto fork = NewEvent();
  stream().BeginCapture();
  fork->Record(stream());
  other->Wait(*fork);
  EXPECT_EQ(stream().EndCapture(), nullptr);
  EXPECT_FALSE(DeviceStatus().ok());
  emulator::ResetDevice();
}

// Arguments are those of the recording, also where the memory behind them has been given to others since.
TEST_P(RuntimeTest, GraphThatRefersToFreedMemoryIsFound) {
  PinnedMemory pinned = Pinned(8);
  std::optional<Buffer<float>> weight(std::vector<float>(8, 1.0f));
  std::optional<Buffer<uint16_t>> copied(8);
  const Buffer<uint16_t> x(std::vector<uint16_t>(8, 0x3f80)), out(8);
  stream().BeginCapture();
  stream().CopyToDevice(copied->data(), pinned.as(), 8);
  SampleNorm(stream(), x.data(), weight->data(), 1, 8, 0.0f, out.data());
  const auto graph = stream().EndCapture();
  ASSERT_NE(graph, nullptr) << DeviceStatus().ToString();
  stream().Run(*graph);
  EXPECT_EQ(out.Read()[0], 0x3f80);
  const auto found_in_run = [&] {
    stream().Run(*graph);
    stream().Synchronize();
    std::string all;
    for (const std::string& finding : emulator::TakeFindings()) all += finding + "\n";
    return all;
  };
  EXPECT_EQ(found_in_run(), "");
  weight.emplace(std::vector<float>(8, 1.0f));
  EXPECT_EQ(found_in_run(), "Run of a graph: Norm has an address of Buffer, which has been freed\n");
  pinned = PinnedMemory();
  pinned = Pinned(8);
  const std::string of_pinned = "Run of a graph: CopyToDevice has an address of pinned memory, which has been freed\n";
  EXPECT_NE(found_in_run().find(of_pinned), std::string::npos);
  copied.reset();
  const std::string of_target = "Run of a graph: CopyToDevice has an address of Buffer, which has been freed\n";
  EXPECT_NE(found_in_run().find(of_target), std::string::npos);
}

TEST_P(RuntimeTest, DeviceFailsOnceAndForAll) {
  const Buffer<float> weight(std::vector<float>(8, 1.0f));
  const Buffer<uint16_t> x(std::vector<uint16_t>(8, 0x3f80)), out(8);
  emulator::FailLaunchAfter(1, Internal("planned"));
  SampleNorm(stream(), x.data(), weight.data(), 1, 8, 0.0f, out.data());
  EXPECT_EQ(out.Read()[0], 0x3f80);
  SampleNorm(stream(), x.data(), weight.data(), 1, 8, 0.0f, out.data());
  stream().Synchronize();
  EXPECT_EQ(DeviceStatus().message(), "planned");
  EXPECT_FALSE(DeviceMemory::Allocate(4, "later").ok());
  emulator::ResetDevice();
}

TEST_P(RuntimeTest, MemoryBeyondTheDevicesIsRefused) {
  const auto memory = DeviceMemory::Allocate(int64_t{5} << 30, "KV of layer 3");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(memory.status().message().find("KV of layer 3"), std::string::npos);
  EXPECT_TRUE(OpenDevice(0).ok());
  EXPECT_EQ(OpenDevice(1).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(RuntimeTest, CopyOutOfBoundsIsFound) {
  const Buffer<int32_t> a(1);
  stream().Fill(a.data(), 0, 8);
  const auto findings = emulator::TakeFindings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].find("8 bytes from byte 0 of Buffer, which has 4"), std::string::npos) << findings[0];
}

}  // namespace
}  // namespace tactus::compute::cuda
