#include "results/obs/run_file.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/printable.h"

namespace tactus::results {
namespace {

constexpr size_t kPartBytes = size_t{256} << 10;  // CSV bytes per part
constexpr size_t kMostUnwritten = size_t{256} << 20;
constexpr size_t kWaitAbove = size_t{4} << 20;  // unwritten bytes at which a writer with kWait blocks

// Cells must not contain a comma, a quote or a line break (base/csv.h).
void AppendText(std::string_view text, std::string* out) {
  for (const char c : text) out->push_back(c == ',' || c == '"' || static_cast<uint8_t>(c) < 0x20 ? '_' : c);
}
void AppendSeconds(TimeNs ns, std::string* out) {
  if (ns >= 0) fmt::format_to(std::back_inserter(*out), "{}.{:09}", ns / kSecond, ns % kSecond);
}
void AppendCount(int64_t n, std::string* out) {
  if (n >= 0) fmt::format_to(std::back_inserter(*out), "{}", n);
}
void AppendMilliseconds(DurationNs ns, std::string* out) {
  if (ns > 0) fmt::format_to(std::back_inserter(*out), "{}.{:06}", ns / kMillisecond, ns % kMillisecond);
}
void AppendSummary(const Summary& s, std::string* out) {
  if (s.known) {
    fmt::format_to(std::back_inserter(*out), ",{:.6f},{:.6f},{:.6f}", s.p50, s.p99, s.max);
  } else {
    *out += ",,,";
  }
}

std::string AboutJson(const RunAbout& about) {
  Json options = Json::object();
  for (const auto& [name, text] : about.options) options[name] = text;
  const Json json = {{"format", kRunFileFormat},
                     {"version", kRunFileVersion},
                     {"program", about.program},
                     {"command", about.command},
                     {"interval_s", static_cast<double>(about.interval_ns) * 1e-9},
                     {"options", std::move(options)},
                     {"stated", about.stated}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

const char* RunFileTableName(RunFileTable table) {
  constexpr const char* kNames[kNumRunFileTables] = {"requests", "steps", "timeseries"};
  return kNames[static_cast<size_t>(table)];
}

const char* RunFileTableHeader(RunFileTable table) {
  constexpr const char* kHeaders[kNumRunFileTables] = {
      "request,id,replica,arrival_s,scheduled_s,first_token_s,done_s,prompt_tokens,cached_tokens,output_tokens,"
      "longest_gap_s,preemptions,recomputed_tokens,finish,slo_class,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,ttft_missed_by,"
      "tbt_missed_by,jct_missed_by",
      "replica,step,start_s,end_s,prompt_tokens,prompts,decodes,running,waiting,kv_used,preemptions,longest_gap_s",
      "from_s,arrived,completed,failed,rejected,in_flight,output_tokens,ttft_p50_ms,ttft_p99_ms,ttft_max_ms,gap_p50_ms,"
      "gap_p99_ms,gap_max_ms"};
  return kHeaders[static_cast<size_t>(table)];
}

struct RunFileWriter::Impl {
  struct Member {
    std::string name, text;
  };
  struct Table {
    std::string rows;
    int64_t parts = 0;
  };

  // --- caller's thread ---
  std::string* Rows(RunFileTable table) {
    std::string& rows = tables[static_cast<size_t>(table)].rows;
    if (rows.empty()) rows = std::string(RunFileTableHeader(table)) + "\n";
    return &rows;
  }
  void RowEnds(RunFileTable table) {
    Table& t = tables[static_cast<size_t>(table)];
    t.rows.push_back('\n');
    if (t.rows.size() >= kPartBytes) EndPart(table);
  }
  void EndPart(RunFileTable table) {
    Table& t = tables[static_cast<size_t>(table)];
    if (t.rows.empty()) return;
    HandOver({fmt::format("{}/{:06}.csv", RunFileTableName(table), t.parts++), std::move(t.rows)});
    t.rows = {};
  }
  void HandOver(Member member) {
    std::unique_lock lock(mutex);
    if (when_behind == WhenBehind::kWait) room.wait(lock, [this] { return unwritten <= kWaitAbove || failed; });
    given_up = given_up || unwritten > kMostUnwritten;
    if (given_up || failed) return;
    unwritten += member.text.size();
    full.push_back(std::move(member));
    wake.notify_one();
  }

  // --- writer thread ---
  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return closing || !full.empty(); });
      if (full.empty()) return;
      const Member member = std::move(full.front());
      full.pop_front();
      lock.unlock();
      const bool written = Write(member);
      lock.lock();
      unwritten -= member.text.size();
      failed = failed || !written;
      room.notify_one();
    }
  }
  bool Write(const Member& member) {
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, member.name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(member.text.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    return archive_write_header(zip, entry) == ARCHIVE_OK &&
           archive_write_data(zip, member.text.data(), member.text.size()) ==
               static_cast<la_ssize_t>(member.text.size()) &&
           archive_write_finish_entry(zip) == ARCHIVE_OK && error == 0;
  }
  // Write callback of libarchive. It always reports success, because libarchive leaks part of an archive whose writing
  // failed.
  static la_ssize_t Take(archive*, void* self, const void* bytes, size_t size) {
    Impl& w = *static_cast<Impl*>(self);
    const char* at = static_cast<const char*>(bytes);
    for (size_t left = size; left > 0 && w.error == 0 && !w.abandoned;) {
      const ssize_t written = write(fileno(w.file), at, left);
      if (written < 0 && errno != EINTR) w.error = errno;
      if (written < 0) continue;
      at += written;
      left -= static_cast<size_t>(written);
    }
    return static_cast<la_ssize_t>(size);
  }
  const char* Why() const {
    if (error != 0) return std::strerror(error);
    const char* why = archive_error_string(zip);
    return why != nullptr ? why : "input/output error";
  }
  // Writes everything queued, then joins the thread.
  void Join() {
    {
      std::lock_guard lock(mutex);
      closing = true;
      wake.notify_one();
    }
    if (thread.joinable()) thread.join();
  }

  ~Impl() {
    Join();
    // Without Close the archive has no end record, as after a killed program, but keeps all complete parts.
    abandoned = !closed;
    archive_write_free(zip);
    archive_entry_free(entry);
    if (file != nullptr) std::fclose(file);
  }

  std::string path;
  DurationNs interval_ns = kSecond;
  WhenBehind when_behind = WhenBehind::kWait;
  std::array<Table, kNumRunFileTables> tables;
  bool closed = false;

  std::FILE* file = nullptr;  // used by the writer thread until it has ended
  int error = 0;              // errno of the first failed write; writer thread
  bool abandoned = false;     // further output of the archive is discarded
  archive* zip = archive_write_new();
  archive_entry* entry = archive_entry_new();

  std::mutex mutex;
  std::condition_variable wake, room;
  std::deque<Member> full;
  size_t unwritten = 0;  // bytes of rows
  bool closing = false, failed = false, given_up = false;
  std::thread thread;
};

RunFileWriter::RunFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFileWriter::~RunFileWriter() = default;

Result<std::unique_ptr<RunFileWriter>> RunFileWriter::Create(const std::string& path, const RunAbout& about,
                                                             WhenBehind when_behind) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->interval_ns = about.interval_ns;
  impl->when_behind = when_behind;
  const auto cannot = [&path](const char* why) {
    return DataLoss(fmt::format("cannot write the run file '{}': {}", Printable(path), why));
  };
  errno = 0;
  impl->file = std::fopen(path.c_str(), "wbe");
  if (impl->file == nullptr) return cannot(std::strerror(errno));
  archive* zip = impl->zip;
  if (archive_write_set_format_zip(zip) != ARCHIVE_OK || archive_write_zip_set_compression_deflate(zip) != ARCHIVE_OK ||
      archive_write_set_bytes_per_block(zip, 0) != ARCHIVE_OK ||
      archive_write_open(zip, impl.get(), nullptr, &Impl::Take, nullptr) != ARCHIVE_OK) {
    return cannot(archive_error_string(zip));
  }
  if (!impl->Write({"run.json", AboutJson(about)})) return cannot(impl->Why());
  // The writer thread blocks all signals: they must reach the threads that handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  impl->thread = std::thread([writer = impl.get()] { writer->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return std::unique_ptr<RunFileWriter>(new RunFileWriter(std::move(impl)));
}

void RunFileWriter::Add(const RunRequest& r) {
  std::string* out = impl_->Rows(RunFileTable::kRequests);
  const auto comma = [out] { out->push_back(','); };
  AppendCount(r.number, out), comma();
  AppendText(r.id, out), comma();
  AppendCount(r.replica, out), comma();
  for (const TimeNs ns : {r.arrival_ns, r.scheduled_ns, r.first_token_ns, r.done_ns}) AppendSeconds(ns, out), comma();
  for (const int64_t n : {r.prompt_tokens, r.cached_tokens, r.output_tokens}) AppendCount(n, out), comma();
  AppendSeconds(r.longest_gap_ns, out), comma();
  for (const int64_t n : {r.preemptions, r.recomputed_tokens}) AppendCount(n, out), comma();
  AppendText(r.finish, out), comma();
  AppendText(r.slo_class, out);
  for (const DurationNs ns : {r.slo.ttft_ns, r.slo.tbt_ns, r.slo.jct_ns}) comma(), AppendMilliseconds(ns, out);
  for (const std::string_view cause : r.missed_by) comma(), AppendText(cause, out);
  impl_->RowEnds(RunFileTable::kRequests);
}

void RunFileWriter::Add(const RunStep& s) {
  std::string* out = impl_->Rows(RunFileTable::kSteps);
  const auto comma = [out] { out->push_back(','); };
  AppendCount(s.replica, out), comma();
  AppendCount(s.step, out), comma();
  AppendSeconds(s.start_ns, out), comma();
  AppendSeconds(s.end_ns, out), comma();
  for (const int64_t n : {s.prompt_tokens, s.prompts, s.decodes, s.running, s.waiting}) AppendCount(n, out), comma();
  if (s.kv_used >= 0) fmt::format_to(std::back_inserter(*out), "{:.5f}", s.kv_used);
  comma(), AppendCount(s.preemptions, out);
  comma(), AppendSeconds(s.longest_gap_ns, out);
  impl_->RowEnds(RunFileTable::kSteps);
}

void RunFileWriter::Add(const RunInterval& i) {
  std::string* out = impl_->Rows(RunFileTable::kTimeseries);
  AppendSeconds(i.from_ns, out);
  fmt::format_to(std::back_inserter(*out), ",{},{},{},{},{},{}", i.arrived, i.completed, i.failed, i.rejected,
                 i.in_flight, i.output_tokens);
  AppendSummary(i.ttft_ms, out);
  AppendSummary(i.gap_ms, out);
  impl_->RowEnds(RunFileTable::kTimeseries);
}

DurationNs RunFileWriter::interval_ns() const {
  return impl_->interval_ns;
}

Status RunFileWriter::Close(const std::string& result_json) {
  Impl& w = *impl_;
  for (size_t t = 0; t < kNumRunFileTables; ++t) w.EndPart(static_cast<RunFileTable>(t));
  w.Join();
  const auto incomplete = [&w](const char* why) {
    return DataLoss(fmt::format("the run file '{}' is incomplete: {}", Printable(w.path), why));
  };
  if (w.given_up) return incomplete("the disk was too slow for it");
  if (w.failed || !w.Write({"result.json", result_json + "\n"}) || archive_write_close(w.zip) != ARCHIVE_OK ||
      w.error != 0) {
    return incomplete(w.Why());
  }
  w.closed = true;
  const bool closed = std::fclose(w.file) == 0;
  w.file = nullptr;
  return closed ? Status() : incomplete(std::strerror(errno));
}

}  // namespace tactus::results
