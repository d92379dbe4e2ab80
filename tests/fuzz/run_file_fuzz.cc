// Run files: the input as an archive, or an archive built from the input's pieces between zero bytes (checksums would
// reject nearly all other inputs). Every accepted file can be displayed.
#include <archive.h>
#include <archive_entry.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "results/report/page.h"
#include "results/report/perfetto.h"

namespace {

constexpr const char* kParts[] = {"run.json", "requests/000000.csv", "steps/000000.csv", "timeseries/000000.csv",
                                  "result.json"};

void WriteArchive(int file, std::string_view text) {
  archive* zip = archive_write_new();
  archive_write_set_format_zip(zip);
  archive_write_zip_set_compression_store(zip);
  archive_write_open_fd(zip, file);
  archive_entry* entry = archive_entry_new();
  for (const char* name : kParts) {
    const std::string_view part = text.substr(0, text.find('\0'));
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, static_cast<la_int64_t>(part.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_write_header(zip, entry);
    archive_write_data(zip, part.data(), part.size());
    if (part.size() == text.size()) break;
    text.remove_prefix(part.size() + 1);
  }
  archive_entry_free(entry);
  archive_write_free(zip);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const int file = memfd_create("run", 0);
  if (file < 0) std::abort();
  if (text.starts_with("PK")) {
    if (write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  } else {
    WriteArchive(file, text);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  auto run = tactus::results::ViewRun(path);
  if (run.ok()) {
    std::vector<tactus::results::RunView> runs = {*run, std::move(*run)};
    tactus::results::LabelRuns(&runs);
    if (tactus::results::Page(tactus::results::MakeReport(std::move(runs))).size() > 4'000'000) std::abort();
    if (!tactus::results::WritePerfetto(path, "/dev/null").ok()) std::abort();
  }
  close(file);
  return 0;
}
