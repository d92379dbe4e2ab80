// Run files: written rows are read back, and no truncated or damaged file is read as complete.
#include "results/obs/run_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "results/obs/run_reader.h"
#include "results/obs/run_series.h"

namespace tactus::results {
namespace {

namespace fs = std::filesystem;

class RunFileTest : public ::testing::Test {
 protected:
  RunFileTest() : dir_(fs::temp_directory_path() / ("tactus_run_file_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~RunFileTest() override { fs::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }

  const fs::path dir_;
};

RunAbout About() {
  RunAbout about;
  about.command = "sim";
  about.program = "1.2.3";
  about.options = {{"rate", "8"}, {"scheduler", "sarathi-serve"}};
  about.stated = {"rate"};
  about.interval_ns = kSecond / 2;
  return about;
}

RunRequest ARequest(int64_t number) {
  RunRequest r;
  r.number = number;
  r.id = "client,\"7\"\n";
  r.replica = 1;
  r.arrival_ns = 1'000'000'001;
  r.scheduled_ns = 1'500'000'000;
  r.first_token_ns = 2'000'000'000;
  r.done_ns = 9'123'456'789;
  r.prompt_tokens = 512;
  r.output_tokens = 100;
  r.longest_gap_ns = 123'456'789;
  r.finish = "length";
  r.slo_class = "chat";
  r.slo.tbt_ns = 50 * kMillisecond + 1;
  r.missed_by[1] = "prefill";
  return r;
}

RunStep AStep(int64_t number) {
  RunStep s;
  s.replica = 1;
  s.step = number;
  s.start_ns = number * 10 * kMillisecond;
  s.end_ns = s.start_ns + 9 * kMillisecond;
  s.prompt_tokens = 256;
  s.prompts = 1;
  s.decodes = 31;
  s.running = 32;
  s.waiting = 3;
  s.kv_used = 0.25;
  s.longest_gap_ns = 9 * kMillisecond;
  return s;
}

// Stores all rows, with copies of their texts.
class Kept : public RunVisitor {
 public:
  void Request(const RunRequest& r) override {
    requests.push_back(r);
    ids.emplace_back(r.id);
    causes.emplace_back(r.missed_by[1]);
    classes.emplace_back(r.slo_class);
  }
  void Step(const RunStep& s) override { steps.push_back(s); }
  void Interval(const RunInterval& i) override { intervals.push_back(i); }

  std::vector<RunRequest> requests;
  std::vector<std::string> ids, causes, classes;
  std::vector<RunStep> steps;
  std::vector<RunInterval> intervals;
};

Result<RunFile> Read(const std::string& path, RunVisitor* visitor) {
  RunFile run;
  TACTUS_RETURN_IF_ERROR(ReadRunFile(path, visitor, &run));
  return run;
}

std::unique_ptr<RunFileWriter> Writer(const std::string& path) {
  auto writer = RunFileWriter::Create(path, About(), RunFileWriter::WhenBehind::kWait);
  EXPECT_TRUE(writer.ok()) << writer.status().message();
  return std::move(*writer);
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A small complete run.
std::string SmallRun(const std::string& path) {
  auto writer = Writer(path);
  for (int64_t i = 0; i < 3; ++i) writer->Add(ARequest(i));
  for (int64_t i = 0; i < 5; ++i) writer->Add(AStep(i));
  EXPECT_TRUE(writer->Close(R"({"duration_s": 9.5})").ok());
  return Bytes(path);
}

TEST_F(RunFileTest, ReadsBackWhatWasWritten) {
  const std::string path = Path("run");
  auto writer = Writer(path);
  writer->Add(ARequest(7));
  writer->Add(AStep(4));
  RunInterval interval;
  interval.from_ns = kSecond;
  interval.arrived = 3;
  interval.in_flight = 2;
  interval.output_tokens = 40;
  interval.gap_ms = {.known = true, .p50 = 10.5, .p99 = 20, .max = 123.456};
  writer->Add(interval);
  ASSERT_TRUE(writer->Close(R"({"duration_s": 9.5})").ok());

  Kept kept;
  const auto run = Read(path, &kept);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_TRUE(run->complete());
  EXPECT_EQ(run->result["duration_s"], 9.5);
  EXPECT_EQ(run->about.command, "sim");
  EXPECT_EQ(run->about.program, "1.2.3");
  EXPECT_EQ(run->about.options, About().options);
  EXPECT_EQ(run->about.stated, About().stated);
  EXPECT_EQ(run->about.interval_ns, kSecond / 2);
  EXPECT_EQ(run->rows, (std::array<int64_t, kNumRunFileTables>{1, 1, 1}));

  ASSERT_EQ(kept.requests.size(), 1u);
  const RunRequest& r = kept.requests[0];
  const RunRequest expected = ARequest(7);
  EXPECT_EQ(r.number, 7);
  EXPECT_EQ(kept.ids[0], "client__7__");  // characters that a cell cannot hold are replaced
  EXPECT_EQ(r.replica, 1);
  EXPECT_EQ(r.arrival_ns, expected.arrival_ns);
  EXPECT_EQ(r.scheduled_ns, expected.scheduled_ns);
  EXPECT_EQ(r.first_token_ns, expected.first_token_ns);
  EXPECT_EQ(r.done_ns, expected.done_ns);
  EXPECT_EQ(r.prompt_tokens, 512);
  EXPECT_EQ(r.cached_tokens, -1);
  EXPECT_EQ(r.preemptions, -1);
  EXPECT_EQ(r.longest_gap_ns, expected.longest_gap_ns);
  EXPECT_EQ(kept.classes[0], "chat");
  EXPECT_EQ(r.slo.tbt_ns, expected.slo.tbt_ns);
  EXPECT_EQ(r.slo.ttft_ns, 0);
  EXPECT_EQ(kept.causes[0], "prefill");

  ASSERT_EQ(kept.steps.size(), 1u);
  EXPECT_EQ(kept.steps[0].step, 4);
  EXPECT_EQ(kept.steps[0].end_ns, AStep(4).end_ns);
  EXPECT_EQ(kept.steps[0].waiting, 3);
  EXPECT_DOUBLE_EQ(kept.steps[0].kv_used, 0.25);
  EXPECT_EQ(kept.steps[0].longest_gap_ns, 9 * kMillisecond);

  ASSERT_EQ(kept.intervals.size(), 1u);
  EXPECT_EQ(kept.intervals[0].from_ns, kSecond);
  EXPECT_FALSE(kept.intervals[0].ttft_ms.known);
  EXPECT_DOUBLE_EQ(kept.intervals[0].gap_ms.max, 123.456);
}

TEST_F(RunFileTest, TablesOfManyPartsKeepTheirOrder) {
  const std::string path = Path("run");
  auto writer = Writer(path);
  constexpr int64_t kSteps = 20'000;  // some megabytes of CSV
  for (int64_t i = 0; i < kSteps; ++i) writer->Add(AStep(i));
  ASSERT_TRUE(writer->Close("{}").ok());
  Kept kept;
  ASSERT_TRUE(Read(path, &kept).ok());
  ASSERT_EQ(kept.steps.size(), static_cast<size_t>(kSteps));
  for (int64_t i = 0; i < kSteps; ++i) ASSERT_EQ(kept.steps[static_cast<size_t>(i)].step, i);
  EXPECT_LT(fs::file_size(path), 400'000u) << "the file is not compressed";
}

TEST_F(RunFileTest, ARecordingThatWasNotClosedIsIncompleteAndKeepsItsRows) {
  const std::string path = Path("run");
  {
    auto writer = Writer(path);
    for (int64_t i = 0; i < 20'000; ++i) writer->Add(AStep(i));
  }
  Kept kept;
  const auto run = Read(path, &kept);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_FALSE(run->complete());
  EXPECT_GT(kept.steps.size(), 15'000u);
}

// A file truncated at any point is an error or an incomplete run.
TEST_F(RunFileTest, ATruncatedFileIsNeverComplete) {
  const std::string whole = SmallRun(Path("run"));
  const std::string cut = Path("cut");
  const size_t result_ends = whole.find("PK\x01\x02");  // the archive's directory, after the last part
  ASSERT_NE(result_ends, std::string::npos);
  int incomplete = 0;
  for (size_t size = 0; size < result_ends; ++size) {
    WriteBytes(cut, whole.substr(0, size));
    Kept kept;
    const auto run = Read(cut, &kept);
    if (!run.ok()) continue;
    ++incomplete;
    // The data descriptor after the last part may be cut: its text is complete.
    if (run->complete()) {
      EXPECT_GE(size + 24, result_ends) << "cut to " << size;
    }
  }
  EXPECT_GT(incomplete, 0);
}

TEST_F(RunFileTest, FlippedBitsNeverCrash) {
  const std::string whole = SmallRun(Path("run"));
  const std::string flipped = Path("flipped");
  int64_t noticed = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char bit : {1, 32}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
      WriteBytes(flipped, bytes);
      Kept kept;
      const auto run = Read(flipped, &kept);
      if (run.ok()) continue;
      EXPECT_FALSE(run.status().message().empty());
      ++noticed;
    }
  }
  EXPECT_GT(noticed, static_cast<int64_t>(whole.size() / 2));
}

TEST_F(RunFileTest, DamagedRowsNameWhereTheyAre) {
  const std::string path = Path("run");
  std::string bytes = SmallRun(path);
  // Damages a byte in the middle of the first table's part.
  const size_t at = bytes.find("requests/000000.csv") + 60;
  bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
  WriteBytes(path, bytes);
  const auto run = Read(path, nullptr);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(run.status().message().find("damaged in requests/000000.csv"), std::string::npos) << run.status().message();
}

TEST_F(RunFileTest, OtherFilesAreReportedAsNotRunFiles) {
  const std::string path = Path("file");
  for (const char* text : {"", "{\"duration_s\": 3}\n", "PK\x03\x04 and then nothing of a zip archive"}) {
    WriteBytes(path, text);
    const auto run = Read(path, nullptr);
    ASSERT_FALSE(run.ok()) << text;
    EXPECT_EQ(run.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(run.status().message().find("is not a run file"), std::string::npos) << run.status().message();
    EXPECT_NE(run.status().message().find("--run-out"), std::string::npos);
  }
  EXPECT_EQ(Read(Path("none"), nullptr).status().code(), StatusCode::kNotFound);
}

TEST_F(RunFileTest, AnEmptyRunIsAnError) {
  const std::string path = Path("run");
  Writer(path).reset();
  const auto run = Read(path, nullptr);
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.status().message().find("is empty"), std::string::npos) << run.status().message();
}

TEST_F(RunFileTest, ARunWithoutRequestsIsAnError) {
  const std::string path = Path("run");
  ASSERT_TRUE(Writer(path)->Close("{}").ok());
  const auto run = Read(path, nullptr);
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.status().message().find("it recorded no requests"), std::string::npos) << run.status().message();
}

TEST_F(RunFileTest, AFullDiskIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const auto writer = RunFileWriter::Create("/dev/full", About(), RunFileWriter::WhenBehind::kWait);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(writer.status().message().find("/dev/full"), std::string::npos);
}

TEST(RunSeriesTest, CountsByInterval) {
  std::vector<RunInterval> rows;
  RunSeries series(kSecond, [&rows](const RunInterval& row) { rows.push_back(row); });
  series.Arrived(200 * kMillisecond);
  series.Arrived(300 * kMillisecond);
  series.Tokens(500 * kMillisecond, 300 * kMillisecond, true);
  series.Tokens(600 * kMillisecond, 100 * kMillisecond, false, 2);
  series.Ended(3 * kSecond, RunSeries::End::kCompleted);
  series.Ended(3 * kSecond, RunSeries::End::kRejected);
  series.Arrived(10 * kSecond);  // after seconds without requests in flight
  series.Finish();

  std::vector<int64_t> from_s, in_flight;
  for (const RunInterval& row : rows) {
    from_s.push_back(row.from_ns / kSecond);
    in_flight.push_back(row.in_flight);
  }
  EXPECT_EQ(from_s, (std::vector<int64_t>{0, 1, 2, 3, 10}));
  EXPECT_EQ(in_flight, (std::vector<int64_t>{2, 2, 2, 0, 1}));
  EXPECT_EQ(rows[0].output_tokens, 3);
  EXPECT_DOUBLE_EQ(rows[0].ttft_ms.p50, 300);
  EXPECT_DOUBLE_EQ(rows[0].gap_ms.max, 100);
  EXPECT_FALSE(rows[1].gap_ms.known);
  EXPECT_EQ(rows[3].completed, 1);
  EXPECT_EQ(rows[3].rejected, 1);
}

}  // namespace
}  // namespace tactus::results
