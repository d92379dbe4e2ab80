// `tactus report RUN...`: writes run files as a page with charts.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/options/option_binding.h"
#include "results/report/page.h"
#include "results/report/perfetto.h"

namespace tactus::cli {
namespace {

constexpr size_t kMostRuns = 500;

struct ReportOptions {
  std::string output, pictures, perfetto;
  bool png = false;
  std::vector<std::string> runs;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Output");
    v.Field("output", output, {.alias = "o", .help = "the page, one self-contained HTML file"});
    v.Field("pictures", pictures,
            {.help = "folder for the pictures as SVG, their points as CSV, and report.json with the runs' results"});
    v.Field("png", png,
            {.help = "with --pictures: each picture also as PNG; needs the program rsvg-convert (Debian package "
                     "librsvg2-bin)"});
    v.Field("perfetto", perfetto,
            {.help = "trace of the steps and requests of one run as JSON for ui.perfetto.dev or chrome://tracing"});
  }
};

int FailReport(const Status& status) {
  std::fprintf(stderr, "tactus report: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

// Whether --pictures FOLDER could write `path`.
bool IsPicture(const std::string& folder, const std::string& path) {
  if (folder.empty()) return false;
  std::error_code error;
  const auto at = std::filesystem::weakly_canonical(path, error);
  if (at.parent_path() != std::filesystem::weakly_canonical(std::filesystem::path(folder) / "x", error).parent_path())
    return false;
  const auto kind = at.extension();
  return kind == ".svg" || kind == ".csv" || kind == ".png" || at.filename() == "report.json";
}

constexpr const char* kPngProgram = "rsvg-convert";

// Checked before anything is written, so that a report is complete or absent.
Status CheckPngProgram() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto program = std::filesystem::path(folder.empty() ? "." : folder) / kPngProgram;
    std::error_code error;
    if (std::filesystem::is_regular_file(program, error) && access(program.c_str(), X_OK) == 0) return Status();
  }
  return InvalidArgument(fmt::format("--png needs the program {}, which is not in PATH: install it (Debian package "
                                     "librsvg2-bin), or leave --png out for SVG pictures; nothing was written",
                                     kPngProgram),
                         "png");
}

Status CheckPicturesFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return DataLoss(fmt::format("cannot create the folder --pictures '{}': {}", Printable(folder), error.message()));
  return CheckWritable((std::filesystem::path(folder) / "report.json").string(), "pictures");
}

Status Check(const ReportOptions& options) {
  if (options.runs.empty())
    return InvalidArgument(
        "no run to report: name run files; --run-out of serve, sim, bench, batch and route writes them");
  if (options.runs.size() > kMostRuns)
    return InvalidArgument(fmt::format("{} runs; a report has at most {}", options.runs.size(), kMostRuns));
  if (options.output.empty() && options.pictures.empty() && options.perfetto.empty())
    return InvalidArgument("nothing to write: give -o page.html, --pictures FOLDER or --perfetto FILE");
  if (options.png && options.pictures.empty())
    return InvalidArgument("--png needs --pictures, the folder for the pictures", "png");
  if (!options.perfetto.empty() && options.runs.size() > 1)
    return InvalidArgument(fmt::format("--perfetto takes one run, and {} are named", options.runs.size()), "perfetto");
  if (!options.perfetto.empty() && !(options.output.empty() && options.pictures.empty())) {
    std::error_code error;
    const auto kind = std::filesystem::status(options.runs[0], error);
    if (std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind)) {
      return InvalidArgument(
          fmt::format("'{}' is a pipe, and --perfetto with a page reads the run twice: save it to a file",
                      Printable(options.runs[0])),
          "perfetto");
    }
  }
  TACTUS_RETURN_IF_ERROR(CheckApart({{"output", options.output}, {"perfetto", options.perfetto}}));
  for (const auto& [path, option] : {std::pair{&options.output, "output"}, std::pair{&options.perfetto, "perfetto"}}) {
    if (path->empty() || !IsPicture(options.pictures, *path)) continue;
    return InvalidArgument(
        fmt::format("--{} '{}' would be overwritten by a file of --pictures: name another", option, Printable(*path)),
        option);
  }
  for (const auto& [path, option] : {std::pair{&options.output, "output"}, std::pair{&options.perfetto, "perfetto"}}) {
    if (path->empty()) continue;
    // Writing would delete or replace the run file before it is read.
    for (const std::string& run : options.runs) {
      std::error_code error;
      if (std::filesystem::equivalent(run, *path, error))
        return InvalidArgument(
            fmt::format("--{} '{}' is one of the runs to report: name another file", option, Printable(*path)), option);
    }
    TACTUS_RETURN_IF_ERROR(CheckWritable(*path, option));
  }
  if (options.png) TACTUS_RETURN_IF_ERROR(CheckPngProgram());
  return options.pictures.empty() ? Status() : CheckPicturesFolder(options.pictures);
}

// Scaled to twice the SVG's size, sharp enough for print. The program prints its errors to standard error.
Status WritePng(std::string svg, std::string png) {
  std::string program = kPngProgram, zoom = "--zoom=2", output = "--output", end = "--";
  char* argv[] = {program.data(), zoom.data(), output.data(), png.data(), end.data(), svg.data(), nullptr};
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, program.c_str(), nullptr, nullptr, argv, environ); error != 0)
    return DataLoss(fmt::format("cannot start {}: {}", kPngProgram, std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::error_code error;
  const bool there = std::filesystem::file_size(png, error) > 0 && !error;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && there) return Status();
  std::filesystem::remove(png, error);
  return DataLoss(fmt::format("{} could not make '{}' ({})", kPngProgram, Printable(png),
                              WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                                : fmt::format("signal {}", WTERMSIG(status))));
}

Status WritePictures(const results::Report& report, const std::string& folder, bool png) {
  const auto write = [&folder](const std::string& name, const std::string& text) {
    return ReplaceFile((std::filesystem::path(folder) / name).string(), text, "pictures");
  };
  std::vector<const results::Figure*> figures;
  for (const results::Figure& figure : report.comparison) figures.push_back(&figure);
  for (const auto& of_run : report.details) {
    for (const results::Figure& figure : of_run) figures.push_back(&figure);
  }
  for (const results::Figure* figure : figures) {
    TACTUS_RETURN_IF_ERROR(write(figure->id() + ".svg",
                                 std::visit([](const auto& plot) { return results::Svg(plot, true); }, figure->plot)));
    TACTUS_RETURN_IF_ERROR(
        write(figure->id() + ".csv", std::visit([](const auto& plot) { return results::Csv(plot); }, figure->plot)));
  }
  TACTUS_RETURN_IF_ERROR(
      write("report.json", results::ReportJson(report).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  for (size_t i = 0; png && i < figures.size(); ++i) {
    const std::string path = (std::filesystem::path(folder) / figures[i]->id()).string();
    const Status made = WritePng(path + ".svg", path + ".png");
    if (!made.ok()) {
      return Status(made.code(), fmt::format("{}; {} of {} PNG pictures were made, and all {} as SVG", made.message(),
                                             i, figures.size(), figures.size()));
    }
  }
  return Status();
}

Status Write(const ReportOptions& options) {
  TACTUS_RETURN_IF_ERROR(Check(options));
  if (!options.output.empty() || !options.pictures.empty()) {
    std::vector<results::RunView> runs;
    for (const std::string& path : options.runs) {
      TACTUS_ASSIGN_OR_RETURN(results::RunView run, results::ViewRun(path));
      if (!run.file.complete())
        std::fprintf(stderr, "%s: the recording was not closed; its complete part is shown\n", path.c_str());
      runs.push_back(std::move(run));
    }
    results::LabelRuns(&runs);
    const results::Report report = results::MakeReport(std::move(runs));
    if (!options.output.empty()) TACTUS_RETURN_IF_ERROR(ReplaceFile(options.output, results::Page(report), "output"));
    if (!options.pictures.empty()) TACTUS_RETURN_IF_ERROR(WritePictures(report, options.pictures, options.png));
  }
  return options.perfetto.empty() ? Status() : results::WritePerfetto(options.runs[0], options.perfetto);
}

}  // namespace

int ReportCommand(const Args& args) {
  ReportOptions options;
  CommandLine line("report", "RUN... -o page.html [options]",
                   "Shows recorded runs as one page of tables and pictures.");
  line.Add(options);
  line.Rest("RUN", &options.runs);
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  const Status status = Write(options);
  return status.ok() ? kExitOk : FailReport(status);
}

}  // namespace tactus::cli
